"""Options of what is printed, and how."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from spec_cli.cli.guard import OutputFormat
from spec_cli.cli.options import option
from spec_cli.core.errors import UsageError

_OUTPUT = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOptions:
    """What goes to stderr, and its looks."""

    stats: Annotated[
        bool | None,
        option(
            "--stats/--no-stats",
            panel=_OUTPUT,
            help="Figures after the answer; shown if stderr is a terminal.",
        ),
    ] = None
    stats_full: Annotated[
        bool, option("--stats-full", panel=_OUTPUT, help="All figures after the answer.")
    ] = False
    color: Annotated[
        Literal["auto", "always", "never"],
        option("--color", panel=_OUTPUT, help="Colours on stderr; auto heeds NO_COLOR."),
    ] = "auto"
    plain: Annotated[
        bool, option("--plain", panel=_OUTPUT, help="ASCII only, no bars that move.")
    ] = False
    quiet: Annotated[
        bool, option("-q", "--quiet", panel=_OUTPUT, help="Only answers, warnings and errors.")
    ] = False
    verbose: Annotated[
        bool, option("-v", "--verbose", panel=_OUTPUT, help="Say more on stderr.")
    ] = False
    debug: Annotated[
        bool, option("--debug", panel=_OUTPUT, help="Show the traceback of an error.")
    ] = False

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            UsageError: The message names both.
        """
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose contradict each other.")
        if self.stats_full and self.stats is False:
            raise UsageError("--stats-full and --no-stats contradict each other.")

    @property
    def shows_stats(self) -> bool:
        """Whether figures follow the answer."""
        if self.stats is not None or self.stats_full:
            return bool(self.stats or self.stats_full)
        return sys.stderr.isatty() and not self.quiet

    @property
    def shows_header(self) -> bool:
        """Whether the effective values are told before the first token."""
        return self.verbose or (sys.stderr.isatty() and not self.quiet)

    @property
    def shows_bars(self) -> bool:
        """Whether progress may be drawn and redrawn."""
        return sys.stderr.isatty() and not self.plain and not self.quiet

    def console(self) -> Console:
        """Where everything but answers goes."""
        return Console(
            stderr=True,
            force_terminal=True if self.color == "always" else None,
            no_color=True if self.color == "never" else None,
            highlight=False,
            soft_wrap=True,
            markup=False,
            emoji=False,
        )


JsonOption = Annotated[
    bool, option("--json", panel=_OUTPUT, help="A JSON object on stdout instead of text.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What goes to stdout and to files."""

    output_format: Annotated[
        OutputFormat | None,
        option(
            "-o",
            "--output-format",
            panel=_OUTPUT,
            help="json: one report at the end; jsonl: one event a line as it happens.",
        ),
    ] = None
    json: JsonOption = False
    jsonl: Annotated[
        bool, option("--jsonl", panel=_OUTPUT, help="The same as --output-format jsonl.")
    ] = False
    trace: Annotated[
        Path | None,
        option("--trace", metavar="FILE", panel=_OUTPUT, help="Write the events to a file too."),
    ] = None

    @property
    def format(self) -> OutputFormat:
        """The output format; `check` says whether it was asked for without contradiction."""
        if self.output_format is not None:
            return self.output_format
        return "jsonl" if self.jsonl else "json" if self.json else "text"

    def check(self) -> None:
        """Refuse two output formats at once.

        Raises:
            UsageError: The message names them.
        """
        asked = {name for name in ("json", "jsonl") if getattr(self, name)}
        asked |= {self.output_format} if self.output_format else set()
        if len(asked) > 1:
            raise UsageError(f"two output formats at once: {' and '.join(sorted(asked))}.")
