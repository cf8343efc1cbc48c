"""A Python process of our own whose death kills nothing else, and the connection to it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing import get_context


class ChildProcess:
    """Runs `main(connection, *arguments)`, all of which is pickled, in a fresh process."""

    def __init__(self, name: str, main: Callable[..., None], *arguments: object) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=main, args=(theirs, *arguments), name=name, daemon=True
        )
        self._process.start()
        theirs.close()  # so that its end closes ours

    @property
    def exit_status(self) -> int | None:
        """How it ended: negative for a signal; None while it runs."""
        return self._process.exitcode

    @property
    def pid(self) -> int | None:
        """Its number."""
        return self._process.pid

    def wait(self) -> None:
        """Return when it has ended by itself."""
        self._process.join()

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def leave_signals_to_the_worker() -> None:
    """A signal to the group of processes is the worker's to answer; for a child's `main`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
