"""What a model's config says, read before any weight."""

import inspect
from typing import TYPE_CHECKING, Any, Literal

from transformers import AutoConfig, DynamicCache
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
)

from spec_cli.core.errors import UsageError
from spec_cli.models.checkpoint import ModelFiles, read_json
from spec_cli.models.folder_part import read_part
from spec_cli.models.multimodal import refuse_multimodal
from spec_cli.models.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

CacheSupport = Literal["rollback", "no_rollback", "unsupported"]

# Stands for "no limit stated" (recurrent models, relative positions): memory is the limit then.
NO_STATED_LIMIT = 2**31 - 1

_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
# These rescale every position once the longest row is past the original length, so the rows of one
# packed forward would change each other.
_LENGTH_DEPENDENT_ROPES = frozenset({"dynamic", "longrope"})
_RECURRENT = frozenset({"conv", "linear_attention", "mamba", "recurrent"})
_ROLLS_BACK = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"})


def read_config(files: ModelFiles, *, trust_remote_code: bool = False) -> "PreTrainedConfig":
    """Read a model's config and refuse what cannot be run.

    Args:
        files: The model's files.
        trust_remote_code: Allow Python code from the folder to run.

    Returns:
        A config that no one else holds.

    Raises:
        UntrustedCodeError: The folder wants to run code without permission.
        UsageError: The model is quantised, an encoder-decoder, makes no text, takes no cache, or
            cannot be run on text alone.
        ModelUnavailableError: The config is missing or broken; the message names it.
    """
    source = files.path / (files.gguf_file or "config.json")
    if files.gguf_file is None:
        _refuse_quantized(files, read_json(source))
    config = read_part(
        AutoConfig,
        files,
        str(source),
        trust_remote_code=trust_remote_code,
        hint="A model newer than this transformers may need: pip install -U transformers",
    )
    _refuse_kind(files, config)
    return config


def _refuse_quantized(files: ModelFiles, raw: dict[str, Any]) -> None:
    text = raw.get("text_config")
    quantization = raw.get("quantization_config") or raw.get("compression_config")
    if not quantization and isinstance(text, dict):
        quantization = text.get("quantization_config")
    if quantization:
        known = isinstance(quantization, dict)
        method = quantization.get("quant_method", "unknown") if known else "unknown"
        raise UsageError(
            f"{files.name} is quantised ({method}); such checkpoints are not supported.",
            hint="Use the model in bfloat16 or float32, or a .gguf file of it.",
        )


def _refuse_kind(files: ModelFiles, config: "PreTrainedConfig") -> None:
    kind = config.model_type
    if config.is_encoder_decoder:
        raise UsageError(
            f"{files.name} is an encoder-decoder ({kind}); only decoders can be run.",
            hint="Name a causal language model.",
        )
    if "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return
    refuse_multimodal(files.name, config)
    found = model_class(config)
    if found is None:
        raise UsageError(
            f"{files.name} is of type {kind}, which transformers has no text generator for.",
            hint="Name a causal language model.",
        )
    if "cache" not in inspect.signature(found.forward).parameters:
        # It would be dropped without a word, and each token read without those before it.
        raise UsageError(
            f"{files.name} is of type {kind}, which takes no cache and so cannot be run here.",
            hint="Name another causal language model.",
        )


def model_class(config: "PreTrainedConfig") -> Any | None:
    """Class that writes text for a config, or None where transformers has none."""
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MULTIMODAL_LM_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    return None


def cache_support(config: "PreTrainedConfig") -> tuple[CacheSupport, str | None]:
    """Whether this model's cache can forget rejected tokens, judged without weights.

    Returns:
        `rollback`: yes, by length. `no_rollback`: it runs, but only without speculation.
        `unsupported`: it cannot run in a cache with rows of unequal length. And the reason, for
        all but the first.
    """
    text_config = config.get_text_config(decoder=True)
    kind = text_config.model_type
    found = model_class(config) or model_class(text_config)
    with quiet_transformers():
        layers = {type(layer).__name__ for layer in DynamicCache(config=config).layers}
    named = set(getattr(text_config, "layer_types", None) or ())
    is_recurrent = any("Linear" in layer for layer in layers) or bool(_RECURRENT & named)
    if is_recurrent or getattr(found, "_is_stateful", False):
        return "no_rollback", f"{kind} layers keep recurrent state that cannot be rolled back"
    foreign = sorted(layers - _ROLLS_BACK)
    if foreign:
        return "unsupported", f"{kind} needs a cache of its own ({', '.join(foreign)})"
    if found is not None and "position_ids" not in inspect.signature(found.forward).parameters:
        return "unsupported", f"{kind} takes no position ids, so rows cannot be packed"
    return "rollback", None


def context_length(config: "PreTrainedConfig") -> tuple[int, str | None]:
    """Most tokens the model's positions allow.

    Returns:
        The limit, or `NO_STATED_LIMIT`, and a notice where it is less than the config's.
    """
    text_config = config.get_text_config(decoder=True)
    stated = [getattr(text_config, name, None) for name in _LENGTH_FIELDS]
    limit = next((n for n in stated if isinstance(n, int) and n > 0), NO_STATED_LIMIT)
    for rope in _ropes(text_config):
        kind = rope.get("rope_type", rope.get("type"))
        original = rope.get("original_max_position_embeddings") or getattr(
            text_config, "original_max_position_embeddings", None
        )
        if kind in _LENGTH_DEPENDENT_ROPES and original and original < limit:
            return int(original), (
                f"The context is {int(original):,} instead of {limit:,} tokens: beyond that,"
                f" positions of type {kind} depend on the longest row of a batch."
            )
    return limit, None


def _ropes(text_config: "PreTrainedConfig") -> list[dict[str, Any]]:
    """Rotary settings, of which some models have one for each type of layer."""
    fields = ("rope_parameters", "rope_scaling")
    rope = next((found for name in fields if (found := getattr(text_config, name, None))), None)
    if not isinstance(rope, dict):
        return []
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return nested or [rope]
