"""The hybrid takes whichever guess brings more per unit of time, row by row."""

import pytest

from spec_cli.core.params import SamplingParams
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Request, Sequence
from spec_cli.policy.goodput import GoodputPolicy
from spec_cli.proposers.base import DraftRequest, Outlook
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices, best_goodput
from spec_cli.proposers.suffix import SuffixProposer
from tests import tiny
from tests.driving import drive_tiny, request
from tests.fakes import ScriptedProposer, ScriptRunner

CHEAP, DEAR = Prices(0.02, 0.01), Prices(0.9, 0.01)
COPY = [*range(20, 50), 5, *range(20, 32)]  # the end repeats the beginning
FRESH = list(range(100, 120))


def sequence(tokens: list[int], name: str = "0") -> Sequence:
    params = SamplingParams(max_tokens=500)
    return Sequence(Request(name, tuple(tokens), params, 0, frozenset()), 10_000)


def hybrid(prices: Prices, guess=lambda tokens, count: [1] * count, **options) -> HybridProposer:
    return HybridProposer(SuffixProposer(), ScriptedProposer(guess), lambda _: prices, **options)


def guess_for(proposer: HybridProposer, *rows: Sequence, count: int = 4) -> list[Proposal]:
    return proposer.propose([DraftRequest(row, count) for row in rows])


@pytest.mark.parametrize("prices", [CHEAP, DEAR])
def test_without_a_match_the_draft_model_guesses(prices: Prices) -> None:
    """A text without repeats is the draft model's; whether it pays is for the policy to say."""
    row, proposer = sequence(FRESH), hybrid(prices)
    proposer.admit(row, 1)

    assert proposer.outlook(row).source == "draft"
    assert guess_for(proposer, row)[0].token_ids == (1, 1, 1, 1)


@pytest.mark.parametrize("prices", [CHEAP, DEAR])
def test_a_long_match_beats_the_draft_model(prices: Prices) -> None:
    """Nothing drafts better or for less than a long copy."""
    row, proposer = sequence(COPY), hybrid(prices)
    proposer.admit(row, 1)
    (proposal,) = guess_for(proposer, row)

    assert proposal.source == "suffix"
    assert proposal.token_ids == (32, 33, 34, 35)
    assert proposer.outlook(row).match_length == 12


def test_a_short_match_is_weighed_against_the_price() -> None:
    """After one token alike a cheap draft model is asked, a dear one is not."""
    row = [*FRESH, 5, 100]
    for prices, source in ((CHEAP, "draft"), (DEAR, "suffix")):
        proposer = hybrid(prices)
        proposer.admit(made := sequence(row), 1)

        assert proposer.outlook(made).source == source


def test_hindsight_is_only_of_places_where_the_draft_model_is_asked() -> None:
    """Tokens that came while lookup promised more count neither for nor against the model."""
    right = ScriptedProposer(lambda tokens, count: [1], hindsight=lambda tokens: (True,) * 6)
    proposer = HybridProposer(SuffixProposer(), right, lambda _: CHEAP)
    row = sequence(FRESH)
    proposer.admit(row, 1)
    sources = []
    for token_id in (200, 201, *FRESH[5:8], 202):
        sources.append(proposer.outlook(row).source)
        row.commit((token_id,))
    (proposal,) = guess_for(proposer, row)

    assert sources == ["draft"] * 4 + ["suffix"] * 2
    assert proposal.hindsight == (True,) * 4 + (None,) * 2


@pytest.mark.parametrize(("right", "source"), [(True, "draft"), (False, "suffix")])
def test_hindsight_decides_the_next_choice(right: bool, source: str) -> None:
    """What the model would have drafted counts as what it drafted does."""
    row = sequence(FRESH)
    model = ScriptedProposer(lambda tokens, count: [7], hindsight=lambda tokens: (right,) * 20)
    proposer = HybridProposer(SuffixProposer(), model, lambda _: Prices(0.1, 0.02))
    proposer.admit(row, 1)
    for i in range(20):
        assert proposer.outlook(row).source == "draft"
        row.commit((300 + i,))
    guess_for(proposer, row)
    row.commit(tuple(FRESH[3:6]))

    assert proposer.outlook(row).source == source


@pytest.mark.parametrize(("right", "source"), [(True, "draft"), (False, "suffix")])
def test_what_was_verified_decides_the_next_choice(right: bool, source: str) -> None:
    """A draft model that was right is preferred to a middling match, one that was wrong is not."""
    row = sequence(FRESH)
    proposer = hybrid(Prices(0.1, 0.02), lambda tokens, count: [tokens[-1] + 1] * 1)
    proposer.admit(row, 1)
    for i in range(40):
        assert guess_for(proposer, row)[0].source == "draft"
        row.commit((row.token_ids[-1] + (1 if right else 2 + i % 2),))
    row.commit(tuple(FRESH[3:6]))

    assert proposer.outlook(row).source == source


def test_rows_of_one_call_may_differ() -> None:
    """One call serves rows by lookup and rows by the draft model, each in its place."""
    rows = [sequence(FRESH, "a"), sequence(COPY, "b"), sequence(FRESH[::-1], "c")]
    proposer = hybrid(CHEAP)
    for row in rows:
        proposer.admit(row, 3)
    proposals = guess_for(proposer, *rows)

    assert [p.source for p in proposals] == ["draft", "suffix", "draft"]
    assert proposals[1].token_ids == (32, 33, 34, 35)


def test_the_guess_is_by_whom_the_policy_was_told() -> None:
    """Between outlook and guess other rows may teach; the choice stands until the row grows."""
    row, other = sequence([*FRESH, 5, 100], "row"), sequence(FRESH[::-1], "other")
    proposer = hybrid(Prices(0.05, 0.01))
    for each in (row, other):
        proposer.admit(each, 2)
    before = proposer.outlook(row).source
    for _ in range(30):
        guess_for(proposer, other)
        other.commit((other.token_ids[-1] - 1,))

    assert proposer.outlook(row).source == before
    assert guess_for(proposer, row)[0].source == before


def test_isolated_rows_learn_nothing_from_each_other() -> None:
    """Isolated, a row's choice is what it is alone."""
    alone = hybrid(Prices(0.05, 0.01), is_isolated=True)
    beside = hybrid(Prices(0.05, 0.01), is_isolated=True)
    other = sequence(FRESH[::-1], "other")
    beside.admit(other, 2)
    for _ in range(30):
        guess_for(beside, other)
        other.commit((other.token_ids[-1] - 1,))
    for proposer in (alone, beside):
        proposer.admit(sequence([*FRESH, 5, 100]), 1)

    assert beside.outlook(sequence([*FRESH, 5, 100])) == alone.outlook(sequence([*FRESH, 5, 100]))


class EndedProposer(ScriptedProposer):
    """A draft model whose context is full."""

    def __init__(self) -> None:
        super().__init__(lambda tokens, count: [1] * count)

    def outlook(self, sequence: Sequence) -> Outlook:
        return Outlook("draft", 0, ended="full")


def test_an_ended_draft_model_leaves_lookup() -> None:
    """Lookup goes on where the draft model cannot, and the reason is still told."""
    proposer = HybridProposer(SuffixProposer(), EndedProposer(), lambda _: CHEAP)
    copy, fresh = sequence(COPY, "copy"), sequence(FRESH, "fresh")
    for row in (copy, fresh):
        proposer.admit(row, 2)

    assert (proposer.outlook(copy).source, proposer.outlook(copy).ended) == ("suffix", "full")
    assert proposer.outlook(fresh) == Outlook("draft", 0, ended="full")


class FullProposer(ScriptedProposer):
    """A draft model without memory for another row."""

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        return False


def test_a_row_waits_for_the_draft_models_memory() -> None:
    """Without memory for the draft model nothing is followed."""
    proposer = HybridProposer(SuffixProposer(), FullProposer(None), lambda _: CHEAP)

    assert not proposer.admit(sequence(FRESH), 1)
    assert not proposer._rows


def test_the_draft_model_catches_up() -> None:
    """After steps of lookup it processes what it missed, once."""
    answer = [*range(20, 32), 60, 61, 62, 63, 64, 65]
    prompt = [*range(20, 50), 5, 20, 21]
    runner = ScriptRunner([*answer[2:], 0], len(prompt), vocab_size=70)
    draft = DraftModelProposer(runner, verify="coupled", num_token_ids=70)
    proposer = HybridProposer(SuffixProposer(), draft, lambda _: Prices(0.5, 0.01))
    row = sequence(prompt)
    proposer.admit(row, 1)
    row.commit((22,))
    while row.token_ids[-1] != 60:
        assert guess_for(proposer, row, count=2)[0].source == "suffix"
        row.commit((answer[len(row) - len(prompt) + 2],))
    (proposal,) = guess_for(proposer, row, count=3)

    assert proposal.source == "draft"
    assert proposal.token_ids == (61, 62, 63)
    assert sorted(runner.positions) == list(range(len(row) + 2))


def test_rows_are_forgotten() -> None:
    """After a batch nothing is kept of a row."""
    driver = drive_tiny("llama", "hybrid", 4, max_rows=3)
    driver.add(*(request(str(i), tiny.prompt(i), 12) for i in range(6)))
    driver.run()
    proposer = driver.engine.parts.proposer

    assert isinstance(proposer, HybridProposer)
    assert not proposer._rows


def test_both_sources_serve_one_batch() -> None:
    """On a real (tiny) model some tokens come by lookup and some by the draft model."""
    driver = drive_tiny("llama", "hybrid", 4)
    driver.add(*(request(str(i), tiny.prompt(i), 60) for i in range(4)))
    answers = driver.run()
    sources = {token.source for answer in answers.values() for token in answer.tokens}

    assert sources == {"suffix", "draft", "target"}


@pytest.mark.parametrize("draft", ["suffix", "hybrid"])
def test_the_goodput_policy_changes_no_token(draft: str) -> None:
    """Draft lengths by measured cost, pauses and probes included, give the target's own tokens."""
    driver = drive_tiny("llama", draft, 0, policy=GoodputPolicy())
    driver.add(*(request(str(i), tiny.prompt(i), 60) for i in range(3)))
    answers = driver.run()

    for i in range(3):
        assert tuple(answers[str(i)].token_ids) == tiny.expected("llama", i, 60)


def test_best_goodput() -> None:
    """The best prefix counts: free tokens are all taken, dear ones not at all."""
    assert best_goodput([], 0.1) == 1.0
    assert best_goodput([0.5, 0.25], 0.0) == pytest.approx(1.75)
    assert best_goodput([0.5, 0.25], 0.9) == 1.0
    assert best_goodput([0.9, 0.1], 0.2) == pytest.approx(1.9 / 1.2)
