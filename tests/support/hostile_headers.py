"""Messages with headers that the Python client cannot make: their names are any bytes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka

_PRODUCER: Final = 0
_TOPIC, _PARTITION, _VALUE, _KEY, _HEADER = 1, 3, 4, 5, 9
_PAYLOAD_IS_COPIED: Final = 2
_MSGFLAGS: Final = 7
_TIMEOUT_MS: Final = 30_000


class _Memory(ctypes.Structure):
    _fields_ = (("start", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("size", ctypes.c_ssize_t))


class _Content(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int32),
        ("memory", _Memory),
        ("header", _Header),
        ("padding", ctypes.c_char * 64),
    )


class _Field(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("content", _Content))


def produce_with_header_name(
    bootstrap_servers: str, topic: str, key: bytes, value: bytes, name: bytes
) -> None:
    """Sends a message to partition 0 whose one header has this name."""
    library = _library()
    conf = library.rd_kafka_conf_new()
    error = ctypes.create_string_buffer(512)
    servers = bootstrap_servers.encode()
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", servers, error, len(error))
    client = library.rd_kafka_new(_PRODUCER, conf, error, len(error))
    assert client, error.value.decode()
    try:
        fields = (
            _Field(_TOPIC, _Content(text=topic.encode())),
            _Field(_PARTITION, _Content(number=0)),
            _Field(_MSGFLAGS, _Content(number=_PAYLOAD_IS_COPIED)),
            _Field(_KEY, _Content(memory=_Memory(key, len(key)))),
            _Field(_VALUE, _Content(memory=_Memory(value, len(value)))),
            _Field(_HEADER, _Content(header=_Header(name, b"1", 1))),
        )
        refusal = library.rd_kafka_produceva(
            client, (_Field * len(fields))(*fields), ctypes.c_size_t(len(fields))
        )
        assert not refusal, "the client did not take the message"
        assert library.rd_kafka_flush(client, _TIMEOUT_MS) == 0, "not delivered"
    finally:
        library.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    text = ctypes.c_char_p
    library.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, text, text, text, ctypes.c_size_t]
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, text, ctypes.c_size_t]
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_produceva.argtypes = [
        ctypes.c_void_p,
        ctypes.POINTER(_Field),
        ctypes.c_size_t,
    ]
    library.rd_kafka_produceva.restype = ctypes.c_void_p
    library.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
    library.rd_kafka_destroy.restype = None
    return library
