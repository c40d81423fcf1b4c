"""Lookup in the row's own text, in the session's earlier answers and in texts the user gave.

Of the longest match in each, the one that promises most is copied, as far as it is likely to hold
(SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975, whose draft length and score follow the
match as well). How likely is learnt from every token that a row gains, drafted or not.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from spec_cli.core.config import MAX_DRAFT_TOKENS
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Sequence
from spec_cli.proposers.base import DraftRequest, Outlook
from spec_cli.proposers.suffix_index import BREAK, Match, MatchOdds, RecentTexts, TextIndex

MAX_SESSION_TOKENS = 1 << 16
MAX_CORPUS_TOKENS = 1 << 20
"""About 100 MB of index."""
_LEAST_SURVIVAL = 0.1
"""A draft ends where its next token would be right less often than this."""


@dataclass(frozen=True, slots=True)
class Guess:
    """The best lookup for a row.

    Attributes:
        token_ids: Draft tokens, the most that are worth a thought.
        match_length: Tokens of the row's end found before them.
        survival: S(i) for each draft token: the chance that it and all before it are right.
    """

    token_ids: tuple[int, ...] = ()
    match_length: int = 0
    survival: tuple[float, ...] = ()

    def score(self, num_draft_tokens: int) -> float:
        """Expected accepted tokens of the first `num_draft_tokens`."""
        return sum(self.survival[:num_draft_tokens])


@dataclass(slots=True)
class _Found:
    """A match in one index, and the odds learnt for indices of its kind."""

    index: TextIndex
    match: Match
    odds: MatchOdds
    is_own: bool

    def judge(self, token_id: int) -> None:
        """Learn from the token that came."""
        expected = self.index.token_ids[self.match.position]
        self.odds.observe(self.match.length, is_hit=expected == token_id)

    def guess(self) -> Guess:
        """What to draft because of it."""
        survival = self.odds.survival(self.match.length, MAX_DRAFT_TOKENS, _LEAST_SURVIVAL)
        position, count = self.match.position, len(survival)
        token_ids = self.index.continuation(position, count, repeats=self.is_own)
        return Guess(tuple(token_ids), self.match.length, tuple(survival[: len(token_ids)]))


@dataclass(frozen=True, slots=True)
class _Odds:
    """How far each kind of text is to be trusted."""

    own: MatchOdds = field(default_factory=MatchOdds)
    session: MatchOdds = field(default_factory=MatchOdds)
    corpus: MatchOdds = field(default_factory=MatchOdds)


@dataclass(slots=True)
class _Row:
    """One row's own index, and what was found for its end."""

    odds: _Odds
    index: TextIndex = field(default_factory=TextIndex)
    found: list[_Found] = field(default_factory=list)
    guess: Guess = field(default_factory=Guess)


class SuffixProposer:
    """Guesses that what followed the end of a row before, here or elsewhere, follows again."""

    def __init__(
        self,
        corpus: Iterable[list[int]] = (),
        *,
        answers: RecentTexts | None = None,
        is_isolated: bool = False,
        max_corpus_tokens: int = MAX_CORPUS_TOKENS,
    ) -> None:
        """Index the corpus.

        Args:
            corpus: Texts to look up in besides prompt and output.
            answers: Earlier ones, to look up in and to add to; None begins without any.
            is_isolated: Let no row learn from another. Rejection verification needs it: there the
                tokens depend on the drafts, and so they would depend on a row's neighbours.
            max_corpus_tokens: Tokens of the corpus to index; what comes after is left out.
        """
        self._rows: dict[str, _Row] = {}
        self._is_isolated = is_isolated
        self._odds = _Odds()
        if is_isolated:
            self._answers = RecentTexts(0)
        else:
            self._answers = RecentTexts(MAX_SESSION_TOKENS) if answers is None else answers
        self._corpus = TextIndex()
        for token_ids in corpus:
            room = max_corpus_tokens - len(self._corpus) - 1
            if room < 1:
                break
            self._corpus.extend([*token_ids[:room], BREAK])

    def bytes_for(self, max_length: int) -> int:
        """No cache is needed."""
        del max_length
        return 0

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """See `Proposer.admit`."""
        del num_rows
        self._rows[sequence.request_id] = _Row(_Odds() if self._is_isolated else self._odds)
        return True

    def outlook(self, sequence: Sequence) -> Outlook:
        """See `Proposer.outlook`."""
        guess = self.guess(sequence)
        return Outlook("suffix", len(guess.token_ids), match_length=guess.match_length)

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """See `Proposer.propose`."""
        return [
            Proposal(self.guess(r.sequence).token_ids[: r.num_draft_tokens], "suffix")
            for r in requests
        ]

    def release(self, sequence: Sequence) -> None:
        """See `Proposer.release`; the answer is remembered for later requests."""
        if self._rows.pop(sequence.request_id, None) is not None:
            self._answers.add(sequence.output_token_ids)

    def forget_answers(self) -> None:
        """Forget the session's answers: a prompt asked twice would find its own answer."""
        self._answers.clear()

    def guess(self, sequence: Sequence) -> Guess:
        """The best guess for what comes after the committed tokens."""
        row = self._rows[sequence.request_id]
        if len(row.index) == len(sequence):
            return row.guess
        start = max(len(row.index), sequence.num_prompt_tokens)
        row.index.extend(sequence.token_ids[len(row.index) : start])
        for token_id in sequence.token_ids[start:]:
            # A prompt is not judged: the model did not write it.
            for found in row.found:
                found.judge(token_id)
            row.index.extend((token_id,))
            row.found = self._search(row)
        row.found = row.found or self._search(row)
        guesses = [found.guess() for found in row.found]
        row.guess = max(guesses, key=lambda g: sum(g.survival), default=Guess())
        return row.guess

    def _search(self, row: _Row) -> list[_Found]:
        """Matches of the row's end: its own text first, which wins ties."""
        young, old = self._answers.indices
        end: array[int] = row.index.token_ids
        found = []
        for index, odds in (
            (row.index, row.odds.own),
            (young, row.odds.session),
            (old, row.odds.session),
            (self._corpus, row.odds.corpus),
        ):
            match = index.search(end)
            if match is not None:
                found.append(_Found(index, match, odds, is_own=index is row.index))
        return found
