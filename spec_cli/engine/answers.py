"""The answers that are being written: the engine's tokens joined with their text."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from spec_cli.core.events import EmittedToken, Event, RequestFinished, TextDelta, TokensEmitted
from spec_cli.core.outputs import CompletionOutput, RequestOutput
from spec_cli.core.sequence import Request
from spec_cli.models.text import TextPiece, TextStreams


@dataclass(slots=True)
class Answer:
    """What one request has brought so far.

    Attributes:
        request: What was asked.
        prompt: The text that was tokenised.
        index: Its number among the prompts of a call.
        step: The engine step of its latest tokens.
        token_ids: All its tokens.
        pending: Tokens whose text is not out yet.
        text: The pieces that are.
    """

    request: Request
    prompt: str
    index: int
    step: int = 0
    token_ids: list[int] = field(default_factory=list)
    pending: deque[EmittedToken] = field(default_factory=deque)
    text: list[str] = field(default_factory=list)

    def output(self, event: RequestFinished) -> RequestOutput:
        """The finished answer."""
        completion = CompletionOutput(
            index=0,
            text="".join(self.text),
            token_ids=tuple(self.token_ids),
            finish_reason=event.reason,
            seed=self.request.seed,
            stats=event.stats,
        )
        request = self.request
        return RequestOutput(
            request.request_id, self.prompt, request.prompt_token_ids, (completion,)
        )

    def delta(self, piece: TextPiece, time_s: float) -> TextDelta | None:
        """The delta of a piece of text: its origin is that of the last token in it."""
        tokens = [self.pending.popleft() for _ in range(piece.num_tokens)]
        if not piece.text:
            return None
        self.text.append(piece.text)
        # A piece without a token is the beginning of the next token's text.
        origin = tokens[-1] if tokens else self.pending[0]
        return TextDelta(
            request_id=self.request.request_id,
            index=self.index,
            step=self.step,
            time_s=time_s,
            text=piece.text,
            token_ids=tuple(token.token_id for token in tokens),
            source=origin.source,
            draft_position=origin.draft_position,
        )


class Answers:
    """The answers of one call, in the order of its prompts."""

    def __init__(self, texts: TextStreams) -> None:
        self._texts = texts
        self._by_id: dict[str, Answer] = {}

    def __bool__(self) -> bool:
        """Whether any answer is being written."""
        return bool(self._by_id)

    def __getitem__(self, request_id: str) -> Answer:
        """The answer to a request."""
        return self._by_id[request_id]

    @property
    def request_ids(self) -> list[str]:
        """The requests, in the order of the prompts."""
        return list(self._by_id)

    def add(self, answer: Answer) -> None:
        """Begin an answer."""
        self._by_id[answer.request.request_id] = answer

    def clear(self) -> None:
        """Forget all of them, and text that nobody has read."""
        for request_id in self._by_id:
            self._texts.forget(request_id)
        self._by_id.clear()

    def with_text(self, event: Event) -> Iterator[Event | TextDelta]:
        """An event, and the text it completes: after new tokens, before an end."""
        if isinstance(event, TokensEmitted):
            answer = self._by_id[event.request_id]
            answer.step = event.step
            answer.pending.extend(event.tokens)
            answer.token_ids.extend(token.token_id for token in event.tokens)
            yield event
            yield from self._deltas(answer, self._texts.take(event.request_id), event.time_s)
        elif isinstance(event, RequestFinished):
            answer = self._by_id[event.request_id]
            yield from self._deltas(answer, self._texts.close(event.request_id), event.time_s)
            yield event
        else:
            yield event

    def _deltas(
        self, answer: Answer, pieces: list[TextPiece], time_s: float
    ) -> Iterator[TextDelta]:
        for piece in pieces:
            delta = answer.delta(piece, time_s)
            if delta is not None:
                yield delta
