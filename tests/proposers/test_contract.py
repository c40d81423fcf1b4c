"""What every proposer promises, as one suite."""

import random
from collections.abc import Callable

import pytest
import torch

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.proposers.base import DraftRequest, Proposer
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer
from tests.fakes import FakeRunner, ScriptedProposer

VOCAB = 16


class MixRunner(FakeRunner):
    """Its logits depend on every token before."""

    def __init__(self) -> None:
        super().__init__(VOCAB)

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        rng = random.Random(str(token_ids))
        return torch.tensor([rng.gauss(0, 3) for _ in range(VOCAB)])


MAKERS: dict[str, Callable[[], Proposer]] = {
    "ngram": NgramProposer,
    "ngram 2-5": lambda: NgramProposer(2, 5),
    "suffix": SuffixProposer,
    "suffix with texts": lambda: SuffixProposer([text(3, 40), text(4, 40)], is_isolated=True),
    "hybrid": lambda: HybridProposer(
        SuffixProposer(),
        DraftModelProposer(MixRunner(), verify="coupled", num_token_ids=VOCAB),
        lambda num_rows: Prices(0.2, 0.04 * num_rows),
    ),
    "draft coupled": lambda: DraftModelProposer(MixRunner(), verify="coupled", num_token_ids=VOCAB),
    "draft rejection": lambda: DraftModelProposer(
        MixRunner(), verify="rejection", num_token_ids=VOCAB
    ),
    "draft doubtful": lambda: DraftModelProposer(
        MixRunner(), verify="coupled", num_token_ids=VOCAB, p_min=0.4
    ),
    "draft with few ids": lambda: DraftModelProposer(
        MixRunner(), verify="coupled", num_token_ids=VOCAB - 4
    ),
    "scripted": lambda: ScriptedProposer(lambda token_ids, count: token_ids[:count]),
}
every_proposer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
temperatures = pytest.mark.parametrize("temperature", [0.0, 1.0])


def sequence(name: str, token_ids: list[int], temperature: float = 0.0) -> Sequence:
    params = SamplingParams(temperature=temperature, max_tokens=500)
    request = Request(name, tuple(token_ids), params, 7, frozenset())
    return Sequence(request, len(token_ids) + 500)


def text(seed: int, length: int) -> list[int]:
    """Tokens that repeat now and then, all known to every proposer."""
    rng = random.Random(seed)
    return [rng.randrange(6) for _ in range(length)]


def guess(proposer: Proposer, *asked: tuple[Sequence, int]) -> list[tuple[int, ...]]:
    requests = [DraftRequest(s, k) for s, k in asked if proposer.outlook(s).max_draft_tokens]
    proposals = proposer.propose(requests) if requests else []
    assert len(proposals) == len(requests)
    return [proposal.token_ids for proposal in proposals]


@every_proposer
@temperatures
def test_at_most_what_was_asked(make: Callable[[], Proposer], temperature: float) -> None:
    """A proposal is no longer than asked, names known ids, and brings a distribution or none."""
    proposer = make()
    for length in (1, 2, 9, 40):
        row = sequence(str(length), text(length, length), temperature)
        assert proposer.admit(row, 1)
        outlook = proposer.outlook(row)
        for k in range(1, min(8, outlook.max_draft_tokens) + 1):
            (proposal,) = proposer.propose([DraftRequest(row, k)])

            assert len(proposal.token_ids) <= k
            assert all(0 <= token < VOCAB for token in proposal.token_ids)
            assert proposal.source == outlook.source
            if proposal.draft_probs is not None:
                probs = proposal.draft_probs
                assert probs.shape == (len(proposal.token_ids), VOCAB)
                assert torch.allclose(probs.sum(dim=-1), torch.ones(len(probs)))
                assert all(float(p[t]) > 0 for p, t in zip(probs, proposal.token_ids, strict=True))


@every_proposer
def test_sequences_are_only_read(make: Callable[[], Proposer]) -> None:
    """Neither looking ahead nor guessing changes a sequence, and both may be repeated."""
    proposer = make()
    row = sequence("0", text(1, 30))
    proposer.admit(row, 1)

    first = guess(proposer, (row, 5))

    assert row.token_ids == text(1, 30)
    assert guess(proposer, (row, 5)) == first
    assert guess(proposer, (row, 2)) == [tokens[:2] for tokens in first]


@every_proposer
@temperatures
def test_whatever_was_missed_is_caught_up(make: Callable[[], Proposer], temperature: float) -> None:
    """After steps unasked and drafts accepted in part, it guesses as if it came fresh."""
    rng = random.Random(3)
    veteran = make()
    row = sequence("0", text(2, 12), temperature)
    veteran.admit(row, 1)
    for _ in range(25):
        drafts = guess(veteran, (row, rng.randint(1, 6))) if rng.random() < 0.7 else []
        kept = drafts[0][: rng.randint(0, len(drafts[0]))] if drafts else ()
        if all(token < 6 for token in kept):
            row.commit(kept)
        row.commit(tuple(rng.randrange(6) for _ in range(rng.randint(1, 3))))
    fresh = make()
    fresh.admit(row, 1)

    assert guess(veteran, (row, 6)) == guess(fresh, (row, 6))


@every_proposer
@temperatures
def test_rows_are_apart(make: Callable[[], Proposer], temperature: float) -> None:
    """Guesses for several rows, each of its own length, are those for each row alone, in order."""
    rows = [sequence(str(i), text(i, 5 + 7 * i), temperature) for i in range(4)]
    lengths = (3, 1, 6, 2)
    together = make()
    for row in rows:
        together.admit(row, 4)
    alone = []
    for row, k in zip(rows, lengths, strict=True):
        proposer = make()
        proposer.admit(row, 1)
        alone += guess(proposer, (row, k))

    assert guess(together, *zip(rows, lengths, strict=True)) == alone
    assert guess(together, *zip(rows[::-1], lengths[::-1], strict=True)) == alone[::-1]


@every_proposer
def test_a_name_can_be_used_again(make: Callable[[], Proposer]) -> None:
    """After release nothing is left of a row: the same name starts afresh, others stay."""
    proposer = make()
    old, other = sequence("0", text(4, 30)), sequence("1", text(5, 30))
    proposer.admit(old, 2)
    proposer.admit(other, 2)
    before = guess(proposer, (old, 4), (other, 4))[1:]
    proposer.release(old)
    new = sequence("0", text(6, 20))
    proposer.admit(new, 2)
    fresh = make()
    fresh.admit(new, 1)

    assert guess(proposer, (new, 4)) == guess(fresh, (new, 4))
    assert guess(proposer, (other, 4)) == before


@every_proposer
def test_memory_grows_with_the_row(make: Callable[[], Proposer]) -> None:
    """The bytes it asks for are none or grow with the length of the row."""
    proposer = make()

    assert 0 <= proposer.bytes_for(10) <= proposer.bytes_for(1000)
