"""Multimodal models, of which the text alone is run."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
)

from spec_cli.core.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Held against transformers' own generate(), token for token, by tests/models/test_multimodal.py.
# A kind is not added without that test, for the others fail in silence: the prompt of PaliGemma
# sees itself in both directions, Qwen2-Audio returns the logits of every packed token, and the
# text layers of GIT keep an attention of their own.
RUNS_AS_TEXT = frozenset(
    {
        "gemma3",
        "gemma4",
        "idefics3",
        "internvl",
        "llama4",
        "llava",
        "llava_next",
        "llava_onevision",
        "mistral3",
        "mllama",
        "phi4_multimodal",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
        "qwen3_vl_moe",
        "smolvlm",
        "voxtral",
    }
)


def is_multimodal(config: "PreTrainedConfig") -> bool:
    """Whether a model takes images or sound beside text; one with code of its own does not say."""
    has_own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    return type(config) in MODEL_FOR_MULTIMODAL_LM_MAPPING and not has_own_code


def refuse_multimodal(name: str, config: "PreTrainedConfig") -> None:
    """Refuse a multimodal model whose text was not compared with transformers' own.

    Args:
        name: The model as the user named it.
        config: Its config.

    Raises:
        UsageError: It is one; the message names its class.
    """
    if is_multimodal(config) and config.model_type not in RUNS_AS_TEXT:
        raise UsageError(
            f"{name} is a multimodal model ({_whole_class(config).__name__}) of a kind that cannot"
            " be run on text alone here.",
            hint="Name a text model, or a multimodal one of these kinds:\n"
            + ", ".join(sorted(RUNS_AS_TEXT)),
        )


def multimodal_notice(name: str, config: "PreTrainedConfig") -> str | None:
    """What the user of a multimodal model should know, or None for a text model."""
    if not is_multimodal(config):
        return None
    return f"{name} is a multimodal model ({_whole_class(config).__name__}), run on text alone."


def auto_class(config: "PreTrainedConfig") -> Any:
    """The auto class that builds a model; a text part of its own is preferred to the whole."""
    is_whole = is_multimodal(config) and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForMultimodalLM if is_whole else AutoModelForCausalLM


def count_used_parameters(config: "PreTrainedConfig") -> int:
    """Numbers in the tensors that are loaded of a multimodal model.

    The files may hold more: a class for the text alone leaves out those for images.
    """
    with torch.device("meta"):
        model = auto_class(config).from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _whole_class(config: "PreTrainedConfig") -> Any:
    found = MODEL_FOR_MULTIMODAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found
