"""Measured step times between sessions, so that the next one need not measure again."""

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spec_cli.core.config import EngineConfig
from spec_cli.models.loader import LoadedModel
from spec_cli.models.machine import cache_root, device_name
from spec_cli.policy.cost import CostSample

_LIBRARIES = ("speculative-cli", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class CalibrationKey:
    """All that the times of two models depend on; another key is another file.

    Attributes:
        models: Of the target and of the draft model, if any: name, revision, bytes of weights,
            number format and device.
        is_exact: Whether the target computes in fixed shapes.
        versions: Of the libraries that compute.
    """

    models: tuple[str, ...]
    is_exact: bool
    versions: tuple[str, ...]


def calibration_key(
    config: EngineConfig, target: LoadedModel, draft: LoadedModel | None
) -> CalibrationKey:
    """The key of what was loaded."""
    models = tuple(_describe(model) for model in (target, draft) if model is not None)
    return CalibrationKey(
        models, config.exact, tuple(f"{name} {version(name)}" for name in _LIBRARIES)
    )


def _describe(model: LoadedModel) -> str:
    files = model.files
    return (
        f"{files.name} {files.revision}, {model.num_bytes} bytes, {model.dtype}, "
        f"{device_name(model.device)}"
    )


class CalibrationFile:
    """One key's samples on disk: `calibration/<digest>.json` in the cache folder.

    A file that cannot be read is as good as none; where none can be written, the next session
    measures again.
    """

    def __init__(self, key: CalibrationKey, cache_dir: Path | None) -> None:
        """Name the file; nothing is read or written yet.

        Args:
            key: What the times belong to.
            cache_dir: The folder the user named for all that is fetched, or None.
        """
        self._key = json.loads(json.dumps(asdict(key)))  # as it reads back: lists, not tuples
        digest = sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:24]
        self.path = cache_root(cache_dir) / "calibration" / f"{digest}.json"

    def read(self) -> tuple[list[CostSample], float]:
        """The samples, and the seconds they took to measure; none and 0 without a good file."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            if content["key"] == self._key:
                samples = [CostSample(**fields) for fields in content["samples"]]
                return samples, float(content["seconds"])
        return [], 0.0

    def write(self, samples: Iterable[CostSample], seconds: float) -> None:
        """Replace the file in one move, so that two sessions never mix."""
        content = {
            "key": self._key,
            "seconds": round(seconds, 6),
            "samples": [asdict(sample) for sample in samples],
        }
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            Path(name).replace(self.path)
