"""`oasr-worker sessions list | abort`: what is open, what holds commits back, and its release."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from worker.connections import Sender, connection
from worker.feed import TopicMissing
from worker.session_map import key_hash
from worker.session_survey import OpenSession, PartitionSurvey, Survey
from worker.settings import Settings
from worker.topic_ids import topic_id
from worker.topics import existing_partitions
from worker.transcript_view import printable

ABORT_HEADERS: Final = (("event", b"abort"),)
_ASK_AGAIN_S: Final = 0.5
_DELIVERY_TIMEOUT_S: Final = 15.0
FAILED: Final = 1


def survey_of(settings: Settings) -> Survey:
    """A survey of the group and topics of the settings; TopicMissing without a chunk topic."""
    properties = connection(settings)
    chunks = settings.topics.chunks
    admin = AdminClient(properties)
    if chunks not in existing_partitions(admin):
        raise TopicMissing(chunks)
    identity = topic_id(admin, chunks)
    client = {**properties, "group.id": settings.kafka.group}
    return Survey(client, chunks, settings.topics.state, identity)


def list_sessions(settings: Settings, most: int, as_json: bool) -> int:
    """Prints each partition and its sessions, at most `most` a partition by key."""
    survey = survey_of(settings)
    try:
        found = [survey.named(part, most) for part in survey.of(survey.partitions())]
    finally:
        survey.close()
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        report = [described(part, most, now_ms) for part in found]
        sys.stdout.write(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        Console(markup=False, highlight=False, emoji=False).print(table(found, most, now_ms))
    return 0


def abort_sessions(settings: Settings, keys: Sequence[str], wait_s: float) -> int:
    """Sends an `abort` event for each key; status 1 if one is not committed within `wait_s`."""
    survey = survey_of(settings)
    sender = Sender(connection(settings))
    try:
        places = _send_aborts(sender, settings.topics.chunks, survey, keys)
        waiting = dict(places)
        deadline = time.monotonic() + wait_s
        while waiting and time.monotonic() < deadline:
            for part in survey.of(sorted({partition for partition, _ in waiting})):
                for place in [p for p in waiting if p[0] == part.partition]:
                    if part.committed is not None and part.committed > place[1]:
                        sys.stdout.write(f"{printable(waiting.pop(place))}: done\n")
            if waiting:
                time.sleep(_ASK_AGAIN_S)
    finally:
        survey.close()
    for key in waiting.values():
        sys.stderr.write(
            f"{printable(key)}: the abort is on the topic and not committed yet; `sessions list`"
            " shows what holds the commit, or no worker runs\n"
        )
    return FAILED if waiting or sender.failures or len(places) < len(keys) else 0


def _send_aborts(
    sender: Sender, topic: str, survey: Survey, keys: Sequence[str]
) -> dict[tuple[int, int], str]:
    """Where the aborts lie: on the partition on which the session is open, if one is known."""
    places: dict[tuple[int, int], str] = {}
    surveyed = list(survey.of(survey.partitions()))

    for key in keys:

        def delivered(error: KafkaError | None, message: Message, key: str = key) -> None:
            if error is not None:
                sys.stderr.write(f"{printable(key)}: {error.str()}\n")
            else:
                places[(message.partition() or 0, message.offset() or 0)] = key

        hashed = key_hash(key.encode())
        at = [p.partition for p in surveyed if any(s.key_hash == hashed for s in p.sessions)]
        if not at:
            sys.stdout.write(f"{printable(key)}: no open session is known; aborted all the same\n")
            sender.send(topic, key, None, ABORT_HEADERS, delivered)
        for partition in at:
            sender.send(topic, key, None, ABORT_HEADERS, delivered, partition)
    sender.finish(_DELIVERY_TIMEOUT_S)
    return places


def described(part: PartitionSurvey, most: int, now_ms: int) -> dict[str, Any]:
    """A partition as a JSON object; ages in seconds."""
    return {
        "partition": part.partition,
        "committed": part.committed,
        "end": part.end,
        "starts": part.starts,
        "problem": part.problem,
        "open_messages_of_no_session": list(part.messages),
        "open_sessions": len(part.sessions),
        "sessions": [_session(s, part, now_ms) for s in part.sessions[:most]],
    }


def _session(session: OpenSession, part: PartitionSurvey, now_ms: int) -> dict[str, Any]:
    return {
        "session_id": None if session.key is None else session.key.decode("utf-8", "replace"),
        "key_hash": f"{session.key_hash:012x}",
        "origin": f"{part.partition}-{session.origin}",
        "first_open": session.first_open,
        "open_s": _open_s(session, now_ms),
        "channels": session.channels,
        "segments": session.segments,
        "pending": session.pending,
        "pins": session is part.pinned_by,
    }


def _open_s(session: OpenSession, now_ms: int) -> float | None:
    return None if session.since_ms is None else max(0.0, (now_ms - session.since_ms) / 1000)


def table(found: Sequence[PartitionSurvey], most: int, now_ms: int) -> Table:
    """The same for people; whoever pins a partition is marked."""
    view = Table(box=None, pad_edge=False)
    for name in ("partition", "session", "origin"):
        view.add_column(name)
    for name in ("first open", "for s", "channels", "segments"):
        view.add_column(name, justify="right")
    view.add_column("")
    for part in found:
        view.add_row(str(part.partition), _summary(part), style="bold")
        for session in part.sessions[:most]:
            view.add_row("", *_cells(session, part, now_ms))
        if len(part.sessions) > most:
            view.add_row("", f"… and {len(part.sessions) - most} more")
    return view


def _summary(part: PartitionSurvey) -> str:
    committed = "no commit" if part.committed is None else f"committed {part.committed}"
    told = [f"{committed} of {part.end}", f"{len(part.sessions)} open"]
    if part.messages:
        told.append(f"{len(part.messages)} messages of no session")
    if part.starts > 1:
        told.append(f"{part.starts} owners began")
    if part.problem is not None:
        told.append(f"its map is not known: {part.problem}")
    return ", ".join(told)


def _cells(session: OpenSession, part: PartitionSurvey, now_ms: int) -> list[str]:
    open_s = _open_s(session, now_ms)
    name = f"#{session.key_hash:012x}"
    if session.key is not None:
        name = printable(session.key.decode("utf-8", "replace"))
    notes = [session.pending] if session.pending else []
    if session is part.pinned_by:
        notes.append("pins the commit")
    return [
        name,
        f"{part.partition}-{session.origin}",
        "" if session.first_open is None else str(session.first_open),
        "" if open_s is None else f"{open_s:.1f}",
        str(session.channels),
        str(session.segments),
        ", ".join(notes),
    ]
