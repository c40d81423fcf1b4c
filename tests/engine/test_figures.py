"""Counts and times: each figure is what its definition says, whatever was drafted and cut."""

import random
from typing import Any

import pytest
import torch

from spec_cli.core.events import StepFinished
from spec_cli.models.base import RowInput
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.ngram import NgramProposer
from tests.driving import Driver, drive, request
from tests.fakes import FakeRunner, ScriptedProposer, ScriptRunner

TEXT = list(range(3, 28))


def scripted(right: float, seed: int = 0) -> ScriptedProposer:
    """Knows TEXT after a prompt of one token; each of its tokens is right with these odds."""
    rng = random.Random(seed)

    def guess(token_ids: list[int], count: int) -> list[int]:
        coming = TEXT[len(token_ids) - 1 :][:count]
        return [t if rng.random() < right else 31 for t in coming]

    return ScriptedProposer(guess)


def run(proposer: Any, k: int, max_tokens: int = 20, end: tuple[int, ...] = ()) -> Driver:
    driver = drive(ScriptRunner(TEXT, 1), proposer, k)
    driver.add(request("0", (1,), max_tokens, end=end))
    driver.run()
    return driver


@pytest.mark.parametrize("end", [(), (14,), (17,)])
@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("right", [0.0, 0.5, 0.9, 1.0])
def test_identities(right: float, k: int, end: tuple[int, ...]) -> None:
    """Counts agree with each other, with the events, and with the text, also where it was cut."""
    driver = run(scripted(right), k, end=end)
    answer = driver.answers["0"]
    stats, rows = answer.stats, [row for step in driver.steps for row in step.rows]
    cut = sum(row.num_emitted == row.num_accepted for row in rows)  # the target's own was cut

    assert answer.token_ids == TEXT[: len(answer.tokens)]
    assert stats.num_output_tokens == len(answer.tokens)
    assert stats.num_output_tokens == 1 + stats.num_accepted_draft_tokens + len(rows) - cut
    assert cut <= 1
    histogram = stats.acceptance_histogram
    assert stats.num_accepted_draft_tokens == sum(j * n for j, n in enumerate(histogram))
    assert stats.num_spec_steps == sum(histogram)
    assert stats.num_spec_steps == sum(row.num_judged > 0 for row in rows)
    assert stats.num_target_passes == len(rows)
    assert stats.num_draft_tokens == sum(stats.drafted_per_position)
    assert stats.num_draft_tokens == sum(row.num_judged for row in rows)
    assert stats.num_accepted_draft_tokens == sum(row.num_accepted for row in rows)
    sources = [token.source for token in answer.tokens]
    assert sources.count("draft") == stats.num_accepted_draft_tokens
    assert all(row.num_accepted <= row.num_judged <= len(row.draft_token_ids) for row in rows)


def test_always_wrong() -> None:
    """B-01: a draft that is always wrong has rate 0 and one token per pass."""
    stats = run(scripted(0.0), 4).answers["0"].stats

    assert stats.draft_acceptance_rate == 0.0
    assert stats.mean_acceptance_length == 1.0
    assert stats.tokens_per_target_pass == 1.0
    assert stats.num_accepted_draft_tokens == 0


def test_always_right() -> None:
    """B-01: a draft that is always right has rate 1 and k + 1 tokens per pass."""
    stats = run(scripted(1.0), 4, max_tokens=21).answers["0"].stats

    assert stats.draft_acceptance_rate == 1.0
    assert stats.mean_acceptance_length == 5.0
    assert stats.tokens_per_target_pass == 5.0
    assert stats.acceptance_rate_per_position == (1.0, 1.0, 1.0, 1.0)


def test_never_a_guess() -> None:
    """B-01: lookup without a match has no rate, and nothing is divided by zero."""
    stats = run(NgramProposer(), 4).answers["0"].stats

    assert stats.draft_acceptance_rate is None
    assert stats.mean_acceptance_length is None
    assert stats.num_spec_steps == 0
    assert stats.tokens_per_target_pass == 1.0
    assert stats.draft_share == 0.0


def test_drafts_behind_an_end_are_not_judged() -> None:
    """B-01: draft tokens behind an accepted end token count nowhere."""
    stats = run(scripted(1.0), 8, end=(TEXT[3],)).answers["0"].stats

    assert stats.num_draft_tokens == 3
    assert stats.num_accepted_draft_tokens == 3
    assert stats.draft_acceptance_rate == 1.0
    assert stats.acceptance_histogram[-1] == 1


class WorkClock:
    """Time passes only while models work."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class WorkingRunner(ScriptRunner):
    """Each forward takes `base_s` seconds and `token_s` for every token."""

    def __init__(self, clock: WorkClock, base_s: float, token_s: float = 0.0) -> None:
        super().__init__(TEXT, 1)
        self.clock, self.base_s, self.token_s = clock, base_s, token_s

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        tokens = sum(len(item.token_ids) for item in inputs)
        self.clock.now_s += self.base_s + self.token_s * tokens
        return FakeRunner.forward(self, inputs)


def timed(k: int) -> Driver:
    clock = WorkClock()
    target, own = WorkingRunner(clock, 1.0, 0.25), WorkingRunner(clock, 0.5)
    proposer = DraftModelProposer(own, verify="coupled", num_token_ids=32)
    driver = drive(target, proposer, k, clock=clock)
    driver.add(request("0", (1,), 11), request("1", (1,), 11))
    driver.run()
    return driver


def test_a_steps_time_is_split() -> None:
    """Proposing and the target's forward get their own seconds; the parts sum to the step."""
    driver = timed(4)
    first, *steps = driver.steps

    assert first.times.propose_s == 0.0
    assert first.times.forward_s == 1.0 + 0.25 * 2  # two prompts of one token
    for step in steps:
        assert step.times.propose_s == 4 * 0.5
        assert step.times.forward_s == 1.0 + 0.25 * 10
        assert step.times.verify_s == step.times.other_s == 0.0
        assert step.times.total_s == step.times.propose_s + step.times.forward_s
    ends = [step.time_s for step in driver.steps]
    assert ends[1] - ends[0] == steps[0].times.total_s


def test_a_requests_times_add_up() -> None:
    """Queue, prefill and decode follow one another; the parts of decode sum to it."""
    for answer in timed(4).answers.values():
        stats = answer.stats
        assert stats.queue_s == 0.0
        assert stats.prefill_s == 1.5
        assert stats.time_to_first_token_s == 1.5
        assert stats.decode_s == 2 * (2.0 + 3.5)
        parts = stats.propose_s + stats.forward_s + stats.verify_s + stats.other_s
        assert parts == stats.decode_s
        assert stats.tokens_per_second == 10 / 11.0
        assert stats.target_step_s is None


def test_draft_free_passes_are_timed() -> None:
    """The median time of a pass without drafts is known, so that a speedup can be estimated."""
    stats = timed(0).answers["0"].stats

    assert stats.target_step_s == 1.5
    assert stats.num_draft_free_passes == 10


def test_every_step_tells_of_itself() -> None:
    """Steps count up from 0, end in order, and say what every decoding row did."""
    driver = run(scripted(0.6), 3)
    steps = [event for event in driver.events if isinstance(event, StepFinished)]

    assert [step.step for step in steps] == list(range(len(steps)))
    assert [step.time_s for step in steps] == sorted(step.time_s for step in steps)
    length = 2
    for step in steps[1:]:
        (row,) = step.rows
        assert row.request_id == "0"
        assert row.context_length == length
        assert step.state.mode == "on"
        length += row.num_emitted
    assert steps[0].rows == ()
    assert steps[0].num_prefill_tokens == 1
