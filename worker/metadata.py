"""The envelope of commit metadata: magic, start counter and a payload under one checksum.

    text    = magic, then base64 (no padding) of body and CRC-32
    body    = start counter (varint), payload

The CRC is seeded with topic id, partition and committed offset, so that metadata of a copied,
recreated or translated topic is not taken for ours. `Writer` and `Reader` hold the payload's
numbers: unsigned ones as LEB128, signed ones zigzag.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import NamedTuple

from worker.session_map import MapError

MAX_CHARS = 4095  # of a commit: the broker takes 4096, the client adds a NUL
MOST_STARTS = 127  # the counter takes one byte, so that counting never makes metadata longer
NO_MAP = b"\0"  # the payload of metadata that has a start counter alone
_CRC_BYTES = 4
_MAX_SHIFT = 63  # a number has at most 63 bits, like an offset


class Place(NamedTuple):
    """What metadata holds for: it is foreign anywhere else."""

    topic_id: str
    partition: int
    committed_offset: int

    @property
    def seed(self) -> int:
        """CRC-32 of the place."""
        return zlib.crc32(f"{self.topic_id}\0{self.partition}\0{self.committed_offset}".encode())


class Writer:
    """Collects the numbers of a payload."""

    def __init__(self) -> None:
        self.data = bytearray()

    def unsigned(self, *numbers: int) -> None:
        """Appends numbers of 0 to 63 bits; ValueError outside that."""
        for number in numbers:
            rest = number
            if rest < 0 or rest >> _MAX_SHIFT:
                raise ValueError(f"{number} does not fit in 63 bits")
            while rest > 0x7F:
                self.data.append(rest & 0x7F | 0x80)
                rest >>= 7
            self.data.append(rest)

    def signed(self, number: int) -> None:
        """Appends a number of either sign, small magnitudes short."""
        self.unsigned(number * 2 if number >= 0 else -number * 2 - 1)

    def fixed(self, number: int, size_bytes: int) -> None:
        """Appends a number in a fixed number of bytes."""
        self.data += number.to_bytes(size_bytes, "big")

    def text(self, data: bytes) -> None:
        """Appends bytes behind their number."""
        self.unsigned(len(data))
        self.data += data


class Reader:
    """Takes the numbers of a payload off again; MapError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unsigned(self) -> int:
        """The next unsigned number."""
        number = shift = 0
        while True:
            byte = self.fixed(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _MAX_SHIFT:
                raise MapError("a number is too long")
        if number >> _MAX_SHIFT:
            raise MapError("a number is too large")
        return number

    def signed(self) -> int:
        """The next signed number."""
        number = self.unsigned()
        return number >> 1 if not number & 1 else -(number >> 1) - 1

    def fixed(self, size_bytes: int) -> int:
        """The next number of a fixed size."""
        end = self._at + size_bytes
        if end > len(self._data):
            raise MapError("the payload ends early")
        number = int.from_bytes(self._data[self._at : end], "big")
        self._at = end
        return number

    def text(self) -> bytes:
        """The next bytes that stand behind their number."""
        size_bytes = self.unsigned()
        end = self._at + size_bytes
        if end > len(self._data):
            raise MapError("the payload ends early")
        data = self._data[self._at : end]
        self._at = end
        return data

    def rest(self) -> bytes:
        """The bytes that were not read."""
        return self._data[self._at :]

    @property
    def exhausted(self) -> bool:
        """Whether every byte was read."""
        return self._at == len(self._data)


def seal(magic: str, payload: bytes, place: Place, start_counter: int) -> str:
    """The metadata text of a payload."""
    writer = Writer()
    writer.unsigned(start_counter)
    body = bytes(writer.data) + payload
    crc = zlib.crc32(body, place.seed).to_bytes(_CRC_BYTES, "big")
    return magic + _base64(body + crc)


def unseal(magic: str, text: str, place: Place) -> tuple[Reader, int]:
    """The payload and start counter of a metadata text; MapError unless it was sealed here."""
    text = text.removesuffix("\0")  # some clients count the terminator in
    if not text.startswith(magic):
        raise MapError("not written by this version of this worker")
    encoded = text[len(magic) :]
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MapError("not base64") from error
    # Base64 has several spellings of the same bytes; only ours counts.
    if _base64(data) != encoded:
        raise MapError("not canonical base64")
    body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if zlib.crc32(body, place.seed) != int.from_bytes(crc, "big") or len(crc) != _CRC_BYTES:
        raise MapError("the checksum is another one: damaged, or of another topic or offset")
    reader = Reader(body)
    return reader, reader.unsigned()


def recounted(text: str, place: Place, start_counter: int) -> str:
    """The same metadata with another start counter; MapError unless it was sealed here."""
    magic = text[: text.find(":") + 1]
    reader, _ = unseal(magic, text, place)
    return seal(magic, reader.rest(), place, start_counter)


def start_counter_of(text: str, place: Place) -> int:
    """The start counter of metadata; MapError unless it was sealed here."""
    _, start_counter = unseal(text[: text.find(":") + 1], text, place)
    return start_counter


def _base64(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode("ascii")
