"""Runs a command that must not outlive the process that asked for it.

`python -m worker.devkafka_guard FOLDER COMMAND…` ends the command when its own standard input
closes, which the kernel does for a parent however it died, and then removes FOLDER.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

_GRACE_S = 10.0


def main(arguments: list[str]) -> int:
    """Exit status of the command; it is asked to end with SIGTERM, and killed ten seconds later."""
    folder, *command = arguments
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _terminate(child))
    threading.Thread(target=_await_parent, args=(child,), daemon=True).start()
    try:
        return child.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await_parent(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        continue
    _terminate(child)
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def _terminate(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
