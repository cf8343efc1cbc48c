"""Metadata that names a record of the state topic, in which the map of a commit lies.

The record's value is the metadata text that did not fit; its key says whose it is. Reference and
record are sealed for the same place, so neither is taken for that of another commit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from worker.metadata import Place, Writer, seal, unseal
from worker.session_map import MapError

MAGIC: Final = "oasrs1:"
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class StateReference:
    """Where on the state topic a map lies, and the CRC-32 of the record's value."""

    partition: int
    offset: int
    crc: int

    def names(self, value: bytes) -> bool:
        """Whether this is the value that was written."""
        return zlib.crc32(value) == self.crc


def reference_to(value: bytes, partition: int, offset: int) -> StateReference:
    """The reference to a value that lies at this place of the state topic."""
    return StateReference(partition, offset, zlib.crc32(value))


def encode_reference(reference: StateReference, place: Place, start_counter: int) -> str:
    """The metadata of a commit whose map lies in a record."""
    writer = Writer()
    writer.unsigned(reference.partition, reference.offset)
    writer.fixed(reference.crc, _CRC_BYTES)
    return seal(MAGIC, bytes(writer.data), place, start_counter)


def decode_reference(text: str | None, place: Place) -> tuple[StateReference, int] | None:
    """The reference and the start counter; None for metadata that is no reference.

    Raises MapError for a reference that is damaged or was written for another place.
    """
    if not text or not text.startswith(MAGIC):
        return None
    reader, start_counter = unseal(MAGIC, text, place)
    reference = StateReference(reader.unsigned(), reader.unsigned(), reader.fixed(_CRC_BYTES))
    if not reader.exhausted:
        raise MapError("bytes are left over")
    return reference, start_counter
