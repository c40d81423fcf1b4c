"""Target and draft of unequal vocabularies and contexts."""

from collections import Counter
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.proposers.draft_model import DraftModelProposer
from tests import tiny
from tests.driving import PLENTY, drive, request
from tests.fakes import FakeRunner, TableRunner

NUM_IDS = 36


def model(family: str, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    config = tiny.config(family)
    for name, value in changes.items():
        setattr(config, name, value)
    made = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    made.generation_config.eos_token_id = None
    return made


class WatchedRunner(ModelRunner):
    """Notes the largest position it was asked to process."""

    largest = -1

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        logits = super().forward(inputs)
        self.largest = max(self.largest, *(len(item.row.token_ids) - 1 for item in inputs))
        return logits


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("verify_mode", ["coupled", "rejection"])
def test_padded_vocabularies(verify_mode: str, temperature: float) -> None:
    """D-01: 36 token ids in 48 and 40 rows: greedy as alone, and no id from 36 on is proposed."""
    target_model = model("llama", vocab_size=48)
    target_model.lm_head.weight[NUM_IDS:] = 0.0  # an untrained row: never the likeliest
    draft_model = model("llama", seed=7, vocab_size=40)
    draft_model.lm_head.weight[NUM_IDS:] *= 5.0  # would be proposed often
    budget = MemoryBudget(PLENTY)

    def run(k: int) -> tuple[list[int], list[int]]:
        target = ModelRunner(target_model, context_length=128, budget=budget)
        draft = ModelRunner(draft_model, context_length=128, budget=budget, vocab_size=48)
        proposer = DraftModelProposer(draft, verify=verify_mode, num_token_ids=NUM_IDS)  # type: ignore[arg-type]
        driver = drive(target, proposer, k, verify_mode=verify_mode)
        driver.add(request("0", (5, 6, 7), 30, temperature=temperature, seed=4))
        text = driver.run()["0"].token_ids
        drafts = [t for step in driver.steps for row in step.rows for t in row.draft_token_ids]
        return text, drafts

    text, drafts = run(4)

    assert drafts
    assert max(drafts) < NUM_IDS
    if temperature == 0 or verify_mode == "coupled":
        assert text == run(0)[0]


@pytest.mark.parametrize("verify_mode", ["coupled", "rejection"])
def test_padded_vocabularies_keep_the_distribution(verify_mode: str) -> None:
    """D-01 with L-01: beside padding that the draft likes, tokens follow the target.

    Each frequency within 0.04 of p in 3 000 draws: 4.4 sigma, false alarm 1e-4, fixed seeds.
    """
    table = [0.5, 0.3, 0.2, 0.0, 0.0]
    draft = TableRunner([0.2, 0.2, 0.1, 0.5, 0.0])
    proposer = DraftModelProposer(draft, verify=verify_mode, num_token_ids=3)  # type: ignore[arg-type]
    driver = drive(TableRunner(table), proposer, 1, verify_mode=verify_mode, max_rows=200)
    for first in range(0, 3000, 200):
        driver.add(
            *(request(str(i), (0,), 3, seed=i, temperature=1.0) for i in range(first, first + 200))
        )
        driver.run()

    for place in range(3):
        counts = Counter(answer.token_ids[place] for answer in driver.answers.values())
        assert [counts[v] / 3000 for v in range(5)] == pytest.approx(table, abs=0.04)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_shorter_draft_context(family: str) -> None:
    """D-04: past the draft's 16 positions, learned or rotary, a row goes on alone, others draft."""
    positions = "n_positions" if family == "gpt2" else "max_position_embeddings"
    target_model = model(family, **{positions: 64})
    draft_model = model(family, seed=7, **{positions: 16})
    budget = MemoryBudget(PLENTY)
    want = tiny.reference(target_model, list(range(3, 13)), 40)
    want_other = tiny.reference(target_model, [5, 6], 12)
    target = ModelRunner(target_model, context_length=64, budget=budget)
    draft = WatchedRunner(draft_model, context_length=16, budget=budget)
    driver = drive(target, DraftModelProposer(draft, verify="coupled", num_token_ids=64), 4)
    driver.add(request("long", tuple(range(3, 13)), 40))
    for _ in range(12):
        driver.step()
    driver.add(request("other", (5, 6), 12))
    answers = driver.run()

    assert answers["long"].token_ids == want
    assert answers["other"].token_ids == want_other
    assert draft.largest == 15
    assert answers["long"].stats.draft_ended == "the draft model's context of 16 tokens is full"
    assert answers["other"].stats.draft_ended is None
    assert answers["other"].stats.num_draft_tokens > 0
    together = [step.rows for step in driver.steps if len(step.rows) == 2]
    assert any(not long.draft_token_ids and other.draft_token_ids for long, other in together)


class ForeignRunner(FakeRunner):
    """Says an id the draft does not know as its fourth token."""

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        logits = torch.zeros(8)
        logits[7 if len(token_ids) == 4 else 1] = 9.0
        return logits


def test_a_token_the_draft_does_not_know() -> None:
    """A foreign token in a text ends its drafting, says so, and never reaches the draft model."""
    draft = ForeignRunner(8)
    driver = drive(
        ForeignRunner(8), DraftModelProposer(draft, verify="coupled", num_token_ids=7), 2
    )
    driver.add(request("0", (1,), 9))
    answer = driver.run()["0"]

    assert answer.token_ids == [1, 1, 1, 7, 1, 1, 1, 1, 1]
    assert answer.stats.draft_ended == "the draft model has no token 7"
    assert max(draft.positions) < 4
