"""Short drafts while speculation is paused, to find out whether it would pay again.

A probe is one to four steps in a row in which one row drafts; the next one is at least sixteen
steps away, then twice as far each time it disappoints, until probes take about a hundredth of the
time. Lookup needs none for its acceptance, which the shadow tells, only for its price.
"""

from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

PROBE_INTERVAL = 16
MAX_PROBE_INTERVAL = 44
_LONG_INTERVAL = 56
"""Steps after a probe of several steps that came to nothing in the end."""
PROBE_BURST = 4
_BUDGET = 0.011
"""Part of the time that probes may take once they have backed off."""
_MAX_TOKENS = 3
_MAX_PRICE = 4.0
"""Target steps a probe may cost; a row that lags too far behind is left alone."""
_SLACK = 0.1
"""Target steps of catch-up that another row's view is worth."""
_GOOD_ACCEPTANCE = 0.8


class Prober:
    """When to probe, which row, how long, and what the probe under way says."""

    def __init__(self) -> None:
        self._next_step = 0
        self._interval = PROBE_INTERVAL
        self._num_steps = 0
        self._num_accepted = 0
        self._num_judged = 0
        self._num_rows = 1
        self._spent = 0.0
        self._break_even = 0.0
        self._turn = 0
        self.request_id: str | None = None
        """The row that probes in this step."""

    def restart(self, step: int) -> None:
        """Begin a pause."""
        self._begin(step + PROBE_INTERVAL, PROBE_INTERVAL)

    def _begin(self, next_step: int, interval: int) -> None:
        self._next_step = next_step
        self._interval = interval
        self._num_steps = self._num_accepted = self._num_judged = 0
        self._spent = 0.0

    def is_due(self, step: int) -> bool:
        """Whether a probe may start or is under way."""
        return step >= self._next_step

    def wait(self, step: int) -> None:
        """Come back later, and later still the next time."""
        self._begin(step + self._interval, min(MAX_PROBE_INTERVAL, 2 * self._interval))

    def choose(
        self, step: int, rows: tuple[RowOutlook, ...], max_draft_tokens: int, cost: CostModel
    ) -> tuple[int, ...] | None:
        """Draft lengths of a probe with a draft model; None where no row has one."""
        reachable = [
            index
            for index, row in enumerate(rows)
            if row.source == "draft" and row.max_draft_tokens
        ]
        if not reachable:
            return None
        index = self._reach(rows, reachable, cost)
        lengths = [0] * len(rows)
        # One token tells most for its price; more of them only once the first was right.
        limit = _MAX_TOKENS if self._num_steps else 1
        limit = min(rows[index].max_draft_tokens, max_draft_tokens, limit)
        price, length = self._price(rows, index, limit, cost)
        if price > _MAX_PRICE:
            self._begin(step + PROBE_INTERVAL, self._interval)
            return tuple(lengths)
        self._spent += price
        self._num_rows = len(rows)
        if self._num_steps == 0:
            self._set_break_even(rows, len(reachable), cost)
        self.request_id = rows[index].request_id
        lengths[index] = length
        return tuple(lengths)

    def _reach(self, rows: tuple[RowOutlook, ...], reachable: list[int], cost: CostModel) -> int:
        """The row with the least lag, or in turn those that cost next to nothing more.

        One row's text says little about its neighbours'.
        """
        least = min(rows[index].num_lag_tokens for index in reachable)
        plain = cost.target_seconds(len(rows), len(rows), 1, 0)[0][0]
        slack = _SLACK * plain / max(1e-9, cost.catch_up_s)
        near = [index for index in reachable if rows[index].num_lag_tokens <= least + slack]
        return near[self._turn % len(near)]

    def _price(
        self, rows: tuple[RowOutlook, ...], index: int, limit: int, cost: CostModel
    ) -> tuple[float, int]:
        """Target steps that a probe adds, and its length: the one that pays at good acceptance."""
        row = rows[index]
        context = sum(other.context_length for other in rows)
        target, _ = cost.target_seconds(len(rows), len(rows), limit + 1, context)
        best, price, length = 0.0, 0.0, 1
        emitted = survived = 1.0
        for count in range(1, limit + 1):
            survived *= _GOOD_ACCEPTANCE
            emitted += survived
            drafting = cost.draft_seconds(1, count, count, count * row.context_length)
            added = target[count] + drafting - target[0]
            # The row's share of the step: its neighbours take their tokens anyway.
            value = emitted / (target[0] / len(rows) + added)
            if value > best:
                best, length, price = value, count, added / target[0]
        lag = max(0, row.num_lag_tokens - 1)
        return price + lag * cost.catch_up_s / target[0], length

    def _set_break_even(self, rows: tuple[RowOutlook, ...], count: int, cost: CostModel) -> None:
        """Acceptance at which one token for each row of a draft model pays: they share a pass."""
        context = sum(row.context_length for row in rows)
        target, _ = cost.target_seconds(len(rows), len(rows), count + 1, context)
        added = target[count] - target[0] + cost.draft_seconds(count, 1, count, context)
        self._break_even = min(1.0, added / target[0] * len(rows) / count)

    def judge(self, step: int, num_judged: int, num_accepted: int) -> None:
        """Go on while the probe looks promising, else wait longer than last time."""
        self._turn += 1
        self._num_steps += 1
        self._num_judged += num_judged
        self._num_accepted += num_accepted
        promising = self._num_accepted >= max(1.0, self._break_even * self._num_judged)
        if promising and self._num_steps < PROBE_BURST:
            return
        # What was accepted pays its part: a token is worth the row's share of a step.
        net = self._spent - self._num_accepted / self._num_rows
        longest = MAX_PROBE_INTERVAL if self._num_steps == 1 else _LONG_INTERVAL
        interval = max(PROBE_INTERVAL, min(longest, int(net / _BUDGET), 2 * self._interval))
        self._begin(step + interval, interval)
