from __future__ import annotations

import pytest

from oasr.audio.pcm import Encoding
from worker.call_files import CallAudio
from worker.codec import ChunkDefaults, Event, parse_chunk
from worker.messages import RawMessage
from worker.options import parse_options
from worker.playback import CallPlan, PlannedMessage, Player

STEREO = CallAudio(bytes(range(250)) * 8, Encoding.MULAW, 8000, 2, ("agent", "customer"))
NO_DEFAULTS = ChunkDefaults()


def plan(name: str = "call", audio: CallAudio = STEREO, **options: object) -> CallPlan:
    return CallPlan(name, audio, **options)  # type: ignore[arg-type]


def parsed(message: PlannedMessage) -> object:
    raw = RawMessage("t", 0, 0, 0, message.session_id.encode(), message.value, message.headers)
    return parse_chunk(raw, NO_DEFAULTS)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Stage:
    """A player with a clock that only moves when told, and all that it sent."""

    def __init__(self, speed: float = 1.0) -> None:
        self.clock = Clock()
        self.sent: list[tuple[float, PlannedMessage]] = []
        self.player = Player(self._send, self.clock, speed)

    def _send(self, message: PlannedMessage) -> None:
        self.sent.append((round(self.clock.now_s - 100.0, 6), message))

    def play(self) -> None:
        while (wait_s := self.player.pump()) is not None:
            self.clock.now_s += wait_s


def test_the_messages_of_a_call_are_chunks_that_restate_everything_and_an_end() -> None:
    *chunks, end = [parsed(message) for message in plan(chunk_ms=100).messages()]

    assert [chunk.sequence for chunk in chunks] == [0, 1]
    assert [chunk.position_ms for chunk in chunks] == [0, 100]
    assert b"".join(chunk.audio for chunk in chunks) == STEREO.data
    for chunk in chunks:
        assert (chunk.event, chunk.encoding, chunk.sample_rate) == (
            Event.AUDIO,
            Encoding.MULAW,
            8000,
        )
        assert (chunk.channels, chunk.channel, chunk.roles) == (2, None, ("agent", "customer"))
    assert (end.event, end.audio, end.sequence) == (Event.END, None, 2)


def test_a_message_is_due_when_its_last_sample_has_been_spoken() -> None:
    due = [message.due_s for message in plan(chunk_ms=100).messages()]

    assert due == [0.1, 0.125, 0.125]


def test_separate_channels_are_mono_messages_with_a_sequence_each() -> None:
    *chunks, end = [
        parsed(message) for message in plan(chunk_ms=100, separate_channels=True).messages()
    ]

    assert [(chunk.channel, chunk.sequence) for chunk in chunks] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert all((chunk.width, chunk.channels) == (1, 2) for chunk in chunks)
    for channel in (0, 1):
        heard = b"".join(chunk.audio for chunk in chunks if chunk.channel == channel)
        assert heard == STEREO.data[channel::2]
    assert (end.event, end.channel, end.sequence) == (Event.END, None, None)


@pytest.mark.parametrize("separate", [False, True])
def test_every_chunk_restates_the_options_that_are_asked_for(separate: bool) -> None:
    options = '{"words": true, "hotwords": ["june"]}'

    *chunks, _ = [
        parsed(message)
        for message in plan(chunk_ms=20, separate_channels=separate, options=options).messages()
    ]

    assert len(chunks) > 5
    assert {chunk.options for chunk in chunks} == {parse_options(options)}


@pytest.mark.parametrize("separate", [False, True])
def test_the_end_of_a_call_restates_its_roles(separate: bool) -> None:
    *_, end = [parsed(message) for message in plan(separate_channels=separate).messages()]

    assert (end.event, end.channel) == (Event.END, None)
    assert (end.channels, end.roles) == (2, ("agent", "customer"))


def test_the_end_of_a_call_restates_its_options() -> None:
    options = '{"lenient": true, "punctuate": true}'
    *_, end = [parsed(message) for message in plan(options=options).messages()]

    assert end.options == parse_options(options)


def test_an_empty_call_is_only_its_end() -> None:
    empty = CallAudio(b"", Encoding.MULAW, 8000, 1)

    (end,) = plan(audio=empty).messages()

    assert dict(end.headers)["event"] == b"end"


def test_a_chunk_length_below_one_sample_still_moves_on() -> None:
    slow = CallAudio(b"abc", Encoding.MULAW, 100, 1)

    values = [message.value for message in plan(audio=slow, chunk_ms=1).messages()]

    assert values == [b"a", b"b", b"c", None]


def test_calls_play_side_by_side_each_at_its_own_pace() -> None:
    stage = Stage()
    stage.player.add(plan("a", chunk_ms=50), start_s=100.0)
    stage.player.add(plan("b", chunk_ms=50), start_s=100.02)
    stage.play()

    assert [(at, message.session_id) for at, message in stage.sent] == [
        (0.05, "a"),
        (0.07, "b"),
        (0.1, "a"),
        (0.12, "b"),
        (0.125, "a"),
        (0.125, "a"),
        (0.145, "b"),
        (0.145, "b"),
    ]
    assert (stage.player.finished, stage.player.playing, stage.player.sent) == (2, 0, 8)


@pytest.mark.parametrize(("speed", "last_s"), [(2.0, 0.0625), (0.5, 0.25), (0.0, 0.0)])
def test_speed_scales_the_pace_and_zero_does_not_wait(speed: float, last_s: float) -> None:
    stage = Stage(speed)
    stage.player.add(plan(), start_s=100.0)
    stage.play()

    assert stage.sent[-1][0] == last_s


def test_a_late_player_catches_up_instead_of_stretching_the_call() -> None:
    stage = Stage()
    stage.player.add(plan(chunk_ms=50), start_s=100.0)
    stage.clock.now_s += 0.11
    stage.player.pump()

    assert [at for at, _ in stage.sent] == [0.11, 0.11]
    assert stage.player.latest_s == pytest.approx(0.06)
    stage.play()
    assert stage.sent[-1][0] == 0.125


def test_one_pump_sends_a_bounded_number_of_messages() -> None:
    stage = Stage(speed=0)
    long_call = CallAudio(bytes(8 * 2000), Encoding.MULAW, 8000, 1)
    stage.player.add(plan(audio=long_call, chunk_ms=1), start_s=100.0)

    assert stage.player.pump() == 0.0
    assert len(stage.sent) == 500


def test_stopping_ends_the_calls_that_have_begun_and_no_others() -> None:
    stage = Stage()
    stage.player.add(plan("begun", chunk_ms=50), start_s=100.0)
    stage.player.add(plan("not yet"), start_s=200.0)
    stage.clock.now_s += 0.05
    stage.player.pump()

    assert stage.player.stop() == 1
    end = parsed(stage.sent[-1][1])
    assert (end.session_id, end.event, end.sequence) == ("begun", Event.END, 1)
    assert stage.player.pump() is None
