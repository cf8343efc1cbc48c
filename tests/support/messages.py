"""Messages as the broker would deliver them."""

from __future__ import annotations

import pytest

from worker.codec import Chunk, ChunkDefaults, parse_chunk
from worker.errors import CodecError
from worker.messages import Headers, RawMessage

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def headers(**values: str | bytes | None) -> Headers:
    """Headers by name; underscores stand for themselves, `content_type` for `content-type`."""
    pairs = []
    for name, value in values.items():
        encoded = value.encode() if isinstance(value, str) else value
        pairs.append((name.replace("content_type", "content-type"), encoded))
    return tuple(pairs)


def message(
    value: bytes | None = b"\x00" * 160,
    key: bytes | None = b"call-1",
    extra: Headers = (),
    offset: int = 7,
    **values: str | bytes | None,
) -> RawMessage:
    """A message of the chunk topic with the given headers."""
    return RawMessage("calls", 2, offset, 1_700_000_000_123, key, value, headers(**values) + extra)


def audio_message(value: bytes | None = b"\x00" * 160, **values: str | bytes | None) -> RawMessage:
    """A µ-law chunk at 8 kHz with the given further headers."""
    return message(value, **{"encoding": "mulaw", "sample_rate": "8000", **values})


def parsed(raw: RawMessage, defaults: ChunkDefaults) -> Chunk:
    """What the codec makes of a message of the chunk topic that is no tombstone."""
    chunk = parse_chunk(raw, defaults)
    assert chunk is not None
    return chunk


def refused(raw: RawMessage, defaults: ChunkDefaults) -> CodecError:
    """The codec's refusal of a message of the chunk topic."""
    with pytest.raises(CodecError) as caught:
        parse_chunk(raw, defaults)
    return caught.value
