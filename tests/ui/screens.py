"""A terminal in memory: what a person would see of what is written to it."""

import io
from collections.abc import Iterable

import pyte
from rich.console import Console
from wcwidth import wcwidth

from spec_cli.core.events import Event, StepFinished, TextDelta
from spec_cli.ui.footer import FooterFacts
from spec_cli.ui.live import LiveOptions, LiveView


class Screen(pyte.HistoryScreen):
    """An emulator that wraps a wide character which does not fit, as terminals do."""

    def draw(self, data: str) -> None:
        """Draw characters one by one: the original drops all that follows a joiner."""
        for char in data:
            if wcwidth(char) == 2 and self.cursor.x == self.columns - 1:
                self.carriage_return()
                self.linefeed()
            super().draw(char)


class Terminal:
    """A terminal emulator that a Console writes to."""

    def __init__(self, width: int, height: int = 24, *, color: bool = True) -> None:
        self.screen = Screen(width, height, history=1000)
        self.screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self.screen)
        self.written = io.StringIO()
        self.console = Console(
            file=self,  # type: ignore[arg-type]
            force_terminal=True,
            color_system="standard",
            no_color=not color,
            width=width,
            height=height,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def write(self, text: str) -> int:
        """Called by the console."""
        self.written.write(text)
        self._stream.feed(text.replace("\x1b[?2026h", "").replace("\x1b[?2026l", ""))
        return len(text)

    def flush(self) -> None:
        """Called by the console."""

    def resize(self, width: int) -> None:
        """Change the width; this emulator does not wrap old text anew."""
        self.screen.resize(columns=width)
        self.console.width = width

    def lines(self) -> list[str]:
        """Everything written so far, scrolled-out lines included, without trailing blanks."""
        above = [
            "".join(line[x].data for x in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        shown = above + [line.rstrip() for line in self.screen.display]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def look(self, word: str) -> tuple[str, bool, bool, bool]:
        """Foreground, bold, underline and italics of the first character of a word."""
        for y, line in enumerate(self.screen.display):
            if (x := line.find(word)) >= 0:
                cell = self.screen.buffer[y][x]
                return cell.fg, cell.bold, cell.underscore, cell.italics
        raise AssertionError(f"{word!r} is not on the screen")


class EventClock:
    """A clock that shows the time of the event being read, so that replays are the same."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def show(
    events: Iterable[Event | TextDelta],
    terminal: Terminal,
    *,
    until_step: int | None = None,
    facts: FooterFacts | None = None,
    options: LiveOptions | None = None,
) -> None:
    """Play events on a terminal; with `until_step`, stop there with the footer in place."""
    clock = EventClock()
    facts = facts or FooterFacts(8192, 512)
    view = LiveView(terminal.console, facts, options, clock=clock)
    view.open()
    for event in events:
        clock.now_s = event.time_s
        view.read(event)
        if isinstance(event, StepFinished) and event.step == until_step:
            clock.now_s += 1.0
            view.read(event)
            return
    view.close()
