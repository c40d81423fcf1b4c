"""Lookup measured on what the default model writes; the figures behind decision 0005.

pytest -m real tests/proposers/test_real_text.py -s
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.llm import LLM
from spec_cli.proposers.base import DraftRequest, Proposer
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer

TOKEN_PRICE = 0.04
"""Of a drafted token, in steps: measured on two CPU cores with one row (architecture.md, 3)."""

CODE = '''\
class Budget:
    """Bytes that several caches share."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0

    def reserve(self, num_bytes: int) -> bool:
        """Take some if they are free."""
        if self.used_bytes + num_bytes > self.total_bytes:
            return False
        self.used_bytes += num_bytes
        return True

    def release(self, num_bytes: int) -> None:
        """Give some back."""
        self.used_bytes -= num_bytes
'''
TEXT = (
    "The lighthouse on Gull Point was built in 1871 by the engineer Anna Reyes. It stands 43 "
    "metres tall and its lamp could be seen for 31 kilometres. In 1923 a storm destroyed the "
    "keeper's house, and the two keepers, Tom Hale and Peter Brandt, lived in the tower for "
    "nine months. The lamp was electrified in 1948, and the last keeper left in 1976."
)
PROMPTS = {
    "chat": [
        "Why is the sky blue?",
        "Write a short story about a fox and a crow.",
        "Explain what a hash table is to a beginner.",
    ],
    "copy": [
        f"Rename the class Budget to Allowance. Print the whole file.\n```python\n{CODE}```",
        f"Repeat this text word for word: {TEXT}",
        f"{TEXT}\n\nWho built the lighthouse, and what happened in 1923?",
    ],
}


@pytest.fixture(scope="module")
def written() -> dict[str, list[tuple[list[int], list[int]]]]:
    """Prompt and greedy answer of each, in token ids."""
    with LLM(spec="off") as llm:
        params = llm.default_params(temperature=0.0, max_tokens=192)
        found: dict[str, list[tuple[list[int], list[int]]]] = {}
        for kind, prompts in PROMPTS.items():
            talks = [[{"role": "user", "content": prompt}] for prompt in prompts]
            outputs = llm.chat(talks, params)
            found[kind] = [
                (list(o.prompt_token_ids), list(o.outputs[0].token_ids)) for o in outputs
            ]
        return found


def replay(proposer: Proposer, texts: list[Any], k: int) -> tuple[float, float, float]:
    """Draft along known answers.

    Returns:
        Tokens per step, draft acceptance, and tokens per unit of time, plain decoding having 1.
    """
    steps = drafted = accepted = 0
    for number, (prompt, answer) in enumerate(texts):
        request = Request(str(number), tuple(prompt), SamplingParams(), 0, frozenset())
        row = Sequence(request, len(prompt) + len(answer))
        row.commit(tuple(answer[:1]))
        proposer.admit(row, 1)
        while row.num_remaining:
            left = answer[row.num_output_tokens :]
            count = min(k, proposer.outlook(row).max_draft_tokens, len(left) - 1)
            draft = proposer.propose([DraftRequest(row, count)])[0].token_ids if count > 0 else ()
            kept = 0
            while kept < len(draft) and draft[kept] == left[kept]:
                kept += 1
            row.commit(tuple(left[: kept + 1]))
            steps, drafted, accepted = steps + 1, drafted + len(draft), accepted + kept
        proposer.release(row)
    emitted = accepted + steps
    return emitted / steps, accepted / max(1, drafted), emitted / (steps + TOKEN_PRICE * drafted)


@pytest.mark.real
def test_suffix_is_worth_more_than_ngram(written: dict[str, list[Any]]) -> None:
    """On chat and on copied text it brings at least as much as n-gram lookup, rows isolated."""
    makers: dict[str, Callable[[], Proposer]] = {
        "ngram": NgramProposer,
        "suffix": lambda: SuffixProposer(is_isolated=True),
        "suffix, session": SuffixProposer,
    }
    worth = {}
    for kind, texts in written.items():
        for k in (4, 8, 16):
            for name, make in makers.items():
                tokens, acceptance, worth[kind, k, name] = replay(make(), texts, k)
                sys.stdout.write(
                    f"{kind} k={k:2d} {name:16s} {tokens:.2f} tokens/step, "
                    f"acceptance {acceptance:.0%}, worth {worth[kind, k, name]:.2f}\n"
                )

    for kind in PROMPTS:
        for k in (8, 16):
            assert worth[kind, k, "suffix"] >= 0.98 * worth[kind, k, "ngram"]
    assert worth["copy", 8, "suffix"] >= 1.5
