"""Programs that stand in the documentation, as files to run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?:#|//) ([\w.]+): ")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of `docs/<page>` in a language, in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def programs(page: str, folder: Path) -> dict[str, Path]:
    """Writes every block of the page whose first line names a file; the files by name."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = {}
    for _, body in _BLOCK.findall(text):
        named = _NAME.match(body)
        if named is not None:
            path = folder / named[1]
            assert not path.exists(), f"two programs are called {named[1]}"
            path.write_text(body, encoding="utf-8")
            found[named[1]] = path
    return found


def run(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """What the program prints; fails with what it complains of."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=240,
    )
    assert done.returncode == 0, f"{arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def required(found: bool, what: str) -> None:
    """Skips the test without what it needs, or fails under OASR_REQUIRE_CLIENTS=1."""
    if not found:
        refuse = pytest.fail if os.environ.get("OASR_REQUIRE_CLIENTS") == "1" else pytest.skip
        refuse(what)


def require_kcat() -> None:
    """`kcat` has to be here."""
    required(
        shutil.which("kcat") is not None, "kcat is not installed (Debian: apt-get install kcat)"
    )


def require_jdk() -> None:
    """Java has to come with its compiler: a runtime alone runs no source file."""
    java = shutil.which("java")
    modules = run(java, "--list-modules") if java is not None else ""
    required("jdk.compiler" in modules, "no JDK (Debian: apt-get install openjdk-17-jdk-headless)")
