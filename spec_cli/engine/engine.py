"""The batched speculative loop.

Knows nothing of text, screens, files or the wall clock: requests come in, events go out.
"""

from itertools import islice

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.errors import ContextLengthError, InsufficientMemoryError
from spec_cli.core.events import (
    Event,
    RequestFinished,
    RequestStarted,
    RowStep,
    StepFinished,
    StepTimes,
    TokensEmitted,
)
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import FinishReason, Request, Sequence
from spec_cli.core.stats import StatsRecorder
from spec_cli.engine.active import ActiveRow, Outcome, row_outlook, row_step, settle
from spec_cli.engine.parts import EngineParts, StepTimer
from spec_cli.engine.scheduler import PrefillBudget, Scheduler, Waiting
from spec_cli.engine.shadow import Shadow, tell_hindsight
from spec_cli.models.base import Row, RowInput
from spec_cli.proposers.base import DraftRequest
from spec_cli.sampling.verify import VerifyMode, verify

_NO_DRAFT = Proposal((), "ngram")


class Engine:
    """Runs requests to their end, many at once, each step as fast as drafting allows."""

    def __init__(
        self,
        parts: EngineParts,
        *,
        verify_mode: VerifyMode = "coupled",
        max_rows: int = 16,
        prefill_target_s: float = 0.25,
    ) -> None:
        """Make an idle engine.

        Args:
            parts: The models, the policy and the rest.
            verify_mode: `coupled` or `rejection`.
            max_rows: Most requests that run at once; at least 1.
            prefill_target_s: Seconds a step's share of prompts should take.
        """
        self.parts = parts
        self.verify_mode: VerifyMode = verify_mode
        self._scheduler = Scheduler(max_rows, PrefillBudget(prefill_target_s))
        self._shadow = Shadow()
        self._step = 0

    @property
    def max_rows(self) -> int:
        """Most requests that run at once."""
        return self._scheduler.max_rows

    @property
    def has_work(self) -> bool:
        """Whether a call of `step` would do anything."""
        return self._scheduler.has_work

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ContextLengthError: The prompt leaves no room for a single token.
            InsufficientMemoryError: Its cache would not fit even alone.
        """
        limit = self.parts.target.context_length
        num_prompt = len(request.prompt_token_ids)
        if num_prompt >= limit:
            raise ContextLengthError(
                f"the prompt has {num_prompt:,} tokens; the context holds {limit:,}, "
                "answer included.",
                hint="a shorter prompt, or a larger -c where the model allows it",
            )
        max_length = min(num_prompt + request.params.max_tokens, limit)
        sequence = Sequence(request, max_length)
        self._check_memory(max_length)
        self._scheduler.waiting.append(Waiting(sequence, self.parts.clock()))
        self.parts.stop.start(request)

    def abort(self, request_id: str) -> list[Event]:
        """End a request now; what it generated stays generated."""
        for waiting in list(self._scheduler.waiting):
            if waiting.sequence.request_id == request_id:
                self._scheduler.waiting.remove(waiting)
                self.parts.stop.finish(request_id)
                now = self.parts.clock()
                stats = StatsRecorder(waiting.sequence.num_prompt_tokens).snapshot(
                    queue_s=now - waiting.arrived_s, prefill_s=0.0, decode_s=0.0
                )
                return [RequestFinished(request_id, now, "interrupted", stats)]
        for active in self._scheduler.running:
            if active.sequence.request_id == request_id:
                return [self._finish(active, "interrupted")]
        return []

    def step(self) -> list[Event]:
        """Advance every row: propose, one target forward, verify, commit."""
        timer = StepTimer(self.parts.clock)
        events = self._admit()
        decoding = self._scheduler.decoding()
        chunks = self._scheduler.prefill_chunks()
        num_prefill = sum(len(chunk) for _, chunk in chunks)
        is_paused = self.parts.policy.state.mode == "paused"
        other_s = timer.lap()

        proposals = self._propose(decoding, num_prefill)
        propose_s = timer.lap()

        complete = [active for active, chunk in chunks if len(chunk) == len(active.lacking)]
        inputs = [
            RowInput(a.row, [*a.lacking, *p.token_ids], len(p.token_ids) + 1)
            for a, p in zip(decoding, proposals, strict=True)
        ]
        inputs += [RowInput(a.row, chunk, int(a in complete)) for a, chunk in chunks]
        if not inputs:
            return events
        logits = self.parts.target.forward(inputs)
        forward_s = timer.lap()

        rows = decoding + complete
        proposals += [_NO_DRAFT] * len(complete)
        blocks = [a.block(p) for a, p in zip(rows, proposals, strict=True)]
        verifications = verify(self.verify_mode, logits, blocks, proposals)
        outcomes = [
            settle(a.sequence, p, v, self.parts.stop)
            for a, p, v in zip(rows, proposals, verifications, strict=True)
        ]
        verify_s = timer.lap()

        row_steps = self._commit(rows, proposals, outcomes, events)
        self._shadow.settle(decoding, self.parts.policy)
        times = StepTimes(propose_s, forward_s, verify_s, other_s + timer.lap())
        self._record_times(decoding, times, num_prefill, row_steps, is_paused=is_paused)
        events += [
            self._finish(a, o.finish_reason)
            for a, o in zip(rows, outcomes, strict=True)
            if o.finish_reason
        ]
        events.append(self._close_step(row_steps, num_prefill, times))
        return events

    def _admit(self) -> list[Event]:
        """Give rows to waiting requests, oldest first, while rows and memory last."""
        events: list[Event] = []
        target = self.parts.target
        while waiting := self._scheduler.next_waiting:
            sequence = waiting.sequence
            need = target.bytes_for(sequence.max_length)
            num_alike = sum(
                target.bytes_for(other.sequence.max_length) == need
                for other in islice(self._scheduler.waiting, self._scheduler.max_rows)
            )
            num_rows = min(num_alike, self._scheduler.max_rows - len(self._scheduler.running))
            row = self._acquire(sequence, num_rows)
            if row is None:
                # Rows for many in one cache may have left too little for one in the other.
                self.parts.budget.reclaim()
                row = self._acquire(sequence, 1)
            if row is None:
                break
            recorder = StatsRecorder(sequence.num_prompt_tokens, len(row.token_ids))
            now = self.parts.clock()
            self._scheduler.admit(ActiveRow(sequence, row, recorder, waiting.arrived_s, now))
            events.append(
                RequestStarted(
                    sequence.request_id, now, sequence.num_prompt_tokens, len(row.token_ids)
                )
            )
        return events

    def _acquire(self, sequence: Sequence, num_rows: int) -> Row | None:
        """A row in the target's cache and one in the proposer's, or neither."""
        target, proposer = self.parts.target, self.parts.proposer
        row = target.acquire(sequence.token_ids, sequence.max_length, num_rows)
        if row is not None and proposer is not None and not proposer.admit(sequence, num_rows):
            target.release(row)
            return None
        return row

    def _propose(self, decoding: list[ActiveRow], num_prefill: int) -> list[Proposal]:
        """One proposal per decoding row, empty where the policy wants none."""
        proposer = self.parts.proposer
        if proposer is None or not decoding:
            return [_NO_DRAFT] * len(decoding)
        outlooks = []
        for active in decoding:
            outlook = proposer.outlook(active.sequence)
            active.recorder.draft_ended = active.recorder.draft_ended or outlook.ended
            outlooks.append(row_outlook(active, outlook))
        lengths = self.parts.policy.choose(tuple(outlooks), num_prefill)
        self._shadow.watch(decoding, outlooks, lengths, proposer)
        requests = [
            DraftRequest(active.sequence, length)
            for active, length in zip(decoding, lengths, strict=True)
            if length
        ]
        drafts = iter(proposer.propose(requests) if requests else [])
        proposals = [
            next(drafts) if length else Proposal((), outlook.source)
            for length, outlook in zip(lengths, outlooks, strict=True)
        ]
        tell_hindsight(outlooks, proposals, self.parts.policy)
        return proposals

    def _commit(
        self,
        rows: list[ActiveRow],
        proposals: list[Proposal],
        outcomes: list[Outcome],
        events: list[Event],
    ) -> list[RowStep]:
        """Append the kept tokens, roll the cache back to them, and tell."""
        now = self.parts.clock()
        row_steps = []
        for active, proposal, outcome in zip(rows, proposals, outcomes, strict=True):
            sequence = active.sequence
            before = len(sequence)
            if active.is_decoding:
                row_steps.append(row_step(sequence, proposal, outcome))
                active.recorder.record_pass(
                    num_judged=outcome.num_judged,
                    num_accepted=outcome.num_accepted,
                    num_emitted=len(outcome.tokens),
                )
            else:
                active.recorder.num_output_tokens += len(outcome.tokens)
                active.first_token_s = now
            active.last_token_s = now
            sequence.commit(tuple(token.token_id for token in outcome.tokens))
            if proposal.token_ids:
                self.parts.target.truncate(active.row, before + outcome.num_accepted)
            events.append(TokensEmitted(sequence.request_id, self._step, now, outcome.tokens))
        return row_steps

    def _record_times(
        self,
        decoding: list[ActiveRow],
        times: StepTimes,
        num_prefill: int,
        row_steps: list[RowStep],
        *,
        is_paused: bool,
    ) -> None:
        is_plain = not num_prefill and not any(row.draft_token_ids for row in row_steps)
        for active in decoding:
            recorder = active.recorder
            recorder.propose_s += times.propose_s
            recorder.forward_s += times.forward_s
            recorder.verify_s += times.verify_s
            recorder.other_s += times.other_s
            recorder.num_paused_steps += is_paused
            if is_plain:
                recorder.record_draft_free_step(times.total_s)
        if num_prefill:
            self._scheduler.budget.observe(num_prefill, times.forward_s)

    def _finish(self, active: ActiveRow, reason: FinishReason) -> RequestFinished:
        sequence = active.sequence
        sequence.finish_reason = reason
        self._scheduler.remove(active)
        self.parts.target.release(active.row)
        if self.parts.proposer is not None:
            self.parts.proposer.release(sequence)
        self.parts.stop.finish(sequence.request_id)
        self.parts.policy.forget(sequence.request_id)
        self._shadow.forget(sequence.request_id)
        return RequestFinished(sequence.request_id, self.parts.clock(), reason, active.stats())

    def _close_step(
        self, row_steps: list[RowStep], num_prefill: int, times: StepTimes
    ) -> StepFinished:
        policy = self.parts.policy
        step, now = self._step, self.parts.clock()
        self._step += 1
        finished = StepFinished(step, now, tuple(row_steps), num_prefill, times, policy.state)
        policy.observe(finished)
        return finished

    def _check_memory(self, max_length: int) -> None:
        target, proposer = self.parts.target, self.parts.proposer
        need = target.bytes_for(max_length)
        own = proposer.bytes_for(max_length) if proposer is not None else 0
        total = self.parts.budget.total_bytes
        if (need := need + own) > total:
            without = ", or --spec ngram, which needs no cache of its own" if own else ""
            raise InsufficientMemoryError(
                f"a row of {max_length:,} tokens needs {format_bytes(need)} of key-value cache; "
                f"{format_bytes(total)} are free for it.",
                hint=f"-c {max(1, max_length * total // need // 2):,} or less, fewer --max-tokens, "
                f"a larger --memory{without}",
            )
