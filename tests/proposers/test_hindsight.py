"""A draft model that catches up tells what it would have drafted of the tokens it missed."""

from typing import Any

import pytest
import torch

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.proposers.base import DraftRequest
from spec_cli.proposers.draft_model import MAX_HINDSIGHT, DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests import tiny
from tests.accelerator import Accelerator
from tests.driving import PLENTY, drive, request

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "top_p": {"temperature": 0.7, "top_p": 0.9},
    "penalties": {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
}
MISSED = 20


def runner(kind: str, accelerator: Accelerator | None = None) -> ModelRunner:
    model = tiny.slotted("llama", kind)
    return ModelRunner(
        accelerator.put(model) if accelerator else model,
        context_length=tiny.CONTEXT,
        budget=MemoryBudget(PLENTY),
    )


def draft_model(
    kind: str = "noisy", *, verify: VerifyMode = "coupled", p_min: float = 0.0
) -> DraftModelProposer:
    return DraftModelProposer(
        runner(kind), verify=verify, num_token_ids=tiny.VOCAB, never_propose=(0, 3), p_min=p_min
    )


def answer(setting: str, index: int = 1) -> Sequence:
    """A prompt and the first tokens that the target answers with, and no draft in between."""
    driver = drive(runner("target"), None, 0)
    driver.add(request("0", tiny.prompt(index), MISSED, seed=index, **SETTINGS[setting]))
    (finished,) = driver.run().values()
    params = SamplingParams(**SETTINGS[setting])
    row = Sequence(Request(str(index), tiny.prompt(index), params, index, frozenset()), 200)
    row.commit(tuple(finished.token_ids))
    return row


def one_by_one(row: Sequence, *, p_min: float = 0.0) -> list[bool | None]:
    """For each token of the answer, what a draft of one token begun at its place makes of it."""
    result: list[bool | None] = []
    request = row.request
    for end in range(row.num_prompt_tokens, len(row)):
        proposer = draft_model(p_min=p_min)
        before = Sequence(request, 200)
        before.commit(tuple(row.token_ids[row.num_prompt_tokens : end]))
        proposer.admit(before, 1)
        (proposal,) = proposer.propose([DraftRequest(before, 1)])
        guess = proposal.token_ids
        result.append(guess[0] == row.token_ids[end] if guess else None)
    return result


def hindsight(
    row: Sequence, *, verify: VerifyMode = "coupled", p_min: float = 0.0
) -> tuple[bool | None, ...]:
    proposer = draft_model(verify=verify, p_min=p_min)
    proposer.admit(row, 1)
    return proposer.propose([DraftRequest(row, 2)])[0].hindsight


@pytest.mark.parametrize("setting", SETTINGS)
def test_it_is_what_drafting_would_have_told(setting: str) -> None:
    """Token for token that of a draft begun there: under noise, nucleus and penalties, too."""
    row = answer(setting)
    told = hindsight(row)
    assert list(told) == one_by_one(row)
    assert len(told) == MISSED
    assert {True, False} <= set(told)


def test_a_token_it_doubts_is_not_counted() -> None:
    """Where `p_min` would have ended the draft it says neither right nor wrong."""
    row = answer("plain")
    told = hindsight(row, p_min=0.05)
    assert list(told) == one_by_one(row, p_min=0.05)
    assert {None, True, False} == set(told)


def test_prompts_are_not_judged() -> None:
    """What the user wrote is nobody's draft, and one token of an answer is judged alone."""
    row = answer("greedy")
    prompt = Sequence(row.request, 200)
    assert hindsight(prompt) == ()
    prompt.commit((row.token_ids[row.num_prompt_tokens],))
    assert len(hindsight(prompt)) == 1


def test_the_bonus_after_a_full_draft_is_not_judged() -> None:
    """It follows a draft that went well, where the next token is likelier to go well, too."""
    row = answer("greedy")
    proposer = draft_model()
    proposer.admit(row, 1)
    (first,) = proposer.propose([DraftRequest(row, 3)])
    row.commit((*first.token_ids, 5))
    assert proposer.propose([DraftRequest(row, 3)])[0].hindsight == ()
    row.commit((6, 7, 8))
    assert len(proposer.propose([DraftRequest(row, 3)])[0].hindsight) == 2


def test_rejection_tells_nothing_of_sampled_rows() -> None:
    """There a draft is accepted by chance and not by being equal; at temperature 0 it is."""
    assert hindsight(answer("plain"), verify="rejection") == ()
    greedy = answer("greedy")
    assert hindsight(greedy, verify="rejection") == hindsight(greedy) != ()


def test_the_drafts_are_the_same() -> None:
    """Looking back changes no draft: that of a model which has read all before is the same."""
    row = answer("plain")
    looked_back, had_read = draft_model(), draft_model()
    for proposer in (looked_back, had_read):
        proposer.admit(row, 1)
    had_read.propose([DraftRequest(row, 1)])
    (one,), (other,) = (p.propose([DraftRequest(row, 6)]) for p in (looked_back, had_read))
    assert one.token_ids == other.token_ids
    assert (len(one.hindsight), other.hindsight) == (MISSED, ())


def test_rows_share_what_may_be_judged() -> None:
    """No more logits than planned for, however many rows catch up; short lags come first."""
    rows = [answer("greedy", index) for index in range(3)]
    rows[2] = Sequence(rows[2].request, 200)
    rows[2].commit((5, 6, 7))
    proposer = draft_model()
    for row in rows:
        proposer.admit(row, 3)
    proposals = proposer.propose([DraftRequest(row, 2) for row in rows])
    assert len(proposals[2].hindsight) == 3
    assert sum(len(p.hindsight) for p in proposals) == MAX_HINDSIGHT
    assert all(len(p.token_ids) == 2 for p in proposals)
    assert list(proposals[0].hindsight) == one_by_one(rows[0])[-len(proposals[0].hindsight) :]


@pytest.mark.parametrize("setting", ["greedy", "plain"])
def test_it_is_read_with_the_draft(setting: str) -> None:
    """On an accelerator the host waits once for both."""
    row = answer(setting)
    accelerator = Accelerator()
    with torch.inference_mode(), accelerator:
        proposer = DraftModelProposer(
            runner("noisy", accelerator),
            verify="coupled", num_token_ids=tiny.VOCAB, never_propose=(0, 3),
        )  # fmt: skip
        proposer.admit(row, 1)
        accelerator.reads.clear()
        (proposal,) = proposer.propose([DraftRequest(row, 4)])
        assert len(accelerator.reads) == 1
    assert proposal.hindsight == hindsight(row)
