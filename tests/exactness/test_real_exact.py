"""Exact mode on the default model in bf16: identical tokens, whatever is guessed."""

from typing import Any

import pytest

from spec_cli.core.params import SamplingParams
from spec_cli.llm import LLM

PROMPTS = [
    "Why is the sky blue?",
    "Repeat this text word for word: The lamp was electrified in 1948, and the last keeper left.",
    "List four countries of Europe with their capitals.",
    "Write a Python function that adds two numbers.",
]
NUM_TOKENS = 48


def answers(llm: LLM, temperature: float, rows: int) -> list[tuple[int, ...]]:
    """Token ids of the answers, so many prompts at a time."""
    found: list[tuple[int, ...]] = []
    for start in range(0, len(PROMPTS), rows):
        talks = [[{"role": "user", "content": p}] for p in PROMPTS[start : start + rows]]
        params = [
            SamplingParams(temperature=temperature, max_tokens=NUM_TOKENS, seed=start + i)
            for i in range(len(talks))
        ]
        found += [tuple(o.outputs[0].token_ids) for o in llm.chat(talks, params)]
    return found


@pytest.mark.real
@pytest.mark.slow
def test_bfloat16_tokens_are_those_of_the_target_alone() -> None:
    """4 prompts, 48 tokens, greedy and sampled, alone and together, by lookup or not."""
    ways: list[tuple[dict[str, Any], int]] = [
        ({"spec": "suffix", "num_draft_tokens": 4}, 4),
        ({"spec": "ngram", "num_draft_tokens": 8}, 1),
    ]
    with LLM(dtype="bfloat16", exact=True, spec="off", ctx_size=512) as llm:
        want = {temperature: answers(llm, temperature, 1) for temperature in (0.0, 1.0)}
        for options, rows in ways:
            llm.speculate(**options)
            for temperature, texts in want.items():
                assert answers(llm, temperature, rows) == texts, (options, rows, temperature)
