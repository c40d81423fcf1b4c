"""An accelerator made of host memory, which tells how often the host waits for it.

Its tensors say that they are on the `meta` device, so code for accelerators runs, and keep their
values beside. Within an `Accelerator` every operator is seen:

- One that brings a value to the host, or whose result has a shape that depends on values, is a
  read: the host waits for it.
- A tensor made on the device from a list, an index that is a list, and a copy that is not
  `non_blocking` are errors: on CUDA each waits as well.
"""

import copy
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import PreTrainedModel

DEVICE = torch.device("meta")
HOST = torch.device("cpu")
SHAPED_BY_VALUES = {"aten::nonzero", "aten::masked_select", "aten::_unique2"}


class DeviceTensor(torch.Tensor):
    """A tensor that says it is on the device; `held` has its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "DeviceTensor":
        made: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held})"

    def tolist(self) -> Any:
        """By way of the host; torch itself has no `tolist` for a class like this."""
        return self.to(HOST).tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        raise AssertionError(f"{func} outside of an Accelerator")


class Accelerator(TorchDispatchMode):
    """Does what is asked of the device.

    Attributes:
        reads: The operators by which the host waited for a value.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def put(self, model: PreTrainedModel) -> PreTrainedModel:
        """A copy of a model with all its weights on the device."""
        model = copy.deepcopy(model)
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    made = torch.nn.Parameter(DeviceTensor(weight.data), requires_grad=False)
                    module._parameters[name] = made
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = DeviceTensor(buffer)
        return model

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        owners = {id(t.held): t for t in tensors if isinstance(t, DeviceTensor)}
        places = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        is_on_device = DEVICE in places if places else bool(owners)
        name = func._schema.name
        from_list = any(t.device == DEVICE and not isinstance(t, DeviceTensor) for t in tensors)
        assert not from_list, f"{name}: a tensor made on the device from a list"
        from_host = is_on_device and any(t.device == HOST and t.dim() for t in tensors)
        assert not from_host or kwargs.get("non_blocking"), f"{name}: a copy that waits"
        result = func(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))
        is_number = isinstance(result, bool | int | float)
        by_mask = name in {"aten::index", "aten::index_put_"} and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        is_read = is_number or not is_on_device or by_mask or name in SHAPED_BY_VALUES
        if owners and is_read:
            self.reads.append(name)
        if not is_on_device:
            return result
        # What was changed in place stays the object it was.
        return tree_map(lambda leaf: owners.get(id(leaf), _on_device(leaf)), result)


def _on_device(leaf: Any) -> Any:
    return DeviceTensor(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _on_host(leaf: Any) -> Any:
    if isinstance(leaf, DeviceTensor):
        return leaf.held
    return HOST if leaf == DEVICE else leaf
