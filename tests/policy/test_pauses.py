"""What the goodput policy does with rows that differ, and how it behaves while paused."""

import re
from dataclasses import replace
from itertools import pairwise

from spec_cli.core.events import RowStep, SpeculationState, StepFinished, StepTimes
from spec_cli.core.proposal import DraftSource
from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel
from spec_cli.policy.goodput import GoodputPolicy
from spec_cli.policy.surface import CostPrior

_STEP_S = 0.02
_ON = SpeculationState("on")


def _play(
    policy: GoodputPolicy,
    rows: tuple[RowOutlook, ...],
    accepts: tuple[bool, ...],
    *,
    token: float,
    draft: float = 0.0,
    num_prefill: int = 0,
) -> tuple[int, ...]:
    """One step in which a row's drafts are all right or all wrong."""
    lengths = policy.choose(rows, num_prefill)
    total = len(rows) + sum(lengths) + num_prefill
    steps = tuple(
        RowStep(
            row.request_id, row.source, (0,) * length, length if accept else 0,
            1 + (length if accept else 0), length, row.context_length,
        )
        for row, length, accept in zip(rows, lengths, accepts, strict=True)
    )  # fmt: skip
    by_model = [n for n, row in zip(lengths, rows, strict=True) if row.source == "draft"]
    passes = max(by_model, default=0)
    times = StepTimes(_STEP_S * draft * passes, _STEP_S * (1 + token * total), 0.0, 0.0)
    policy.observe(StepFinished(0, 0.0, steps, num_prefill, times, _ON))
    for row, length, accept in zip(rows, lengths, accepts, strict=True):
        if not length and row.source != "draft":
            policy.observe_shadow(
                row.source, row.request_id, row.match_length, 1, 1 if accept else 0
            )
    return lengths


def test_only_the_row_whose_text_repeats_drafts() -> None:
    """A lookup row that is always right drafts long while its neighbours draft nothing."""
    policy = GoodputPolicy()
    rows = tuple(RowOutlook(f"r{i}", "ngram", 8, 100, 3) for i in range(4))
    accepts = (False, True, False, False)
    for _ in range(60):
        lengths = _play(policy, rows, accepts, token=0.1)
    assert lengths[1] >= 4
    assert (lengths[0], lengths[2], lengths[3]) == (0, 0, 0)


def test_a_text_that_goes_on_repeating_drafts_as_long_as_auto_may() -> None:
    """Where lookup is always right and a token costs a hundredth of a step, it asks for 24."""
    policy = GoodputPolicy()
    rows = (RowOutlook("r", "suffix", 32, 100, 32),)
    for _ in range(60):
        lengths = _play(policy, rows, (True,), token=0.01)
    assert lengths == (24,)


def test_a_draft_model_and_lookup_share_a_batch() -> None:
    """Each row drafts by its own source's figures, even where a draft token costs nothing."""
    cost = CostModel(draft=CostPrior(0.002, 0.0))
    policy = GoodputPolicy(cost=cost)
    rows = (
        RowOutlook("lookup", "ngram", 8, 100, 12),
        RowOutlook("right", "draft", 8, 100, 0, 1),
        RowOutlook("wrong", "draft", 8, 100, 0, 1),
    )
    for _ in range(80):
        lengths = _play(policy, rows, (True, True, False), token=0.03, draft=0.05)
    assert min(lengths[0], lengths[1]) >= 4
    assert lengths[2] <= 1


def test_lookup_comes_back_without_drafting() -> None:
    """The shadow alone, no probe, tells a paused lookup that its guesses turned right."""
    policy = GoodputPolicy()
    rows = (RowOutlook("r", "ngram", 8, 100, 3),)
    for _ in range(80):
        _play(policy, rows, (False,), token=0.2)
    assert policy.state != _ON
    guess = [_play(policy, rows, (True,), token=0.2) for _ in range(40)]
    assert policy.state == _ON
    assert guess[-1][0] >= 2


def test_the_reason_compares_acceptance_with_break_even() -> None:
    """As the stats line has it, with the counts behind the figure."""
    policy = GoodputPolicy()
    rows = (RowOutlook("r", "draft", 8, 100, 0, 1),)
    assert policy.state == SpeculationState("paused", "timing the target's own step first")
    for _ in range(60):
        _play(policy, rows, (False,), token=0.05, draft=0.3)
    assert policy.state.mode == "paused"
    reason = policy.state.reason or ""
    assert re.fullmatch(r"accepted 0 % \(0/\d+\) < break-even \d\d %", reason)


def test_probes_are_few_and_far_between() -> None:
    """Once it has backed off, one step in twenty at most drafts, one token for one row in turn."""
    policy = GoodputPolicy()
    rows = tuple(RowOutlook(f"r{i}", "draft", 8, 100, 0, 1 + i) for i in range(2))
    for _ in range(100):
        _play(policy, rows, (False, False), token=0.05, draft=0.4)
    lengths = [_play(policy, rows, (False, False), token=0.05, draft=0.4) for _ in range(200)]
    probes = [step for step in lengths if any(step)]
    assert 2 <= len(probes) <= 10
    assert set(probes) == {(1, 0), (0, 1)}


def test_near_break_even_a_probe_is_all_rows_twice() -> None:
    """Where drafts lose next to nothing all rows that do well draft, and once more at no lag.

    A draft for one of four rows would cost a whole pass for a quarter of the tokens.
    """
    policy = GoodputPolicy()
    rows = tuple(RowOutlook(f"r{i}", "draft", 1, 100, 0, 1) for i in range(4))
    accepts = (True, True, True, False)
    for _ in range(100):
        _play(policy, rows, accepts, token=0.05, draft=0.8)
    lengths = [_play(policy, rows, accepts, token=0.05, draft=0.8) for _ in range(100)]
    drafting = [step for step, each in enumerate(lengths) if any(each)]
    assert policy.state.mode == "paused"
    assert len(drafting) >= 4
    assert all(lengths[step][:3] == (1, 1, 1) for step in drafting)
    gaps = [later - earlier for earlier, later in pairwise(drafting)]
    assert {gap == 1 for gap in gaps} == {True, False}
    assert all(gap == 1 or gap >= 15 for gap in gaps)


def test_a_step_without_decoding_rows_after_a_probe_is_no_probe() -> None:
    """A probe may be an answer's last step; then only a prompt is processed and nobody is asked."""
    policy = GoodputPolicy()
    row = RowOutlook("r", "draft", 8, 100, 0, 1)
    for _ in range(60):
        _play(policy, (row,), (False,), token=0.05, draft=0.4)
    while not any(_play(policy, (row,), (False,), token=0.05, draft=0.4)):
        assert policy.state.mode == "paused"
    policy.forget("r")
    times = StepTimes(0.0, 10 * _STEP_S, 0.0, 0.0)
    policy.observe(StepFinished(0, 0.0, (), 100, times, _ON))
    assert not any(any(_play(policy, (row,), (False,), token=0.05, draft=0.4)) for _ in range(15))


class CountingAcceptance(AcceptanceModel):
    """Counts how often it is asked."""

    num_asked = 0

    def survival(
        self, source: DraftSource, request_id: str, match_length: int, num_draft_tokens: int
    ) -> list[float]:
        self.num_asked += 1
        return super().survival(source, request_id, match_length, num_draft_tokens)


def test_most_steps_of_a_pause_are_not_priced() -> None:
    """While nothing is learnt and the rows stay the same, one step in four is looked at."""
    acceptance = CountingAcceptance()
    policy = GoodputPolicy(acceptance=acceptance)
    row = RowOutlook("r", "draft", 8, 100, 0, 1)

    def num_asked(rows: tuple[RowOutlook, ...]) -> int:
        before = acceptance.num_asked
        for _ in range(100):
            _play(policy, rows, (False,), token=0.05, draft=0.4)
        return acceptance.num_asked - before

    num_asked((row,))
    assert policy.state.mode == "paused"
    assert 25 <= num_asked((row,)) <= 40
    lookup = replace(row, source="ngram", match_length=2)
    assert num_asked((lookup,)) >= 100


def test_a_lag_too_long_to_pay_back_stays_off() -> None:
    """A row that a draft model lags far behind is neither drafted for nor probed."""
    policy = GoodputPolicy()
    near = (RowOutlook("r", "draft", 8, 100, 0, 1),)
    for _ in range(60):
        _play(policy, near, (True,), token=0.05, draft=0.2)
    assert policy.state.mode == "on"
    far = (replace(near[0], request_id="far", num_lag_tokens=10**7),)
    lengths = [_play(policy, far, (True,), token=0.05, draft=0.2) for _ in range(60)]
    assert not any(map(any, lengths))
    assert policy.state.reason == "catching up on 10000000 tokens would not pay"


def test_a_lag_is_not_caught_up_on_for_an_answer_about_to_end() -> None:
    """What 64 steps would pay back is not begun with ten tokens to go, and is with a thousand."""
    policy = GoodputPolicy()
    row = RowOutlook("r", "draft", 8, 100, 0, 1, 1000)
    for _ in range(60):
        _play(policy, (row,), (True,), token=0.05, draft=0.2)
    # What right drafts bring in twenty steps: eight tokens each, of a step's time each.
    lag = int(20 * 8 * _STEP_S / policy.cost.catch_up_s)
    late = replace(row, num_lag_tokens=lag, num_remaining_tokens=10)
    assert policy.choose((late,), 0) == (0,)
    early = replace(late, num_remaining_tokens=1000)
    assert policy.choose((early,), 0)[0] >= 1


def test_a_prompt_in_the_step_makes_no_draft_cheap() -> None:
    """Drafts that cost more than they bring do not begin to pay beside a prompt of 200 tokens.

    Nor is it probed there, only in the steps between.
    """
    policy = GoodputPolicy()
    rows = tuple(RowOutlook(f"r{i}", "draft", 8, 100, 0, 1) for i in range(4))
    accepts = (True, False, False, False)
    for _ in range(100):
        _play(policy, rows, accepts, token=0.2, draft=0.3)
    assert policy.state.mode == "paused"
    lengths = [
        _play(policy, rows, accepts, token=0.2, draft=0.3, num_prefill=200 * (step % 4 < 3))
        for step in range(64)
    ]
    assert policy.state.mode == "paused"
    assert not any(any(step) for i, step in enumerate(lengths) if i % 4 < 3)
    assert 1 <= sum(map(any, lengths)) <= 6


def test_nothing_begins_while_rows_are_being_added() -> None:
    """Where it pays for the rows that are there, it waits for the step without a prompt."""
    policy = GoodputPolicy()
    row = (RowOutlook("r", "draft", 8, 100, 0, 1),)
    for _ in range(3):
        assert _play(policy, row, (True,), token=0.05, draft=0.2) == (0,)
    for _ in range(8):
        _play(policy, row, (True,), token=0.05, draft=0.2, num_prefill=100)
        assert policy.state.mode == "paused"
    _play(policy, row, (True,), token=0.05, draft=0.2)
    assert policy.state.mode == "on"


def test_lengths_keep_to_the_offers() -> None:
    """Nothing offered, nothing drafted; no rows, no lengths."""
    policy = GoodputPolicy(4)
    for step in range(60):
        rows = tuple(RowOutlook(f"r{i}", "draft", (step + i) % 7, 50, 0, 1) for i in range(3))
        lengths = _play(policy, rows, (True, True, False), token=0.01, draft=0.05)
        assert all(
            0 <= n <= min(4, row.max_draft_tokens) for n, row in zip(lengths, rows, strict=True)
        )
    assert policy.choose((), 12) == ()
