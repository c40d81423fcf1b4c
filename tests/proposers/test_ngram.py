"""Prompt lookup equals a search of the whole text, at a constant cost per token."""

from hypothesis import given
from hypothesis import strategies as st

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, Sequence
from spec_cli.proposers.base import DraftRequest
from spec_cli.proposers.ngram import NgramIndex, NgramProposer

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
SIZES = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda t: (t[0], t[0] + t[1]))


def search(text: list[int], min_n: int, max_n: int) -> tuple[int, int] | None:
    """Longest match of the end, most recent of equals: position of its continuation, and length."""
    for n in range(max_n, min_n - 1, -1):
        for position in range(len(text) - 1, n - 1, -1):
            if n <= len(text) and text[position - n : position] == text[-n:]:
                return position, n
    return None


def make(text: list[int], min_n: int, max_n: int) -> tuple[NgramProposer, Sequence]:
    request = Request("0", tuple(text), SamplingParams(), 0, frozenset())
    row = Sequence(request, 10_000)
    proposer = NgramProposer(min_n, max_n)
    proposer.admit(row, 1)
    return proposer, row


@given(text=TEXTS, sizes=SIZES)
def test_match_equals_search(text: list[int], sizes: tuple[int, int]) -> None:
    """The index finds what a search of the whole text finds: longest, then most recent."""
    index = NgramIndex(*sizes)
    index.extend(text)

    assert index.match(text) == search(text, *sizes)


@given(pieces=st.lists(TEXTS, min_size=1, max_size=8), sizes=SIZES)
def test_index_grows_with_the_text(pieces: list[list[int]], sizes: tuple[int, int]) -> None:
    """Fed piece by piece, asked or not in between, it finds the same."""
    index = NgramIndex(*sizes)
    text: list[int] = []
    for i, piece in enumerate(pieces):
        text += piece
        if i % 2:
            index.extend(text)
            assert index.match(text) == search(text, *sizes)
    index.extend(text)
    index.extend(text)  # nothing new

    assert index.match(text) == search(text, *sizes)


@given(text=TEXTS, sizes=SIZES, count=st.integers(1, 20))
def test_guess_is_what_followed(text: list[int], sizes: tuple[int, int], count: int) -> None:
    """The guess is what followed the match; past the end of the text, the guess itself follows."""
    proposer, row = make(text, *sizes)
    outlook = proposer.outlook(row)
    (proposal,) = proposer.propose([DraftRequest(row, count)])
    found = search(text, *sizes)

    if found is None:
        assert outlook.max_draft_tokens == 0
        assert proposal.token_ids == ()
        return
    position, length = found
    longer = list(text)
    for i in range(count):
        longer.append(longer[position + i])
    assert list(proposal.token_ids) == longer[len(text) :]
    assert outlook.match_length == length
    assert proposal.draft_probs is None


def test_example() -> None:
    """The example of the documentation: 7 8 9 7 8 is followed by 9 7 8 9 7 8 ..."""
    proposer, row = make([7, 8, 9, 7, 8], 1, 2)

    assert proposer.propose([DraftRequest(row, 6)])[0].token_ids == (9, 7, 8, 9, 7, 8)


def test_most_recent_of_equals() -> None:
    """Of two equally long matches the later one is followed."""
    proposer, row = make([1, 2, 5, 1, 2, 6, 1, 2], 1, 2)

    assert proposer.propose([DraftRequest(row, 1)])[0].token_ids == (6,)


def test_longest_before_most_recent() -> None:
    """A longer match wins over a later one."""
    proposer, row = make([1, 2, 5, 9, 2, 6, 1, 2], 1, 2)

    assert proposer.propose([DraftRequest(row, 1)])[0].token_ids == (5,)


class CountingDict(dict[tuple[int, ...], int]):
    """Counts what is entered."""

    num_entered = 0

    def __setitem__(self, key: tuple[int, ...], value: int) -> None:
        self.num_entered += 1
        super().__setitem__(key, value)


def test_cost_per_token_is_constant() -> None:
    """A token costs at most max_n - min_n + 1 entries, however long the text and often asked."""
    proposer, row = make([0, 1], 1, 3)
    entries = proposer._indices["0"]._continued_at = CountingDict()
    for i in range(300):
        row.commit((i % 7, i % 5))
        proposer.outlook(row)
        before = entries.num_entered
        proposer.outlook(row)
        proposer.propose([DraftRequest(row, 4)])
        assert entries.num_entered == before

    assert entries.num_entered <= 3 * len(row)
