"""What the owner of a file partition leaves to its heir, in the commit metadata.

A file that is not listed as finished is open: its job runs again, and `published` says up to
which sample of each channel its segments are on the topic already.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from worker.map_format import MapFormat
from worker.metadata import Place, Reader, Writer
from worker.session_map import MapError

MAGIC: Final = "oasrf1:"

Samples = tuple[int, ...]  # one number a channel


@dataclass(frozen=True, slots=True)
class FileMap:
    """The state of one partition of the file topic at and above its committed offset."""

    finished: tuple[int, ...] = ()  # offsets above the watermark, ascending
    published: tuple[tuple[int, Samples], ...] = ()  # (open offset, up to where), ascending


def encode_file_metadata(
    contents: FileMap | None,
    topic_id: str,
    partition: int,
    committed_offset: int,
    start_counter: int = 0,
) -> str:
    """Commit metadata in ASCII, of any length; None writes the start counter alone.

    Raises ValueError for a map that the decoder would refuse.
    """
    return _FORMAT.encode(contents, Place(topic_id, partition, committed_offset), start_counter)


def decode_file_metadata(
    text: str | None, topic_id: str, partition: int, committed_offset: int
) -> tuple[FileMap | None, int]:
    """The map (None if there is none) and the start counter of a commit's metadata.

    Raises MapError for metadata that is undecodable, foreign or impossible.
    """
    return _FORMAT.decode(text, Place(topic_id, partition, committed_offset))


def check(contents: FileMap, committed_offset: int) -> None:
    """Raises MapError if no owner could have committed this map with this offset."""
    opened = tuple(offset for offset, _ in contents.published)
    for offsets in (contents.finished, opened):
        if not all(a < b for a, b in itertools.pairwise(offsets)):
            raise MapError("impossible map: offsets are not ascending")
    # The committed offset itself is open, or nothing above it was finished either.
    if contents.finished and contents.finished[0] <= committed_offset:
        raise MapError("impossible map: a finished offset lies at or below the commit")
    if opened and opened[0] < committed_offset:
        raise MapError("impossible map: an open offset lies below the commit")
    if set(opened) & set(contents.finished):
        raise MapError("impossible map: an offset is both open and finished")
    if any(min(samples, default=0) < 0 for _, samples in contents.published):
        raise MapError("impossible map: a number of samples is negative")


def _write(writer: Writer, contents: FileMap, base: int) -> None:
    writer.unsigned(len(contents.finished))
    previous = base
    for offset in contents.finished:
        writer.unsigned(offset - previous)
        previous = offset
    writer.unsigned(len(contents.published))
    previous = base
    for offset, samples in contents.published:
        writer.unsigned(offset - previous, len(samples), *samples)
        previous = offset


def _read(reader: Reader, base: int) -> FileMap:
    finished = []
    offset = base
    for _ in range(reader.unsigned()):
        offset += reader.unsigned()
        finished.append(offset)
    published = []
    offset = base
    for _ in range(reader.unsigned()):
        offset += reader.unsigned()
        published.append((offset, tuple(reader.unsigned() for _ in range(reader.unsigned()))))
    return FileMap(tuple(finished), tuple(published))


_FORMAT: Final = MapFormat(MAGIC, check, _write, _read)
