"""Workers and their broker are killed and frozen while calls play: the promise of delivery holds.

The same at any size: `make chaos ARGS=--help`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tests.support.chaos import Report, Sizes, run
from tests.support.chaos_acts import Act, Crew, Fellow
from tests.support.chaos_oracle import Outputs, Sighting, compare
from tests.support.kafka import Topics, WorkerProcess
from worker.messages import RawMessage

SHORT = Sizes()


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_nothing_is_lost_or_told_differently_in_a_storm(
    own_kafka: Path, tmp_path: Path, mode: str
) -> None:
    report = run(replace(SHORT, mode=mode), own_kafka, tmp_path)

    assert report.wrong == []
    assert report.done == +Counter(dict(SHORT.acts))
    assert report.verdict.expected > 3 * SHORT.calls
    assert report.verdict.places_seen > SHORT.partitions
    assert report.lifetimes > SHORT.workers
    assert report.done[Act.KILL] > 0


# --- the oracle can tell


def final(number: int, text: str = "yes", first_offset: int = 0) -> RawMessage:
    body = {
        "segment_index": number,
        "alternatives": [{"text": text}],
        "start_sample": 0,
        "end_sample": 1,
        "end_reason": "endpoint",
        "role": None,
        "source": {"partition": 0, "first_offset": first_offset},
    }
    headers = (("ce_id", f"final-{number}".encode()),)
    return RawMessage("finals", 0, number, 1, b"call", orjson.dumps(body), headers)


def ended(finals: int) -> RawMessage:
    body = {"session_id": "call", "event": "ended", "reason": "end", "finals": finals, "totals": []}
    return RawMessage("events", 0, 0, 1, b"call", orjson.dumps(body), (("ce_id", b"ended"),))


TWO = Outputs([final(0), final(1)], [ended(2)])


def wrong(
    disturbed: Outputs, sightings: tuple[Sighting, ...] = (), exactly_once: bool = False
) -> list[str]:
    return compare(disturbed, TWO, sightings).wrong(exactly_once)


def test_equal_outputs_are_right_in_both_modes() -> None:
    assert wrong(TWO) == wrong(TWO, exactly_once=True) == []


def test_repeats_are_allowed_at_least_once_and_wrong_exactly_once() -> None:
    again = Outputs([*TWO.finals, final(1)], [ended(2), ended(2)])

    assert wrong(again) == []
    assert wrong(again, exactly_once=True) == ["1 finals repeated", "1 events repeated"]


def test_a_lost_a_strange_and_a_different_final_are_wrong() -> None:
    assert wrong(Outputs(TWO.finals[:1], TWO.events)) == ["1 finals lost: final-1"]
    assert wrong(Outputs([*TWO.finals, final(2)], TWO.events)) == [
        "1 finals that an undisturbed run does not have: final-2"
    ]
    assert wrong(Outputs([*TWO.finals, final(1, "no")], TWO.events)) == [
        "1 finals with another text: final-1"
    ]


def test_a_session_that_ends_otherwise_or_not_at_all_is_wrong() -> None:
    for events in ([ended(1)], []):
        assert wrong(Outputs(TWO.finals, events)) == ["1 sessions that ended otherwise: call"]


def test_a_commit_above_the_first_message_of_a_final_that_is_not_there_yet_is_wrong() -> None:
    outputs = Outputs([final(0, first_offset=5), final(1, first_offset=7)], TWO.events)
    before = Sighting({0: 5}, frozenset())
    fine = (
        before,
        Sighting({0: 7}, frozenset({"final-0"})),
        Sighting({0: 9}, frozenset({"final-1"})),
    )
    early = (
        before,
        Sighting({0: 8}, frozenset({"final-0"})),
        Sighting({0: 9}, frozenset({"final-1"})),
    )
    never = (before, Sighting({0: 7}, frozenset({"final-0"})), Sighting({0: 8}, frozenset()))

    assert wrong(outputs, fine) == []
    for sightings in (early, never):
        assert wrong(outputs, sightings) == ["1 commits above an open message: final-1"]


def test_a_commit_that_goes_back_is_wrong() -> None:
    seen = (Sighting({0: 0, 1: 4}, frozenset()), Sighting({0: 0, 1: 3}, frozenset()))

    assert wrong(TWO, seen) == ["1 commits that went back: partition 1: 4 to 3"]


def test_a_record_that_is_not_by_its_schema_is_wrong_whoever_made_it() -> None:
    headers = (("ce_id", b"final-0"), ("ce_type", b"oasr.transcript.final.v1"))
    spoilt = Outputs([replace(final(0), headers=headers), final(1)], TWO.events)

    for disturbed, undisturbed in ((spoilt, TWO), (TWO, spoilt)):
        (line,) = compare(disturbed, undisturbed, ()).wrong(exactly_once=False)
        assert line.startswith("1 records that are not by their schemas: final-0 (record.headers:")


# --- the crew ends


STAYS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
LEAVES = "import signal"


def fellow_that(does: str, log_path: Path) -> Fellow:
    """A worker of a program that is ready for SIGTERM when this returns."""
    process = WorkerProcess("nowhere:1", Topics(*"cftpeds"), "chaos", log_path)
    program = f"{does}; print(flush=True); signal.pause()"
    process._process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.process.stdout is not None
    process.process.stdout.readline()
    process.process.stdout.close()
    return Fellow(process)


def test_who_does_not_leave_is_killed_and_told_of_and_who_leaves_is_not(tmp_path: Path) -> None:
    stays = fellow_that(STAYS, tmp_path / "stays.log")
    leaves = fellow_that(LEAVES, tmp_path / "leaves.log")
    leaves.process.process.terminate()
    leaves.process.process.wait(60)
    told: list[str] = []
    crew = Crew([stays, leaves], told.append)

    crew.end(within_s=0.0)

    assert not stays.process.running
    assert not leaves.process.running
    assert crew.stayed == ["stays"]
    assert told == ["stays did not leave on SIGTERM: killed"]


def test_a_frozen_worker_leaves_when_the_crew_ends(tmp_path: Path) -> None:
    frozen = fellow_that(LEAVES, tmp_path / "frozen.log")
    frozen.process.process.send_signal(signal.SIGSTOP)
    crew = Crew([frozen], str)

    crew.end()

    assert not frozen.process.running
    assert crew.stayed == []


def test_a_worker_that_did_not_leave_breaks_the_promise() -> None:
    report = Report(
        sizes=SHORT,
        verdict=compare(TWO, TWO, ()),
        done=Counter(),
        lifetimes=2,
        ended_alone=0,
        stayed=("worker-0",),
        disturbed_s=1.0,
        uncommitted=0,
        tracebacks=0,
    )

    assert report.wrong == ["1 workers did not leave: worker-0"]
    assert replace(report, stayed=()).wrong == []
