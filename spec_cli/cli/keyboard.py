"""The keyboard while an answer is written: keys do not show, Ctrl-C still works."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silent_keyboard() -> Iterator[None]:
    """Keep what is typed from being echoed into an answer; it is there for the next prompt."""
    try:
        import termios
    except ImportError:
        # Windows: a console does not echo what nobody reads.
        yield
        return
    if not sys.stdin or not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(number)
    except termios.error:
        yield
        return
    silent = list(before)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(number, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSANOW, before)
