"""The draft model: when it stops, how it catches up, and what it never touches."""

import pytest
import torch

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.proposers.base import DraftRequest
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests import tiny
from tests.fakes import FakeRunner, TableRunner


class CountingRunner(FakeRunner):
    """Says last + 1, sure of it before token 8 and doubtful after; notes what it is asked."""

    def __init__(self, context_length: int = 4096) -> None:
        super().__init__(16, context_length)
        self.calls: list[list[tuple[int, int]]] = []

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        logits = torch.zeros(16)
        logits[(token_ids[-1] + 1) % 16] = 9.0 if token_ids[-1] < 7 else 1.0
        return logits

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        self.calls.append([(len(item.token_ids), item.num_logits) for item in inputs])
        return super().forward(inputs)


def make(
    runner: FakeRunner,
    prompt: list[int],
    *,
    verify: VerifyMode = "coupled",
    temperature: float = 0.0,
    num_token_ids: int = 16,
    p_min: float = 0.0,
    max_draft_tokens: int = 32,
    max_catch_up: int = 512,
) -> tuple[DraftModelProposer, Sequence]:
    params = SamplingParams(temperature=temperature)
    row = Sequence(Request("0", tuple(prompt), params, 3, frozenset()), 1000)
    proposer = DraftModelProposer(
        runner,
        verify=verify,
        num_token_ids=num_token_ids,
        p_min=p_min,
        max_draft_tokens=max_draft_tokens,
        max_catch_up=max_catch_up,
    )
    assert proposer.admit(row, 1)
    return proposer, row


def draft(proposer: DraftModelProposer, row: Sequence, k: int) -> tuple[int, ...]:
    return proposer.propose([DraftRequest(row, k)])[0].token_ids


def test_one_forward_per_token() -> None:
    """The first forward processes what is lacking, each later one a single draft token."""
    runner = CountingRunner()
    proposer, row = make(runner, [1, 2, 3])

    assert draft(proposer, row, 4) == (4, 5, 6, 7)
    assert runner.calls == [[(3, 1)], [(1, 1)], [(1, 1)], [(1, 1)]]


def test_full_acceptance_lacks_two() -> None:
    """After a fully accepted draft the last draft token and the bonus are lacking; after none, one.

    Nothing that was processed is processed again.
    """
    runner = CountingRunner()
    proposer, row = make(runner, [1])
    row.commit(draft(proposer, row, 3))
    row.commit((5,))
    runner.calls.clear()
    assert proposer.outlook(row).num_lag_tokens == 2
    assert draft(proposer, row, 2) == (6, 7)
    assert runner.calls[0] == [(2, 1)]
    row.commit((0,))
    assert proposer.outlook(row).num_lag_tokens == 1
    assert draft(proposer, row, 1) == (1,)


def test_idle_rows_catch_up() -> None:
    """A row that was left alone for many steps processes the missed tokens in one go."""
    runner = CountingRunner()
    proposer, row = make(runner, [1, 2])
    draft(proposer, row, 1)
    row.commit(tuple(range(3, 13)))
    runner.calls.clear()

    assert proposer.outlook(row).num_lag_tokens == 10
    assert draft(proposer, row, 2) == (13, 14)
    assert runner.calls[0] == [(10, 10)]  # logits for hindsight of nine


def test_long_lag_takes_several_steps() -> None:
    """A lag longer than the budget is worked off in parts, without drafts, logits or repetition."""
    runner = CountingRunner()
    proposer, row = make(runner, [1] * 25, max_catch_up=10)

    assert [draft(proposer, row, 2) for _ in range(2)] == [(), ()]
    assert runner.calls == [[(10, 0)], [(10, 0)]]
    assert proposer.outlook(row).num_lag_tokens == 5
    assert draft(proposer, row, 2) == (2, 3)
    assert runner.calls[2] == [(5, 1)]


def test_a_lagging_row_does_not_hold_up_another() -> None:
    """The budget is shared: a long lag leaves the next row a token, and that one drafts."""
    runner = CountingRunner()
    proposer, row = make(runner, [1] * 25, max_catch_up=10)
    other = Sequence(Request("1", (3,), SamplingParams(temperature=0), 3, frozenset()), 1000)
    proposer.admit(other, 1)
    proposals = proposer.propose([DraftRequest(row, 2), DraftRequest(other, 2)])

    assert [p.token_ids for p in proposals] == [(), (4, 5)]


def test_low_confidence_ends_a_coupled_draft_before_the_token() -> None:
    """Coupled, or greedy: a token the draft is not sure of is not proposed."""
    for verify in ("coupled", "rejection"):
        proposer, row = make(CountingRunner(), [5], verify=verify, p_min=0.5)

        assert draft(proposer, row, 6) == (6, 7)


def test_low_confidence_ends_a_sampled_draft_behind_the_token() -> None:
    """Under rejection a sampled token of low confidence is kept, and drafting stops behind it."""
    probs = [0.25, 0.25, 0.25, 0.25]
    proposer, row = make(
        TableRunner(probs), [1], verify="rejection", temperature=1.0, num_token_ids=4, p_min=0.5
    )
    (proposal,) = proposer.propose([DraftRequest(row, 6)])

    assert len(proposal.token_ids) == 1
    assert proposal.draft_probs is not None
    assert proposal.draft_probs.tolist() == [pytest.approx(probs)]


def test_foreign_token_ends_drafting() -> None:
    """A committed id that the draft model does not have ends its drafting, with the reason."""
    runner = CountingRunner()
    proposer, row = make(runner, [1, 2], num_token_ids=12)
    assert draft(proposer, row, 1) == (3,)
    row.commit((12,))
    outlook = proposer.outlook(row)

    assert outlook.max_draft_tokens == 0
    assert outlook.ended == "the draft model has no token 12"
    row.commit((1,))
    assert proposer.outlook(row).ended == outlook.ended


def test_ids_that_both_do_not_know_are_never_proposed() -> None:
    """D-01: the likeliest id is passed over when it is no token, with and without sampling."""
    probs = [0.01, 0.01, 0.01, 0.97]
    for verify in ("coupled", "rejection"):
        for temperature in (0.0, 1.0):
            proposer, row = make(
                TableRunner(probs),
                [1],
                verify=verify,
                temperature=temperature,
                num_token_ids=3,
            )

            assert set(draft(proposer, row, 30)) <= {0, 1, 2}


def test_padded_ids_of_a_real_model_are_never_proposed() -> None:
    """D-01: with a real model, whose logits may not be written to, too."""
    runner = ModelRunner(
        tiny.slotted("llama"),
        context_length=tiny.CONTEXT,
        budget=MemoryBudget(10**9),
        vocab_size=tiny.VOCAB + 8,
    )
    params = SamplingParams(temperature=5.0)
    row = Sequence(Request("0", (3, 4), params, 3, frozenset()), 200)
    proposer = DraftModelProposer(runner, verify="rejection", num_token_ids=10)
    proposer.admit(row, 1)
    (proposal,) = proposer.propose([DraftRequest(row, 60)])

    assert len(proposal.token_ids) == 60
    assert set(proposal.token_ids) <= set(range(10))
    assert proposal.draft_probs is not None
    assert float(proposal.draft_probs[:, 10:].sum()) == 0.0


def test_it_offers_no_more_than_its_longest_draft() -> None:
    """Its limit, or what its context has left where that is less."""
    proposer, row = make(CountingRunner(context_length=8), [1, 2, 3, 4], max_draft_tokens=3)
    assert proposer.outlook(row).max_draft_tokens == 3
    row.commit((5, 6, 7))
    assert proposer.outlook(row).max_draft_tokens == 2


def test_the_end_of_its_context() -> None:
    """D-04: it drafts up to the last position it has, is never asked beyond, and says it ended."""
    runner = CountingRunner(context_length=8)
    proposer, row = make(runner, [1, 2, 3, 4])
    assert proposer.outlook(row).max_draft_tokens == 5
    assert draft(proposer, row, 5) == (5, 6, 7, 8, 9)
    assert max(runner.positions) == 7
    row.commit((5, 6, 7, 8))
    assert proposer.outlook(row).max_draft_tokens == 1
    assert draft(proposer, row, 1) == (9,)
    row.commit((9,))

    assert proposer.outlook(row).max_draft_tokens == 0
    assert proposer.outlook(row).ended == "the draft model's context of 8 tokens is full"
    assert max(runner.positions) == 7


def test_a_prompt_beyond_its_context() -> None:
    """D-04: a prompt longer than the draft's context is admitted and never drafted for."""
    runner = CountingRunner(context_length=8)
    proposer, row = make(runner, [1] * 20)

    assert proposer.outlook(row).ended is not None
    assert runner.calls == []


def test_release_gives_the_row_back() -> None:
    """A released row is free, and releasing what was never admitted does nothing."""
    runner = CountingRunner()
    proposer, row = make(runner, [1, 2])
    held = list(runner.rows_in_use)
    proposer.release(row)
    proposer.release(row)

    assert len(held) == 1
    assert runner.rows_in_use == []
