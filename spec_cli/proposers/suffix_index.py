"""Where a text went on after its end was last seen: the longest match, of equals the latest.

A hash chain, as in LZ77 compressors (Deutsch 1996, RFC 1951, section 4): two tokens find their
latest continuation, each continuation the one before it after the same two, and the most recent
few are compared backwards for the longest match. That is a suffix automaton's answer (Hu et al.
2024, arXiv 2411.10666) in 40 bytes a token instead of 530; the measurements are in
docs/design/decisions/0005-suffix-index.md.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

MAX_MATCH = 32
"""Longest match told apart: beyond it text goes on as before 97 times of 100 anyway."""
MAX_CANDIDATES = 16
"""Continuations compared: 32 bring no more acceptance, 8 bring 2 % less in edited code."""
BREAK = -1
"""Between two texts of one index: no match reaches over it and no draft goes past it."""


class Match(NamedTuple):
    """An earlier occurrence of a text's end.

    Attributes:
        position: Where it went on.
        length: Tokens that are alike, at most `MAX_MATCH`.
    """

    position: int
    length: int


class TextIndex:
    """A growing text and, for each one or two tokens in it, where they were last continued.

    Example: in the text 7 8 9 7 8 the end 7 8 was continued at position 2. The last token has no
    continuation yet, so searching a text for its own end finds earlier places only.

    Attributes:
        token_ids: The text.
    """

    def __init__(self) -> None:
        self.token_ids = array("i")
        self._latest: dict[int, int] = {}  # by one or two tokens: their latest continuation
        self._earlier = array("i")  # by position: the continuation before of the same two, or -1

    def __len__(self) -> int:
        """Tokens in the text, breaks included."""
        return len(self.token_ids)

    def extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens: at most two entries and one link for each."""
        before, last = BREAK, BREAK
        if self.token_ids:
            last = self.token_ids[-1]
            before = self.token_ids[-2] if len(self.token_ids) > 1 else BREAK
        for token_id in token_ids:
            earlier = -1
            if BREAK not in (last, token_id):
                position = len(self.token_ids)
                self._latest[last] = position
                if before != BREAK:
                    pair = _pair(before, last)
                    earlier = self._latest.get(pair, -1)
                    self._latest[pair] = position
            self.token_ids.append(token_id)
            self._earlier.append(earlier)
            before, last = last, token_id

    def search(self, end: "array[int]") -> Match | None:
        """Find the end of a text, this one or another.

        Returns:
            Of the `MAX_CANDIDATES` latest continuations of its last two tokens the one with the
            longest match, of equals the latest; without any, the latest after its last token.
        """
        if not end:
            return None
        position = self._latest.get(_pair(end[-2], end[-1]), -1) if len(end) > 1 else -1
        if position < 0:
            position = self._latest.get(end[-1], -1)
            return Match(position, 1) if position >= 0 else None
        best = Match(position, self._match_length(position, end))
        for _ in range(MAX_CANDIDATES - 1):
            position = self._earlier[position]
            if position < 0 or best.length == MAX_MATCH:
                break
            # Most candidates fall here: a longer match agrees where the best one ends, too.
            if not self._agrees(position, end, best.length):
                continue
            length = self._match_length(position, end)
            if length > best.length:
                best = Match(position, length)
        return best

    def _agrees(self, position: int, end: "array[int]", back: int) -> bool:
        """Whether the tokens `back` places before the last one are there and alike."""
        text = self.token_ids
        return (
            back < min(position, len(end)) and text[position - 1 - back] == end[-1 - back] != BREAK
        )

    def _match_length(self, position: int, end: "array[int]") -> int:
        """How many tokens before `position` are alike; two are known to be."""
        text = self.token_ids
        limit = min(MAX_MATCH, position, len(end))
        length = 2
        while length < limit and text[position - 1 - length] == end[-1 - length]:
            length += 1
        return length

    def continuation(self, position: int, count: int, *, repeats: bool) -> list[int]:
        """What followed at a position.

        Args:
            position: Where to begin.
            count: Most tokens to return.
            repeats: Go on past the end as if the text repeated itself from `position` on.
        """
        draft = self.token_ids[position : position + count].tolist()
        if BREAK in draft:
            return draft[: draft.index(BREAK)]
        period = len(draft)
        while repeats and len(draft) < count:
            draft.append(draft[len(draft) - period])
        return draft


class RecentTexts:
    """A bounded memory of texts: two indices, of which the older is dropped when both are full."""

    def __init__(self, max_tokens: int) -> None:
        self._max_each = max_tokens // 2
        self._young = TextIndex()
        self._old = TextIndex()

    @property
    def indices(self) -> tuple[TextIndex, TextIndex]:
        """Both, the younger first."""
        return self._young, self._old

    def clear(self) -> None:
        """Forget all of them."""
        self._young, self._old = TextIndex(), TextIndex()

    def add(self, token_ids: list[int]) -> None:
        """Remember a text, or as much of its end as there is room for."""
        room = self._max_each - 1  # for the break
        if room < 1 or not token_ids:
            return
        kept = token_ids[-room:]
        if len(self._young) + len(kept) > room:
            self._old, self._young = self._young, TextIndex()
        self._young.extend([*kept, BREAK])


class MatchOdds:
    """How often text goes on as it did before, by the length of the match, learnt from text.

    Args:
        decay: Weight of the past, per token; 0.998 remembers about 500 tokens.
    """

    _STARTS = (1, 2, 3, 4, 6, 8, 12, 20)
    _PRIORS = (0.2, 0.45, 0.65, 0.7, 0.8, 0.85, 0.9, 0.95)
    _PRIOR_WEIGHT = 4.0

    def __init__(self, decay: float = 0.998) -> None:
        self._decay = decay
        self._bucket = [0] * (MAX_MATCH + 1)
        for length in range(1, MAX_MATCH + 1):
            self._bucket[length] = sum(start <= length for start in self._STARTS) - 1
        self._hits = [0.0] * len(self._STARTS)
        self._trials = [0.0] * len(self._STARTS)

    def observe(self, length: int, *, is_hit: bool) -> None:
        """Count one token that followed a match of `length`."""
        bucket = self._bucket[min(length, MAX_MATCH)]
        self._hits[bucket] = self._hits[bucket] * self._decay + is_hit
        self._trials[bucket] = self._trials[bucket] * self._decay + 1.0

    def hazard(self, length: int) -> float:
        """Chance that the token after a match of `length` is the one that followed before."""
        bucket = self._bucket[min(length, MAX_MATCH)]
        weight = self._PRIOR_WEIGHT
        hits = self._hits[bucket] + weight * self._PRIORS[bucket]
        return hits / (self._trials[bucket] + weight)

    def survival(self, length: int, max_count: int, least: float) -> list[float]:
        """S(1), S(2), ...: chances that so many draft tokens are all right, while above `least`.

        Each right token makes the match one longer, and so the next one likelier.
        """
        survived, result = 1.0, []
        for i in range(max_count):
            survived *= self.hazard(length + i)
            if survived < least:
                break
            result.append(survived)
        return result


def _pair(before: int, last: int) -> int:
    """A key for two tokens that no single token is."""
    return (before + 1) << 32 | last
