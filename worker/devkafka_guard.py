"""Runs a command that must not outlive the process that asked for it.

`python -m worker.devkafka_guard [--remove FOLDER] [--pid FILE] COMMAND…` ends the command when its
own standard input closes, which the kernel does for a parent however it died, and then removes
FOLDER. FILE is told the process id of the command. A command that ends while its owner lives
leaves the folder alone: it may be started in it again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

_GRACE_S = 10.0


def main(arguments: list[str]) -> int:
    """Exit status of the command; it is asked to end with SIGTERM, and killed ten seconds later."""
    options, command = _parsed(arguments)
    is_asked = threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(*_: object) -> None:
        is_asked.set()
        for started in children:
            _terminate(started)

    # Before the command starts: from then on whoever started the guard may end it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    children.append(child)
    if is_asked.is_set():
        _terminate(child)
    if "--pid" in options:
        _tell(Path(options["--pid"]), child.pid)
    orphaned = threading.Event()
    threading.Thread(target=_await_parent, args=(child, orphaned), daemon=True).start()
    try:
        return child.wait()
    finally:
        if "--remove" in options and orphaned.is_set():
            shutil.rmtree(options["--remove"], ignore_errors=True)


def _parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    options = {}
    while arguments[0] in ("--remove", "--pid"):
        name, value, *arguments = arguments
        options[name] = value
    return options, arguments


def _tell(path: Path, pid: int) -> None:
    whole = path.with_suffix(".part")
    whole.write_text(f"{pid}\n")
    whole.rename(path)


def _await_parent(child: subprocess.Popen[bytes], orphaned: threading.Event) -> None:
    while os.read(0, 1024):
        continue
    orphaned.set()
    _terminate(child)
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def _terminate(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()


def guarded(command: list[str], log: IO[bytes], **options: Any) -> subprocess.Popen[bytes]:
    """Starts `command` under a guard in a session of its own, output and errors to `log`.

    A terminal's Ctrl-C reaches neither: whoever started the command ends it with `end`, in its own
    order. Signals sent to the guard are passed on.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "worker.devkafka_guard", *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )


def end(guard: subprocess.Popen[bytes]) -> int:
    """Asks the guarded command to end and returns its exit status; kills what does not listen."""
    if guard.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.close()
    try:
        return guard.wait(2 * _GRACE_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        return guard.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
