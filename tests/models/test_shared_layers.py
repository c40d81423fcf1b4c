"""Layers that attend to another layer's keys, and layers that keep an attention of their own."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3nTextConfig, GitConfig

from spec_cli.core.errors import UsageError
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from tests import tiny

TEXT = list(range(3, 30))


def gemma3n():
    """A Gemma 3n whose last four layers reuse keys of the second and third; windows of 8."""
    types = ["full_attention", "sliding_attention", "full_attention"]
    config = Gemma3nTextConfig(
        vocab_size=tiny.VOCAB,
        vocab_size_per_layer_input=tiny.VOCAB,
        hidden_size=32,
        hidden_size_per_layer_input=8,
        intermediate_size=64,
        num_hidden_layers=7,
        layer_types=[*types, *types, "sliding_attention"],
        num_kv_shared_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=8,
        activation_sparsity_pattern=[0.0] * 7,
        laurel_rank=4,
        altup_num_inputs=2,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


@torch.inference_mode()
def test_shared_keys_are_found_in_their_slots() -> None:
    """In pieces, past the window and rolled back, a text scores as in one plain forward."""
    model = gemma3n()
    want = model(torch.tensor([TEXT]), use_cache=False).logits[0]
    runner = ModelRunner(model, context_length=64, budget=MemoryBudget(10**9))
    row = runner.acquire(TEXT, 64, 1)
    assert row is not None
    runner.forward([RowInput(row, TEXT[:12], 0)])
    runner.forward([RowInput(row, [40, 41, 42], 3)])
    runner.truncate(row, 12)
    pieces = [runner.forward([RowInput(row, TEXT[at : at + 5], 5)]) for at in (12, 17, 22)]

    assert torch.allclose(torch.cat(pieces), want[12:], atol=1e-4)
    assert sorted(runner.store.layers) == [0, 1, 2]


def test_own_attention_is_found() -> None:
    """A class whose image layers alone use the interface is refused, not run on what it ignores."""
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    config = GitConfig(
        vision_config=tower | {"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        vocab_size=tiny.VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = AutoModelForCausalLM.from_config(config).eval()

    with pytest.raises(UsageError, match="GitForCausalLM does not let its attention be replaced"):
        ModelRunner(model, context_length=64, budget=MemoryBudget(10**9))
