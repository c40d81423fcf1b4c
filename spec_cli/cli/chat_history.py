"""Earlier messages, kept in a file for the next time."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from platformdirs import user_state_path
from prompt_toolkit.history import History

from spec_cli.cli.private_file import write_private

MAX_ENTRIES = 1000


def history_path() -> Path:
    """The file of earlier messages."""
    return user_state_path("spec-cli") / "history"


class FileHistory(History):
    """Earlier messages in a file that only the user can read, one JSON string a line.

    A file that cannot be read or written is told once, and messages are kept in memory alone.

    Args:
        path: The file, or None to keep none.
        tell: Called with what is wrong.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._path = path
        self._tell = tell
        self._entries: list[str] = []

    def load_history_strings(self) -> Iterable[str]:
        """Earlier messages, the latest first."""
        if self._path is not None:
            try:
                self._entries = _read(self._path)
            except OSError as error:
                self._give_up(error)
        return reversed(self._entries)

    def store_string(self, string: str) -> None:
        """Add a message, and forget those beyond the limit."""
        self._entries = [*self._entries, string][-MAX_ENTRIES:]
        if self._path is None:
            return
        try:
            lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in self._entries]
            write_private(self._path, "".join(lines))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._tell(f"messages are not kept for the next time: {self._path}: {error.strerror}")
        self._path = None


def _read(path: Path) -> list[str]:
    """The entries of a file; lines that are none are skipped."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, str):
            entries.append(entry)
    return entries[-MAX_ENTRIES:]
