"""What the events of a run add up to: one answer per prompt."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from spec_cli.core.events import (
    Event,
    RequestFinished,
    SpeculationState,
    StepFinished,
    TextDelta,
    TokensEmitted,
)
from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats

_REASONS: tuple[FinishReason, ...] = ("interrupted", "length", "stop")
_THOUGHT_BEGINS, _THOUGHT_ENDS = "<think>", "</think>"


@dataclass(slots=True)
class Answer:
    """One answer as far as it has come.

    Attributes:
        index: Number of its prompt, from 0.
        text: Pieces of its text.
        token_ids: Its tokens, an end token included.
        finish_reason: None while it runs.
        stats: None while it runs.
        first_token_s: When its first token came, on the engine's clock.
        last_token_s: When its last token came.
        num_reasoning_tokens: Tokens up to the end of its thoughts.
    """

    index: int
    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stats: RequestStats | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    num_reasoning_tokens: int = 0
    _is_thinking: bool = False
    _num_read: int = 0

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)

    def add_text(self, text: str, num_tokens: int) -> None:
        """Append the text of some tokens; the markers of a thought are tokens and come whole."""
        self.pieces.append(text)
        self._num_read += num_tokens
        if _THOUGHT_BEGINS in text:
            self._is_thinking = True
        if self._is_thinking or _THOUGHT_ENDS in text:
            self.num_reasoning_tokens = self._num_read
        if _THOUGHT_ENDS in text:
            self._is_thinking = False

    def add_tokens(self, event: TokensEmitted) -> None:
        """Append the tokens of a step."""
        if self.first_token_s is None:
            self.first_token_s = event.time_s
        self.last_token_s = event.time_s
        self.token_ids += [token.token_id for token in event.tokens]


class Answers:
    """The answers of one call of `LLM.events`, in the order of the prompts.

    Attributes:
        state: Speculation as it was last.
    """

    def __init__(self, state: SpeculationState) -> None:
        self.state = state
        self._by_request: dict[str, Answer] = {}

    def __iter__(self) -> Iterator[Answer]:
        """The answers heard of so far."""
        return iter(self._by_request.values())

    @property
    def finished(self) -> list[RequestStats]:
        """Figures of the answers that ended."""
        return [answer.stats for answer in self if answer.stats is not None]

    @property
    def finish_reason(self) -> FinishReason:
        """The reason most worth telling."""
        reasons = {answer.finish_reason for answer in self}
        return next((each for each in _REASONS if each in reasons), "stop")

    @property
    def wall_s(self) -> float:
        """Seconds from the first token of any answer to the last of any."""
        first = [answer.first_token_s for answer in self if answer.first_token_s is not None]
        return max(answer.last_token_s for answer in self) - min(first) if first else 0.0

    def of(self, request_id: str) -> Answer:
        """The answer to a request; requests are first heard of in the order of their prompts."""
        index = len(self._by_request)
        return self._by_request.setdefault(request_id, Answer(index))

    def record(self) -> dict[str, Any]:
        """The texts so far, for the JSON of a run that failed."""
        return {
            "choices": [
                {"index": each.index, "text": each.text, "token_ids": each.token_ids}
                for each in self
            ]
        }

    def read(self, event: Event | TextDelta) -> None:
        """Take in one event."""
        if isinstance(event, StepFinished):
            self.state = event.state
            return
        answer = self.of(event.request_id)
        if isinstance(event, TokensEmitted):
            answer.add_tokens(event)
        elif isinstance(event, TextDelta):
            answer.add_text(event.text, len(event.token_ids))
        elif isinstance(event, RequestFinished):
            answer.finish_reason, answer.stats = event.reason, event.stats
