"""`make chaos`: a run of the sizes that are asked for, its progress, and one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.chaos import EXACTLY_ONCE, Report, Sizes, run
from tests.support.chaos_acts import Act
from worker.devkafka import DEFAULT_CACHE_DIR

MODES = ("at-least-once", EXACTLY_ONCE)


def main(arguments: list[str]) -> int:
    """0 if the promise of the mode was kept, else 1."""
    options = parser().parse_args(arguments)
    folder = Path(options.logs or tempfile.mkdtemp(prefix="oasr-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    say = said_on(sys.stderr.write)
    say(f"the workers' logs are in {folder}")
    report = run(sizes_of(options), DEFAULT_CACHE_DIR, folder, say)
    Console().print(table(report))
    for line in report.wrong:
        say(f"WRONG: {line}")
    return 1 if report.wrong else 0


def said_on(write: Callable[[str], object]) -> Callable[[str], object]:
    """Lines with the seconds since now before them."""
    began = time.monotonic()
    return lambda line: write(f"{time.monotonic() - began:6.1f} s  {line}\n")


def parser() -> argparse.ArgumentParser:
    """The options; their defaults are the sizes of a short run."""
    small = Sizes()
    parser = argparse.ArgumentParser(
        prog="make chaos ARGS=…",
        description=(
            "Plays calls to workers that are killed, frozen and sent away, on brokers that are "
            "killed and frozen, and compares the finals with those of an undisturbed run."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--mode", choices=MODES, default=small.mode, help="delivery mode of the workers")
    add("--protocol", choices=("classic", "consumer"), default=small.protocol)
    add("--static", action="store_true", help="workers keep their ids in the group")
    add("--workers", type=int, default=small.workers, help="worker processes")
    add("--nodes", type=int, default=small.nodes, help="brokers: 1, or 3 with three replicas")
    add("--partitions", type=int, default=small.partitions, help="partitions of every topic")
    add("--calls", type=int, default=small.calls, help="stereo calls")
    add("--call-s", type=float, default=small.call_s, help="length of a call, up to 20 s")
    add("--speed", type=float, default=small.speed, help="times real time at which calls play")
    add("--seconds", type=float, default=small.seconds, help="time over which all is spread")
    for act, times in small.acts:
        add(f"--{flag(act)}", type=int, default=times, help=f"times: {act.value}")
    add("--seed", type=int, default=small.seed, help="chooses calls and moments")
    add("--logs", help="folder for the workers' logs")
    return parser


def flag(act: Act) -> str:
    """The option that says how often."""
    return act.name.lower().replace("_", "-") + "s"


def sizes_of(options: argparse.Namespace) -> Sizes:
    """The sizes that were asked for."""
    given = vars(options)
    acts = tuple((act, given[flag(act).replace("-", "_")]) for act in Act)
    names = [name for name in Sizes.__dataclass_fields__ if name not in ("acts", "settings")]
    return Sizes(**{name: given[name] for name in names}, acts=acts)


def member_of(sizes: Sizes) -> str:
    """What the workers are in their group."""
    return f"{sizes.protocol} protocol" + (" with static ids" if sizes.static else "")


def table(report: Report) -> Table:
    """Everything that was done and counted."""
    sizes, verdict = report.sizes, report.verdict
    rows: list[tuple[str, object]] = [
        ("mode", f"{sizes.mode}, {member_of(sizes)}, {sizes.nodes} broker(s)"),
        ("calls", f"{sizes.calls} of {sizes.call_s:g} s at {sizes.speed:g} times real time"),
        ("workers", f"{sizes.workers}, {report.lifetimes} lifetimes"),
        *((act.value, report.done[act]) for act in Act),
        ("worker ended by itself", report.ended_alone),
        ("worker did not leave", len(report.stayed)),
        ("disturbed run", f"{report.disturbed_s:.0f} s"),
        ("finals of the undisturbed run", verdict.expected),
        ("finals lost", len(verdict.lost)),
        ("finals it does not have", len(verdict.unexpected)),
        ("finals with another text", len(verdict.different)),
        ("finals repeated", verdict.repeats),
        ("events repeated", verdict.event_repeats),
        ("sessions that ended otherwise", len(verdict.sessions_different)),
        ("commits looked at", verdict.places_seen),
        ("commits above an open message", len(verdict.committed_too_far)),
        ("commits that went back", len(verdict.moved_back)),
        ("messages never committed", report.uncommitted),
        ("promise", "broken" if report.wrong else "kept"),
    ]
    shown = Table(show_header=False, title="chaos")
    for name, value in rows:
        shown.add_row(name, str(value))
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
