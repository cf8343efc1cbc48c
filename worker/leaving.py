"""Signals that ask a command to leave: before it works by an exception, then after its turn.

Code that is being imported may swallow any exception, that of an early signal too. Who was asked
and is still there when the work begins leaves then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


class _AtOnce:
    """Ends the process in order, however early the signal comes."""

    def __init__(self) -> None:
        self.was_asked = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.was_asked = True
        raise SystemExit(128 + number)


class _AfterTheTurn:
    """Asks the work to stop at the first signal and leaves at the second."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._was_asked = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self._was_asked:
            sys.stderr.flush()
            os._exit(128 + number)
        self._was_asked = True
        self._stop()


def leave_at_once_when_asked() -> None:
    """Let SIGTERM end the process by SystemExit, as SIGINT does by KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _AtOnce())


def stop_when_asked(stop: Callable[[], None]) -> None:
    """Let SIGTERM and SIGINT call `stop` from now on; at once if SIGTERM has come already."""
    earlier = signal.getsignal(signal.SIGTERM)
    handler = _AfterTheTurn(stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)
    if isinstance(earlier, _AtOnce) and earlier.was_asked:
        handler(signal.SIGTERM, None)
