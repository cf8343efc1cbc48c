"""A signal is heeded whenever it comes: in an import, before the work, during it, twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

EARLY = "import os, signal\nfrom worker.leaving import *\nleave_at_once_when_asked()\n"
TOLD = "os.kill(os.getpid(), signal.SIGTERM)\n"
SWALLOWED = "try:\n    " + TOLD + "except BaseException:\n    pass\n"
WORK = "stop_when_asked(lambda: print('stops'))\n"


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        (EARLY + TOLD + "print('goes on')\n", 143, ""),
        (EARLY + WORK + TOLD + "print('ends its turn')\n", 0, "stops\nends its turn\n"),
        (EARLY + WORK + TOLD + TOLD + "print('goes on')\n", 143, "stops\n"),
        (EARLY + SWALLOWED + WORK + "print('leaves')\n", 0, "stops\nleaves\n"),
        (EARLY + WORK + "print('works')\n", 0, "works\n"),
    ],
    ids=["early", "at work", "twice", "swallowed by an import", "never"],
)
def test_whoever_is_asked_to_leave_does(script: str, status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", script], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (status, said)
