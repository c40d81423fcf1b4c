"""The figures of a request: each has one definition, and its counts.

The names are those of the JSON report (docs/reference/metrics.md).
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RequestStats:
    """Counts and times of one request, and the figures that follow from them.

    A *pass* is a target forward in which the row decoded (prefill apart); a *spec step* is a pass
    that verified at least one draft token. Draft tokens behind an accepted end token, stop string
    or length limit are not judged and count nowhere.

    Attributes:
        num_prompt_tokens: Tokens of the prompt.
        num_cached_tokens: Those whose keys and values were reused.
        num_output_tokens: Tokens generated, an end token included.
        num_target_passes: Target forwards of this row in decode.
        num_spec_steps: Passes that judged at least one draft token.
        num_draft_tokens: Draft tokens judged by the target.
        num_accepted_draft_tokens: Draft tokens kept.
        num_paused_steps: Passes in which the policy had paused drafting.
        drafted_per_position: For position i, spec steps whose draft had more than i tokens.
        acceptance_histogram: Entry j counts the spec steps with exactly j accepted.
        queue_s: From arrival to the first forward.
        prefill_s: From the first forward to the first token.
        decode_s: From the first token to the last.
        propose_s: Share of the decode time spent guessing.
        forward_s: ... in the target's forward.
        verify_s: ... choosing tokens.
        other_s: ... in everything else.
        target_step_s: Median seconds of this request's draft-free passes, or None.
        num_draft_free_passes: How many passes that median is of.
        draft_ended: Why drafting ended for good before the answer did, or None.
        num_requests: How many requests with any output the figures add up.
    """

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_target_passes: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_paused_steps: int = 0
    drafted_per_position: tuple[int, ...] = ()
    acceptance_histogram: tuple[int, ...] = ()
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    propose_s: float = 0.0
    forward_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    target_step_s: float | None = None
    num_draft_free_passes: int = 0
    draft_ended: str | None = None
    num_requests: int = 1

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / judged draft tokens; None without drafts."""
        return _ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / spec steps: tokens per verified step, the target's own included."""
        if not self.num_spec_steps:
            return None
        return 1.0 + self.num_accepted_draft_tokens / self.num_spec_steps

    @property
    def tokens_per_target_pass(self) -> float | None:
        """Tokens emitted in decode / target forwards of this row in decode."""
        return _ratio(self._num_decoded, self.num_target_passes)

    @property
    def draft_share(self) -> float | None:
        """Accepted draft tokens / output tokens."""
        return _ratio(self.num_accepted_draft_tokens, self.num_output_tokens)

    @property
    def acceptance_rate_per_position(self) -> tuple[float, ...]:
        """For position i: spec steps that accepted more than i / those whose draft had more than i.

        Unconditional, so it falls with i.
        """
        accepted = [
            sum(self.acceptance_histogram[i + 1 :]) for i in range(len(self.drafted_per_position))
        ]
        return tuple(a / d for a, d in zip(accepted, self.drafted_per_position, strict=True))

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first / seconds after the first token."""
        if not self._num_decoded or self.decode_s <= 0.0:
            return None
        return self._num_decoded / self.decode_s

    @property
    def _num_decoded(self) -> int:
        """Output tokens after the first, which prefill brings."""
        return max(0, self.num_output_tokens - self.num_requests)

    @property
    def time_to_first_token_s(self) -> float:
        """From arrival to the first token."""
        return self.queue_s + self.prefill_s

    @property
    def speedup_est(self) -> float | None:
        """Decode speed times the seconds of a draft-free pass: an estimate, never a measurement.

        None before 2 draft-free passes and 32 tokens, or when nothing was drafted.
        """
        rate = self.tokens_per_second
        if rate is None or self.target_step_s is None or not self.num_spec_steps:
            return None
        if self.num_draft_free_passes < 2 or self.num_output_tokens < 32:
            return None
        return rate * self.target_step_s


@dataclass(slots=True)
class StatsRecorder:
    """Adds up one request's counts as its steps go by."""

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_target_passes: int = 0
    num_paused_steps: int = 0
    propose_s: float = 0.0
    forward_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    draft_ended: str | None = None
    _drafted: list[int] = field(default_factory=list)
    _histogram: list[int] = field(default_factory=list)
    _draft_free_s: list[float] = field(default_factory=list)

    def record_pass(self, *, num_judged: int, num_accepted: int, num_emitted: int) -> None:
        """Count one decoding pass of the row."""
        self.num_target_passes += 1
        self.num_output_tokens += num_emitted
        if num_judged:
            while len(self._drafted) < num_judged:
                self._drafted.append(0)
            for position in range(num_judged):
                self._drafted[position] += 1
            while len(self._histogram) <= num_judged:
                self._histogram.append(0)
            self._histogram[num_accepted] += 1

    def record_draft_free_step(self, seconds: float) -> None:
        """Remember how long a step without drafts and without prefill took."""
        self._draft_free_s.append(seconds)

    def snapshot(self, *, queue_s: float, prefill_s: float, decode_s: float) -> RequestStats:
        """The figures so far."""
        histogram = tuple(self._histogram)
        ordered = sorted(self._draft_free_s)
        return RequestStats(
            num_prompt_tokens=self.num_prompt_tokens,
            num_cached_tokens=self.num_cached_tokens,
            num_output_tokens=self.num_output_tokens,
            num_target_passes=self.num_target_passes,
            num_spec_steps=sum(histogram),
            num_draft_tokens=sum(self._drafted),
            num_accepted_draft_tokens=sum(j * count for j, count in enumerate(histogram)),
            num_paused_steps=self.num_paused_steps,
            drafted_per_position=tuple(self._drafted),
            acceptance_histogram=histogram,
            queue_s=queue_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            propose_s=self.propose_s,
            forward_s=self.forward_s,
            verify_s=self.verify_s,
            other_s=self.other_s,
            target_step_s=ordered[len(ordered) // 2] if ordered else None,
            num_draft_free_passes=len(ordered),
            draft_ended=self.draft_ended,
        )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
