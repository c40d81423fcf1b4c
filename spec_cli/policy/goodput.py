"""The goodput policy: as many draft tokens as pay, none where none do.

SmartSpec's rule (Liu et al. 2024, arXiv 2406.14066, section 4), k = 0 included, on measured
survival (acceptance.py) and measured step times (cost.py), with what a person watching it needs:
it does not flicker, it says why it pauses, and it comes back.

Modes. While *on*, each row's length is chosen anew every step, 0 included, save that a step with
a draft model drafts at least one token. While *paused*, nothing is drafted but probes: at most
four steps in a row, one row each, at least sixteen steps apart. A *switch* is a change of mode;
one happens at most every eight steps. Single draft-free steps that time the target while on, and
probes while paused, are measurements, not switches.
"""

from dataclasses import dataclass

from spec_cli.core.events import SpeculationState, StepFinished
from spec_cli.core.proposal import DraftSource
from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.allocation import Allocation, allocate
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

MIN_DWELL_STEPS = 8
_WARMUP_STEPS = 3
_ENTRY_GAIN = 1.02
_EXIT_GAIN = 0.995
_GAIN_RATE = 0.2
"""Of the moving mean that is compared with the exit: one unlucky draft is no reason to pause."""
_IDLE_STEPS = 16
_PROBE_INTERVAL = 16
_PROBE_BURST = 4
_PROBE_BUDGET = 0.01
"""Part of the time that probes may take once they have backed off."""
_MAX_PROBE_INTERVAL = 48
_MAX_PROBE_TOKENS = 3
_MAX_PROBE_PRICE = 4.0
_PROBE_SLACK = 0.1
"""Target steps of catch-up that another row's view is worth."""
_BASE_SAMPLES = 3
"""Draft-free steps timed at a batch size before it is trusted."""
_BASE_REFRESH_STEPS = 256
_BASE_BUDGET = 0.002
"""Part of the time that timing the target alone may lose."""


@dataclass(slots=True)
class _Probe:
    """Probing while paused: when next, and how the one under way goes."""

    next_step: int = 0
    interval: int = _PROBE_INTERVAL
    steps: int = 0
    num_accepted: int = 0
    num_judged: int = 0
    break_even: float = 0.0
    request_id: str | None = None


class GoodputPolicy:
    """Chooses per-row draft lengths that maximise expected tokens per second of the batch.

    Args:
        max_draft_tokens: Longest draft.
        cost: What steps cost, where something is known already (a calibration).
        acceptance: How often drafts are accepted, likewise.
    """

    def __init__(
        self,
        max_draft_tokens: int = 8,
        cost: CostModel | None = None,
        acceptance: AcceptanceModel | None = None,
    ) -> None:
        self._max_draft_tokens = max_draft_tokens
        self.cost = cost or CostModel()
        self.acceptance = acceptance or AcceptanceModel(max_draft_tokens)
        self._step = -1
        self._on = False
        self._last_switch = -MIN_DWELL_STEPS
        self._idle_steps = 0
        self._gain = 1.0
        self._num_probes = 0
        self._probe = _Probe(next_step=_WARMUP_STEPS)
        self._next_base = 0
        self._asked: dict[str, RowOutlook] = {}
        self._allocation = Allocation((), [], [])
        self._state: SpeculationState | None = SpeculationState(
            "paused", "timing the target's own step first"
        )

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """Draft lengths for the rows, in their order."""
        self._step += 1
        self._asked = {row.request_id: row for row in rows}
        self._probe.request_id = None
        if self._step < _WARMUP_STEPS or not any(row.max_draft_tokens for row in rows):
            return (0,) * len(rows)
        allocation = allocate(
            rows, num_prefill_tokens, self._max_draft_tokens, self.acceptance, self.cost
        )
        self._allocation = allocation
        has_draft_model = any(row.source == "draft" and row.max_draft_tokens for row in rows)
        self._set_mode(allocation, has_draft_model)
        if not self._on:
            return self._choose_probe(rows)
        if has_draft_model and self._must_time_base(rows, num_prefill_tokens):
            return (0,) * len(rows)
        option = allocation.most_hopeful(or_none=not has_draft_model)
        self._idle_steps = 0 if option.num_draft_tokens else self._idle_steps + 1
        return allocation.lengths(option)

    def _set_mode(self, allocation: Allocation, has_draft_model: bool) -> None:
        """Pause or resume, no sooner than the dwell allows."""
        gain = allocation.best.gain
        self._gain += _GAIN_RATE * (gain - self._gain)
        if self._step - self._last_switch < MIN_DWELL_STEPS:
            return
        if not self._on:
            if gain >= _ENTRY_GAIN:
                self._switch(on=True)
        # A lookup without a good match is silent, not paused; only a long silence is a pause.
        elif self._gain < _EXIT_GAIN and (has_draft_model or self._idle_steps >= _IDLE_STEPS):
            self._switch(on=False)

    def _switch(self, *, on: bool) -> None:
        self._on = on
        self._last_switch = self._step
        self._idle_steps = 0
        self._gain = 1.0
        self._state = None
        self._probe = _Probe(next_step=self._step + _PROBE_INTERVAL)

    def _must_time_base(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> bool:
        """Whether to spend this step on the draft-free time that every gain is measured by."""
        if num_prefill_tokens or self._step < self._next_base:
            return False
        count = self.cost.target.count(len(rows), len(rows))
        # The step loses what drafting would have gained: the closer the call, the more often.
        interval = int((self._gain - 1.0) / _BASE_BUDGET)
        if count < _BASE_SAMPLES:
            interval = MIN_DWELL_STEPS
        self._next_base = self._step + min(_BASE_REFRESH_STEPS, max(MIN_DWELL_STEPS, interval))
        return True

    def _choose_probe(self, rows: tuple[RowOutlook, ...]) -> tuple[int, ...]:
        """Nothing, or a short draft for the row that a draft model can reach soonest."""
        lengths = [0] * len(rows)
        probe = self._probe
        if self._step < probe.next_step:
            return tuple(lengths)
        reachable = [
            index for index, row in enumerate(rows)
            if row.source == "draft" and row.max_draft_tokens
        ]  # fmt: skip
        if not reachable:
            return self._try_lookup(lengths)
        index = self._reach(rows, reachable)
        # One token tells most for its price; more of them only once the first was right.
        length = _MAX_PROBE_TOKENS if probe.steps else 1
        length = min(rows[index].max_draft_tokens, self._max_draft_tokens, length)
        price, length = self._probe_price(rows, index, length)
        if price > _MAX_PROBE_PRICE:
            probe.next_step = self._step + _PROBE_INTERVAL
            return tuple(lengths)
        if probe.steps == 0:
            limit = min(_MAX_PROBE_INTERVAL, max(_PROBE_INTERVAL, int(price / _PROBE_BUDGET)))
            probe.interval = min(probe.interval, limit)
        probe.request_id = rows[index].request_id
        lengths[index] = length
        return tuple(lengths)

    def _try_lookup(self, lengths: list[int]) -> tuple[int, ...]:
        """One step of lookup that might pay: the shadow tells its acceptance, not its price."""
        option = self._allocation.most_hopeful(or_none=False)
        if option.hopeful < _ENTRY_GAIN:
            return tuple(lengths)
        interval = self._probe.interval
        self._probe = _Probe(self._step + interval, min(_MAX_PROBE_INTERVAL, 2 * interval))
        return self._allocation.lengths(option)

    def _reach(self, rows: tuple[RowOutlook, ...], reachable: list[int]) -> int:
        """The row with the least lag, or in turn those that cost next to nothing more.

        One row's text says little about its neighbours'.
        """
        least = min(rows[index].num_lag_tokens for index in reachable)
        plain = self.cost.target_seconds(len(rows), len(rows), 1, 0)[0][0]
        slack = _PROBE_SLACK * plain / max(1e-9, self.cost.catch_up_s)
        near = [index for index in reachable if rows[index].num_lag_tokens <= least + slack]
        return near[self._num_probes % len(near)]

    def _probe_price(
        self, rows: tuple[RowOutlook, ...], index: int, length: int
    ) -> tuple[float, int]:
        """Target steps that a probe adds, and its length: the one that pays at good acceptance."""
        row = rows[index]
        context = sum(other.context_length for other in rows)
        target, _ = self.cost.target_seconds(len(rows), len(rows), length + 1, context)
        lag = max(0, row.num_lag_tokens - 1)
        best, price, chosen = 0.0, 0.0, 1
        emitted = survived = 1.0
        for count in range(1, length + 1):
            survived *= 0.8
            emitted += survived
            drafting = self.cost.draft_seconds(1, count, count, count * row.context_length)
            added = target[count] + drafting - target[0]
            # The row's share of the step: its neighbours take their tokens anyway.
            value = emitted / (target[0] / len(rows) + added)
            if value > best:
                best, chosen, price = value, count, added / target[0]
                self._probe.break_even = added / target[0] * len(rows) / count
        return price + lag * self.cost.catch_up_s / target[0], chosen

    def observe(self, step: StepFinished) -> None:
        """Learn from a finished step: what it cost and what became of its drafts."""
        for row in step.rows:
            if row.draft_token_ids:
                asked = self._asked.get(row.request_id)
                self.acceptance.observe(
                    row.source, row.request_id, asked.match_length if asked else 0,
                    row.num_judged, row.num_accepted,
                )  # fmt: skip
                if row.request_id == self._probe.request_id:
                    self._judge_probe(row.num_judged, row.num_accepted)
            elif row.source == "draft":
                self.acceptance.fade(row.request_id)
        if step.rows:
            self._observe_times(step)

    def _judge_probe(self, num_judged: int, num_accepted: int) -> None:
        """Go on while the probe looks promising, else wait longer than last time."""
        self._state = None
        probe = self._probe
        probe.steps += 1
        self._num_probes += 1
        probe.num_judged += num_judged
        probe.num_accepted += num_accepted
        promising = probe.num_accepted >= probe.break_even * probe.num_judged
        if promising and probe.num_accepted and probe.steps < _PROBE_BURST:
            return
        interval = probe.interval
        grown = min(_MAX_PROBE_INTERVAL, 2 * interval)
        self._probe = _Probe(self._step + interval, interval if promising else grown)

    def _observe_times(self, step: StepFinished) -> None:
        """Split a step's seconds between the target and whoever drafted."""
        tokens = step.num_prefill_tokens
        context = lookup_rows = 0
        draft_rows = passes = lag = row_passes = draft_context = 0
        for row in step.rows:
            length = len(row.draft_token_ids)
            tokens += 1 + length
            context += row.context_length
            if not length:
                continue
            if row.source != "draft":
                lookup_rows += 1
                continue
            asked = self._asked.get(row.request_id)
            draft_rows += 1
            passes = max(passes, length)
            row_passes += length
            lag += max(0, (asked.num_lag_tokens if asked else 0) - 1)
            draft_context += length * row.context_length
        cost = self.cost
        target = step.times.forward_s + step.times.verify_s + step.times.other_s
        if not draft_rows and not lookup_rows:
            target += step.times.propose_s
        cost.observe_target(len(step.rows), tokens, context, target)
        if draft_rows:
            drafting = step.times.propose_s - cost.lookup_seconds(lookup_rows)
            cost.observe_draft(draft_rows, passes, row_passes, draft_context, lag, drafting)
        elif lookup_rows:
            cost.observe_lookup(lookup_rows, step.times.propose_s)

    def observe_shadow(
        self,
        source: DraftSource,
        request_id: str,
        match_length: int,
        num_judged: int,
        num_accepted: int,
    ) -> None:
        """Learn what a lookup that was not asked would have drafted, against what was emitted.

        Args:
            source: Which lookup.
            request_id: Whose row.
            match_length: Length of the match behind the guess.
            num_judged: Guessed tokens that could be compared: up to and with the first wrong one.
            num_accepted: Those that were right.
        """
        self.acceptance.observe(source, request_id, match_length, num_judged, num_accepted)
        if not self._on:
            self._state = None

    def forget(self, request_id: str) -> None:
        """Drop what is kept about a request that ended."""
        self.acceptance.forget(request_id)
        self._asked.pop(request_id, None)

    @property
    def state(self) -> SpeculationState:
        """On, or paused with the measured acceptance against break-even."""
        if self._state is None:
            reason = None if self._on else self._reason()
            self._state = SpeculationState("on" if self._on else "paused", reason)
        return self._state

    def _reason(self) -> str:
        """Why nothing is drafted, e.g. `accepted 12 % (22/184) < break-even 30 %`."""
        allocation = self._allocation
        if not allocation.best.num_draft_tokens:
            return "nothing to draft"
        break_even = allocation.break_even()
        accepted, judged = self.acceptance.recent_counts()
        if not judged:
            return f"nothing judged yet, break-even {break_even:.0%}".replace("%", " %")
        rate = accepted / judged
        text = f"accepted {rate:.0%} ({accepted}/{judged}) "
        text += f"{'<' if rate < break_even else 'at'} break-even {break_even:.0%}"
        return text.replace("%", " %")
