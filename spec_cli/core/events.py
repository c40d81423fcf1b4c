"""What the engine tells its readers: the Python API, the terminal, traces, the server.

Times are seconds on the engine's clock. Steps count from 0 over the life of the engine.
"""

from dataclasses import dataclass
from typing import Literal

from spec_cli.core.proposal import DraftSource, TokenSource
from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats

SpeculationMode = Literal["on", "off", "paused"]


@dataclass(frozen=True, slots=True)
class SpeculationState:
    """Whether speculation is on, and if not, why.

    Attributes:
        mode: `off`: never available or switched off; `paused`: the policy stopped it for now.
        reason: None when it is on.
    """

    mode: SpeculationMode
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A request got its row.

    Attributes:
        num_cached_tokens: Prompt tokens whose keys and values were reused from another row.
    """

    request_id: str
    time_s: float
    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One committed token and where it came from.

    Attributes:
        source: `target` for recovered and bonus tokens and those of draft-free steps.
        draft_position: Its index in the draft, from 0; None for the target's own.
    """

    token_id: int
    source: TokenSource
    draft_position: int | None


@dataclass(frozen=True, slots=True)
class TokensEmitted:
    """A row's gain in one step: 1 to k + 1 tokens, an end token included."""

    request_id: str
    step: int
    time_s: float
    tokens: tuple[EmittedToken, ...]


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """A request ended; its row is free.

    Attributes:
        stats: Its figures.
        detail: Which limit or string ended it, in words, or None.
    """

    request_id: str
    time_s: float
    reason: FinishReason
    stats: RequestStats


@dataclass(frozen=True, slots=True)
class RowStep:
    """What one decoding row did in a step.

    Attributes:
        draft_token_ids: The draft tokens put to the target.
        num_accepted: Draft tokens kept.
        num_emitted: Tokens committed.
        context_length: Committed tokens before the step.
        num_judged: Draft tokens whose fate was decided: those after an accepted end are not.
    """

    request_id: str
    source: DraftSource
    draft_token_ids: tuple[int, ...]
    num_accepted: int
    num_emitted: int
    num_judged: int
    context_length: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where the seconds of a step went."""

    propose_s: float
    forward_s: float
    verify_s: float
    other_s: float

    @property
    def total_s(self) -> float:
        """The whole step."""
        return self.propose_s + self.forward_s + self.verify_s + self.other_s


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One step of the engine.

    Attributes:
        rows: The decoding rows, in row order.
        num_prefill_tokens: Prompt tokens processed beside them.
        state: Speculation as it was in this step.
    """

    step: int
    time_s: float
    rows: tuple[RowStep, ...]
    num_prefill_tokens: int
    times: StepTimes
    state: SpeculationState


Event = RequestStarted | TokensEmitted | RequestFinished | StepFinished


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of an answer, complete characters only, made by `LLM` from the events above.

    Attributes:
        token_ids: The tokens that completed this piece.
        source: Origin of the last of them.
        draft_position: Its index in the draft, or None.
    """

    request_id: str
    index: int
    step: int
    time_s: float
    text: str
    token_ids: tuple[int, ...]
    source: TokenSource
    draft_position: int | None
