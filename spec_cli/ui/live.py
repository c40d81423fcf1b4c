"""The live console: an answer that is only ever appended to, and a footer below it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from spec_cli.core.events import Event, RequestFinished, TextDelta
from spec_cli.ui.flow import TextFlow
from spec_cli.ui.footer import FooterFacts, footer
from spec_cli.ui.spans import Highlight, Span, SpanReader, rich_text
from spec_cli.ui.view_state import ViewState

MIN_WIDTH = 20
_SHORTEST_S = 0.1
_MOST_OF_WALL = 0.015
# Terminals that know it show the frame at once; others ignore it.
_BEGIN_FRAME, _END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
_ERASE_BELOW = "\x1b[J"
# Down a line in the same column, and the screen up where there is no line.
_DOWN = "\x1bD"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"


def can_be_live(console: Console) -> bool:
    """Whether a terminal can show a footer that is redrawn."""
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and not console.legacy_windows
        and console.width >= MIN_WIDTH
    )


class Pacer:
    """Says when to redraw: at most ten times a second, and for a small part of the time.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cost_s = 0.0
        self._next_s = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last redraw."""
        return self._clock() >= self._next_s

    def timed(self, redraw: Callable[[], None]) -> None:
        """Redraw, and learn what it costs."""
        started = self._clock()
        redraw()
        ended = self._clock()
        cost = ended - started
        # A single slow redraw, such as the first one, should not slow down all others for long.
        self._cost_s = cost if not self._cost_s else (3.0 * self._cost_s + cost) / 4.0
        self._next_s = ended + max(_SHORTEST_S, max(cost, self._cost_s) / _MOST_OF_WALL)


@dataclass(slots=True)
class _Pending:
    """An answer that waits for its turn on the screen."""

    reader: SpanReader
    spans: list[Span] = field(default_factory=list)
    is_begun: bool = False
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How the live console looks.

    Attributes:
        highlight: Show where tokens come from: not at all, by who guessed, by draft position.
        hides_thoughts: Leave reasoning out.
        is_thinking: Whether the prompt ends inside a thought.
        titles: A heading for each answer where there are several.
        has_footer: Draw the footer; without it nothing but text and its looks is written.
    """

    highlight: Highlight = "accepted"
    hides_thoughts: bool = False
    is_thinking: bool = False
    titles: tuple[str, ...] = ()
    has_footer: bool = True


class LiveView:
    """Shows the events of a run on a terminal as they come.

    The cursor rests at the end of the text. A redraw erases what is below it, appends what is new,
    and draws the footer below that. Nothing depends on how wide a terminal thinks a character is,
    and a resize does no harm.
    """

    def __init__(
        self,
        console: Console,
        facts: FooterFacts,
        options: LiveOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._facts = facts
        self._options = options or LiveOptions()
        self._pacer = Pacer(clock)
        self._view = ViewState()
        self._flow = TextFlow()
        self._answers: list[_Pending] = []
        self._front = 0
        self._new: list[Span] = []
        self._is_open = False

    def __enter__(self) -> Self:
        """Draw the footer."""
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the footer away, even if the run broke off."""
        self.close()

    def open(self) -> None:
        """Draw the footer."""
        self._is_open = True
        self._pacer.timed(self._paint)

    def read(self, event: Event | TextDelta) -> None:
        """Take in one event, and redraw if it is time to."""
        self._view.read(event)
        if isinstance(event, TextDelta):
            answer = self._answer(self._view.row(event.request_id).index)
            answer.spans += answer.reader.read(event)
        elif isinstance(event, RequestFinished):
            answer = self._answer(self._view.row(event.request_id).index)
            answer.spans += answer.reader.close()
            answer.is_finished = True
        if self._pacer.is_due:
            self._pacer.timed(self._paint)

    def close(self) -> None:
        """Write the rest of the text, end its line and leave the screen to others."""
        if not self._is_open:
            return
        self._is_open = False
        self._advance()
        self._write([], ends_line=True)

    def _answer(self, index: int) -> _Pending:
        while len(self._answers) <= index:
            options = self._options
            reader = SpanReader(
                is_thinking=options.is_thinking, hides_thoughts=options.hides_thoughts
            )
            self._answers.append(_Pending(reader))
        return self._answers[index]

    def _advance(self) -> None:
        """Move what may be shown to the text: answers in the order of their prompts."""
        while self._front < self._facts.num_requests:
            answer = self._answer(self._front)
            if (answer.spans or answer.is_finished) and not answer.is_begun:
                answer.is_begun = True
                self._new += self._title()
            self._new += answer.spans
            answer.spans = []
            if not answer.is_finished:
                return
            self._new.append(Span("\n"))
            self._front += 1

    def _title(self) -> list[Span]:
        titles = self._options.titles
        if not titles:
            return []
        gap = "\n" if self._front else ""
        return [Span(f"{gap}==> {self._front + 1}: {titles[self._front]} <==\n")]

    def _paint(self) -> None:
        self._advance()
        console = self._console
        lines: list[Text] = []
        if self._options.has_footer and console.width >= MIN_WIDTH:
            is_thinking = self._answer(self._front).reader.is_thinking
            lines = footer(
                self._view,
                self._facts,
                console.width,
                console.height,
                is_thinking=is_thinking and self._options.hides_thoughts,
            )
        self._write(lines)

    def _write(self, lines: list[Text], *, ends_line: bool = False) -> None:
        """Put a frame on the screen in one go; the cursor ends where the text does."""
        console = self._console
        if ends_line and (self._new or self._flow.is_in_line):
            last = self._new[-1].text if self._new else ""
            self._new += [] if last.endswith("\n") else [Span("\n")]
        has_footer = self._options.has_footer
        spans = self._flow.add(self._new, console.width, holds_filler=has_footer)
        self._new = []
        # Without speculation all tokens are the target's own: nothing to tell apart.
        is_off = self._view.state.mode == "off"
        frame = self._rendered(rich_text(spans, "none" if is_off else self._options.highlight))
        if has_footer:
            frame = _BEGIN_FRAME + _ERASE_BELOW + frame
        if lines:
            room = _DOWN * len(lines) + f"\x1b[{len(lines)}A"
            below = Text("").join(Text("\n").append_text(line) for line in lines)
            frame += room + _SAVE_CURSOR + self._rendered(below) + _RESTORE_CURSOR
        console.file.write(frame + (_END_FRAME if has_footer else ""))
        console.file.flush()

    def _rendered(self, text: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(text, end="", soft_wrap=True)
        return capture.get()
