"""The goodput policy: as many draft tokens as pay, none where none do.

SmartSpec's rule (Liu et al. 2024, arXiv 2406.14066, section 4), k = 0 included, on measured
survival (acceptance.py) and measured step times (cost.py), with what a person watching it needs:
it does not flicker, it says why it pauses, and it comes back.

Modes. While *on*, each row's length is chosen anew every step, 0 included, save that a step with
a draft model drafts at least one token where that nearly pays: what it never tries it cannot judge.
While *paused*, nothing is drafted but probes (probe.py), at least sixteen steps apart. A *switch*
is a change of mode; one happens at most every eight steps. Single draft-free steps that time the
target while on, and probes while paused, are measurements, not switches.
"""

from spec_cli.core.events import SpeculationState, StepFinished
from spec_cli.core.proposal import DraftSource
from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.allocation import Allocation, allocate
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel
from spec_cli.policy.probe import Prober

MAX_AUTO_TOKENS = 24
"""Longest draft of `auto`: a text that is copied goes on for long. A draft model's is shorter."""
MIN_DWELL_STEPS = 8
_WARMUP_STEPS = 3
_ENTRY_GAIN = 1.02
_EXIT_GAIN = 0.995
_GAIN_RATE = 0.2
"""Of the moving mean that is compared with the exit: one unlucky draft is no reason to pause."""
_FUTILE_GAIN = 0.98
"""Of the best drafts, below which not even one token is drafted while on."""
_IDLE_STEPS = 16
_LOOK_INTERVAL = 4
"""Steps between looks at whether drafting would pay, while nothing tells of a change."""
_BASE_SAMPLES = 3
"""Draft-free steps timed at a batch size before it is trusted; more where the call is close."""
_CLOSE_BASE_SAMPLES = 8
_CLOSE_GAIN = 1.2
_BASE_REFRESH_STEPS = 256
_BASE_BUDGET = 0.002
"""Part of the time that timing the target alone may lose."""


class GoodputPolicy:
    """Chooses per-row draft lengths that maximise expected tokens per second of the batch.

    Args:
        max_draft_tokens: Longest draft.
        cost: What steps cost, where something is known already (a calibration).
        acceptance: How often drafts are accepted, likewise.
    """

    def __init__(
        self,
        max_draft_tokens: int = MAX_AUTO_TOKENS,
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
        self._next_look = 0
        self._gain = 1.0
        self._prober = Prober()
        self._is_timed = False
        self._last_base = -_BASE_REFRESH_STEPS
        self._asked: dict[str, RowOutlook] = {}
        self._allocation = Allocation((), [], [])
        self._state: SpeculationState | None = SpeculationState(
            "paused", "timing the target's own step first"
        )

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """Draft lengths for the rows, in their order."""
        self._step += 1
        before, self._asked = self._asked, {row.request_id: row for row in rows}
        self._prober.is_probing = False
        if not self._is_timed:
            self._is_timed = self.cost.target.num_samples >= _WARMUP_STEPS
            if not self._is_timed:
                return (0,) * len(rows)
            self._state = None
        if not any(row.max_draft_tokens for row in rows):
            return (0,) * len(rows)
        if self._may_rest(rows, before):
            return (0,) * len(rows)
        may_begin = not num_prefill_tokens
        self._next_look = self._step + _LOOK_INTERVAL * may_begin
        # A prompt in the same step is left aside: it must be processed, drafts or not, and beside
        # its seconds any draft would look cheap.
        allocation = allocate(rows, self._max_draft_tokens, self.acceptance, self.cost)
        self._allocation = allocation
        has_draft_model = any(row.source == "draft" and row.max_draft_tokens for row in rows)
        # A row that is being added is about to change what pays.
        self._set_mode(allocation, has_draft_model, may_begin=may_begin)
        if not self._on:
            return self._choose_paused(rows) if may_begin else (0,) * len(rows)
        if has_draft_model and self._must_time_base(len(rows), num_prefill_tokens):
            return (0,) * len(rows)
        is_futile = allocation.best.gain < _FUTILE_GAIN
        option = allocation.most_hopeful(or_none=is_futile or not has_draft_model)
        self._idle_steps = 0 if option.num_draft_tokens else self._idle_steps + 1
        return allocation.lengths(option)

    def _may_rest(self, rows: tuple[RowOutlook, ...], before: dict[str, RowOutlook]) -> bool:
        """Whether a pause goes on without a look: same rows, no match to try, nothing learnt."""
        return (
            not self._on
            and self._step < self._next_look
            and self._asked.keys() == before.keys()
            and all(row.source == "draft" or not row.max_draft_tokens for row in rows)
            and not self._prober.is_due(self._step)
        )

    def _set_mode(self, allocation: Allocation, has_draft_model: bool, *, may_begin: bool) -> None:
        """Pause or resume, no sooner than the dwell allows."""
        gain = allocation.best.gain if allocation.best.num_draft_tokens else 0.0
        self._gain += _GAIN_RATE * (gain - self._gain)
        if self._step - self._last_switch < MIN_DWELL_STEPS:
            return
        if not self._on:
            if may_begin and gain >= _ENTRY_GAIN:
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
        self._prober.restart(self._step)

    def _must_time_base(self, num_rows: int, num_prefill_tokens: int) -> bool:
        """Whether to spend this step on the draft-free time that every gain is measured by."""
        if num_prefill_tokens:
            return False
        is_close = self._gain < _CLOSE_GAIN
        needed = _CLOSE_BASE_SAMPLES if is_close else _BASE_SAMPLES
        if self.cost.target.count(num_rows, num_rows) < needed:
            interval = MIN_DWELL_STEPS
        else:
            # It loses what drafting would have gained: the closer the call, the more often.
            interval = int((self._gain - 1.0) / _BASE_BUDGET)
            interval = min(_BASE_REFRESH_STEPS, max(MIN_DWELL_STEPS, interval))
        if self._step - self._last_base < interval:
            return False
        self._last_base = self._step
        return True

    def _choose_paused(self, rows: tuple[RowOutlook, ...]) -> tuple[int, ...]:
        """Nothing, or a probe."""
        if self._prober.is_due(self._step):
            lengths = self._prober.choose(self._step, self._allocation, self.acceptance, self.cost)
            if lengths is not None:
                return lengths
            # The shadow tells a lookup's acceptance, not its price: try it where it might pay.
            option = self._allocation.most_hopeful(or_none=False)
            if option.hopeful >= _ENTRY_GAIN:
                self._prober.wait(self._step)
                return self._allocation.lengths(option)
        return (0,) * len(rows)

    def observe(self, step: StepFinished) -> None:
        """Learn from a finished step: what it cost and what became of its drafts."""
        for row in step.rows:
            if row.draft_token_ids:
                self._next_look = 0
                asked = self._asked.get(row.request_id)
                self.acceptance.observe(
                    row.source, row.request_id, asked.match_length if asked else 0,
                    row.num_judged, row.num_accepted,
                )  # fmt: skip
            elif row.source == "draft":
                self.acceptance.fade(row.request_id, is_paused=not self._on)
        if self._prober.is_probing:
            self._prober.judge(
                self._step, len(step.rows), sum(row.num_accepted for row in step.rows)
            )
            self._state = None
        if not self._on:
            self.acceptance.fade_pool("draft")
        if step.rows:
            lags = {name: row.num_lag_tokens for name, row in self._asked.items()}
            self.cost.observe_step(step, lags)

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
        self._next_look = 0
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
        if not self._allocation.best.num_draft_tokens:
            lag = min((row.num_lag_tokens for row in self._asked.values()), default=0)
            if lag:
                return f"catching up on {lag} tokens would not pay"
            return "nothing to draft"
        break_even = f"break-even {self._allocation.break_even():.0%}"
        accepted, judged = self.acceptance.recent_counts()
        if not judged:
            text = f"nothing judged yet, {break_even}"
        else:
            rate = accepted / judged
            relation = "<" if rate < self._allocation.break_even() else "not enough above"
            text = f"accepted {rate:.0%} ({accepted}/{judged}) {relation} {break_even}"
        return text.replace("%", " %")
