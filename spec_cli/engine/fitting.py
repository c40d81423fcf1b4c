"""Which models on this machine can draft for a target."""

from dataclasses import dataclass
from pathlib import Path

from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import SpecCliError
from spec_cli.core.progress import Stage
from spec_cli.engine.loading import find_draft, find_target
from spec_cli.models.catalog import CachedModel, cached_models, weight_bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model does as a draft model.

    Attributes:
        model: The model.
        reason: Why it cannot draft for the target, or None if it can.
        size_share: Its size over the target's.
    """

    model: CachedModel
    reason: str | None
    size_share: float


def fits_for(target: str | None, cache_dir: Path | None = None) -> list[Fit]:
    """Judge every cached model as a draft model, the best first: those that fit, small ones first.

    Args:
        target: Name of the target; None is the default model.
        cache_dir: Where models are kept.

    Raises:
        SpecCliError: The target cannot be had without a network.
    """
    config = EngineConfig(model=target, offline=True, cache_dir=cache_dir)
    found = find_target(config, _ignore)
    target_bytes = weight_bytes(found.files.path) or 1
    fits = []
    for model in cached_models(cache_dir):
        if model.path == found.files.path:
            continue
        pair = EngineConfig(model=target, draft_model=model.name, offline=True, cache_dir=cache_dir)
        reason = None
        try:
            find_draft(pair, found, _ignore)
        except SpecCliError as error:
            reason = str(error).partition("\n")[0]
        fits.append(Fit(model, reason, model.num_bytes / target_bytes))
    return sorted(fits, key=lambda fit: (fit.reason is not None, fit.size_share))


def _ignore(_: Stage) -> None:
    """Files are only read."""
