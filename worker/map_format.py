"""What both kinds of maps have in common on their way into and out of commit metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from worker.metadata import Place, Reader, Writer, seal, unseal
from worker.session_map import MapError

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class MapFormat(Generic[M]):
    """One kind of map; each function also takes the committed offset."""

    magic: str
    check: Callable[[M, int], None]  # raises MapError for a map that nobody could have committed
    write: Callable[[Writer, M, int], None]
    read: Callable[[Reader, int], M]

    def encode(self, contents: M | None, place: Place, start_counter: int) -> str:
        """The sealed text; None writes the start counter alone.

        Raises ValueError for a map that the decoder would refuse.
        """
        writer = Writer()
        writer.unsigned(contents is not None)
        if contents is not None:
            try:
                self.check(contents, place.committed_offset)
            except MapError as error:
                raise ValueError(error.reason) from error
            self.write(writer, contents, place.committed_offset)
        return seal(self.magic, bytes(writer.data), place, start_counter)

    def decode(self, text: str | None, place: Place) -> tuple[M | None, int]:
        """The map (None if there is none) and the start counter.

        Raises MapError for text that is undecodable, foreign or impossible.
        """
        if not text:
            return None, 0
        reader, start_counter = unseal(self.magic, text, place)
        contents = self.read(reader, place.committed_offset) if reader.unsigned() else None
        if not reader.exhausted:
            raise MapError("bytes are left over")
        if contents is not None:
            self.check(contents, place.committed_offset)
        return contents, start_counter
