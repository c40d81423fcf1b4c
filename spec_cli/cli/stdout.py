"""Standard output: written at once, with its failures in words."""

import contextlib
import os
import sys

from spec_cli.core.errors import SpecCliError


def write_out(text: str) -> None:
    """Write to stdout and flush.

    Raises:
        BrokenPipeError: Nobody reads any more.
        SpecCliError: It cannot be written, such as to a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SpecCliError(f"cannot write to standard output: {error.strerror}.") from error


def discard_output() -> None:
    """Let nothing be written when the interpreter closes stdout."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
