"""One assigned partition of the chunk topic: its tracker, its sessions, its map.

An object lives for one assignment. Once it is dropped, reports that still name it change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from oasr.audio.segmenter import SegmenterConfig
from worker import dead_letters
from worker.admission import Admits
from worker.codec import Chunk, ChunkDefaults, CodecError, Event, parse_chunk
from worker.commits import Commit
from worker.dead_letters import Refusal
from worker.errors import ErrorCode
from worker.identity import SessionState
from worker.messages import OutRecord, RawMessage
from worker.metadata import Place
from worker.offsets import OffsetTracker
from worker.options import SessionOptions
from worker.ports import Counters, Limits, Owner
from worker.publisher import Publisher
from worker.reorder import moment_at
from worker.second_pass import SecondPasses
from worker.segments import Speech
from worker.session_map import SessionMap, key_hash
from worker.session_map_codec import encode_metadata
from worker.session_table import SessionTable
from worker.sessions import Session


class Outbox(Protocol):
    """Where records go; `on_ack` runs in the loop once the broker has the record."""

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a worker share."""

    topic: str
    speech: Callable[[Owner], Speech]  # the engine for the segments of a partition
    records: Publisher
    outbox: Outbox
    counters: Counters
    now: Callable[[], float]  # monotonic seconds
    now_ms: Callable[[], int]  # wall clock, milliseconds since the epoch
    defaults: ChunkDefaults
    limits: Limits
    endpointing: SegmenterConfig
    admission: Admits
    hash_key: Callable[[bytes], int] = key_hash  # names keys in the map, in 48 bits
    second_passes: SecondPasses | None = None
    cuts_at_once: bool = False  # what a pending cut causes is committed with it


class Partition:
    """Routes messages to sessions and knows what may be committed."""

    def __init__(
        self,
        place: Place,
        surroundings: Surroundings,
        restored: SessionMap | None = None,
    ) -> None:
        """Begins at `place.committed_offset`, where `restored` was committed."""
        topic, number = surroundings.topic, place.partition
        self.topic, self.number = topic, number
        self.alive = True
        self.tracker = OffsetTracker(place.committed_offset)
        self.start_counter = 0
        self.speech = surroundings.speech(self)
        self.records = surroundings.records
        self.limits = surroundings.limits
        self.counters = surroundings.counters
        self.second_passes = surroundings.second_passes
        self._at_end = False  # nothing was received since the log's end was reached
        self._known_until = float("-inf")  # all that was in the log then has been received
        self._cut_off = False  # from the brokers: silence proves nothing
        self.wants_commit = False  # a pending cut waits for it
        self.sessions = SessionTable(topic, number, restored, self, surroundings.hash_key)
        self._shared = surroundings
        self.topic_id = place.topic_id
        self._replay_below = 0 if restored is None else restored.highest + 1
        self._highest_before = -1 if restored is None else restored.highest
        self._listed = frozenset() if restored is None else frozenset(restored.open_offsets)
        self._published = frozenset() if restored is None else frozenset(restored.published)
        self._unowned: set[int] = set()  # open offsets outside sessions
        self.held: list[tuple[RawMessage, Chunk]] = []  # come after an end that is not committed
        self.sessions.restore_known()

    # -- messages -----------------------------------------------------------------------------

    def receive(self, raw: RawMessage) -> None:
        """Take the next message of the partition."""
        self._at_end = False
        self.counters.consumed(self.topic)
        self.tracker.received(raw.offset)
        replayed = raw.offset < self._replay_below and raw.offset not in self._listed
        try:
            chunk = parse_chunk(raw, self._shared.defaults)
            if chunk is not None:
                chunk.options = self._shared.admission.admit(chunk.options)
        except CodecError as error:
            if replayed:
                self._finish(raw, "skipped")
            else:
                self._refuse(raw, error)
            return
        if chunk is None:
            self._finish(raw, "tombstone")
        else:
            self._route(raw, chunk, replayed)

    def end_reached(self) -> None:
        """Everything in the log has been received."""
        self._at_end = True
        self.polled()

    def polled(self) -> None:
        """The client was asked for more; if it had nothing since the log's end, time may pass."""
        if self._cut_off:
            self._cut_off = False
            for session in self.sessions.all():
                session.restart_clocks()
        if self._at_end:
            self._known_until = self._shared.now()

    def cut_off(self) -> None:
        """The brokers cannot be heard: time-outs wait, and start anew when they can."""
        self._cut_off = True

    def paused(self) -> None:
        """What comes next is not known: no time-out may run."""
        self._at_end = False

    def tick(self) -> None:
        """Propose the cuts that time or engine failures ask for."""
        last, known = self._received_up_to, self._known_until
        proposed = self.sessions.tick(known, last, last >= self._highest_before)
        if proposed and self._shared.cuts_at_once:
            self._committed(self._proposed())
        else:
            self.wants_commit |= proposed

    def drop(self) -> None:
        """The assignment is over: leave the engine, publish nothing more."""
        self.alive = False
        for session in self.sessions.all():
            session.drop()

    # -- commits ------------------------------------------------------------------------------

    def prepare_commit(self) -> Commit:
        """The watermark with its session map."""
        watermark = self.tracker.watermark
        contents = self.session_map()
        metadata = encode_metadata(
            contents, self.topic_id, self.number, watermark, self.start_counter
        )
        carried = self._proposed()
        return Commit(watermark, metadata, lambda: self._committed(carried))

    def session_map(self) -> SessionMap:
        """All that is open."""
        received_up_to = self._received_up_to
        unread = (o for o in self._listed if o > received_up_to)
        published = {o for o in self._published if o > received_up_to}
        for session in self.sessions.all():
            published.update(session.published_offsets())
        return SessionMap(
            highest=max(self._highest_before, received_up_to),
            sessions=self.sessions.entries(received_up_to),
            open_offsets=tuple(sorted({*self._unowned, *unread})),
            published=tuple(sorted(published)),
        )

    def _proposed(self) -> list[tuple[Session, Callable[[], None]]]:
        """What waits for a commit, and what to call once one that carried it is acknowledged."""
        return [(s, confirm) for s in self.sessions.all() for confirm in s.proposed()]

    def _committed(self, carried: list[tuple[Session, Callable[[], None]]]) -> None:
        """A commit is acknowledged: what was proposed and carried by it may be done."""
        for _, confirm in carried:
            confirm()
        for session, _ in carried:
            session.pump()
        held, self.held = self.held, []
        for raw, chunk in held:
            self._unowned.discard(raw.offset)
            self._route(raw, chunk, replayed=False)

    # -- what sessions ask for ----------------------------------------------------------------

    def now(self) -> float:
        return self._shared.now()

    def now_ms(self) -> int:
        return self._shared.now_ms()

    def publish(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        if on_ack is None:
            self._shared.outbox.send(record, None)
            return

        def acknowledged() -> None:
            if self.alive:
                on_ack()

        self._shared.outbox.send(record, acknowledged)

    def release(self, offset: int, outcome: str = "ok") -> None:
        if self.tracker.done(offset):
            self.counters.processed(self.topic, outcome)

    def is_published(self, offset: int) -> bool:
        return offset in self._published

    def segmenter_config(self, options: SessionOptions) -> SegmenterConfig:
        return options.endpointing.over(self._shared.endpointing)

    def closed(self, session: Session) -> None:
        self.sessions.remove(session)

    # -- inside -------------------------------------------------------------------------------

    @property
    def _received_up_to(self) -> int:
        highest = self.tracker.highest
        return self.tracker.watermark - 1 if highest is None else highest

    def _route(self, raw: RawMessage, chunk: Chunk, replayed: bool) -> None:
        session = self.sessions.newest(raw.key or b"", raw.offset)
        if session is None:
            self._begin(raw, chunk, None, replayed)
            return
        if session.intake.catches_up:
            session.intake.catch_up(raw.offset)
        if replayed and session.streams.skips(raw, chunk):
            self._finish(raw, "skipped")
            return
        if session.is_ending:
            self._unowned.add(raw.offset)
            self.held.append((raw, chunk))
        elif session.state is not SessionState.OPEN:
            # Not even a repeat belongs to an ended session: nobody remembers those for long.
            self._begin(raw, chunk, None, replayed)
        elif session.streams.is_duplicate(chunk):
            session.drop_duplicate(raw, chunk)
        elif not session.streams.fits(chunk):
            self._begin(raw, chunk, session, replayed)
        else:
            self._accept(session, raw, chunk)

    def _begin(self, raw: RawMessage, chunk: Chunk, former: Session | None, replayed: bool) -> None:
        """Start a session with this message, if it may start one."""
        has_format = chunk.encoding is not None and chunk.sample_rate is not None
        may_start = has_format and (bool(chunk.audio) or chunk.event is Event.START)
        if replayed or not may_start:
            self._finish(raw, "skipped" if replayed else "ignored")
            return
        if self.sessions.is_full:
            code = ErrorCode.SESSION_LIMIT
            self._refuse(raw, CodecError(code, code.description))
            return
        if former is not None:
            former.intake.close(moment_at(raw.offset))
        self._accept(self.sessions.begin(raw, chunk, former), raw, chunk)

    def _accept(self, session: Session, raw: RawMessage, chunk: Chunk) -> None:
        """The message belongs to the session; if it begins it, older ones of the key end."""
        received = session.accept(raw, chunk)
        if received is None or raw.offset != session.identity.origin:
            return
        for older in self.sessions.of(session.identity.key):
            if older.identity.origin < session.identity.origin:
                older.supersede(session, received)
        session.older_ended(received)

    def _finish(self, raw: RawMessage, outcome: str) -> None:
        """The message causes nothing."""
        self.tracker.done(raw.offset)
        self.counters.processed(self.topic, outcome)

    def _refuse(self, raw: RawMessage, error: CodecError) -> None:
        """Dead letter; the offset stays open until it is acknowledged."""
        self._unowned.add(raw.offset)
        self.counters.dead_letter(error.code)
        refusal = Refusal(error.code, error.message, "codec")
        record = dead_letters.build(raw, refusal, self._shared.now_ms())

        def acknowledged() -> None:
            self._unowned.discard(raw.offset)
            self._finish(raw, "dead_letter")

        self.publish(record, acknowledged)
