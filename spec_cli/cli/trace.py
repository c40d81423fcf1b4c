"""`spec-cli trace`: a saved trace, in the terminal or as a page."""

from pathlib import Path
from typing import Annotated

import typer

from spec_cli.cli.guard import guard
from spec_cli.cli.options import option
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.prompts import read_text
from spec_cli.cli.view_options import ViewOptions
from spec_cli.core.errors import UsageError
from spec_cli.ui.trace import read_trace
from spec_cli.ui.trace_html import trace_page
from spec_cli.ui.trace_screen import trace_lines


def trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What generate --trace wrote.")],
    *,
    html: Annotated[
        Path | None,
        option(
            "--html",
            metavar="FILE",
            panel="Output",
            help="Write a page that opens without a network, instead of lines.",
        ),
    ] = None,
    screen: ScreenOptions,
) -> None:
    """Show a saved trace step by step: drafted, accepted, rejected and the target's own tokens."""
    with guard(debug=screen.debug):
        found = read_trace(read_text(file).split("\n"), str(file))
        if html is not None:
            _write(html, trace_page(found))
            screen.console().print(f"wrote {html}")
            return
        console = ViewOptions().console(screen)
        for line in trace_lines(found, is_plain=screen.plain):
            console.print(line)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"--html: cannot write {path}: {error.strerror}.") from error
