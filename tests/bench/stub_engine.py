"""An engine without a model: known costs, known acceptance, virtual time."""

from collections.abc import Callable
from dataclasses import dataclass

from spec_cli.core.events import (
    EmittedToken,
    Event,
    RequestFinished,
    RequestStarted,
    RowStep,
    SpeculationState,
    StepFinished,
    StepTimes,
    TokensEmitted,
)
from spec_cli.core.sequence import Request
from spec_cli.core.stats import StatsRecorder


class VirtualClock:
    """Time passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass; sleepers wake a little late, as on a real machine."""
        self.now_s += seconds + 0.0002


@dataclass
class _Row:
    request: Request
    recorder: StatsRecorder
    arrived_s: float
    started_s: float = 0.0
    first_s: float | None = None
    last_s: float = 0.0
    num_tokens: int = 0


class CostEngine:
    """Serves requests at the price `cost(rows, tokens)` a step, accepting as scripted.

    Attributes:
        k: Draft tokens per row and step.
        accepted: How many of them are accepted, in turn.
    """

    def __init__(
        self,
        clock: VirtualClock,
        cost: Callable[[int, int], float],
        *,
        k: int = 0,
        accepted: tuple[int, ...] = (0,),
        max_rows: int = 1000,
        fails_at_step: int | None = None,
    ) -> None:
        self.clock, self.cost, self.k, self.accepted = clock, cost, k, accepted
        self.max_rows, self.fails_at_step = max_rows, fails_at_step
        self.waiting: list[_Row] = []
        self.running: list[_Row] = []
        self.num_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue."""
        recorder = StatsRecorder(len(request.prompt_token_ids))
        self.waiting.append(_Row(request, recorder, self.clock.now_s))

    def abort(self, request_id: str) -> list[Event]:
        """End one."""
        for rows in (self.waiting, self.running):
            for row in rows:
                if row.request.request_id == request_id:
                    rows.remove(row)
                    return [self._finished(row, "interrupted")]
        return []

    def step(self) -> list[Event]:
        """Prefill what is new for free, decode the rest."""
        if self.num_steps == self.fails_at_step:
            raise RuntimeError("the stub breaks here")
        events: list[Event] = []
        fresh = []
        while self.waiting and len(self.running) < self.max_rows:
            row = self.waiting.pop(0)
            row.started_s = self.clock.now_s
            self.running.append(row)
            fresh.append(row)
            name = row.request.request_id
            events.append(RequestStarted(name, row.started_s, row.recorder.num_prompt_tokens, 0))
        decoding = [row for row in self.running if row.num_tokens]
        tokens = len(decoding) * (self.k + 1)
        seconds = self.cost(len(decoding), tokens) if decoding else 0.0
        self.clock.now_s += seconds
        row_steps = [self._decode(row, events) for row in decoding]
        for row in fresh:
            row.first_s = self.clock.now_s
            row.recorder.num_output_tokens += 1
            self._emit(row, 1, events)
        for row in list(self.running):
            if row.num_tokens == row.request.params.max_tokens:
                self.running.remove(row)
                events.append(self._finished(row, "length"))
        prefill = sum(row.recorder.num_prompt_tokens for row in fresh)
        times = StepTimes(0.0, seconds, 0.0, 0.0)
        state = SpeculationState("on" if self.k else "off")
        events.append(
            StepFinished(self.num_steps, self.clock.now_s, tuple(row_steps), prefill, times, state)
        )
        self.num_steps += 1
        return events

    def _decode(self, row: _Row, events: list[Event]) -> RowStep:
        left = row.request.params.max_tokens - row.num_tokens
        num_drafts = min(self.k, left - 1)
        accepted = min(
            self.accepted[row.recorder.num_target_passes % len(self.accepted)], num_drafts
        )
        emitted = accepted + 1
        row.recorder.record_pass(num_judged=num_drafts, num_accepted=accepted, num_emitted=emitted)
        self._emit(row, emitted, events)
        name = row.request.request_id
        return RowStep(name, "ngram", (1,) * num_drafts, accepted, emitted, num_drafts, 0)

    def _emit(self, row: _Row, count: int, events: list[Event]) -> None:
        row.last_s = self.clock.now_s
        tokens = tuple(EmittedToken(row.num_tokens + i, "target", None) for i in range(count))
        row.num_tokens += count
        events.append(
            TokensEmitted(row.request.request_id, self.num_steps, self.clock.now_s, tokens)
        )

    def _finished(self, row: _Row, reason) -> RequestFinished:
        first = row.first_s if row.first_s is not None else row.started_s
        stats = row.recorder.snapshot(
            queue_s=row.started_s - row.arrived_s,
            prefill_s=first - row.started_s,
            decode_s=row.last_s - first,
        )
        return RequestFinished(row.request.request_id, self.clock.now_s, reason, stats)
