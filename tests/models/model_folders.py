"""Tiny real models saved to folders, as users have them."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from spec_cli.core.progress import Stage

VOCAB = 32
WORDS = [f"w{index}" for index in range(VOCAB)]


def ignore(stage: Stage) -> None:
    """A progress report that nobody reads."""


def llama_config(**changes: Any) -> LlamaConfig:
    """A Llama of a few thousand weights, with end token 2."""
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 24,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return LlamaConfig(**(shape | changes))


def save_model(
    folder: Path, config: PreTrainedConfig | None = None, *, shard: str = "5GB", seed: int = 0
) -> Path:
    """Save a random model with a tokenizer of words."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config or llama_config())
    model.save_pretrained(folder, max_shard_size=shard)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, words: list[str] | None = None) -> None:
    """Save a tokenizer of whole words; a word's id is its place."""
    words = words or WORDS
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=words[0], bos_token=words[1], eos_token=words[2]
    )
    wrapped.save_pretrained(folder)


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file, which is made if it is not there."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def header_end(path: Path) -> int:
    """Bytes of a safetensors file before its tensors."""
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    return 8 + int(length)


def write_gguf(path: Path, *, seed: int = 0) -> Path:
    """Write a tiny Llama with a byte-level tokenizer, as SmolLM2's GGUF files have it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet, "ĠĠ"]
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}")
    numbers = np.random.default_rng(seed)
    shapes = {
        "token_embd": (len(tokens), 32),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (16, 32),
        "blk.0.attn_v": (16, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (32, 32),
        "blk.0.ffn_up": (32, 32),
        "blk.0.ffn_down": (32, 32),
    }
    for name, shape in shapes.items():
        packed = gguf.quantize(
            numbers.normal(size=shape).astype(np.float32), gguf.GGMLQuantizationType.Q4_1
        )
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
