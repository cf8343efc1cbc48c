"""Every kind of bad message has its outcome, and the calls beside it do not notice."""

from __future__ import annotations

import difflib
import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import soundfile

from tests.support.encoders import encoded
from tests.support.hostile_headers import produce_with_header_name
from tests.support.kafka import (
    Message,
    Topics,
    WorkerProcess,
    committed,
    consume_all,
    produce,
    wait_until,
)
from tests.support.web import Web, content, web
from tests.support.worker_calls import (
    RECORDINGS,
    all_ended,
    body,
    call_messages,
    ended,
    excerpt,
    readings,
    said,
    side_by_side,
)
from worker.messages import RawMessage

PCM = {"encoding": "pcm_s16le", "sample_rate": "8000"}
AUDIO = b"\0\0" * 800


def codes(records: list[RawMessage]) -> list[str]:
    """The codes of dead letters, sorted."""
    return sorted(dict(raw.headers)["error.code"].decode() for raw in records)  # type: ignore[union-attr]


def bad_chunks(topic: str) -> list[tuple[Message, str]]:
    """Messages with the codes that they are refused with."""

    def chunk(value: bytes | None, headers: dict[str, str], key: bytes | None = b"bad") -> Message:
        return Message(topic, key, value, headers, partition=0)

    return [
        (chunk(AUDIO, PCM, None), "key_required"),
        (chunk(AUDIO, PCM, b"\xff\xfe"), "key_invalid"),
        (chunk(AUDIO, {"sample_rate": "8000"}), "encoding_required"),
        (chunk(AUDIO, {**PCM, "encoding": "opus"}), "encoding_unsupported"),
        (chunk(AUDIO, {"encoding": "mulaw"}), "sample_rate_required"),
        (chunk(AUDIO, {**PCM, "sequence": "one"}), "invalid_header"),
        (chunk(AUDIO, {**PCM, "options": "{"}), "invalid_options"),
        (chunk(AUDIO, {**PCM, "options": '{"task":"translate"}'}), "option_unsupported"),
        (chunk(AUDIO, {**PCM, "options": '{"language":"de"}'}), "option_unsupported"),
        (chunk(b"\0" * (10 << 20), PCM), "value_too_large"),
    ]


@pytest.mark.timeout(240)
def test_bad_chunks_become_dead_letters_and_neighbours_are_unharmed(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    good = call_messages(topics, "good", excerpt(0, 0.0, 16.0))
    bad = bad_chunks(topics.chunks)
    quiet = [
        Message(topics.chunks, b"tombstone", None, {}, partition=0),
        Message(topics.chunks, b"unknown", None, {"event": "end"}, partition=0),
        Message(topics.chunks, b"empty", b"", PCM, partition=0),
        Message(topics.chunks, b"odd", b"\0" * 1601, PCM, partition=0),
        Message(topics.chunks, b"odd", None, {"event": "end"}, partition=0),
        Message(topics.chunks, b"again", AUDIO, {**PCM, "sequence": "0"}, partition=0),
        Message(topics.chunks, b"again", None, {"event": "end", "sequence": "1"}, partition=0),
        Message(topics.chunks, b"again", AUDIO, {**PCM, "sequence": "2"}, partition=0),
        Message(topics.chunks, b"again", None, {"event": "end", "sequence": "3"}, partition=0),
    ]
    lone = unique_topics(partitions=1)
    produce(broker, call_messages(lone, "good", excerpt(0, 0.0, 16.0)))
    # no header of this one can be read, by the client that the worker has
    produce_with_header_name(broker, topics.chunks, b"hostile", AUDIO, b"\xff\xfe")
    produce(broker, side_by_side([good, [message for message, _ in bad], quiet]))

    with worker_process(lone, "lone", name="lone"):
        consume_all(broker, lone.events, all_ended(1), timeout_s=60)
    with worker_process(topics, "bad"):
        consume_all(broker, topics.events, all_ended(3), timeout_s=60)
        letters = consume_all(
            broker, topics.dead_letters, lambda found: len(found) > len(bad), timeout_s=60
        )
        wait_until(
            "the refused messages are committed",
            lambda: committed(broker, "bad", topics.chunks)[0].offset > 20,
        )

    assert codes(letters) == sorted(["invalid_header", *(code for _, code in bad)])
    (hostile,) = [letter for letter in letters if letter.key == b"hostile"]
    assert dict(hostile.headers)["headers.unreadable"] == b"true"
    assert hostile.value == AUDIO
    by_code = {dict(raw.headers)["error.code"]: raw for raw in letters}
    assert by_code[b"encoding_unsupported"].value == AUDIO
    reference = orjson.loads(by_code[b"value_too_large"].value or b"")
    assert reference["size_bytes"] == 10 << 20
    events = [body(raw) for raw in consume_all(broker, topics.events)]
    assert [e["warnings"] for e in events if e["session_id"] == "odd" and "finals" in e] == [
        ["odd_bytes"]
    ]
    again = [e["event"] for e in events if e["session_id"] == "again"]
    assert sorted(again) == ["ended", "ended", "resumed", "started"]
    texts = [t for i, t in said(consume_all(broker, topics.transcripts)).items() if "good" in i]
    alone = list(said(consume_all(broker, lone.transcripts)).values())
    assert sorted(map(str, texts)) == sorted(map(str, alone))
    assert ended(consume_all(broker, topics.events))["good"]["finals"] == len(alone)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Web]:
    """A place on the web that recordings are fetched from."""
    with web(tmp_path, "localhost") as served:
        yield served


def words_of(finals: list[RawMessage], file_id: bytes) -> list[str]:
    """What is said in a file, in order."""
    texts = [body(raw)["alternatives"][0]["transcript"] for raw in finals if raw.key == file_id]
    return " ".join(texts).split()


@pytest.mark.timeout(240)
def test_bad_files_become_dead_letters_and_good_ones_are_transcribed(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
    tmp_path: Path,
    site: Web,
) -> None:
    topics = unique_topics(partitions=1)
    site.answers["/voicemail.wav"] = content(RECORDINGS[0].read_bytes())
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    recording = RECORDINGS[0].read_bytes()
    for folder in (root, outside):
        (folder / "voicemail.wav").write_bytes(recording)
    (root / "link.wav").symlink_to(outside / "voicemail.wav")
    lying = bytearray(recording)
    lying[40:44] = struct.pack("<I", 1 << 30)
    samples, rate = soundfile.read(RECORDINGS[0], dtype="int16", always_2d=True)
    digest = hashlib.sha256(recording).hexdigest()
    packed = {
        "mp3": encoded(samples, rate, "mp3", "libmp3lame", bit_rate=48_000),
        "m4a": encoded(samples, rate, "ipod", "aac", bit_rate=48_000),
        "opus": encoded(samples, rate, "ogg", "libopus", bit_rate=32_000),
    }

    def job(file_id: str, uri: str, **claims: object) -> Message:
        value = orjson.dumps({"uri": uri, **claims})
        return Message(topics.files, file_id.encode(), value, {})

    inline = {"content-type": "audio/wav"}
    jobs = [
        (Message(topics.files, b"inline", recording, inline), None),
        (Message(topics.files, b"lying", bytes(lying), inline), None),
        (job("by-reference", f"file://{root}/voicemail.wav", size_bytes=len(recording)), None),
        *(
            (Message(topics.files, name.encode(), data, inline), None)
            for name, data in packed.items()
        ),
        (job("fetched", site.url("/voicemail.wav?signature=5ec4e7"), sha256=digest), None),
        (job("not-there", site.url("/none.wav")), "fetch_failed"),
        (job("plain", "http://localhost/voicemail.wav"), "uri_forbidden"),
        (job("bucket", "s3://calls/voicemail.wav"), "uri_forbidden"),
        (job("outside", f"file://{outside}/voicemail.wav"), "uri_forbidden"),
        (job("dots", f"file://{root}/../outside/voicemail.wav"), "uri_forbidden"),
        (job("link", f"file://{root}/link.wav"), "uri_forbidden"),
        (job("web", "https://example.org/voicemail.wav"), "uri_forbidden"),
        (job("missing", f"file://{root}/missing.wav"), "fetch_failed"),
        (job("hash", f"file://{root}/voicemail.wav", sha256="0" * 64), "hash_mismatch"),
        (job("size", f"file://{root}/voicemail.wav", size_bytes=3), "size_mismatch"),
        (Message(topics.files, b"garbage", b"RIFF" + b"x" * 99, inline), "container_invalid"),
        (Message(topics.files, b"json", b"[]", {}), "invalid_file_job"),
        (Message(topics.files, None, recording, inline), "key_required"),
    ]
    produce(broker, [message for message, _ in jobs])

    good = [message.key for message, code in jobs if code is None]
    settings = {
        "OASR_FILES__ROOTS": f'["{root}"]',
        "OASR_FILES__HTTPS_HOSTS": f'["localhost:{site.port}"]',
        "OASR_FILES__HTTPS_PRIVATE_NETWORKS": '["127.0.0.0/8", "::1/128"]',
        "OASR_FILES__HTTPS_CA_FILE": str(site.ca_file),
    }
    with worker_process(topics, "files", settings):
        completed = consume_all(
            broker, topics.events, lambda found: len(found) >= len(good), timeout_s=90
        )
        letters = consume_all(
            broker, topics.dead_letters, lambda found: len(found) >= len(jobs) - len(good)
        )
        wait_until(
            "every job is committed",
            lambda: committed(broker, "files.files", topics.files)[0].offset == len(jobs),
        )

    assert codes(letters) == sorted(code for _, code in jobs if code is not None)
    reports = {str(e["file_id"]): e for e in map(body, completed)}
    assert sorted(reports) == ["by-reference", "fetched", "inline", "lying", "m4a", "mp3", "opus"]
    assert reports["lying"]["warnings"]
    assert reports["inline"]["warnings"] == []
    finals = consume_all(broker, topics.transcripts)
    texts = {
        name: [readings(raw) for raw in finals if raw.key == name.encode()] for name in reports
    }
    assert texts["inline"] == texts["by-reference"] == texts["lying"] == texts["fetched"]
    said_plain = words_of(finals, b"inline")
    for name in packed:
        heard = difflib.SequenceMatcher(None, said_plain, words_of(finals, name.encode()))
        assert heard.ratio() > 0.9, name
    assert reports["inline"]["finals"] == len(texts["inline"]) == 4
