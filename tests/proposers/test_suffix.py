"""Lookup in a row's own text, the session's answers and the user's texts."""

import random

import pytest

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.proposers.base import DraftRequest
from spec_cli.proposers.suffix import SuffixProposer
from spec_cli.proposers.suffix_index import RecentTexts
from tests import tiny
from tests.driving import drive_tiny, request


def sequence(prompt: list[int], output: list[int] = (), name: str = "0") -> Sequence:  # type: ignore[assignment]
    made = Sequence(
        Request(name, tuple(prompt), SamplingParams(max_tokens=500), 0, frozenset()), 10_000
    )
    made.commit(tuple(output))
    return made


def drafted(proposer: SuffixProposer, row: Sequence, count: int = 32) -> list[int]:
    proposer.admit(row, 1)
    return list(proposer.propose([DraftRequest(row, count)])[0].token_ids)


def test_copies_from_the_prompt() -> None:
    """The end of the row is found in the prompt; what followed is drafted."""
    row = sequence([*range(10, 40), 5, 14, 15, 16])

    assert drafted(SuffixProposer(), row, 4) == [17, 18, 19, 20]


def test_the_longest_match_wins_of_equals_the_latest() -> None:
    """A longer match beats a later one; of equal ones the latest is taken."""
    longer = sequence([1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3])
    later = sequence([2, 3, 50, 9, 2, 3, 60, 8, 2, 3])

    assert drafted(SuffixProposer(), longer, 1) == [50]
    assert drafted(SuffixProposer(), later, 1) == [60]


def test_draft_length_follows_the_match() -> None:
    """A match of one token promises little and a long one much."""
    text = list(range(10, 90))
    lengths = []
    for size in (1, 2, 4, 8, 20):
        row = sequence([*text, 5, *text[:size]])
        proposer = SuffixProposer()
        proposer.admit(row, 1)
        outlook = proposer.outlook(row)
        lengths.append(outlook.max_draft_tokens)

        assert outlook.match_length == size
        assert outlook.source == "suffix"

    assert lengths == sorted(lengths)
    assert 1 <= lengths[0] <= 3
    assert lengths[-1] == 32


def test_learns_how_far_to_trust_a_match() -> None:
    """Where matches keep failing drafts get shorter, where they hold longer; prompts teach none."""
    rng = random.Random(0)

    def length_after(output: list[int]) -> int:
        proposer = SuffixProposer()
        row = sequence([*range(20), *range(20)], [])
        proposer.admit(row, 1)
        for token in output:
            proposer.outlook(row)
            row.commit((token,))
        probe = sequence([500, 501, 502, 503, 504, 505, 7, 500, 501], name="probe")
        proposer.admit(probe, 1)
        return proposer.outlook(probe).max_draft_tokens

    misled = [token for _ in range(60) for token in (3, 4, rng.randrange(100, 400))]

    assert length_after(misled) < length_after([]) <= length_after(list(range(20)) * 6)


def test_session_remembers_answers() -> None:
    """What an earlier request was answered is drafted in a later one; its prompt is not kept."""
    proposer = SuffixProposer()
    first = sequence([1, 2, 3], [70, 71, 72, 73, 74])
    proposer.admit(first, 1)
    proposer.outlook(first)
    proposer.release(first)

    assert drafted(proposer, sequence([9, 70, 71], name="a"))[:3] == [72, 73, 74]
    assert drafted(proposer, sequence([9, 1, 2], name="b")) == []


def test_session_forgets_the_oldest_answers() -> None:
    """A bounded session drops the oldest answers first."""
    proposer = SuffixProposer(answers=RecentTexts(64))
    for i in range(10):
        old = sequence([1], [100 * i + j for j in range(20)], name=str(i))
        proposer.admit(old, 1)
        proposer.release(old)

    assert drafted(proposer, sequence([9, 900, 901], name="new"), 2) == [902, 903]
    assert drafted(proposer, sequence([9, 100, 101], name="lost"), 2) == []


def test_corpus() -> None:
    """The user's texts are looked up in; a draft ends with its text; a limit cuts what is over."""
    corpus = [[30, 31, 32], [40, 41, 42, 43]]

    assert drafted(SuffixProposer(corpus), sequence([9, 30, 31])) == [32]
    assert drafted(SuffixProposer(corpus), sequence([9, 40, 41]))[:2] == [42, 43]
    assert drafted(SuffixProposer(corpus, max_corpus_tokens=4), sequence([9, 40, 41])) == []
    assert drafted(SuffixProposer(corpus, max_corpus_tokens=7), sequence([9, 40, 41])) == []


def test_the_better_source_wins() -> None:
    """A long match in the corpus beats a short one in the row itself; equals go to the row."""
    corpus = [[1, 2, 3, 4, 5, 6, 80]]
    own_short = sequence([6, 90, 1, 2, 3, 4, 5, 6])
    own_equal = sequence([4, 5, 6, 90, 8, 4, 5, 6])

    assert drafted(SuffixProposer(corpus), own_short, 1) == [80]
    assert drafted(SuffixProposer(corpus), own_equal, 1) == [90]


def test_text_without_repeats_gives_no_guess() -> None:
    """Nothing to copy is an empty, valid guess."""
    row = sequence(list(range(50)))
    proposer = SuffixProposer()

    assert drafted(proposer, row) == []
    assert proposer.outlook(row).max_draft_tokens == 0


def test_the_policy_takes_the_source() -> None:
    """The acceptance model treats it as a lookup: a longer match starts out likelier."""
    model = AcceptanceModel()
    model.observe("suffix", "0", 6, 4, 4)

    assert model.survival("suffix", "new", 2, 4) < model.survival("suffix", "new", 8, 4)


def test_rows_are_forgotten() -> None:
    """After a batch nothing is kept but the bounded session."""
    driver = drive_tiny("llama", "suffix", 4, max_rows=3)
    driver.add(*(request(str(i), tiny.prompt(i), 12) for i in range(6)))
    driver.run()
    proposer = driver.engine.parts.proposer

    assert isinstance(proposer, SuffixProposer)
    assert not proposer._rows


def test_isolated_rows_learn_nothing_from_each_other() -> None:
    """Isolated, a row's drafts are what they are without the rows before it."""
    alone, after = SuffixProposer(is_isolated=True), SuffixProposer(is_isolated=True)
    first = sequence([1, 2, 3], [70, 71, 72, 70, 71, 9, 70, 71, 8, 70])
    after.admit(first, 1)
    after.outlook(first)
    after.release(first)
    row = sequence([70, 71, 5, 70, 71], name="1")

    assert drafted(after, row) == drafted(alone, row)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_repeated_request_is_drafted_from_the_session(k: int) -> None:
    """The same greedy request again is answered from the session, and with the same tokens."""
    driver = drive_tiny("llama", "suffix", k)
    for i in range(2):
        driver.add(request(str(i), tiny.prompt(1), 32))
        driver.run()
    first, second = driver.answers["0"], driver.answers["1"]

    assert first.token_ids == second.token_ids
    assert {token.source for token in second.tokens} == {"suffix", "target"}
    assert second.stats.num_target_passes < first.stats.num_target_passes
