"""What a screen shows of a run, folded from its events: counts and times, no text."""

from collections import deque
from dataclasses import dataclass, field

from spec_cli.core.events import (
    Event,
    RequestFinished,
    RequestStarted,
    RowStep,
    SpeculationState,
    StepFinished,
    TextDelta,
    TokensEmitted,
)
from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats, StatsRecorder
from spec_cli.ui.totals import total_stats

_NUM_MARKS = 24


@dataclass(frozen=True, slots=True)
class StepMark:
    """The fate of one step's draft.

    Attributes:
        num_draft_tokens: Draft tokens put to the target; 0 is a draft-free step.
        num_accepted: Those kept.
        is_judged: Whether the token after the accepted ones was rejected rather than cut off.
    """

    num_draft_tokens: int
    num_accepted: int
    is_judged: bool


@dataclass(slots=True)
class RowView:
    """One request as far as it has come.

    Attributes:
        index: Its number, in the order in which requests were first heard of.
        recorder: Its counts so far.
        first_s: When its first token came, or None.
        last_s: When its last token came.
        marks: Its last steps, newest last.
        final: Its figures once it has ended.
        finish_reason: Why it ended, or None.
    """

    index: int
    recorder: StatsRecorder = field(default_factory=lambda: StatsRecorder(0))
    first_s: float | None = None
    last_s: float = 0.0
    marks: deque[StepMark] = field(default_factory=lambda: deque(maxlen=_NUM_MARKS))
    final: RequestStats | None = None
    finish_reason: FinishReason | None = None

    @property
    def stats(self) -> RequestStats:
        """Its figures now, by the same definitions as at the end."""
        if self.final is not None:
            return self.final
        decode_s = 0.0 if self.first_s is None else self.last_s - self.first_s
        return self.recorder.snapshot(queue_s=0.0, prefill_s=0.0, decode_s=decode_s)

    @property
    def num_context_tokens(self) -> int:
        """Prompt and output."""
        return self.recorder.num_prompt_tokens + self.recorder.num_output_tokens

    def add_step(self, step: RowStep) -> None:
        """Count a decoding step."""
        self.marks.append(
            StepMark(
                len(step.draft_token_ids), step.num_accepted, step.num_judged > step.num_accepted
            )
        )
        self.recorder.record_pass(
            num_judged=step.num_judged,
            num_accepted=step.num_accepted,
            num_emitted=step.num_emitted,
        )


class ViewState:
    """All requests of a run.

    Attributes:
        rows: By request id, in the order in which they were first heard of.
        state: Speculation in the last step.
        num_prefilled: Prompt tokens processed so far, reused ones apart.
    """

    def __init__(self) -> None:
        self.rows: dict[str, RowView] = {}
        self.state = SpeculationState("on")
        self.num_prefilled = 0

    def row(self, request_id: str) -> RowView:
        """The view of a request."""
        if request_id not in self.rows:
            self.rows[request_id] = RowView(len(self.rows))
        return self.rows[request_id]

    def read(self, event: Event | TextDelta) -> None:
        """Take in one event."""
        if isinstance(event, StepFinished):
            self._add_step(event)
        elif isinstance(event, RequestStarted):
            row = self.row(event.request_id)
            row.recorder = StatsRecorder(event.num_prompt_tokens, event.num_cached_tokens)
        elif isinstance(event, TokensEmitted):
            row = self.row(event.request_id)
            row.last_s = event.time_s
            if row.first_s is None:
                # The first token comes from the prompt's own forward, which is no decoding pass.
                row.first_s = event.time_s
                row.recorder.num_output_tokens += len(event.tokens)
        elif isinstance(event, RequestFinished):
            row = self.row(event.request_id)
            row.final, row.finish_reason = event.stats, event.reason

    @property
    def total(self) -> RequestStats:
        """The figures of all requests together."""
        rows = list(self.rows.values())
        begun = [row.first_s for row in rows if row.first_s is not None]
        if not begun:
            return RequestStats(sum(row.recorder.num_prompt_tokens for row in rows))
        wall_s = max(row.last_s for row in rows) - min(begun)
        return total_stats([row.stats for row in rows], wall_s)

    @property
    def num_prompt_tokens_to_read(self) -> int:
        """Prompt tokens that were or are to be processed."""
        return sum(
            row.recorder.num_prompt_tokens - row.recorder.num_cached_tokens
            for row in self.rows.values()
        )

    def _add_step(self, event: StepFinished) -> None:
        self.state = event.state
        self.num_prefilled += event.num_prefill_tokens
        is_plain = not event.num_prefill_tokens and not any(r.draft_token_ids for r in event.rows)
        for step in event.rows:
            row = self.row(step.request_id)
            row.add_step(step)
            row.recorder.num_paused_steps += event.state.mode == "paused"
            if is_plain:
                row.recorder.record_draft_free_step(event.times.total_s)
