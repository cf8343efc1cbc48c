"""The latest snapshot for the live page, between the loop and the threads that serve it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

WATCHED_S: Final = 3.0  # after each question
MIN_INTERVAL_S: Final = 0.25
REST: Final = 50  # a snapshot that took t is followed by none for 50 t: 2 % of the loop's time


@dataclass(frozen=True, slots=True)
class Shot:
    """A snapshot as JSON."""

    body: bytes
    taken: float  # by the board's clock


class LiveBoard:
    """Holds one snapshot; each side writes attributes of its own, so no lock is needed."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._asked: float | None = None
        self._visit_began = 0.0
        self._shot: Shot | None = None
        self._next = 0.0

    @property
    def is_watched(self) -> bool:
        """Whether somebody looks."""
        asked = self._asked
        return asked is not None and self._now() - asked <= WATCHED_S

    # -- the loop's side ----------------------------------------------------------------------

    def update(self, take: Callable[[], Mapping[str, Any]]) -> None:
        """Take a snapshot if somebody looks and it is time for one."""
        began = self._now()
        if began < self._next or not self.is_watched:
            return
        body = orjson.dumps({**take(), "taken_unix_ms": time.time_ns() // 1_000_000})
        ended = self._now()
        self._shot = Shot(body, ended)
        self._next = began + max(MIN_INTERVAL_S, REST * (ended - began))

    # -- the side of the page -----------------------------------------------------------------

    def look(self) -> tuple[bytes, float] | None:
        """The latest snapshot and its age in seconds; None if there is none of this visit."""
        now, before = self._now(), self._asked
        if before is None or now - before > WATCHED_S:
            self._visit_began = now
        self._asked = now
        shot = self._shot
        if shot is None or shot.taken < self._visit_began:
            return None
        return shot.body, now - shot.taken
