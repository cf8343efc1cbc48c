"""Runs the benchmarks and shows their JSON lines as tables; all of them, or those named.

    python benchmarks/table.py
    python benchmarks/table.py streaming scheduler

Each benchmark is a process of its own; its JSON lines also go to `--json FILE` where one is
named. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
# Names of what is not a benchmark by itself.
PARTS = frozenset({"load", "ours", "sherpa", "table", "whisper_peer"})
# How to run those whose defaults are one case of several.
CASES: dict[str, list[list[str]]] = {
    "streaming": [
        ["--streams", "1", "--seconds", "20"],
        ["--streams", "8", "--processes", "2"],
        ["--streams", "32", "--processes", "2"],
        ["--streams", "128", "--processes", "2"],
        ["--streams", "1", "--paced"],
        ["--streams", "8", "--processes", "2", "--paced"],
        ["--streams", "32", "--processes", "2", "--paced"],
        ["--streams", "128", "--processes", "2", "--paced"],
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in PARTS)
    parser.add_argument("names", nargs="*", choices=[[], *known], help="all by default")
    parser.add_argument("--json", type=Path, help="append the JSON lines to this file")
    options = parser.parse_args()
    progress, out = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    failed = []
    for name in options.names or known:
        lines: list[dict[str, object]] = []
        for case in CASES.get(name, [peer_case() if name == "peer" else []]):
            progress.print(f"{name} {' '.join(case)} …", end=" ", highlight=False)
            started_s = time.monotonic()
            run = subprocess.run(
                [sys.executable, HERE / f"{name}.py", *case], stdout=subprocess.PIPE, text=True
            )
            progress.print(f"{time.monotonic() - started_s:.0f} s", highlight=False)
            lines += [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
            if run.returncode:
                failed.append(" ".join([name, *case]))
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        show(out, name, lines)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def peer_case() -> list[str]:
    """What the environment says about where the other engine is."""
    found = []
    for option, variable in (("--export", "SHERPA_EXPORT"), ("--python", "SHERPA_PYTHON")):
        if os.environ.get(variable):
            found += [option, os.environ[variable]]
    return found


def show(out: Console, name: str, lines: list[dict[str, object]]) -> None:
    """One row a figure, one column a line; figures that never differ come first."""
    if not lines:
        return
    rows = [flat(line) for line in lines]
    names = list(dict.fromkeys(key for row in rows for key in row if key != "benchmark"))
    table = Table(title=name, show_header=False, title_justify="left")
    same = [key for key in names if len({str(row.get(key)) for row in rows}) == 1]
    for key in same + [key for key in names if key not in same]:
        table.add_row(key, *(str(row.get(key, "")) for row in rows))
    out.print(table)


def flat(line: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Nested figures under dotted names."""
    found: dict[str, object] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


if __name__ == "__main__":
    main()
