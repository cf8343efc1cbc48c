"""What a disturbed run must have in common with an undisturbed one over the same messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import orjson

from tests.support.record_checks import WrongRecord, check_record
from tests.support.worker_calls import body, ended, record_id, said
from worker.messages import RawMessage


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a group published, as `read_committed` readers see it."""

    finals: Sequence[RawMessage]
    events: Sequence[RawMessage]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A look at the group: its commits by partition, and the finals there were *after* that."""

    commits: dict[int, int]
    finals: frozenset[str]  # ids that no sighting before had


@dataclass(frozen=True, slots=True)
class Verdict:
    """Figures of a comparison; ids of what is wrong."""

    expected: int
    repeats: int
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    sessions_different: list[str] = field(default_factory=list)
    committed_too_far: list[str] = field(default_factory=list)
    moved_back: list[str] = field(default_factory=list)
    not_by_schema: list[str] = field(default_factory=list)  # with what is wrong about each
    event_repeats: int = 0
    places_seen: int = 0

    def wrong(self, exactly_once: bool) -> list[str]:
        """What breaks the promise, one line a kind; empty when it was kept."""
        kinds: dict[str, Sequence[str]] = {
            "finals lost": self.lost,
            "finals that an undisturbed run does not have": self.unexpected,
            "finals with another text": self.different,
            "sessions that ended otherwise": self.sessions_different,
            "commits above an open message": self.committed_too_far,
            "commits that went back": self.moved_back,
            "records that are not by their schemas": self.not_by_schema,
        }
        lines = [f"{len(ids)} {kind}: {', '.join(ids[:5])}" for kind, ids in kinds.items() if ids]
        if exactly_once and self.repeats:
            lines.append(f"{self.repeats} finals repeated")
        if exactly_once and self.event_repeats:
            lines.append(f"{self.event_repeats} events repeated")
        return lines


def compare(disturbed: Outputs, undisturbed: Outputs, sightings: Sequence[Sighting]) -> Verdict:
    """The disturbed run against the undisturbed one; commits against what was published then."""
    was, should = said(disturbed.finals), said(undisturbed.finals)
    ends, should_end = _endings(disturbed.events), _endings(undisturbed.events)
    return Verdict(
        expected=len(should),
        repeats=len(disturbed.finals) - len(was),
        lost=sorted(should.keys() - was.keys()),
        unexpected=sorted(was.keys() - should.keys()),
        different=sorted(i for i in was.keys() & should.keys() if was[i] != should[i]),
        sessions_different=sorted(
            session
            for session in ends.keys() | should_end.keys()
            if ends.get(session) != should_end.get(session)
        ),
        committed_too_far=_committed_too_far(disturbed.finals, sightings),
        moved_back=moved_back_in(sightings),
        not_by_schema=sorted({*_not_by_schema(disturbed), *_not_by_schema(undisturbed)}),
        event_repeats=sum(n - 1 for n in Counter(map(record_id, disturbed.events)).values()),
        places_seen=len({place for s in sightings for place in s.commits.items()}),
    )


def _endings(events: Iterable[RawMessage]) -> dict[str, bytes]:
    """Of each session, what is promised about its end."""
    return {
        session: orjson.dumps([event[name] for name in ("reason", "finals", "totals")])
        for session, event in ended(events).items()
    }


def _not_by_schema(outputs: Outputs) -> Iterator[str]:
    """Records that are not what `schemas/` says; a verdict must not depend on who reads them."""
    for raw in (*outputs.finals, *outputs.events):
        try:
            check_record(raw.value, raw.headers)
        except WrongRecord as error:
            yield f"{record_id(raw)} ({error})"


def _committed_too_far(finals: Iterable[RawMessage], sightings: Sequence[Sighting]) -> list[str]:
    """Finals that were not there yet when the group had committed past their first message."""
    first_seen = {
        identity: number for number, seen in enumerate(sightings) for identity in seen.finals
    }
    highest: list[dict[int, int]] = [{}]
    for sighting in sightings:
        before = highest[-1]
        highest.append(
            before | {p: max(at, before.get(p, 0)) for p, at in sighting.commits.items()}
        )
    wrong = set()
    for raw in finals:
        source = body(raw)["source"]
        assert isinstance(source, dict)
        unseen_until = first_seen.get(record_id(raw), len(sightings))
        if highest[unseen_until].get(source["partition"], 0) > source["first_offset"]:
            wrong.add(record_id(raw))
    return sorted(wrong)


def moved_back_in(sightings: Sequence[Sighting]) -> list[str]:
    latest: dict[int, int] = {}
    back = []
    for sighting in sightings:
        for partition, offset in sighting.commits.items():
            if offset < latest.get(partition, 0):
                back.append(f"partition {partition}: {latest[partition]} to {offset}")
            latest[partition] = offset
    return back
