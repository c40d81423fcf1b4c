"""What Ctrl-C does: ends the program while it loads, ends the answer while it generates."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from spec_cli.cli.guard import INTERRUPTED

_TWICE_S = 2.0
_CLEAN_UP_S = 0.8


class Interrupts:
    """Answers SIGINT.

    Outside `calling` it is a KeyboardInterrupt; should the clean-up that follows take longer than
    a moment, in a library that holds on to its work, the process ends there. Within `calling` the
    first asks for an end and a second within two seconds is a KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._last_s = float("-inf")
        self._deadline: threading.Timer | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator["Interrupts"]:
        """Be the handler of SIGINT inside."""
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)
            if self._deadline is not None:
                self._deadline.cancel()

    @contextlib.contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Let the first Ctrl-C call `stop` instead of breaking off."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def _handle(self, signal_number: int, frame: FrameType | None) -> None:
        del signal_number, frame
        now = time.monotonic()
        if self._stop is None or now - self._last_s < _TWICE_S:
            self._deadline = threading.Timer(_CLEAN_UP_S, os._exit, (INTERRUPTED,))
            self._deadline.daemon = True
            self._deadline.start()
            raise KeyboardInterrupt
        self._last_s = now
        self._stop()
