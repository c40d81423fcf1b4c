"""Tiny multimodal checkpoints of real classes, saved with the byte-level tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForMultimodalLM, PreTrainedConfig

from tests.folders import CHAT_TEMPLATE, text_shape
from tests.models.small_tokenizers import byte_level

WINDOW = 8

_TILE = {"image_size": 28, "patch_size": 14}
_TOWER = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    **_TILE,
}
_QWEN_TOWER = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24}
# Ids of the tokens that stand for images; the tests write none.
_QWEN_IDS = {
    "image_token_id": 300,
    "video_token_id": 301,
    "vision_start_token_id": 302,
    "vision_end_token_id": 303,
}


def _text(**changes: Any) -> dict[str, Any]:
    """The language model's shape."""
    return text_shape() | {"pad_token_id": 0} | changes


def _gemma_text(**changes: Any) -> dict[str, Any]:
    # Tied to its scaled embeddings, a random Gemma repeats its last token for ever.
    untied = _text(head_dim=8, sliding_window=WINDOW, tie_word_embeddings=False)
    return untied | {"layer_types": ["sliding_attention", "full_attention"]} | changes


def _sections(**changes: Any) -> dict[str, Any]:
    """Rotary positions in three parts: time, height, width."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    return _text(rope_parameters=rope, **changes)


def _hybrid(**changes: Any) -> dict[str, Any]:
    return _sections(
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        **changes,
    )


def _with_tower(kind: str, text: str, tower: str, **more: Any) -> PreTrainedConfig:
    """A language model and a vision tower of the given types, and what goes between them."""
    ids = {"image_token_id": 300} if "scale_factor" in more else {"image_token_index": 300}
    return getattr(transformers, kind)(
        text_config=_text(model_type=text),
        vision_config=_TOWER | {"model_type": tower},
        **ids,
        **more,
    )


def _qwen(kind: str, text: dict[str, Any], **tower: Any) -> PreTrainedConfig:
    vision = _QWEN_TOWER | {"out_hidden_size": 32, "patch_size": 14} | tower
    return getattr(transformers, kind)(text_config=text, vision_config=vision, **_QWEN_IDS)


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "gemma3": lambda: transformers.Gemma3Config(
        text_config=_gemma_text(query_pre_attn_scalar=8),
        vision_config=_TOWER | {"model_type": "siglip_vision_model"},
        mm_tokens_per_image=4,
        tie_word_embeddings=False,
    ),
    # As its small checkpoints: the last layers reuse keys and values of earlier ones.
    "gemma4": lambda: transformers.Gemma4Config(
        text_config=_gemma_text(
            num_hidden_layers=6,
            layer_types=["sliding_attention", "full_attention"] * 3,
            num_kv_shared_layers=2,
            global_head_dim=8,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=len(byte_level()),
        ),
        vision_config=_TOWER | {"num_key_value_heads": 2, "head_dim": 8},
        audio_config=None,
        tie_word_embeddings=False,
    ),
    "llama4": lambda: transformers.Llama4Config(
        text_config=_text(
            head_dim=8, intermediate_size_mlp=48, num_local_experts=2, attention_chunk_size=16
        ),
        vision_config=_TOWER
        | {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16},
    ),
    "llava": lambda: _with_tower("LlavaConfig", "llama", "clip_vision_model"),
    "llava_next": lambda: _with_tower("LlavaNextConfig", "mistral", "clip_vision_model"),
    "llava_onevision": lambda: _with_tower(
        "LlavaOnevisionConfig", "qwen2", "siglip_vision_model", video_token_index=301
    ),
    "internvl": lambda: transformers.InternVLConfig(
        text_config=_text(model_type="qwen2"), vision_config=_TOWER, image_token_id=300
    ),
    "idefics3": lambda: _with_tower("Idefics3Config", "llama", "idefics3_vision", scale_factor=1),
    "smolvlm": lambda: _with_tower("SmolVLMConfig", "llama", "smolvlm_vision", scale_factor=1),
    "mistral3": lambda: _with_tower("Mistral3Config", "mistral", "pixtral"),
    "mllama": lambda: transformers.MllamaConfig(
        text_config=_text(
            num_hidden_layers=3,
            cross_attention_layers=[1],
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
        vision_config=_TOWER
        | {
            "attention_heads": 2,
            "num_global_layers": 1,
            "vision_output_dim": 32,
            "max_num_tiles": 1,
            "supported_aspect_ratios": [[1, 1]],
            "intermediate_layers_indices": [0],
        },
        image_token_index=300,
    ),
    "phi4_multimodal": lambda: transformers.Phi4MultimodalConfig(
        **_text(),
        vision_config=_TOWER,
        audio_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_blocks": 1,
            "num_attention_heads": 2,
            "nemo_conv_channels": 16,
            "ext_pw_out_channel": 16,
        },
    ),
    "qwen2_vl": lambda: _qwen(
        "Qwen2VLConfig", _sections(), embed_dim=16, hidden_size=32, mlp_ratio=2
    ),
    "qwen2_5_vl": lambda: _qwen("Qwen2_5_VLConfig", _sections(), fullatt_block_indexes=[0]),
    "qwen3_vl": lambda: _qwen(
        "Qwen3VLConfig",
        _sections(head_dim=8),
        deepstack_visual_indexes=[0],
        num_position_embeddings=4,
    ),
    "qwen3_vl_moe": lambda: _qwen(
        "Qwen3VLMoeConfig",
        _sections(head_dim=8, **_EXPERTS),
        deepstack_visual_indexes=[0],
        num_position_embeddings=4,
    ),
    "qwen3_5": lambda: _qwen("Qwen3_5Config", _hybrid(), num_position_embeddings=4),
    "qwen3_5_moe": lambda: _qwen(
        "Qwen3_5MoeConfig",
        _hybrid(**_EXPERTS, shared_expert_intermediate_size=16),
        num_position_embeddings=4,
    ),
    "voxtral": lambda: transformers.VoxtralConfig(
        text_config=_text(model_type="llama"),
        audio_config=_TOWER | {"model_type": "voxtral_encoder"},
    ),
}


def save_multimodal(folder: Path, config: PreTrainedConfig) -> Path:
    """Save a random model of the class that users' checkpoints of this kind are of."""
    torch.manual_seed(0)
    AutoModelForMultimodalLM.from_config(config).save_pretrained(folder)
    tokenizer = byte_level()
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder
