"""The suffix index finds what a brute-force search finds, in bounded memory and work."""

import gc
import random
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cli.proposers.suffix_index import (
    BREAK,
    MAX_CANDIDATES,
    MAX_MATCH,
    Match,
    MatchOdds,
    RecentTexts,
    TextIndex,
)

TOKENS = st.lists(st.integers(0, 2), max_size=80)
TEXTS = st.lists(TOKENS, max_size=4)


def joined(texts: list[list[int]]) -> list[int]:
    return [token for text in texts for token in (*text, BREAK)]


def index_of(token_ids: list[int]) -> TextIndex:
    index = TextIndex()
    index.extend(token_ids)
    return index


def brute_force(text: list[int], end: list[int]) -> Match | None:
    """The definition: look at every place, compare backwards."""
    matches = []
    for position in range(1, len(text)):
        if text[position] == BREAK:
            continue
        length = 0
        while (
            length < min(MAX_MATCH, position, len(end))
            and text[position - 1 - length] == end[-1 - length] != BREAK
        ):
            length += 1
        if length:
            matches.append(Match(position, length))
    pairs = [match for match in matches if match.length > 1][-MAX_CANDIDATES:]
    if pairs:
        return max(pairs, key=lambda match: (match.length, match.position))
    return max(matches, default=None)


@given(TOKENS)
def test_own_text_as_by_brute_force(text: list[int]) -> None:
    """At every length, a text's end is found in it as a search of the whole text finds it."""
    index = TextIndex()
    for i, token in enumerate(text):
        index.extend([token])

        assert index.search(index.token_ids) == brute_force(text[: i + 1], text[: i + 1])


@given(TEXTS, TOKENS)
def test_other_texts_as_by_brute_force(texts: list[list[int]], end: list[int]) -> None:
    """No match reaches over the break between two texts, and none continues with it."""
    text = joined(texts)

    assert index_of(text).search(array("i", end)) == brute_force(text, end)


@given(TOKENS, st.integers(1, 9))
def test_pieces_index_as_one(text: list[int], size: int) -> None:
    """A text that grows by pieces has the index of the whole text."""
    grown = TextIndex()
    for at in range(0, len(text), size):
        grown.extend(text[at : at + size])
    whole = index_of(text)

    assert grown.token_ids == whole.token_ids
    assert grown.search(grown.token_ids) == whole.search(whole.token_ids)


def test_continuation() -> None:
    """Own text repeats itself past its end; another text ends at its end or its break."""
    own = index_of([7, 8, 9, 7, 8])
    other = index_of([1, 2, 3, BREAK, 4, 5])

    assert own.continuation(2, 7, repeats=True) == [9, 7, 8, 9, 7, 8, 9]
    assert own.continuation(2, 2, repeats=True) == [9, 7]
    assert own.continuation(2, 7, repeats=False) == [9, 7, 8]
    assert other.continuation(1, 7, repeats=False) == [2, 3]
    assert other.continuation(5, 7, repeats=False) == [5]


class CountedText(array):  # type: ignore[type-arg]
    """A text that counts how often it is read."""

    num_reads = 0

    def __getitem__(self, place):
        self.num_reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 50])
def test_work_per_token_is_bounded(vocabulary: int) -> None:
    """However long the text, a token costs at most one comparison per place of each candidate."""
    rng = random.Random(vocabulary)
    index = TextIndex()
    index.token_ids = CountedText("i")
    worst: dict[bool, int] = {}
    for length in range(1, 4001):
        before = index.token_ids.num_reads
        index.extend([rng.randrange(vocabulary)])
        index.search(index.token_ids)
        worst[length > 2000] = max(worst.get(length > 2000, 0), index.token_ids.num_reads - before)

    assert worst[True] <= 2 * MAX_CANDIDATES * MAX_MATCH + 8
    assert worst[True] <= 1.5 * worst[False] + 8, "the work grows with the text"


def used_bytes(make) -> int:
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del made
    return used


def test_memory_is_linear() -> None:
    """The worst text, in which no two tokens repeat, takes at most 350 bytes a token."""
    sizes = (4_000, 16_000)
    used = [used_bytes(lambda size=size: index_of(list(range(size)))) for size in sizes]

    for size, total in zip(sizes, used, strict=True):
        assert total <= 350 * size


def test_recent_texts_are_bounded_and_forget_the_oldest() -> None:
    """After ten times its size in texts, it holds at most its size, and only the last ones."""
    rng = random.Random(0)
    texts = [[rng.randrange(1000) for _ in range(rng.randrange(1, 90))] for _ in range(220)]
    recent = RecentTexts(1000)
    for text in texts:
        recent.add(text)

        assert sum(len(index) for index in recent.indices) <= 1000

    def is_known(text: list[int]) -> bool:
        found = [index.search(array("i", text[:-1])) for index in recent.indices]
        wanted = min(MAX_MATCH, len(text) - 1)
        return any(match is not None and match.length >= wanted for match in found)

    assert all(is_known(text) for text in texts[-5:] if len(text) > 3)
    assert not any(is_known(text) for text in texts[:100] if len(text) > 3)


def test_recent_texts_memory() -> None:
    """Memory stays what two full halves take, however many texts went through."""

    def filled(num_texts: int) -> RecentTexts:
        recent = RecentTexts(2000)
        for i in range(num_texts):
            recent.add(list(range(100 * i, 100 * i + 100)))
        return recent

    assert used_bytes(lambda: filled(200)) <= 350 * 2000


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10])
def test_recent_texts_keep_the_end_of_a_long_text(size: int) -> None:
    """A text that does not fit keeps its end; a memory without room keeps nothing."""
    recent = RecentTexts(size)
    recent.add(list(range(100)))
    held = [token for index in recent.indices for token in index.token_ids if token != BREAK]

    assert held == list(range(100 - max(0, size // 2 - 1), 100))


def test_odds_follow_what_is_seen() -> None:
    """Odds begin with the prior, longer matches being likelier, and move to what is counted."""
    odds = MatchOdds()
    prior = [odds.hazard(length) for length in (1, 2, 3, 4, 6, 8, 12, 20)]
    for _ in range(300):
        odds.observe(5, is_hit=False)

    assert prior == sorted(prior)
    assert odds.hazard(5) < 0.05
    assert odds.hazard(8) == prior[5]
    assert odds.hazard(1000) == odds.hazard(MAX_MATCH)


def test_survival_grows_with_the_match() -> None:
    """Each right token makes the next likelier; the draft ends where it becomes unlikely."""
    odds = MatchOdds()
    short, long = odds.survival(2, 32, 0.1), odds.survival(20, 32, 0.1)

    assert short == sorted(short, reverse=True)
    assert all(value >= 0.1 for value in short + long)
    assert short[1] / short[0] == pytest.approx(odds.hazard(3))
    assert sum(short) < sum(long)
    assert odds.survival(2, 3, 0.0)[:2] == short[:2]
    assert odds.survival(1, 32, 0.5) == []
