"""Tiny random models of real classes, and their answers by transformers' own generate()."""

import copy
import functools
import random

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCAB = 64
CONTEXT = 256
WINDOW = 8

# Sharing out a product of a few thousand weights takes five times as long as computing it.
torch.set_num_threads(1)


def config(family: str) -> PretrainedConfig:
    """A configuration of a few thousand weights; the spread makes near-ties unlikely."""
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    # Tied to its scaled embeddings, a random Gemma repeats its last token for ever.
    gemma = {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": WINDOW,
        "tie_word_embeddings": False,
    }
    experts = {"num_experts_per_tok": 2}
    makers = {
        "llama": lambda: LlamaConfig(**shape),
        "qwen3": lambda: Qwen3Config(**shape, head_dim=8),
        "mistral": lambda: MistralConfig(**shape, sliding_window=WINDOW),
        "gemma2": lambda: Gemma2Config(**shape, **gemma, attn_logit_softcapping=5.0),
        "gemma3_text": lambda: Gemma3TextConfig(
            **shape, **gemma, layer_types=["sliding_attention", "full_attention"]
        ),
        "gpt2": lambda: GPT2Config(
            vocab_size=VOCAB,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=CONTEXT,
            initializer_range=0.3,
            bos_token_id=1,
            eos_token_id=2,
        ),
        "gpt_neox": lambda: GPTNeoXConfig(**shape),
        "phi3": lambda: Phi3Config(**shape),
        "olmo2": lambda: Olmo2Config(**shape),
        "mixtral": lambda: MixtralConfig(**shape, **experts, num_local_experts=4),
        "qwen3_moe": lambda: Qwen3MoeConfig(
            **shape, **experts, head_dim=8, num_experts=4, moe_intermediate_size=16
        ),
        "gpt_oss": lambda: GptOssConfig(
            **shape, **experts, head_dim=8, num_local_experts=4, sliding_window=WINDOW
        ),
        "opt": lambda: OPTConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            word_embed_proj_dim=32,
            max_position_embeddings=CONTEXT,
            init_std=0.3,
        ),
    }
    return makers[family]()


FAMILIES = (
    "llama",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "phi3",
    "olmo2",
    "mixtral",
    "qwen3_moe",
    "opt",
    "gpt_oss",
)


def build(family: str, seed: int = 0) -> PreTrainedModel:
    """A random model in float32; `generate` never stops it early."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config(family)).eval().requires_grad_(False)
    model.generation_config.eos_token_id = None
    return model


def noisy_copy(model: PreTrainedModel, spread: float, seed: int = 1) -> PreTrainedModel:
    """The same model with noise on its weights: a draft that is right now and then."""
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in copied.parameters():
        weight.add_(torch.randn(weight.shape, generator=generator) * spread)
    return copied


def reference(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    """Greedy tokens by transformers' generate(), whose every choice is clear.

    Raises:
        AssertionError: Two logits are within 1e-4 of the top somewhere, so that equality would be
            too much to ask.
    """
    plain = copy.deepcopy(model)
    output = plain.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=num_tokens,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    top = torch.stack(output.logits)[:, 0].topk(2).values  # [T, 2]
    gap = float((top[:, 0] - top[:, 1]).min())
    assert gap >= 1e-4, f"a near-tie in the reference: top-2 gap {gap:.1e}"
    tokens: list[int] = output.sequences[0, len(prompt) :].tolist()
    return tokens


def prompt(index: int) -> tuple[int, ...]:
    """A fixed random prompt; the first eight are of unequal lengths."""
    rng = random.Random(index)
    length = (2, 30, 9, 1, 17, 12, 5, 23)[index % 8]
    return tuple(rng.randrange(3, VOCAB) for _ in range(length))


@functools.cache
def plain(family: str) -> PreTrainedModel:
    """A model of a family, as transformers run it."""
    return build(family)


@functools.cache
def slotted(family: str, kind: str = "target") -> PreTrainedModel:
    """A model for a ModelRunner, which replaces its attention.

    Args:
        family: One of `FAMILIES`.
        kind: `target`; or a draft for it: `random` (another model), `itself`, `noisy`.
    """
    if kind == "random":
        return build(family, seed=7)
    if kind == "noisy":
        return noisy_copy(plain(family), 0.02)
    return copy.deepcopy(plain(family))


@functools.cache
def expected(family: str, prompt_index: int, num_tokens: int) -> tuple[int, ...]:
    """What transformers' generate() says to a prompt, computed once."""
    return tuple(reference(plain(family), list(prompt(prompt_index)), num_tokens))
