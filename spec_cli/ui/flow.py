"""Text that is appended to a terminal, which wraps it by itself."""

from rich.cells import split_graphemes

from spec_cli.ui.spans import Span


class TextFlow:
    """What was written of a text, and what has to wait.

    The text goes to the terminal as it is, with line breaks only where it has them. One thing
    must wait: the character that fills a row. Behind it terminals differ in where the cursor is
    once it has been moved away and back.
    """

    def __init__(self) -> None:
        self._line = ""
        self._held: list[Span] = []

    @property
    def is_in_line(self) -> bool:
        """Whether the last line has text."""
        return bool(self._line)

    def add(self, spans: list[Span], width: int, *, holds_filler: bool = True) -> list[Span]:
        """Append text.

        Args:
            spans: The text.
            width: Columns of the terminal.
            holds_filler: Whether the cursor will be moved.

        Returns:
            What may be written now.
        """
        spans = self._held + spans
        held_length = sum(len(span.text) for span in self._held)
        text = self._line[: len(self._line) - held_length] + "".join(span.text for span in spans)
        self._line = text[text.rfind("\n") + 1 :]
        num_held = row_filler(self._line, width) if holds_filler else 0
        spans, self._held = _split(spans, num_held)
        return spans


def row_filler(line: str, width: int) -> int:
    """How many characters at the end of a line make the last one of its full last row.

    0 if the last row has room. A row breaks when the next character does not fit.
    """
    used = begin = 0
    for begin, _, size in split_graphemes(line)[0]:  # noqa: B007 - the last one is used
        used = size if used + size > width else used + size
    return len(line) - begin if used >= width else 0


def _split(spans: list[Span], num_characters: int) -> tuple[list[Span], list[Span]]:
    """Split off the last characters."""
    kept = list(spans)
    tail: list[Span] = []
    while kept and num_characters:
        last = kept.pop()
        at = max(0, len(last.text) - num_characters)
        num_characters -= len(last.text) - at
        tail.insert(0, last.part(at, None))
        if at:
            kept.append(last.part(0, at))
    return kept, tail
