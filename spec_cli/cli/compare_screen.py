"""What `spec-cli compare` shows while it runs and at its end."""

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from spec_cli.bench.charts import all_charts, as_text
from spec_cli.bench.comparison import Plan
from spec_cli.bench.harness import Progress as Part
from spec_cli.bench.page import page
from spec_cli.bench.tables import (
    Table,
    all_tables,
    comma_separated,
    environment,
    markdown,
    notices,
)
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.stdout import write_out
from spec_cli.core.errors import SpecCliError

_ON_SCREEN = ("Median end-to-end latency, s", "Measured speed-up of decoding")


class CompareScreen:
    """Progress with the time left on stderr, each finished cell as a line; jsonl on stdout."""

    def __init__(
        self, plan: Plan, console: Console, screen: ScreenOptions, output_format: str
    ) -> None:
        self._console = console
        self._is_quiet = screen.quiet
        self._is_jsonl = output_format == "jsonl"
        self._bar: Progress | None = None
        if screen.shows_bars:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("starting", total=plan.num_parts)

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing behind."""
        if self._bar is not None:
            self._bar.stop()

    def start(self, head: dict[str, Any]) -> None:
        """The run begins."""
        self._record({"event": "start", **head})

    def progress(self, part: Part) -> None:
        """A part of the plan begins."""
        if self._bar is not None:
            self._bar.update(self._task, completed=part.done, description=part.what)

    def announce(self, what: str) -> None:
        """Something that the plan does not count begins."""
        if self._bar is not None:
            self._bar.update(self._task, description=what)

    def show_cell(self, kind: str, load: float, cell: dict[str, Any]) -> None:
        """One arm at one load is done."""
        label = str(load) if load != float("inf") else "inf"
        self._record({"event": "cell", "kind": kind, "load": label, **cell})
        if self._is_quiet:
            return
        if kind == "batch":
            speedup = cell["speedup_measured"]
            text = f"batch {int(load)}: {cell['arm']} {cell['tokens_per_second']:.1f} tok/s"
            text += "" if speedup is None else f", {speedup:.2f}x"
        else:
            whole = cell["end_to_end_ms"]
            latency = "none finished" if whole is None else f"median {whole['p50'] / 1e3:.2f} s"
            text = f"{load:g} requests/s: {cell['arm']} {latency}"
            text += ", saturated" if cell["saturated"] else ""
        self._console.print(text)

    def _record(self, record: dict[str, Any]) -> None:
        if self._is_jsonl:
            write_out(json.dumps(record, ensure_ascii=False) + "\n")


def print_report(report: dict[str, Any], output_format: str, screen: ScreenOptions) -> None:
    """The report on stdout."""
    if output_format == "auto" and sys.stdout.isatty():
        _print_tables(report, screen)
    else:
        write_out(rendered(report, output_format))


def rendered(report: dict[str, Any], output_format: str) -> str:
    """The report as text; `auto` is Markdown."""
    if output_format == "json":
        return json.dumps(report, ensure_ascii=False, indent=2) + "\n"
    if output_format == "jsonl":
        return json.dumps({"event": "end", "report": report}, ensure_ascii=False) + "\n"
    return comma_separated(report) if output_format == "csv" else markdown(report)


def write_page(report: dict[str, Any], path: Path) -> None:
    """The report as a page in a file.

    Raises:
        SpecCliError: It cannot be written.
    """
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise SpecCliError(f"cannot write {path}: {error.strerror}.") from error


def _print_tables(report: dict[str, Any], screen: ScreenOptions) -> None:
    console = Console(
        highlight=False, markup=False, emoji=False, no_color=screen.color == "never" or None
    )
    console.print(environment(report), style="dim")
    console.print()
    for table in all_tables(report):
        console.print(_rich(table, is_plain=screen.plain))
        console.print()
    for chart in all_charts(report):
        if len(chart.labels) > 1 and chart.title in _ON_SCREEN:
            console.print(as_text(chart, min(console.width, 100), is_plain=screen.plain))
            console.print()
    for sentence in report["why"]["words"]:
        console.print(f"{'-' if screen.plain else '•'} {sentence}")
    for note in notices(report):
        console.print(f"Note: {note}", style="yellow")


def _rich(table: Table, *, is_plain: bool) -> RichTable:
    made = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        box=box.ASCII if is_plain else box.SIMPLE_HEAD,
    )
    for name in table.columns:
        is_text = name in ("arm", "same text")
        made.add_column(name, justify="left" if is_text else "right")
    for row in table.rows:
        made.add_row(*row)
    return made
