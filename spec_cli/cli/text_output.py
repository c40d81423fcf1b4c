"""Answers as text on stdout, in the order of their prompts, the first of them as it comes."""

from collections.abc import Callable

from spec_cli.core.events import Event, RequestFinished, TextDelta

_TITLE_WIDTH = 60


class TextOutput:
    """Writes one answer bare, and each of several under a title with its prompt.

    Answers that come out of turn wait for those before them.
    """

    def __init__(self, prompts: list[str], write: Callable[[str], None]) -> None:
        self._prompts = prompts
        self._write = write
        self._front = 0
        self._is_begun = False
        self._waiting = ["" for _ in prompts]
        self._finished: set[int] = set()

    def read(self, event: Event | TextDelta, index: int) -> None:
        """Take in an event of the answer with this index."""
        if isinstance(event, TextDelta):
            self._waiting[index] += event.text
        elif isinstance(event, RequestFinished):
            self._finished.add(index)
        self._advance()

    def close(self) -> None:
        """End the line of an answer that was broken off."""
        if self._is_begun:
            self._end()

    def _advance(self) -> None:
        while self._front < len(self._prompts):
            text, self._waiting[self._front] = self._waiting[self._front], ""
            if text or self._front in self._finished:
                self._begin()
                self._write(text)
            if self._front not in self._finished:
                return
            self._end()

    def _begin(self) -> None:
        if not self._is_begun and len(self._prompts) > 1:
            gap = "\n" if self._front else ""
            self._write(f"{gap}==> {self._front + 1}: {title(self._prompts[self._front])} <==\n")
        self._is_begun = True

    def _end(self) -> None:
        self._write("\n")
        self._front += 1
        self._is_begun = False


def title(prompt: str) -> str:
    """The last line of a prompt, where the question is when a text was piped in before it."""
    line = prompt.strip().rpartition("\n")[2].strip()
    return line if len(line) <= _TITLE_WIDTH else line[: _TITLE_WIDTH - 1] + "…"
