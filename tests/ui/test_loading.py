"""Progress before the first token."""

import io

from rich.console import Console

from spec_cli.core.progress import Stage
from spec_cli.ui.loading import LoadingBars, LoadingLines, LoadingSilence

STAGES = [
    Stage("download", "org/model", 0, 2_000_000),
    Stage("download", "org/model", 1_000_000, 2_000_000),
    Stage("load", "org/model"),
    Stage("pack", "weights", 1, 30),
    Stage("pack", "weights", 2, 30),
]


def test_lines_name_each_stage_once() -> None:
    """Where nothing can be redrawn, a stage is one line however often it reports."""
    console = Console(file=io.StringIO(), width=100)

    with LoadingLines(console) as loading:
        for stage in STAGES:
            loading.report(stage)

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "Fetching org/model\nLoading org/model\nPacking weights\n"


def test_bars_show_amounts() -> None:
    """A download is in megabytes, pieces are counted, and no bar is there before the first one."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    loading = LoadingBars(console)
    shown = []
    for stage in STAGES:
        loading.report(stage)
        [task] = loading.progress.tasks
        shown.append((task.description, task.fields["amount"]))

    assert shown == [
        ("Fetching org/model", "0 / 2 MB"),
        ("Fetching org/model", "1 / 2 MB"),
        ("Loading org/model", ""),
        ("Packing weights", "1 / 30"),
        ("Packing weights", "2 / 30"),
    ]


def test_bars_leave_nothing_behind() -> None:
    """When loading is done, the line is as it was."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)

    with LoadingBars(console) as loading:
        loading.report(STAGES[0])

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith("\x1b[1A\x1b[2K")


def test_silence() -> None:
    """Quiet is quiet."""
    with LoadingSilence() as loading:
        loading.report(STAGES[0])
