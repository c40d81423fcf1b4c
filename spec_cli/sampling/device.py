"""Between host and device: numbers sent without waiting, and what a look back costs.

An accelerator works through a queue while the host goes on filling it. Whenever the host asks for
a value it waits for the whole queue, and the device then waits for the host.
"""

from typing import Any

import torch


def upload(
    values: list[Any], device: torch.device, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """A tensor on `device` of numbers that the host knows, sent without waiting.

    `torch.tensor(values, device=...)` would wait for the queue, as does an index that is a list.

    Args:
        values: Numbers, or lists of equal length of them, as `torch.tensor` takes them.
        device: Where they go.
        dtype: Of the tensor; int64 for token ids, positions and indices.
    """
    if looks_are_free(device):
        return torch.tensor(values, dtype=dtype)
    is_pinned = device.type == "cuda"  # only from pinned memory does the copy take its turn
    return torch.tensor(values, dtype=dtype, pin_memory=is_pinned).to(device, non_blocking=True)


def looks_are_free(device: torch.device) -> bool:
    """Whether the host may look at a value there without waiting for anything else."""
    return device.type == "cpu"
