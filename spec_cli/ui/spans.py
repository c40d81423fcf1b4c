"""Text with its origin, and how an origin looks."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from rich.style import Style
from rich.text import Text

from spec_cli.core.events import TextDelta
from spec_cli.core.proposal import TokenSource

Highlight = Literal["none", "accepted", "position"]

_PLAIN = Style()
_THOUGHT = Style(dim=True, italic=True)
# The underline, and for positions bold and dim, are there for those who see no colours.
_BY_SOURCE = {"draft": Style(color="green"), "target": Style(underline=True)}
_LOOKUP = Style(color="cyan")
_BY_POSITION = (
    Style(color="bright_green", bold=True),
    Style(color="green"),
    Style(color="cyan"),
    Style(color="blue", dim=True),
)
# Left alone, a model could move the cursor or set colours.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TAB = "    "
_BEGIN, _END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of an answer.

    Attributes:
        text: Printable: tabs and control characters replaced.
        source: Who guessed it, or None for text that is no model's.
        draft_position: Its index in the draft, or None.
        is_thought: Whether it is reasoning before the answer.
    """

    text: str
    source: TokenSource | None = None
    draft_position: int | None = None
    is_thought: bool = False

    def part(self, start: int, end: int | None) -> "Span":
        """Some of its characters."""
        return replace(self, text=self.text[start:end])

    def style(self, highlight: Highlight) -> Style:
        """How it looks."""
        look = _PLAIN
        if self.source is not None and highlight != "none":
            look = _BY_SOURCE.get(self.source, _LOOKUP)
            if highlight == "position" and self.draft_position is not None:
                look = _BY_POSITION[min(self.draft_position, len(_BY_POSITION) - 1)]
        return _THOUGHT + look if self.is_thought else look


def rich_text(spans: list[Span], highlight: Highlight) -> Text:
    """Spans in their looks; white space is never underlined."""
    text = Text(end="", no_wrap=True)
    for span in spans:
        style = span.style(highlight)
        core = span.text.strip()
        if not style.underline or not core or core == span.text:
            text.append(span.text, style if core else None)
            continue
        before, _, after = span.text.partition(core)
        text.append(before)
        text.append(core, style)
        text.append(after)
    return text


def printable(text: str) -> str:
    """A text that can do nothing to a terminal but be shown."""
    text = text.replace("\r\n", "\n").replace("\t", _TAB)
    return _CONTROL.sub(lambda match: _picture(ord(match[0])), text)


def _picture(code: int) -> str:
    """The sign for a control character."""
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


class SpanReader:
    """Makes spans of deltas, and tells thoughts from the answer.

    Attributes:
        is_thinking: Whether the text so far ends inside a thought.
    """

    def __init__(self, *, is_thinking: bool = False, hides_thoughts: bool = False) -> None:
        """Begin an answer.

        Args:
            is_thinking: Whether the prompt ends inside a thought.
            hides_thoughts: Leave thoughts and the space after them out.
        """
        self.is_thinking = is_thinking
        self._hides_thoughts = hides_thoughts
        self._strips_next = False
        self._held = ""  # the beginning of what may become a tag

    def read(self, delta: TextDelta) -> list[Span]:
        """The spans of a piece of text."""
        text, self._held = self._held + delta.text, ""
        spans = []
        while text:
            tag = _END if self.is_thinking else _BEGIN
            before, found, text = text.partition(tag)
            if not found:
                before, self._held = _hold_back(before, tag)
            spans += self._span(before, delta, is_thought=self.is_thinking)
            if found:
                spans += self._span(tag, delta, is_thought=True)
                self._strips_next = self.is_thinking and self._hides_thoughts
                self.is_thinking = not self.is_thinking
        return spans

    def close(self) -> list[Span]:
        """What was held back: the answer is complete."""
        held, self._held = self._held, ""
        return [Span(printable(held), is_thought=self.is_thinking)] if held else []

    def _span(self, text: str, delta: TextDelta, *, is_thought: bool) -> list[Span]:
        if is_thought and self._hides_thoughts:
            return []
        if self._strips_next:
            text = text.lstrip()
            self._strips_next = not text
        if not text:
            return []
        return [Span(printable(text), delta.source, delta.draft_position, is_thought)]


def _hold_back(text: str, tag: str) -> tuple[str, str]:
    """Split off the longest end of a text with which the tag begins."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-length:]):
            return text[:-length], text[-length:]
    return text, ""
