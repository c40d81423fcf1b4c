"""From files to a model that is ready to run."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import GgufConfig

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.errors import (
    InsufficientMemoryError,
    ModelUnavailableError,
    SpecCliError,
    first_line,
)
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.models.checkpoint import ModelFiles, summarize_weights
from spec_cli.models.generation_defaults import read_generation_defaults
from spec_cli.models.gguf_header import read_gguf_header
from spec_cli.models.memory import require_memory
from spec_cli.models.model_config import (
    CacheSupport,
    cache_support,
    context_length,
    model_class,
    read_config,
)
from spec_cli.models.multimodal import (
    auto_class,
    count_used_parameters,
    is_multimodal,
    multimodal_notice,
)
from spec_cli.models.placement import cpu_has_native_bf16, resolve_device, resolve_dtype
from spec_cli.models.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = [
    "CacheSupport",
    "LoadOptions",
    "LoadedModel",
    "cache_support",
    "context_length",
    "count_parameters",
    "cpu_has_native_bf16",
    "load_model",
    "read_config",
    "resolve_device",
    "resolve_dtype",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model.

    Attributes:
        device: `auto`, `cpu`, `cuda` or `cuda:N`; `auto` spreads a model over several GPUs.
        dtype: `auto`, `float32`, `bfloat16` or `float16`, or a short name of these.
        trust_remote_code: Allow Python code from the folder to run.
        max_memory: Most to use per device ("cpu", or a GPU's number), such as "2GB"; spreads the
            model over these devices, and the disk for the rest.
        offload_folder: Folder for weights that neither GPUs nor memory hold.
    """

    device: str = "auto"
    dtype: str = "auto"
    trust_remote_code: bool = False
    max_memory: dict[int | str, int | str] | None = None
    offload_folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to run, and what its files say about it.

    Attributes:
        model: In evaluation mode, without gradients.
        config: The model's own config object; no other model shares it.
        text_config: The part of it that describes the language model.
        files: Where it came from.
        dtype: Number format of the weights.
        device: Where inputs go.
        end_token_ids: Ids that end an answer.
        generation_defaults: Recommended sampling fields that are honoured.
        ignored_fields: Recommended fields that are not honoured.
        context_length: Most tokens the positions allow.
        num_bytes: Bytes of weights and buffers.
        notices: What the user should know, one sentence each.
        copy_bytes: Bytes of copies of weights, laid out for this CPU's products.
    """

    model: "PreTrainedModel"
    config: "PreTrainedConfig"
    text_config: "PreTrainedConfig"
    files: ModelFiles
    dtype: torch.dtype
    device: torch.device
    end_token_ids: frozenset[int]
    generation_defaults: dict[str, Any]
    ignored_fields: tuple[str, ...]
    context_length: int
    num_bytes: int
    notices: tuple[str, ...]
    copy_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes that weights and their copies take."""
        return self.num_bytes + self.copy_bytes


def load_model(files: ModelFiles, options: LoadOptions, report: ReportStage) -> LoadedModel:
    """Load a model's weights.

    Args:
        files: Files that `find_model` returned.
        options: Device, number format, trust.
        report: Told when loading begins.

    Raises:
        UsageError: An option or the kind of model cannot work.
        ModelUnavailableError: The files cannot be loaded; the message names the folder.
        InsufficientMemoryError: The weights do not fit.
    """
    config = read_config(files, trust_remote_code=options.trust_remote_code)
    device = resolve_device(options.device)
    num_parameters = count_parameters(files, config)
    dtype, dtype_notice = resolve_dtype(
        options.dtype, device, config, num_parameters=num_parameters
    )
    placement = _placement(options, device)
    if placement.get("device_map") != "auto":
        what = f"the weights of {files.name} in {str(dtype).removeprefix('torch.')}"
        require_memory(what, num_parameters * dtype.itemsize, device, hint=_smaller(dtype))
    report(Stage("load", files.name))
    model, info = _load_weights(files, options, config, dtype, placement)
    _check_loaded(files, info)
    model.eval()
    model.requires_grad_(False)
    defaults = read_generation_defaults(files, model.config)
    limit, limit_notice = context_length(model.config)
    notices = [
        multimodal_notice(files.name, config),
        dtype_notice,
        limit_notice,
        *_file_notices(files, info["unexpected_keys"]),
    ]
    return LoadedModel(
        model=model,
        config=model.config,
        text_config=model.config.get_text_config(decoder=True),
        files=files,
        dtype=dtype,
        device=device,
        end_token_ids=defaults.end_token_ids,
        generation_defaults=defaults.honoured,
        ignored_fields=defaults.ignored,
        context_length=limit,
        num_bytes=int(model.get_memory_footprint()),
        notices=tuple(notice for notice in notices if notice),
    )


def _file_notices(files: ModelFiles, unused: list[str]) -> list[str]:
    notices = []
    if files.gguf_file is not None:
        notices.append(f"{files.name} is dequantised from {files.gguf_file}.")
    if unused:
        first = min(unused)
        notices.append(f"{len(unused)} tensors of {files.name} are not used, such as {first}.")
    return notices


def count_parameters(files: ModelFiles, config: "PreTrainedConfig") -> int:
    """Numbers in the tensors that are loaded of a model, counted without reading them."""
    if files.gguf_file is not None:
        return read_gguf_header(files.path / files.gguf_file).num_parameters
    if is_multimodal(config):
        return count_used_parameters(config)
    return summarize_weights(files.path).num_parameters


def _placement(options: LoadOptions, device: torch.device) -> dict[str, Any]:
    """Arguments that tell transformers where the weights go."""
    spread = options.device == "auto" and device.type == "cuda" and torch.cuda.device_count() > 1
    if spread or options.max_memory is not None or options.offload_folder is not None:
        folder = options.offload_folder
        return {
            "device_map": "auto",
            "max_memory": options.max_memory,
            "offload_folder": None if folder is None else str(folder),
        }
    return {} if device.type == "cpu" else {"device_map": {"": device}}


def _load_weights(
    files: ModelFiles,
    options: LoadOptions,
    config: "PreTrainedConfig",
    dtype: torch.dtype,
    placement: dict[str, Any],
) -> tuple["PreTrainedModel", dict[str, Any]]:
    known = model_class(config)
    arguments: dict[str, Any] = {
        # A copy, because loading writes the attention's name and the format into it.
        "config": copy.deepcopy(config),
        "dtype": dtype,
        # Asked for by name, so that no kernel is fetched from the hub in its place.
        "attn_implementation": "sdpa" if getattr(known, "_supports_sdpa", True) else "eager",
        "local_files_only": True,
        "trust_remote_code": options.trust_remote_code,
        "output_loading_info": True,
        **placement,
    }
    if files.gguf_file is None:
        arguments["use_safetensors"] = True
    else:
        arguments["gguf_file"] = files.gguf_file
        # Packed blocks need kernels from the hub.
        arguments["quantization_config"] = GgufConfig(dequantize=True)
    try:
        with quiet_transformers():
            model, info = auto_class(config).from_pretrained(str(files.path), **arguments)
    except Exception as error:
        # Model code and file formats fail in their own ways; the folder and the reason are enough.
        needed_bytes = count_parameters(files, config) * dtype.itemsize
        raise _explain(files, dtype, needed_bytes, error) from error
    return model, info


def _explain(
    files: ModelFiles, dtype: torch.dtype, needed_bytes: int, error: Exception
) -> SpecCliError:
    reason = first_line(error)
    is_out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if is_out_of_memory or "can't allocate memory" in reason:
        return InsufficientMemoryError(
            f"not enough memory for the weights of {files.name}: need {format_bytes(needed_bytes)}."
            f" {reason}",
            hint=_smaller(dtype),
        )
    return ModelUnavailableError(
        f"{files.name} in {files.path} cannot be loaded: {reason}",
        hint="Fetch the model again, or name another.",
    )


def _check_loaded(files: ModelFiles, info: dict[str, Any]) -> None:
    """Refuse a model of which a part would have stayed at its random start."""
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelUnavailableError(
            f"{files.name} in {files.path} lacks {len(missing)} tensors that its config asks for,"
            f" the first is {missing[0]}.",
            hint="Fetch the model again; config.json may be of another model.",
        )


def _smaller(dtype: torch.dtype) -> str:
    smaller_dtype = "--dtype bfloat16 (half of it)\n" if dtype.itemsize > 2 else ""
    return smaller_dtype + "-m MODEL  a smaller model"
