"""Messages that are nearly right: what producers send, with something of it changed.

Everything follows from the random generator that is given, so that a number names a message.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any, Final

import orjson

from oasr.audio.pcm import Encoding
from tests.support.ingress import AUDIOHOOK, TELNYX, TWILIO, example
from tests.support.messages import TRACEPARENT
from worker.codec import Chunk, ChunkDefaults, FileJob, parse_chunk, parse_file
from worker.dead_letter_read import read_letter
from worker.dead_letter_replay import whole
from worker.dead_letters import DEFAULT_MAX_BYTES, OUR_HEADERS, Refusal, build
from worker.errors import CodecError, ErrorCode
from worker.fields import Event
from worker.messages import RawMessage

# Stands in texts that a message holds; what is said about the message must not quote it.
CANARY: Final = "cAnArY"
MAX_VALUE_BYTES: Final = 2_000
_OVERHEAD_BYTES: Final = 20_000  # headers of our own, and the framing of all
DEFAULTS: Final = (
    ChunkDefaults(max_value_bytes=MAX_VALUE_BYTES),
    ChunkDefaults(Encoding.MULAW, 8000, MAX_VALUE_BYTES),
    ChunkDefaults(max_value_bytes=MAX_VALUE_BYTES, content_type=TWILIO),
)
# Codes that either kind of message can be refused with, before anything is done with it.
MESSAGE_CODES: Final = frozenset(
    (
        *(ErrorCode.KEY_REQUIRED, ErrorCode.KEY_INVALID, ErrorCode.HEADER_TOO_LARGE),
        *(ErrorCode.INVALID_HEADER, ErrorCode.INVALID_OPTIONS, ErrorCode.OPTION_UNSUPPORTED),
        ErrorCode.ENCODING_UNSUPPORTED,
    )
)
CHUNK_CODES: Final = MESSAGE_CODES | {
    *(ErrorCode.VALUE_TOO_LARGE, ErrorCode.INVALID_ENVELOPE, ErrorCode.ENCODING_REQUIRED),
    ErrorCode.SAMPLE_RATE_REQUIRED,
}
JOB_CODES: Final = MESSAGE_CODES | {ErrorCode.INVALID_FILE_JOB}

Headers = list[tuple[str, bytes | None]]

_NAMES: Final = (
    *("encoding", "sample_rate", "channels", "channel", "roles", "sequence", "position_ms"),
    *("event", "options", "priority", "traceparent", "content-type", "Encoding", "x", ""),
    *sorted(OUR_HEADERS),
)
_TEXTS: Final = (
    *("", " ", "0", "1", "-1", "-0", "+1", "00", "1.0", "1.5", "1e9", "0x10", "1_0", " 1", "1\n"),
    *("٣", "²", "NaN", "Infinity", "true", "null", "None", "9" * 18, "9" * 19, "9" * 400),
    *("8", "7", "4000", "3999", "192000", "192001", str(2**53), str(2**53 + 1), "-" + "9" * 30),
    *(encoding.value for encoding in Encoding),
    *("MULAW", "opus", "audio/opus", "g722", "L16", "linear16", "ulaw", "PCMU", "audio/x-mulaw"),
    *(event.value for event in Event),
    *("Audio", "END", "stop", ",", "a,b", "a,,b", "agent, customer", "ü,b", "a" * 65),
    *(TRACEPARENT, TRACEPARENT.upper(), "00-" + "0" * 52, "ff" + TRACEPARENT[2:]),
    *("application/json", "application/json; charset=utf-8", "audio/wav", "text/plain"),
    *(TWILIO, TELNYX, AUDIOHOOK, "application/vnd.other+json", "audio/l16;rate=8000"),
    *("{}", "[]", "{", '{"language":"en"}', '{"lenient":true,"q":1}', '{"words":1}'),
    *('{"hotwords":["a",{"phrase":"b","boost":2}]}', '{"search":"rescoring","beam":4}'),
    *('{"endpointing":{"gate":false}}', '{"min_silence_ms":1e400}', '{"a":' * 200),
    *("x" * 1025, "x" * 17_000, CANARY, f"{CANARY}\x1b[31m\r\n", f'{{"{CANARY}":1}}'),
)
_BYTES: Final = (b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\x80" * 99)
_JSON: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 1.5, 1e300, 2**53, 2**63, -(2**63), "", CANARY, "0", "8000"),
    *([], {}, [[]], [CANARY], {CANARY: 1}, ["agent", "customer"], ["agent", 1], "a" * 2000),
)
_KEYS: Final = (b"call-1", b"k", b"\xc3\xbc", b"x" * 256)
_BAD_KEYS: Final = (None, b"", b"\xff", b"a\0", b"x" * 257, "\u202e".encode(), b"\r\n")


def _native(rng: random.Random) -> tuple[Headers, bytes | None]:
    headers: Headers = [("encoding", b"mulaw"), ("sample_rate", b"8000")]
    for name, text in (
        *(("channels", "2"), ("channel", "1"), ("roles", "agent,customer"), ("sequence", "7")),
        *(("position_ms", "140"), ("event", "audio"), ("options", '{"words":true}')),
        *(("priority", "3"), ("traceparent", TRACEPARENT)),
    ):
        if rng.random() < 0.4:
            headers.append((name, text.encode()))
    return headers, rng.randbytes(rng.randrange(200))


def _envelope(rng: random.Random) -> tuple[Headers, bytes | None]:
    body: dict[str, Any] = {"encoding": "alaw", "sample_rate": 16000, "channels": 1}
    body["audio"] = base64.b64encode(rng.randbytes(rng.randrange(90))).decode()
    for name, value in (
        *(("sequence", 7), ("position_ms", 140.25), ("event", "audio"), ("roles", ["agent"])),
        *(("options", {"words": True}), ("priority", 1), ("traceparent", TRACEPARENT)),
    ):
        if rng.random() < 0.4:
            body[name] = value
    return [("content-type", b"application/json")], orjson.dumps(_bent(body, rng))


def _shaped(rng: random.Random) -> tuple[Headers, bytes | None]:
    raw = rng.choice(_EXAMPLES)
    value = raw.value
    if value is not None and value.startswith(b"{"):
        value = orjson.dumps(_bent(orjson.loads(value), rng))
    return list(raw.headers), value


def _control(rng: random.Random) -> tuple[Headers, bytes | None]:
    event = rng.choice([event.value for event in Event]).encode()
    return [("event", event)], rng.choice((None, None, b"", b"x"))


def _claim(rng: random.Random) -> tuple[Headers, bytes | None]:
    body: dict[str, Any] = {"uri": "file:///recordings/a.wav"}
    for name, value in (
        *(("sha256", "ab" * 32), ("size_bytes", 1234), ("roles", ["agent", "customer"])),
        *(("options", {"words": True}), ("priority", 1), ("traceparent", TRACEPARENT)),
    ):
        if rng.random() < 0.4:
            body[name] = value
    if rng.random() < 0.3:
        body["uri"] = rng.choice(_URIS)
    return [("content-type", b"application/json")], orjson.dumps(_bent(body, rng))


def _file_bytes(rng: random.Random) -> tuple[Headers, bytes | None]:
    kind = rng.choice((b"audio/wav", b"audio/flac", b"AUDIO/x", b"audio/", b"video/mp4", b""))
    return [("content-type", kind), ("roles", b"agent")], rng.randbytes(rng.randrange(99))


_EXAMPLES: Final = [raw for name in ("twilio", "telnyx", "audiohook") for raw in example(name)]
_URIS: Final = (
    *("file:///../../etc/passwd", "FILE:///x", "file://host/x", "https://a/b", "s3://b/k", "x://"),
    *("file:///a%00b", "file:///a b", f"file:///{CANARY}", "file:///" + "a" * 3000, "://", "file:"),
    *(
        "https://127.0.0.1/x",
        "https://[::1]/",
        "https://user:pw@h/",
        "file:///%ff%fe",
        "gopher://x",
    ),
)
_CHUNKS: Final[tuple[Callable[..., tuple[Headers, bytes | None]], ...]] = (
    *(_native, _native, _envelope, _shaped, _control),
)


def chunk_message(rng: random.Random, keys: tuple[bytes, ...] = _KEYS) -> RawMessage:
    """A message for the chunk topic."""
    return _message(rng.choice(_CHUNKS)(rng), rng, keys)


def file_message(rng: random.Random) -> RawMessage:
    """A message for the file topic."""
    return _message(rng.choice((_claim, _claim, _file_bytes, _native))(rng), rng, _KEYS)


def _message(
    made: tuple[Headers, bytes | None], rng: random.Random, keys: tuple[bytes, ...]
) -> RawMessage:
    headers, value = made
    key: bytes | None = rng.choice(keys)
    while rng.random() < 0.5:
        _change_headers(headers, rng)
    if rng.random() < 0.15:
        value = _changed(value, rng)
    if rng.random() < 0.05:
        key = rng.choice(_BAD_KEYS)
    readable = rng.random() > 0.005
    return RawMessage(
        "chunks", 0, 0, 1_700_000_000_000, key, value, tuple(headers if readable else ()), readable
    )


def _change_headers(headers: Headers, rng: random.Random) -> None:
    act = rng.randrange(6)
    if act == 0 and headers:
        del headers[rng.randrange(len(headers))]
    elif act == 1 and headers:
        name, value = rng.choice(headers)
        headers.insert(rng.randrange(len(headers)), (name, _changed(value, rng)))
    elif act == 2 and headers:
        at = rng.randrange(len(headers))
        headers[at] = (headers[at][0], _text(rng))
    elif act == 3 and headers:
        headers.append((rng.choice(headers)[0], rng.choice((None, _text(rng)))))
    else:
        headers.append((rng.choice(_NAMES), _text(rng)))


def _text(rng: random.Random) -> bytes:
    return rng.choice(_BYTES) if rng.random() < 0.2 else rng.choice(_TEXTS).encode()


def _changed(value: bytes | None, rng: random.Random) -> bytes | None:
    """Bytes cut off, flipped, repeated, or others in their place."""
    act = rng.randrange(7)
    if value is None or act == 0:
        return rng.choice((None, b"", rng.randbytes(rng.randrange(64)), _text(rng)))
    if act == 1:
        return value[: rng.randrange(len(value) + 1)]
    if act == 2 and value:
        at = rng.randrange(len(value))
        return value[:at] + bytes((value[at] ^ 1 << rng.randrange(8),)) + value[at + 1 :]
    if act == 3:
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(_BYTES) + value[at:]
    if act == 4:
        return value * rng.choice((2, 3, 20))
    return value


def _bent(value: Any, rng: random.Random) -> Any:
    """JSON with some of its values replaced, left out, renamed or added."""
    if isinstance(value, dict):
        bent = {}
        for name, inner in value.items():
            act = rng.random()
            if act < 0.03:
                continue
            kept = rng.choice(_JSON) if act < 0.08 else _bent(inner, rng)
            bent[name if act > 0.01 else rng.choice(_NAMES)] = kept
        if rng.random() < 0.05:
            bent[rng.choice((*_NAMES, CANARY))] = rng.choice(_JSON)
        return bent
    return rng.choice(_JSON) if rng.random() < 0.01 else value


def check_chunk(raw: RawMessage, defaults: ChunkDefaults) -> str:
    """What becomes of a message, which is one of few things; AssertionError for anything else."""
    try:
        chunk = parse_chunk(raw, defaults)
    except CodecError as error:
        return _check_refusal(raw, error, CHUNK_CODES)
    if chunk is None:
        assert raw.value is None
        return "tombstone"
    check_rules(chunk, raw)
    return chunk.event.value


def check_file_message(raw: RawMessage) -> str:
    """The same for a message of the file topic."""
    try:
        job = parse_file(raw)
    except CodecError as error:
        return _check_refusal(raw, error, JOB_CODES)
    if job is None:
        assert raw.value is None
        return "tombstone"
    _check_job(job, raw)
    return "claim" if job.audio is None else "file"


def check_rules(chunk: Chunk, raw: RawMessage) -> None:
    """What the contract promises of every chunk that is taken."""
    _check_key(chunk.session_id, raw)
    assert 1 <= chunk.channels <= 8
    assert chunk.channel is None or 0 <= chunk.channel < chunk.channels
    assert len(chunk.roles) <= chunk.channels
    assert chunk.sequence is None or 0 <= chunk.sequence <= 2**53
    assert chunk.position_ms is None or 0 <= chunk.position_ms < 10**15 + 1
    assert chunk.priority >= 0
    assert chunk.traceparent is None or len(chunk.traceparent) >= 55
    assert chunk.sample_rate is None or 4_000 <= chunk.sample_rate <= 192_000
    assert chunk.audio is None or len(chunk.audio) <= MAX_VALUE_BYTES
    if chunk.event is Event.AUDIO or chunk.audio:
        assert chunk.event in (Event.AUDIO, Event.END)
        assert chunk.audio is not None
        assert isinstance(chunk.encoding, Encoding)
        assert chunk.sample_rate is not None


def _check_job(job: FileJob, raw: RawMessage) -> None:
    _check_key(job.file_id, raw)
    assert (job.audio is None) != (job.uri is None)
    assert job.uri is None or "://" in job.uri
    assert job.sha256 is None or len(bytes.fromhex(job.sha256)) == 32
    assert job.size_bytes is None or job.size_bytes >= 0
    assert len(job.roles) <= 8


def _check_key(text: str, raw: RawMessage) -> None:
    assert text.encode() == raw.key
    assert 1 <= len(raw.key or b"") <= 256


def _check_refusal(raw: RawMessage, error: CodecError, codes: frozenset[ErrorCode]) -> str:
    """The dead letter is small, quotes nothing, and holds the message as it came."""
    assert error.code in codes
    # An option that nobody knows is named, in the letters that names have.
    assert CANARY not in error.message or error.code is ErrorCode.OPTION_UNSUPPORTED
    assert error.message.isprintable()
    assert len(error.message) < 1_000
    record = build(raw, Refusal(error.code, error.message, "codec"), 1)
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    assert len(record.value) + len(record.key or b"") + headers < DEFAULT_MAX_BYTES
    letter = read_letter(RawMessage("dead", 0, 0, 0, record.key, record.value, record.headers))
    assert letter is not None
    assert letter.code == error.code.value
    if raw.headers_readable:
        kept = tuple(header for header in raw.headers if header[0] not in OUR_HEADERS)
        size = sum(len(name.encode()) + len(value or b"") for name, value in raw.headers)
        size += len(raw.value or b"")
        assert letter.is_whole or size > DEFAULT_MAX_BYTES - _OVERHEAD_BYTES
        # what did not fit is on the topic that the message came from
        assert whole(letter, lambda *_place: raw) == (raw.key, raw.value, kept)
    return error.code.value
