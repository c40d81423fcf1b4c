"""Exact mode on the default model in bf16: identical tokens, whatever is guessed."""

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


def answers(llm: LLM, num_rows: int, num_prompts: int = len(PROMPTS)) -> list[tuple[int, ...]]:
    """Token ids of the answers, so many prompts at a time; every other one is sampled."""
    talks = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    params = [
        SamplingParams(temperature=float(i % 2), max_tokens=NUM_TOKENS, seed=i)
        for i in range(len(PROMPTS))
    ]
    found: list[tuple[int, ...]] = []
    for start in range(0, num_prompts, num_rows):
        some = slice(start, start + num_rows)
        found += [tuple(o.outputs[0].token_ids) for o in llm.chat(talks[some], params[some])]
    return found


@pytest.mark.real
def test_bfloat16_tokens_are_those_of_the_target_alone() -> None:
    """4 prompts, 48 tokens, greedy and sampled, together and two of them alone, by lookup."""
    with LLM(dtype="bfloat16", exact=True, spec="off", ctx_size=512) as llm:
        want = answers(llm, len(PROMPTS))
        llm.speculate(spec="suffix", num_draft_tokens=4)
        assert answers(llm, 2) == want
        llm.speculate(spec="ngram", num_draft_tokens=8)
        assert answers(llm, 1, 2) == want[:2]
