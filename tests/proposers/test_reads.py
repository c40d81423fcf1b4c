"""On an accelerator a whole draft stays on the device, and the host reads it once, at its end."""

from contextlib import ExitStack
from typing import Any

import pytest
import torch

from spec_cli.core.params import SamplingParams
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Request, Sequence
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.proposers.base import DraftRequest
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests import tiny
from tests.accelerator import Accelerator

LENGTHS = (4, 1, 6)
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.0, "top_p": 0.9},
    "min_p": {"temperature": 0.7, "min_p": 0.05},
}
PENALTIES = {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4}
every_verification = pytest.mark.parametrize("verify", ["coupled", "rejection"])


class Draft:
    """A tiny draft model, on the accelerator if there is one, and the rows it follows."""

    def __init__(
        self,
        settings: list[dict[str, Any]],
        accelerator: Accelerator | None = None,
        *,
        verify: VerifyMode = "coupled",
        p_min: float = 0.0,
    ) -> None:
        self.accelerator = accelerator
        model = tiny.slotted("llama", "random")
        with self._device():
            runner = ModelRunner(
                accelerator.put(model) if accelerator else model,
                context_length=tiny.CONTEXT,
                budget=MemoryBudget(10**9),
            )
            self.proposer = DraftModelProposer(
                runner, verify=verify, num_token_ids=60, never_propose=(0, 3), p_min=p_min
            )
            self.rows = [_sequence(i, params) for i, params in enumerate(settings)]
            for row in self.rows:
                assert self.proposer.admit(row, len(settings))

    def propose(self, lengths: tuple[int, ...]) -> list[Proposal]:
        """One call for all rows."""
        requests = [DraftRequest(r, k) for r, k in zip(self.rows, lengths, strict=False)]
        with self._device():
            return self.proposer.propose(requests)

    def held(self, row: Sequence) -> list[int]:
        """The tokens that the cache holds of a row, by its own account."""
        return self.proposer._rows[row.request_id].token_ids

    def _device(self) -> ExitStack:
        stack = ExitStack()
        if self.accelerator:
            stack.enter_context(torch.inference_mode())
            stack.enter_context(self.accelerator)
        return stack


def _sequence(index: int, params: dict[str, Any]) -> Sequence:
    sampling = SamplingParams(**params)
    return Sequence(Request(str(index), tiny.prompt(index), sampling, index, frozenset()), 200)


def tokens(proposals: list[Proposal]) -> list[tuple[int, ...]]:
    return [proposal.token_ids for proposal in proposals]


@every_verification
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_draft_is_read_once(verify: VerifyMode, num_rows: int, setting: str) -> None:
    """Whatever its length, the rows and the sampling: one read, and the host's own tokens."""
    settings = [SETTINGS[setting]] * num_rows
    accelerator = Accelerator()
    draft = Draft(settings, accelerator, verify=verify)
    host = Draft(settings, verify=verify)
    for kept in (0, 2, 6):
        accelerator.reads.clear()
        proposals, expected = draft.propose(LENGTHS), host.propose(LENGTHS)

        assert len(accelerator.reads) == 1
        assert tokens(proposals) == tokens(expected)
        assert [len(p.token_ids) for p in proposals] == list(LENGTHS[:num_rows])
        for row, same, proposal in zip(draft.rows, host.rows, proposals, strict=True):
            assert draft.held(row) == [*row.token_ids, *proposal.token_ids[:-1]]
            for each in (row, same):
                each.commit((*proposal.token_ids[:kept], 5))


@every_verification
def test_a_mixed_batch_is_read_once(verify: VerifyMode) -> None:
    """Rows that sample in different ways share one read too."""
    settings = [SETTINGS["greedy"], SETTINGS["top_p"], SETTINGS["plain"]]
    accelerator = Accelerator()
    proposals = Draft(settings, accelerator, verify=verify).propose(LENGTHS)

    assert len(accelerator.reads) == 1
    assert tokens(proposals) == tokens(Draft(settings, verify=verify).propose(LENGTHS))


def test_distributions_stay_on_the_device() -> None:
    """What rejection verification needs of a draft is handed on without a read, and right."""
    settings = [SETTINGS["plain"]] * 2
    accelerator = Accelerator()
    proposals = Draft(settings, accelerator, verify="rejection").propose((4, 2))
    expected = Draft(settings, verify="rejection").propose((4, 2))

    assert len(accelerator.reads) == 1
    with accelerator:
        for got, want in zip(proposals, expected, strict=True):
            assert got.draft_probs is not None
            assert want.draft_probs is not None
            assert torch.allclose(got.draft_probs.cpu(), want.draft_probs)


@every_verification
def test_penalties_look_at_every_token(verify: VerifyMode) -> None:
    """A row whose penalties count the draft's tokens has them read one by one, and rightly."""
    settings = [SETTINGS["plain"], PENALTIES]
    accelerator = Accelerator()
    draft = Draft(settings, accelerator, verify=verify)
    proposals = draft.propose((6, 4))

    assert len(accelerator.reads) == 4
    assert tokens(proposals) == tokens(Draft(settings, verify=verify).propose((6, 4)))
    for row, proposal in zip(draft.rows, proposals, strict=True):
        assert draft.held(row) == [*row.token_ids, *proposal.token_ids[:-1]]


@every_verification
@pytest.mark.parametrize("p_min", [0.02, 0.3])
def test_p_min_looks_at_every_pass(verify: VerifyMode, p_min: float) -> None:
    """To stop early it asks once a pass whether to stop; the tokens are still read at the end."""
    settings = [SETTINGS["plain"]] * 3
    accelerator = Accelerator()
    draft = Draft(settings, accelerator, verify=verify, p_min=p_min)
    proposals = draft.propose((6, 6, 6))
    longest = max(len(p.token_ids) for p in proposals)

    assert longest < len(accelerator.reads) <= longest + 2
    assert tokens(proposals) == tokens(
        Draft(settings, verify=verify, p_min=p_min).propose((6, 6, 6))
    )
    for row, proposal in zip(draft.rows, proposals, strict=True):
        end = len(draft.held(row))
        assert draft.held(row) == [*row.token_ids, *proposal.token_ids][:end]


class InterruptedRunner(ModelRunner):
    """Fails in its third forward, as when memory runs out."""

    num_forwards = 0

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        self.num_forwards += 1
        if self.num_forwards == 3:
            raise MemoryError
        return super().forward(inputs)


def test_an_unread_draft_is_forgotten() -> None:
    """Tokens that were never read count as rejected: nothing is taken for them, nor lost."""
    runner = InterruptedRunner(
        tiny.slotted("llama", "random"), context_length=tiny.CONTEXT, budget=MemoryBudget(10**9)
    )
    proposer = DraftModelProposer(runner, verify="coupled", num_token_ids=tiny.VOCAB)
    row = _sequence(1, SETTINGS["plain"])
    proposer.admit(row, 1)
    with pytest.raises(MemoryError):
        proposer.propose([DraftRequest(row, 5)])
    again = proposer.propose([DraftRequest(row, 5)])
    fresh = DraftModelProposer(runner, verify="coupled", num_token_ids=tiny.VOCAB)
    fresh.admit(row, 1)

    assert tokens(again) == tokens(fresh.propose([DraftRequest(row, 5)]))
