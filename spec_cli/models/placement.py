"""Where weights go and in which number format."""

from typing import TYPE_CHECKING

import torch

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.errors import UsageError
from spec_cli.models.memory import free_memory

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def resolve_device(name: str) -> torch.device:
    """Turn the name of a device into a device that is there.

    Args:
        name: `auto` (CUDA where there is a GPU, else the CPU), `cpu`, `cuda` or `cuda:N`.

    Raises:
        UsageError: The device is unknown, untested, or not in this machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name.split(":")[0] == "mps":
        raise UsageError(
            "--device mps is refused: nothing here was tested on Apple's GPUs, and wrong text would"
            " go unnoticed.",
            hint="--device cpu",
        )
    kind, separator, index = name.partition(":")
    if kind != "cuda" or (separator and not index.isdecimal()):
        raise UsageError(f"--device {name} is unknown.", hint="One of auto, cpu, cuda, cuda:N")
    if not torch.cuda.is_available():
        raise UsageError(f"--device {name}: torch finds no CUDA GPU here.", hint="--device cpu")
    count = torch.cuda.device_count()
    if int(index or 0) >= count:
        raise UsageError(
            f"--device {name}: there are {count} GPUs, numbered from 0.",
            hint=f"--device cuda:{count - 1}",
        )
    return torch.device("cuda", int(index or 0))


def cpu_has_native_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX512-BF16 or AMX).

    Without it, bf16 is emulated through fp32: half the memory, but not the faster one.
    """
    try:
        in_hardware = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return bool(in_hardware) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        # Private names of torch, absent in builds without oneDNN.
        return False


def resolve_dtype(
    name: str,
    device: torch.device,
    config: "PreTrainedConfig",
    *,
    num_parameters: int | None = None,
) -> tuple[torch.dtype, str | None]:
    """Choose the number format of the weights.

    Args:
        name: `auto`, or the name of a format.
        device: Where the weights go.
        config: The model's config, for the format of the checkpoint.
        num_parameters: Size of the model, to keep `auto` within the free memory.

    Returns:
        The format, and a notice where `auto` had to deviate from what it would choose.

    Raises:
        UsageError: The name is unknown.
    """
    if name != "auto":
        if name not in _DTYPES:
            raise UsageError(
                f"--dtype {name} is unknown.", hint="One of auto, float32, bfloat16, float16"
            )
        return _DTYPES[name], None
    if device.type != "cpu":
        stored = config.get_text_config(decoder=True).dtype or config.dtype
        return (stored if isinstance(stored, torch.dtype) else torch.float32), None
    if cpu_has_native_bf16():
        return torch.bfloat16, None
    free = free_memory(device)
    if num_parameters is not None and free is not None:
        full, half = num_parameters * 4, num_parameters * 2
        if half <= free < full:
            return torch.bfloat16, (
                f"float32 weights need {format_bytes(full)} and {format_bytes(free)} are free, so"
                f" bfloat16 is used ({format_bytes(half)}); this CPU emulates it."
            )
    return torch.float32, None
