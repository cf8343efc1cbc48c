"""The sessions of a partition by key, and those that a former owner left and nobody claimed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from heapq import nsmallest
from typing import Final

from oasr.audio.segmenter import EndReason
from worker.codec import Chunk
from worker.identity import Identity, SessionState
from worker.messages import RawMessage
from worker.ports import Ports
from worker.session_map import SessionEntry, SessionMap, key_hash
from worker.session_snapshot import entry_of, still_unclaimed
from worker.session_streams import LOWEST_RESUMED
from worker.sessions import Session
from worker.streams import MediaFormat

FULL_AT: Final = 2  # times `max_sessions`: none begins before others have ended


class SessionTable:
    """Finds the session of a message: of one key, the one with the greatest origin up to it.

    The map names keys by their hashes, so an entry waits for its first open message, which has
    its key: what comes before was finished, and other keys may have the same hash. Entries
    without an open message carry their key and become sessions at once.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        restored: SessionMap | None,
        ports: Ports,
        hash_key: Callable[[bytes], int] = key_hash,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._ports = ports
        self._hash_key = hash_key
        self._by_key: dict[bytes, list[Session]] = {}  # ascending origins
        self._size = 0  # sessions of all keys
        self._unclaimed: dict[int, list[SessionEntry]] = {}
        self._highest = -1 if restored is None else restored.highest
        self._known = [] if restored is None else [e for e in restored.sessions if e.key]
        for entry in () if restored is None else restored.sessions:
            if not entry.key:
                self._unclaimed.setdefault(entry.key_hash, []).append(entry)

    def restore_known(self) -> None:
        """Bring back the sessions whose keys the map carries."""
        while self._known:
            entry = self._known.pop()
            self._restore(entry, entry.key or b"")
        for session in self.all():
            session.pump()

    def newest(self, key: bytes, offset: int) -> Session | None:
        """The session that a message of this key and offset belongs to."""
        if self._unclaimed:
            self._claim(key, offset)
        for session in reversed(self._by_key.get(key, ())):
            if session.identity.origin <= offset:
                return session
        return None

    def of(self, key: bytes) -> list[Session]:
        """All sessions of a key, ascending by origin."""
        return list(self._by_key.get(key, ()))

    def all(self) -> list[Session]:
        """Every session that is not closed."""
        return [session for sessions in self._by_key.values() for session in sessions]

    def begin(self, raw: RawMessage, chunk: Chunk, former: Session | None) -> Session:
        """Start a session whose clock begins with this message.

        It goes on where the open session `former` is left, or, as its sequence number tells,
        where one was whose state is gone. Memory that dies with a worker must not decide that.
        """
        key = chunk.session_id.encode()
        sequence = chunk.sequence
        resumes = former is not None or (sequence is not None and sequence >= LOWEST_RESUMED)
        position_ms = chunk.position_ms
        if position_ms is None:
            position_ms = 0 if former is None else former.elapsed_ms
        rate = MediaFormat.of(chunk).sample_rate
        identity = Identity(
            key=key,
            topic=self._topic,
            partition=self._partition,
            origin=raw.offset,
            position_ms=position_ms,
            from_sample=round(position_ms * rate / 1000) if resumes else None,
        )
        session = Session(identity, self._ports)
        self._by_key.setdefault(key, []).append(session)
        self._size += 1
        return session

    @property
    def is_full(self) -> bool:
        """Whether there are so many sessions that no other may begin."""
        return self._size >= FULL_AT * self._ports.limits.max_sessions

    def tick(self, known_until: float, last_offset: int, replay_is_over: bool) -> bool:
        """Propose cuts and ends; True if a commit has to carry one.

        Above `max_sessions` the sessions end from which nothing came for longest. None ends so
        during a replay: an heir would take what the replay has not reached for finished.
        """
        proposed, last_offset = False, max(0, last_offset)
        for session in self.all():
            proposed |= session.tick(known_until, last_offset)
        excess = self._size - self._ports.limits.max_sessions
        if excess > 0 and replay_is_over:
            proposed |= self._shed(excess, last_offset)
        return proposed

    def _shed(self, excess: int, last_offset: int) -> bool:
        everyone = self.all()
        left = [s for s in everyone if s.state is SessionState.OPEN and not s.is_ending]
        excess -= len(everyone) - len(left)
        proposed = False
        for session in nsmallest(excess, left, key=lambda session: session.last_activity):
            proposed |= session.propose_end(EndReason.SHED, last_offset)
        return proposed

    def remove(self, session: Session) -> None:
        """The session is closed."""
        key = session.identity.key
        sessions = self._by_key[key]
        sessions.remove(session)
        self._size -= 1
        if not sessions:
            del self._by_key[key]

    def entries(self, received_up_to: int) -> tuple[SessionEntry, ...]:
        """All sessions as an heir needs them, claimed or not."""
        claimed = (entry_of(session, received_up_to, self._hash_key) for session in self.all())
        unclaimed = (
            still_unclaimed(entry, received_up_to, self._highest)
            for entries in self._unclaimed.values()
            for entry in entries
        )
        return (*claimed, *unclaimed)

    def _claim(self, key: bytes, offset: int) -> None:
        """Make sessions of the entries that this message shows to be its key's."""
        hashed = self._hash_key(key)
        entries = self._unclaimed.get(hashed, [])
        claimed = [entry for entry in entries if self._is_shown(entry, key, offset)]
        if not claimed:
            return
        left = [entry for entry in entries if entry not in claimed]
        if left:
            self._unclaimed[hashed] = left
        else:
            del self._unclaimed[hashed]
        for entry in claimed:
            self._restore(entry, key)

    def _is_shown(self, entry: SessionEntry, key: bytes, offset: int) -> bool:
        """Whether a message with the entry's hash is one of the entry's."""
        opens = [s.first_open for s in entry.streams if s.first_open is not None]
        first_open = min(opens, default=-1)
        # A first open message that the log has lost shows nothing any more: the next key with
        # the hash that has no session is taken for it.
        return offset == first_open or (offset > first_open and key not in self._by_key)

    def _restore(self, entry: SessionEntry, key: bytes) -> None:
        identity = Identity(
            key=key,
            topic=self._topic,
            partition=self._partition,
            origin=entry.origin,
            position_ms=entry.position_ms,
            from_sample=entry.from_sample,
        )
        session = Session.restore(identity, entry, self._highest, self._ports)
        self._size += 1
        insort(self._by_key.setdefault(key, []), session, key=lambda s: s.identity.origin)
