"""Model folders for tests that go through LLM or the command line: real text in, real text out."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig

from tests.models.small_tokenizers import byte_level

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def text_shape() -> dict[str, Any]:
    """A language model of a few thousand weights; the spread makes near-ties unlikely."""
    tokenizer = byte_level()
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def text_config(**changes: Any) -> LlamaConfig:
    """A Llama of that shape over the byte-level tokenizer of the tests."""
    return LlamaConfig(**(text_shape() | changes))


def save_text_model(
    folder: Path, config: PreTrainedConfig | None = None, *, seed: int = 0, template: bool = True
) -> Path:
    """Save a random model that reads and writes bytes."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config or text_config())
    model.save_pretrained(folder)
    tokenizer = byte_level()
    if template:
        tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder
