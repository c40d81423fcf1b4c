"""How many bytes of tensors live at once while something is computed."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """Counts the storages that operations make inside the context, until they are freed.

    Tensors that were there before, and views of them, do not count; nor does what a kernel takes
    and gives back within one operation. The same on every device, to which torch's own counters
    are not: the CPU has none.

    Attributes:
        num_bytes: Living now.
        peak_bytes: The most that ever lived at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        self.peak_bytes = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count the storages that it made."""
        given = kwargs or {}
        output = func(*args, **given)
        known = {storage._cdata for storage in _storages((args, given))}
        for storage in _storages(output):
            if storage._cdata not in known:
                known.add(storage._cdata)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return output

    def _add(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    """Those of the tensors in nested arguments; packed weights keep theirs to themselves."""
    return [
        leaf.untyped_storage()
        for leaf in tree_leaves(tree)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    ]
