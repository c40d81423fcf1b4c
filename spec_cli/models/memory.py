"""How much memory is free, and the refusal when it is too little."""

from pathlib import Path

import torch

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.errors import InsufficientMemoryError

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can be allocated on a device, or None where the system does not tell."""
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return int(free)
    amounts = (_available_by_meminfo(), _left_in_container())
    return min((amount for amount in amounts if amount is not None), default=None)


def _available_by_meminfo() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        field, _, value = line.partition(":")
        if field == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _left_in_container(root: Path = _CGROUP) -> int | None:
    """What a container's limit leaves; the kernel ends a process that goes past it."""
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = int((root / "memory.current").read_text(encoding="ascii"))
        statistics = (root / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    if not limit.isdigit():
        return None
    # Pages of files that were only read count as used but are given up at need.
    cached = sum(int(line.split()[1]) for line in statistics if line.startswith("inactive_file "))
    return max(0, int(limit) - used + cached)


def require_memory(what: str, num_bytes: int, device: torch.device, *, hint: str) -> None:
    """Refuse early what cannot fit, instead of being ended half-way by the system.

    Raises:
        InsufficientMemoryError: Less is free than is needed.
    """
    free = free_memory(device)
    if free is not None and num_bytes > free:
        raise InsufficientMemoryError(
            f"not enough memory for {what}: need {format_bytes(num_bytes)},"
            f" free {format_bytes(free)} on {device}.",
            hint=hint,
        )
