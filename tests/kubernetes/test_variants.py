"""Other shapes of a release on a real node: static members, and a release for recordings."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from tests.support.bundled_calls import assert_all_was_heard
from tests.support.kafka import Message, Topics, consume_all, produce, wait_until
from tests.support.kubernetes import Namespace, Release
from tests.support.kubernetes_calls import Calls, assert_nothing_was_lost, members
from tests.support.worker_calls import RECORDINGS, all_ended, body, readings

MakeRelease = Callable[..., Release]
IN_THE_IMAGE = "/opt/oasr/samples/recordings/voicemail-00.wav"


@pytest.mark.timeout(1200)
def test_a_static_member_that_restarts_keeps_its_partitions(
    kafka: str, topics: Topics, namespace: Namespace, make_release: MakeRelease
) -> None:
    values = {
        "workload": {"kind": "StatefulSet"},
        "kafka": {"staticMembership": {"enabled": True}},
    }
    calls = Calls(kafka, topics, parts=3)
    release = make_release("static", values)
    release.install()
    release.await_ready(2)
    calls.go_on()
    names = {f"static-oasr-worker-{ordinal}" for ordinal in (0, 1)}
    assert release.ready() == names
    before = members(kafka, topics.chunks)
    assert before.keys() == names
    assert sorted(number for numbers in before.values() for number in numbers) == [0, 1, 2, 3]

    calls.go_on_while(lambda: namespace.kubectl("delete", "pod", min(names)))
    release.await_ready(2)
    assert members(kafka, topics.chunks) == before

    calls.go_on()
    assert_nothing_was_lost(kafka, topics, calls.number)
    release.uninstall()
    release.await_gone()


@pytest.mark.timeout(1200)
def test_calls_and_recordings_have_releases_of_their_own_that_do_not_need_each_other(
    kafka: str, topics: Topics, make_release: MakeRelease
) -> None:
    calls = Calls(kafka, topics, parts=2)
    roots = {"files": {"roots": ["/opt/oasr/samples"]}}
    live = make_release("live", {"lanes": "live", "replicas": 1})
    files = make_release("files", {"lanes": "files", "replicas": 1, "config": roots})
    live.install()
    files.install()
    live.await_ready(1)
    files.await_ready(1)
    assert len(members(kafka, topics.chunks)) == 1
    assert len(members(kafka, f"{topics.chunks}.files")) == 1

    calls.go_on()
    produce(kafka, recordings(topics))
    done = consume_all(kafka, topics.events, completed(2), timeout_s=300)
    finals = consume_all(kafka, topics.transcripts)
    said = {
        key: [readings(raw) for raw in finals if raw.key == key] for key in (b"inline", b"named")
    }
    assert said[b"inline"] == said[b"named"] != []
    assert all(body(raw)["warnings"] == [] for raw in done if is_completed(body(raw)))

    files.uninstall()
    files.await_gone()
    wait_until("its group is empty", lambda: not members(kafka, f"{topics.chunks}.files"), 20)
    assert len(live.ready()) == 1
    calls.go_on()
    consume_all(kafka, topics.events, all_ended(calls.number), timeout_s=300)
    of_calls = [raw for raw in consume_all(kafka, topics.transcripts) if raw.key not in said]
    heard = assert_all_was_heard(of_calls, consume_all(kafka, topics.events))
    assert len(heard) == calls.number
    assert consume_all(kafka, topics.dead_letters) == []


def recordings(topics: Topics) -> list[Message]:
    """The same recording in a message and by the name that it has in the image."""
    claim = orjson.dumps({"uri": f"file://{IN_THE_IMAGE}"})
    return [
        Message(topics.files, b"inline", RECORDINGS[0].read_bytes(), {"content-type": "audio/wav"}),
        Message(topics.files, b"named", claim, {"content-type": "application/json"}),
    ]


def is_completed(event: dict[str, object]) -> bool:
    """Whether the event ends a recording."""
    return event.get("event") == "completed"


def completed(count: int) -> Callable[[list[object]], bool]:
    """For `consume_all`: true once so many recordings are read."""
    return lambda found: sum(is_completed(body(raw)) for raw in found) >= count  # type: ignore[arg-type]
