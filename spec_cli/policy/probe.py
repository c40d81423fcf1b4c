"""Drafts while speculation is paused, to find out whether it would pay again.

One token for one row, or the best drafts for all where those lose less, which near break-even they
do. What a draft model tells on that occasion of the tokens it missed (hindsight.py) is worth more
than the drafts. Only after all rows have caught up does a step tell what drafting for them takes,
so a probe with all of them is two steps. The next one is at least sixteen steps away, then twice as
far each time, until probes take 0.3 % of the time or are eighty steps apart. Lookup needs none for
its acceptance, which the shadow tells, only for its price.
"""

from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.allocation import Allocation, catch_up_seconds
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

PROBE_INTERVAL = 16
MAX_PROBE_INTERVAL = 80
_BUDGET = 0.003
"""Part of the time that probes may take once they have backed off."""
_MAX_PRICE = 4.0
"""Target steps a probe may cost; a row that lags too far behind is left alone."""
_SLACK = 0.1
"""Target steps of catch-up that another row's view is worth."""


class Prober:
    """When to probe and with what."""

    def __init__(self) -> None:
        self._next_step = 0
        self._interval = PROBE_INTERVAL
        self._loss = 0.0
        self._goes_on = False
        self._turn = 0
        self.is_probing = False
        """Whether a probe is under way that is not judged yet."""

    def restart(self, step: int) -> None:
        """Begin a pause."""
        self._next_step = step + PROBE_INTERVAL
        self._interval = PROBE_INTERVAL
        self._loss = 0.0
        self._goes_on = False

    def is_due(self, step: int) -> bool:
        """Whether a probe may start."""
        return step >= self._next_step

    def wait(self, step: int) -> None:
        """Come back later, and later still the next time."""
        self._next_step = step + self._interval
        self._interval = min(MAX_PROBE_INTERVAL, 2 * self._interval)

    def choose(
        self, step: int, allocation: Allocation, acceptance: AcceptanceModel, cost: CostModel
    ) -> tuple[int, ...] | None:
        """Draft lengths of a probe with a draft model; None where no row has one."""
        rows = allocation.rows
        reachable = [
            index
            for index, row in enumerate(rows)
            if row.source == "draft" and row.max_draft_tokens
        ]
        if not reachable:
            return None
        index = self._reach(rows, reachable, cost)
        probes = [tuple(int(other == index) for other in range(len(rows)))]
        if allocation.best.num_draft_tokens:
            probes.append(allocation.lengths(allocation.best))
        prices = [_price(rows, lengths, cost) for lengths in probes]
        losses = [
            price - _expected(rows, lengths, acceptance) / len(rows)
            for price, lengths in zip(prices, probes, strict=True)
        ]
        chosen = losses.index(min(losses))
        if prices[chosen] > _MAX_PRICE:
            self._next_step = step + PROBE_INTERVAL
            return (0,) * len(rows)
        self.is_probing = True
        self._loss += prices[chosen]
        self._goes_on = sum(map(bool, probes[chosen])) > 1 and not self._goes_on
        return probes[chosen]

    def _reach(self, rows: tuple[RowOutlook, ...], reachable: list[int], cost: CostModel) -> int:
        """The row with the least lag, or in turn those that cost next to nothing more.

        One row's text says little about its neighbours'.
        """
        least = min(rows[index].num_lag_tokens for index in reachable)
        plain = cost.target_seconds(len(rows), len(rows), 1, 0)[0][0]
        slack = _SLACK * plain / max(1e-9, cost.catch_up_s)
        near = [index for index in reachable if rows[index].num_lag_tokens <= least + slack]
        return near[self._turn % len(near)]

    def judge(self, step: int, num_rows: int, num_accepted: int) -> None:
        """Wait until what the probe lost is a small part of the time, or longer than last time."""
        self.is_probing = False
        # What was accepted pays its part: a token is worth the row's share of a step.
        self._loss -= num_accepted / num_rows
        if self._goes_on:
            return
        self._turn += 1
        longest = min(MAX_PROBE_INTERVAL, 2 * self._interval)
        self._interval = max(PROBE_INTERVAL, min(longest, int(self._loss / _BUDGET)))
        self._next_step = step + self._interval
        self._loss = 0.0


def _price(rows: tuple[RowOutlook, ...], lengths: tuple[int, ...], cost: CostModel) -> float:
    """What drafts add to a step, catch-up included, in target steps."""
    context = sum(row.context_length for row in rows)
    target, _ = cost.target_seconds(len(rows), len(rows), sum(lengths) + 1, context)
    by_model = [
        (row, length)
        for row, length in zip(rows, lengths, strict=True)
        if length and row.source == "draft"
    ]
    passes = [length for _, length in by_model]
    seconds = target[-1] - target[0]
    if by_model:
        draft_context = sum(length * row.context_length for row, length in by_model)
        seconds += cost.draft_seconds(len(passes), max(passes), sum(passes), draft_context)
    seconds += sum(catch_up_seconds(row, cost) for row, _ in by_model)
    return seconds / target[0]


def _expected(
    rows: tuple[RowOutlook, ...], lengths: tuple[int, ...], acceptance: AcceptanceModel
) -> float:
    """Draft tokens that are likely to be accepted."""
    return sum(
        sum(acceptance.survival(row.source, row.request_id, row.match_length, length))
        for row, length in zip(rows, lengths, strict=True)
    )
