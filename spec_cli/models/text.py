"""The text of a request, token by token: whole characters, cut at stop strings."""

import codecs
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_cli.core.sequence import Request
from spec_cli.models.detokenizer import Detokenizer

if TYPE_CHECKING:
    from spec_cli.models.tokenizer import TextTokenizer

# A cut, longer run of bytes cannot be the start of a character.
_MAX_BYTES_OF_CHARACTER = 4


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text ready to show.

    Attributes:
        text: Whole characters; empty only in the last piece.
        num_tokens: How many tokens, in order, are complete with this piece. The text is that of
            the last of them, which is the only one unless characters span tokens or tokens have
            no text; with 0 tokens it is the beginning of the next token's text.
    """

    text: str
    num_tokens: int


class TextStream:
    """Turns the tokens of one answer into text as they come.

    The pieces, joined, are the text of the answer, streamed or not:

    - A character appears once all of its bytes are there. Bytes that can become no character give
      U+FFFD, one for each ill-formed part as Unicode recommends. An answer that ends inside a
      character ends before it; the bytes remain in its token ids only.
    - The text ends before the stop string that is complete first, and of those complete at the
      same character, the one that starts first. This does not depend on how the text is cut
      into tokens. Only a tail that may still become a stop string is held back.
    - End tokens and special tokens have no text.

    Every token pushed is counted in exactly one piece.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        prompt_token_ids: tuple[int, ...],
        stop: tuple[str, ...],
        end_token_ids: frozenset[int],
    ) -> None:
        self._detokenizer = detokenizer
        self._stop = stop
        self._end_token_ids = end_token_ids
        self._longest_stop = max(map(len, stop), default=0)
        # It keeps at most the three bytes that an incomplete character can have.
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # The token before the next one, None at the start of a text.
        self._context = self._read_prompt(prompt_token_ids)
        self._held = ""  # text not released, the tail of what was read
        self._num_released = 0  # characters before it
        self._marks: deque[tuple[int, int]] = deque()  # where tokens end in the text, how many
        self._num_open = 0  # tokens after the last mark
        self._ready: list[TextPiece] = []

    def push(self, token_id: int) -> bool:
        """Read the next token.

        Returns:
            Whether it completes a stop string; then it is the last token of the answer.
        """
        form = self._detokenizer.form(token_id)
        if form.is_silent or token_id in self._end_token_ids:
            self._num_open += 1
            return False
        num_old = len(self._held)
        if form.raw is None:
            self._add_text(token_id)
        else:
            self._add_bytes(form.raw)
        return self._settle(num_old)

    def take(self) -> list[TextPiece]:
        """The pieces that became ready since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def finish(self) -> list[TextPiece]:
        """The last pieces: the answer is complete, and nothing is held back any longer."""
        self._release(len(self._held))
        self._bytes.reset()
        if self._num_open:
            self._ready.append(TextPiece("", self._num_open))
            self._num_open = 0
        return self.take()

    def _read_prompt(self, token_ids: tuple[int, ...]) -> int | None:
        """Find the context of the first token; bytes at the end may begin its character."""
        tail: list[bytes] = []
        context: int | None = None
        for token_id in reversed(token_ids):
            form = self._detokenizer.form(token_id)
            if form.is_silent:
                continue
            if form.raw is None:
                context = token_id
                break
            context = self._detokenizer.anchor
            tail.append(form.raw)
            if len(tail) == _MAX_BYTES_OF_CHARACTER:
                break
        self._bytes.decode(b"".join(reversed(tail)))
        return context

    def _add_text(self, token_id: int) -> None:
        if cut := self._bytes.decode(b"", final=True):
            self._held += cut
            self._mark()
        text = self._detokenizer.text_after(self._context, token_id)
        self._context = token_id
        self._held += text
        self._num_open += 1
        if text:
            self._mark()

    def _add_bytes(self, raw: bytes) -> None:
        text = self._bytes.decode(raw)
        self._held += text
        if self._context is None:
            self._context = self._detokenizer.anchor
        is_complete = not self._bytes.getstate()[0]
        if is_complete:
            self._num_open += 1
        # Text settles all tokens before this one: what is left are bytes of this one.
        if text:
            self._mark()
        if not is_complete:
            self._num_open += 1

    def _mark(self) -> None:
        """Note that the open tokens end where the text now ends."""
        if self._num_open:
            self._marks.append((self._num_released + len(self._held), self._num_open))
            self._num_open = 0

    def _settle(self, num_old: int) -> bool:
        """Release what no stop string can claim; True if one is complete."""
        start = self._find_stop(num_old)
        if start is None:
            self._release(len(self._held) - self._num_claimed())
            return False
        self._release(start)
        self._held = ""
        self._num_open += sum(count for _, count in self._marks)
        self._marks.clear()
        return True

    def _find_stop(self, num_old: int) -> int | None:
        """Where in the held text a stop string starts that ends after the first `num_old`."""
        found: list[tuple[int, int]] = []
        for string in self._stop:
            start = self._held.find(string, max(0, num_old - len(string) + 1))
            if start >= 0:
                found.append((start + len(string), start))
        return min(found)[1] if found else None

    def _num_claimed(self) -> int:
        """Length of the longest tail of the held text with which a stop string begins."""
        for length in range(min(len(self._held), self._longest_stop - 1), 0, -1):
            tail = self._held[-length:]
            if any(string.startswith(tail) for string in self._stop):
                return length
        return 0

    def _release(self, length: int) -> None:
        """Make pieces of the first characters of the held text, split where tokens end."""
        cursor = 0
        while self._marks and self._marks[0][0] - self._num_released <= length:
            end, count = self._marks.popleft()
            self._ready.append(TextPiece(self._held[cursor : end - self._num_released], count))
            cursor = end - self._num_released
        if cursor < length:
            self._ready.append(TextPiece(self._held[cursor:length], 0))
        self._held = self._held[length:]
        self._num_released += length


class TextStreams:
    """The text of all requests; tells the engine where stop strings end them (`StopChecker`).

    The engine calls `start`, `keep` and `finish`; its reader calls `take` as tokens are emitted
    and `close` once per request, when the engine is done with it.
    """

    def __init__(self, tokenizer: "TextTokenizer") -> None:
        self._tokenizer = tokenizer
        self._streams: dict[str, TextStream] = {}

    def start(self, request: Request) -> None:
        """Begin to follow a request."""
        self._streams[request.request_id] = self._tokenizer.stream(
            request.prompt_token_ids, tuple(request.params.stop), request.end_token_ids
        )

    def keep(self, request_id: str, token_ids: tuple[int, ...]) -> tuple[int, bool]:
        """Read the next tokens of a request, in order.

        Returns:
            How many to keep, and whether the last one kept completes a stop string.
        """
        stream = self._streams[request_id]
        for index, token_id in enumerate(token_ids):
            if stream.push(token_id):
                return index + 1, True
        return len(token_ids), False

    def finish(self, request_id: str) -> None:
        """Expect no more tokens; the text stays until `close`."""

    def take(self, request_id: str) -> list[TextPiece]:
        """The pieces that became ready since the last call."""
        return self._streams[request_id].take()

    def close(self, request_id: str) -> list[TextPiece]:
        """The last pieces of a request, which is then forgotten."""
        return self._streams.pop(request_id).finish()

    def forget(self, request_id: str) -> None:
        """Drop a request whose text nobody wants any more; one that is closed is no error."""
        self._streams.pop(request_id, None)
