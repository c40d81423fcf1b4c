"""Options of how an answer looks on a terminal."""

import sys
from dataclasses import dataclass
from typing import Annotated

from rich.console import Console

from spec_cli.cli.options import option
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.core.errors import UsageError
from spec_cli.ui.live import LiveOptions, can_be_live
from spec_cli.ui.spans import Highlight

_OUTPUT = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """How an answer looks; nothing of it reaches a file or a pipe."""

    highlight: Annotated[
        Highlight | None,
        option(
            "--highlight",
            panel=_OUTPUT,
            help="On a terminal, show where tokens come from: accepted drafts are coloured and the"
            " target's own underlined, or shaded by draft position. Default: accepted.",
        ),
    ] = None
    no_live: Annotated[
        bool,
        option("--no-live", panel=_OUTPUT, help="No moving figures below the answer."),
    ] = False
    hide_thinking: Annotated[
        bool, option("--hide-thinking", panel=_OUTPUT, help="Leave a model's reasoning out.")
    ] = False

    def check(self, screen: ScreenOptions, *, is_text: bool) -> None:
        """Refuse to show thoughts that were to be hidden.

        A highlight is no such case: it may stand in the settings file for the day when there is a
        terminal.

        Raises:
            UsageError: There is no terminal to leave them out on.
        """
        if self.hide_thinking and not (is_text and self.shows_view(screen)):
            raise UsageError(
                "--hide-thinking needs text on a terminal.",
                hint="--no-think, where the model's chat template has that switch",
            )

    def shows_view(self, screen: ScreenOptions) -> bool:
        """Whether answers are written with their looks."""
        return sys.stdout.isatty() or screen.color == "always"

    def console(self, screen: ScreenOptions) -> Console:
        """Where answers go."""
        return Console(
            file=sys.stdout,
            force_terminal=True if screen.color == "always" else None,
            no_color=True if screen.color == "never" else None,
            highlight=False,
            soft_wrap=True,
            markup=False,
            emoji=False,
        )

    def looks(
        self, console: Console, screen: ScreenOptions, titles: tuple[str, ...] = ()
    ) -> LiveOptions:
        """The looks asked for, within what the terminal can do."""
        both = sys.stdout.isatty() and sys.stderr.isatty()
        default: Highlight = "none" if console.is_dumb_terminal else "accepted"
        return LiveOptions(
            highlight=default if self.highlight is None else self.highlight,
            hides_thoughts=self.hide_thinking,
            titles=titles,
            has_footer=both and can_be_live(console) and not self.no_live and not screen.quiet,
        )
