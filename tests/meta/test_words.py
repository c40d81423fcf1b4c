"""Nothing unfinished ships."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "spec_cli"
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def test_nothing_is_marked_unfinished() -> None:
    """No module holds a note to finish it later."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
    ]

    assert not found, "; ".join(found)
