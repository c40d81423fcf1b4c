"""The seam between deciding how much to draft and everything else."""

from dataclasses import dataclass
from typing import Protocol

from spec_cli.core.events import SpeculationState, StepFinished
from spec_cli.core.proposal import DraftSource


@dataclass(frozen=True, slots=True)
class RowOutlook:
    """What is known of one decoding row before a step.

    Attributes:
        request_id: Whose row.
        source: Which proposer would guess.
        max_draft_tokens: Most draft tokens possible now: the proposer's offer, within the row's
            remaining tokens and the context. 0 when nothing can be drafted.
        context_length: Committed tokens.
        match_length: Lookup: length of the match behind the guess; 0 for a draft model.
        num_lag_tokens: Tokens a draft model must catch up on before it can guess.
        num_remaining_tokens: Most tokens the answer may still get; None where that is not known.
    """

    request_id: str
    source: DraftSource
    max_draft_tokens: int
    context_length: int
    match_length: int = 0
    num_lag_tokens: int = 0
    num_remaining_tokens: int | None = None


class Policy(Protocol):
    """Chooses draft lengths from what steps cost and brought."""

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """Draft lengths for the rows, in their order, each in [0, max_draft_tokens]."""

    def observe(self, step: StepFinished) -> None:
        """Learn from a finished step."""

    def observe_shadow(
        self,
        source: DraftSource,
        request_id: str,
        match_length: int,
        num_judged: int,
        num_accepted: int,
    ) -> None:
        """Learn what a draft that was not asked for would have brought.

        Args:
            source: Whose it would have been.
            request_id: Whose row.
            match_length: Lookup: length of the match behind the guess.
            num_judged: Guessed tokens compared with what came, up to and with the first wrong one.
            num_accepted: Those that were right.
        """

    def forget(self, request_id: str) -> None:
        """Drop what is kept about a request that ended."""

    @property
    def state(self) -> SpeculationState:
        """Whether speculation is on, off or paused, and why."""


class UnlearningPolicy:
    """What policies share that decide beforehand: nothing to learn, nothing to forget."""

    def observe(self, step: StepFinished) -> None:
        """Nothing to learn."""

    def observe_shadow(
        self,
        source: DraftSource,
        request_id: str,
        match_length: int,
        num_judged: int,
        num_accepted: int,
    ) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""


class FixedPolicy(UnlearningPolicy):
    """Always the same draft length; 0 is autoregression."""

    def __init__(self, num_draft_tokens: int, reason: str | None = None) -> None:
        self._num_draft_tokens = num_draft_tokens
        self._state = (
            SpeculationState("on") if num_draft_tokens else SpeculationState("off", reason)
        )

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """The fixed length, where the row allows it."""
        del num_prefill_tokens
        return tuple(min(self._num_draft_tokens, row.max_draft_tokens) for row in rows)

    @property
    def state(self) -> SpeculationState:
        """On, or off with the reason it was made with."""
        return self._state
