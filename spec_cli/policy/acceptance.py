"""How likely draft tokens are to be accepted, learnt from those that were judged.

Survival S(i), the chance that the first i draft tokens are all accepted, replaces the geometric
assumption of Leviathan et al. 2023 (arXiv 2211.17192, section 3.1): expected tokens of a step are
1 + sum of S(i) for i <= k. S is a product of hazards h(i), the chance that position i is accepted
given that all before it were. A hazard is counted only where position i was reached, so a draft
accepted to its end is censored there, not failed (Kaplan and Meier 1958, section 2).
"""

from collections import deque
from itertools import accumulate
from math import sqrt
from operator import mul

from spec_cli.core.proposal import DraftSource

_PRIOR_WEIGHT = 4.0
"""Trials that the prior of a key is worth at first; it fades as real ones come in."""
_CHAIN_WEIGHT = 12.0
"""Trials that the hazard of the position before is worth."""
_POOL_DECAY = 0.995
"""Per draft: about 200 drafts of memory, a standard error of 0.035 at one half."""
_FAST_DECAY = 0.95
"""Per trial, for noticing that the text changed."""
_CHANGE_Z = 3.0
"""Standard deviations between the last trials and the estimate that mean a change."""
_KEPT_AFTER_CHANGE = 8.0
"""Trials the shifted estimate is worth after a change."""
_DOUBT = 0.5
_LEAST_DOUBT = 0.02
_ROW_DOUBT = 0.5
_ROW_DECAY = 0.995
_ROW_FADE = 0.99
"""Per step without a draft: a row left out for its bad luck is tried again in time."""
_ROW_WEIGHT = 4.0
_TABLE_WEIGHT = 16.0
_PAUSED_FADE = 0.99
"""Per step of a pause, so that a few probes can speak against what came before it."""
_LEAST_TRIES = 16.0
_WINDOW = 48
_DRAFT_PRIOR = 0.6
_LOOKUP_PRIORS = (0.3, 0.3, 0.45, 0.6, 0.75, 0.85)
"""By match bucket: the longer the repeated text, the likelier it goes on repeating."""


def match_bucket(match_length: int) -> int:
    """0 to 3 as they are, 4 for 4 to 7, 5 for 8 and more."""
    if match_length < 4:
        return max(0, match_length)
    return 4 if match_length < 8 else 5


def _key(source: DraftSource, match_length: int) -> int:
    return 0 if source == "draft" else match_bucket(match_length)


def _odds_ratio(hits: float, expected: float, trials: float, weight: float) -> float:
    """Odds of what was seen over odds of what was expected, `weight` pseudo-trials on each side."""
    misses = max(0.0, trials - hits)
    expected_misses = max(0.0, trials - expected)
    return ((hits + weight) / (expected + weight)) * (
        (expected_misses + weight) / (misses + weight)
    )


class _Pool:
    """Hazards of one (source, match bucket), pooled over all rows."""

    def __init__(self, prior: float, num_positions: int) -> None:
        self._prior = prior
        self._tries = [0.0] * num_positions
        self._hits = [0.0] * num_positions
        self._seen = 0
        self._is_stale = True
        self._recent_tries = 0.0
        self._recent_hits = 0.0
        self._recent_expected = 0.0
        self._recent_variance = 0.0
        self.hazards: list[float] = []
        self.doubt: list[float] = []
        self.refresh()

    def refresh(self) -> None:
        """Bring hazards and doubt, how much better each might be, up to date with the counts.

        Each hazard leans on the one before it, the first on the prior.
        """
        if not self._is_stale:
            return
        self._is_stale = False
        self.doubt = [max(0.0, _DOUBT / sqrt(tries + 1.0) - _LEAST_DOUBT) for tries in self._tries]
        weight = _PRIOR_WEIGHT / (1.0 + self._seen / 16.0)
        before = self._prior
        hazards: list[float] = []
        for tries, hits in zip(self._tries, self._hits, strict=True):
            before = (hits + weight * before) / (tries + weight)
            before = 0.995 if before > 0.995 else 0.005 if before < 0.005 else before
            hazards.append(before)
            weight = _CHAIN_WEIGHT
        self.hazards = hazards

    def observe(self, num_trials: int, num_accepted: int) -> None:
        """Count `num_trials` positions, the first `num_accepted` of them as accepted."""
        # Positions not reached are forgotten too: what was bad luck long ago is tried again.
        self._tries = [tries * _POOL_DECAY for tries in self._tries]
        self._hits = [hits * _POOL_DECAY for hits in self._hits]
        for position in range(min(num_trials, len(self._tries))):
            hit = 1.0 if position < num_accepted else 0.0
            hazard = self.hazards[position]
            self._tries[position] += 1.0
            self._hits[position] += hit
            self._recent_tries = self._recent_tries * _FAST_DECAY + 1.0
            self._recent_hits = self._recent_hits * _FAST_DECAY + hit
            self._recent_expected = self._recent_expected * _FAST_DECAY + hazard
            self._recent_variance = self._recent_variance * _FAST_DECAY**2 + hazard * (1 - hazard)
        self._seen += num_trials
        self._follow_change()
        self._is_stale = True

    def fade(self) -> None:
        """Weigh the past less, but keep what it says: only new trials move the estimate."""
        if self._tries[0] > _LEAST_TRIES:
            self._tries = [tries * _PAUSED_FADE for tries in self._tries]
            self._hits = [hits * _PAUSED_FADE for hits in self._hits]
            self._is_stale = True

    def _follow_change(self) -> None:
        """Drop the past and shift the estimate when the last trials contradict it.

        A long memory is what makes the choice of k steady; this keeps it from being slow.
        """
        deviation = abs(self._recent_hits - self._recent_expected) - 0.5
        if self._recent_tries < 3.5 or deviation < _CHANGE_Z * sqrt(self._recent_variance + 0.25):
            return
        ratio = _odds_ratio(self._recent_hits, self._recent_expected, self._recent_tries, 0.5)
        for position, hazard in enumerate(self.hazards):
            kept = min(self._tries[position], _KEPT_AFTER_CHANGE)
            self._tries[position] = kept
            self._hits[position] = kept * hazard * ratio / (1.0 - hazard + hazard * ratio)
        self._recent_tries = self._recent_hits = 0.0
        self._recent_expected = self._recent_variance = 0.0


class _Row:
    """What a row's own drafts of one source say, against the pool of all rows."""

    __slots__ = ("expected", "hits", "tables", "trials", "variance")

    def __init__(self) -> None:
        self.trials = self.hits = self.expected = self.variance = 0.0
        self.tables: dict[int, tuple[list[float], list[float]]] = {}
        """Tries and hits by position, by match bucket."""

    def observe(
        self, bucket: int, hazards: list[float], num_trials: int, num_accepted: int
    ) -> None:
        """Count a draft against the pool's hazards of that moment."""
        table = self.tables.get(bucket)
        if table is None:
            table = self.tables[bucket] = ([0.0] * len(hazards), [0.0] * len(hazards))
        tries, hits = table
        for position in range(min(num_trials, len(hazards))):
            hazard = hazards[position]
            hit = 1.0 if position < num_accepted else 0.0
            tries[position] = tries[position] * _ROW_DECAY + 1.0
            hits[position] = hits[position] * _ROW_DECAY + hit
            self.trials = self.trials * _ROW_DECAY + 1.0
            self.hits = self.hits * _ROW_DECAY + hit
            self.expected = self.expected * _ROW_DECAY + hazard
            self.variance = self.variance * _ROW_DECAY**2 + hazard * (1.0 - hazard)

    def fade(self, part: float) -> None:
        """Weigh the past less."""
        self.trials *= part
        self.hits *= part
        self.expected *= part
        self.variance *= part * part
        for table in self.tables.values():
            for counts in table:
                for position, count in enumerate(counts):
                    counts[position] = count * part

    def odds_ratio(self) -> float:
        """1 unless the row differs from its pool by more than chance explains.

        The first standard deviation is taken off: rows alike keep the pool's precise estimate.
        """
        deviation = self.hits - self.expected
        chance = sqrt(self.variance)
        if abs(deviation) <= chance:
            return 1.0
        deviation -= chance if deviation > 0 else -chance
        return _odds_ratio(self.expected + deviation, self.expected, self.trials, _ROW_WEIGHT)

    def survival(self, bucket: int, hazards: list[float], num_draft_tokens: int) -> list[float]:
        """The pool's hazards shifted by the row's odds, then by its counts at each position."""
        ratio = self.odds_ratio()
        table = self.tables.get(bucket)
        survived = 1.0
        result: list[float] = []
        for position in range(min(num_draft_tokens, len(hazards))):
            odds = hazards[position] * ratio
            hazard = odds / (1.0 - hazards[position] + odds)
            if table is not None:
                hazard = (table[1][position] + _TABLE_WEIGHT * hazard) / (
                    table[0][position] + _TABLE_WEIGHT
                )
            survived *= hazard
            result.append(survived)
        return result


class AcceptanceModel:
    """Survival of draft tokens by source, match length and row.

    Args:
        num_positions: Draft positions told apart; no draft is longer.
        draft_prior: Acceptance of a draft model's token before anything was measured.
    """

    def __init__(self, num_positions: int = 8, draft_prior: float = _DRAFT_PRIOR) -> None:
        self._num_positions = num_positions
        self._draft_prior = draft_prior
        self._pools: dict[tuple[DraftSource, int], _Pool] = {}
        self._rows: dict[str, dict[DraftSource, _Row]] = {}
        self._window: dict[DraftSource, deque[tuple[int, int]]] = {}

    def _pool(self, source: DraftSource, match_length: int) -> _Pool:
        bucket = _key(source, match_length)
        pool = self._pools.get((source, bucket))
        if pool is None:
            prior = self._draft_prior if source == "draft" else _LOOKUP_PRIORS[bucket]
            pool = self._pools[source, bucket] = _Pool(prior, self._num_positions)
        return pool

    def survival(
        self, source: DraftSource, request_id: str, match_length: int, num_draft_tokens: int
    ) -> list[float]:
        """S(1), ..., S(num_draft_tokens) for a row: probabilities that never rise."""
        pool = self._pool(source, match_length)
        pool.refresh()
        row = self._rows.get(request_id, {}).get(source)
        if row is not None:
            return row.survival(_key(source, match_length), pool.hazards, num_draft_tokens)
        return list(accumulate(pool.hazards[:num_draft_tokens], mul))

    def observe(
        self,
        source: DraftSource,
        request_id: str,
        match_length: int,
        num_judged: int,
        num_accepted: int,
    ) -> None:
        """Learn from a draft of which `num_judged` tokens were decided, the first ones kept.

        The rejected token is the last trial; with none rejected the draft is censored after its
        last judged token.
        """
        if num_judged <= 0:
            return
        num_trials = min(num_accepted + 1, num_judged)
        pool = self._pool(source, match_length)
        rows = self._rows.setdefault(request_id, {})
        row = rows.get(source)
        if row is None:
            row = rows[source] = _Row()
        row.observe(_key(source, match_length), pool.hazards, num_trials, num_accepted)
        pool.observe(num_trials, num_accepted)
        window = self._window.setdefault(source, deque(maxlen=_WINDOW))
        window.append((num_accepted, num_judged))

    def doubt(self, source: DraftSource, match_length: int) -> list[float]:
        """By position, the relative benefit of the doubt that makes it worth trying."""
        return self._pool(source, match_length).doubt

    def row_doubt(self, source: DraftSource, request_id: str) -> float:
        """How far to favour a row in its turn because little is known of it."""
        row = self._rows.get(request_id, {}).get(source)
        return _ROW_DOUBT / sqrt(1.0 + (row.trials if row is not None else 0.0))

    def fade(self, request_id: str, *, is_paused: bool) -> None:
        """Trust a row's own history less: it was not asked for a draft in this step."""
        for row in self._rows.get(request_id, {}).values():
            row.fade(_PAUSED_FADE if is_paused else _ROW_FADE)

    def fade_pool(self, source: DraftSource) -> None:
        """Trust what all rows taught less: a step of a pause went by, and texts change."""
        if (source, 0) in self._pools:
            self._pools[source, 0].fade()

    def recent_counts(self) -> tuple[int, int]:
        """Accepted and judged draft tokens of the last drafts of every source."""
        drafts = [counts for window in self._window.values() for counts in window]
        return sum(counts[0] for counts in drafts), sum(counts[1] for counts in drafts)

    def forget(self, request_id: str) -> None:
        """Drop a row's own history; what it taught the pool stays."""
        self._rows.pop(request_id, None)
