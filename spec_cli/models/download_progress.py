"""The hub library's progress bars, turned into reports."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Self

from spec_cli.core.progress import ReportStage, Stage


class SilentBar:
    """Counts like a tqdm bar and draws nothing.

    The library asks for one bar of written bytes, one of bytes on the wire (fewer, they are
    compressed) and one of files. Only the first is reported.
    """

    what = ""
    report: ReportStage | None = None
    _lock = threading.RLock()

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        *,
        total: float | None = None,
        initial: float = 0,
        unit: str = "it",
        desc: str | None = None,
        **_appearance: Any,
    ) -> None:
        self.iterable = iterable
        self.total = total
        self.n = initial
        self.format_dict: dict[str, Any] = {}
        self._is_reported = unit == "B" and not str(desc).startswith("Downloading")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable or ())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def update(self, n: float | None = 1) -> None:
        """Count on; files are fetched by several threads at once."""
        with self._lock:
            self.n += n or 0
            if self._is_reported and self.report is not None:
                total = int(self.total) if self.total else None
                self.report(Stage("download", self.what, int(self.n), total))

    @classmethod
    def get_lock(cls) -> threading.RLock:
        """The lock that thread pools share with their bars."""
        return cls._lock

    @classmethod
    def set_lock(cls, lock: Any) -> None:
        """Take the lock that thread pools hand to their bars."""
        cls._lock = lock

    def refresh(self, *_appearance: object, **_more: object) -> None:
        """Accept what would change the look of a bar."""

    set_description = set_description_str = set_postfix = set_postfix_str = refresh
    clear = close = reset = refresh


def progress_class(what: str, report: ReportStage) -> type[SilentBar]:
    """Make a bar class that reports the bytes of one download.

    Args:
        what: Subject of the reports.
        report: Receives a `Stage` at each change.

    Returns:
        A class to pass as `tqdm_class`.
    """
    return type("ReportingBar", (SilentBar,), {"what": what, "report": staticmethod(report)})
