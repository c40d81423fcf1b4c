"""What this machine is, as far as measured times depend on it, and where they are kept."""

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

if TYPE_CHECKING:
    import torch

_CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The CPU's name, as the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def device_name(device: "torch.device") -> str:
    """A device by what it is: the GPU's product name, or the CPU's with its threads."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} threads"


def cache_root(cache_dir: Path | None) -> Path:
    """Folder for what can be had again: converted weights, measured times.

    Args:
        cache_dir: The folder the user named for all that is fetched, or None.
    """
    if cache_dir is not None:
        return cache_dir / "spec-cli"
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "spec-cli" if base else user_cache_path("spec-cli", appauthor=False)
