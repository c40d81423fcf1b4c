"""From options to a loaded model, with progress and notices on stderr."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.report import RunDescription
from spec_cli.core.config import EngineConfig
from spec_cli.ui.header import header
from spec_cli.ui.loading import LoadingBars, LoadingLines, LoadingSilence

if TYPE_CHECKING:
    from spec_cli import LLM


Loading = LoadingBars | LoadingLines | LoadingSilence


def loading_view(screen: ScreenOptions, console: Console) -> Loading:
    """How progress is told: bars on a terminal, lines elsewhere."""
    if screen.shows_bars:
        return LoadingBars(console)
    return LoadingSilence() if screen.quiet else LoadingLines(console)


@contextlib.contextmanager
def open_llm(config: EngineConfig, screen: ScreenOptions, console: Console) -> Iterator["LLM"]:
    """Load the models and free them at the end."""
    with loading_view(screen, console) as loading:
        from spec_cli import LLM

        llm = LLM(report=loading.report, **asdict(config))
    with llm:
        yield llm


def print_notices(
    llm: "LLM", config: EngineConfig, screen: ScreenOptions, console: Console
) -> None:
    """Say what the user should know before the first token."""
    if config.draft_model is not None and config.spec == "off":
        console.print("Warning: --draft-model has no effect with --spec off.")
    for notice in llm.assembly.notices:
        is_warning = notice.startswith("speculation is off")
        if is_warning or not screen.quiet:
            console.print(f"{'Warning' if is_warning else 'Note'}: {notice}")


def print_header(run: RunDescription, screen: ScreenOptions, console: Console) -> None:
    """Say what is about to run, where somebody looks."""
    if screen.shows_header:
        text = header(run.model, run.draft, run.settings, is_plain=screen.plain)
        console.print(text, style="dim")
        console.print()
