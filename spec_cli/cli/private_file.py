"""Files that are the user's alone."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, with mode 0600, and make its folder.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    number = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    part.replace(path)
