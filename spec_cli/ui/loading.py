"""Progress before the first token, on stderr."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from spec_cli.core.progress import Stage

_WORDS = {
    "download": "Fetching",
    "convert": "Converting",
    "load": "Loading",
    "pack": "Packing",
    "shape": "Trying shapes that keep the bits of",
    "calibrate": "Timing forwards of",
}


class LoadingLines:
    """One line per stage, for a stderr that is a file or a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[str, str] | None = None

    def __enter__(self) -> Self:
        """Nothing is opened."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left open."""

    def report(self, stage: Stage) -> None:
        """Print a stage when it begins."""
        if (stage.stage, stage.what) != self._last:
            self._last = (stage.stage, stage.what)
            self._console.print(_title(stage))


class LoadingBars:
    """A bar that is gone when loading is done.

    Attributes:
        progress: Draws it.
    """

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._current: tuple[str, str] = ("", "")
        self._task: TaskID = self.progress.add_task("Starting", total=None, amount="")

    def __enter__(self) -> Self:
        """Begin to draw."""
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bars away."""
        self.progress.stop()

    def report(self, stage: Stage) -> None:
        """Move the bar of a stage, or begin a new one in place of the last."""
        if (stage.stage, stage.what) != self._current:
            self._current = (stage.stage, stage.what)
            self.progress.remove_task(self._task)
            self._task = self.progress.add_task(_title(stage), total=None, amount="")
        self.progress.update(
            self._task, completed=stage.done or 0, total=stage.total, amount=_amount(stage)
        )


class LoadingSilence:
    """Nothing."""

    def __enter__(self) -> Self:
        """Nothing is opened."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left open."""

    def report(self, stage: Stage) -> None:
        """Print nothing."""


def _title(stage: Stage) -> str:
    return f"{_WORDS[stage.stage]} {stage.what}"


def _amount(stage: Stage) -> str:
    if stage.done is None or stage.total is None:
        return ""
    if stage.stage == "download":
        return f"{stage.done / 1e6:,.0f} / {stage.total / 1e6:,.0f} MB"
    return f"{stage.done:,} / {stage.total:,}"
