"""The life of a session: what begins and ends it, its events and its totals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.calls import chunk, control, encoded, hushed, message, spoken
from tests.support.partitions import Desk, header
from tests.support.signals import silence, speech
from worker.messages import Kind, RawMessage
from worker.ports import Limits


def desk_with(*messages: RawMessage) -> Desk:
    """A settled partition whose log holds the messages."""
    desk = Desk([])
    desk.arrive(*messages)
    desk.settle()
    return desk


def total(desk: Desk, channel: int = 0, which: int = -1) -> dict[str, int]:
    """Samples of a channel by fate, of the last session that ended."""
    totals = {t["channel"]: t for t in desk.told("ended")[which]["totals"]}[channel]
    parts = {name: totals[name]["samples"] for name in ("received", "decoded", "silence")}
    dropped = {reason: amount["samples"] for reason, amount in totals["dropped"].items()}
    assert parts["received"] == parts["decoded"] + parts["silence"] + sum(dropped.values())
    return {**parts, **dropped}


def stereo(key: str, left: bytes, right: bytes, **headers: object) -> RawMessage:
    pairs = itertools.chain.from_iterable(zip(left, right, strict=True))
    return chunk(key, bytes(pairs), channels=2, **headers)


def test_a_call_tells_when_it_started_and_how_it_ended() -> None:
    desk = desk_with(chunk("c", spoken(1.0)), chunk("c", hushed(0.5)), control("c", "end"))

    (started,) = desk.told("started")
    (ended,) = desk.told("ended")
    (final,) = desk.transcripts()
    assert (started["session_id"], started["origin"], started["from_sample"]) == ("c", "0-0", None)
    assert started["source"]["offset"] == 0
    assert (ended["reason"], ended["finals"], ended["warnings"]) == ("end", 1, [])
    assert ended["source"]["offset"] == 2
    assert total(desk)["received"] == 12_000
    assert (final["end_reason"], final["speech_final"]) == ("end", True)
    assert (final["start"], final["end"]) == (0.0, 1.5)
    assert desk.committed.offset == 3


def test_an_end_may_carry_the_last_audio() -> None:
    desk = desk_with(chunk("c", spoken(1.0)), chunk("c", spoken(0.5), event="end"))

    assert total(desk)["received"] == 12_000
    assert desk.transcripts()[0]["end_sample"] == 12_000


def test_silence_alone_is_counted_and_says_nothing() -> None:
    desk = desk_with(chunk("c", hushed(5.0)), control("c", "end"))

    assert total(desk) == {"received": 40_000, "decoded": 0, "silence": 40_000}
    assert desk.transcripts() == []
    assert desk.told("ended")[0]["finals"] == 0


def test_a_start_begins_the_session_before_its_audio() -> None:
    desk = desk_with(chunk("c", None, event="start"))
    assert [body["origin"] for body in desk.told("started")] == ["0-0"]

    desk.arrive(chunk("c", spoken(0.5)), control("c", "end"))
    desk.settle()

    assert len(desk.told("started")) == 1
    assert desk.told("ended")[0]["origin"] == "0-0"


def test_a_start_in_mid_call_causes_nothing() -> None:
    desk = desk_with(chunk("c", spoken(0.5)), chunk("c", None, event="start"), control("c", "end"))

    assert len(desk.told("started")) == len(desk.told("ended")) == 1


@pytest.mark.parametrize("event", ["end", "flush", "abort", "keepalive", "start"])
def test_an_event_for_an_unknown_session_without_a_format_causes_nothing(event: str) -> None:
    desk = desk_with(control("c", event))

    assert desk.all_records() == []
    assert desk.counts.outcomes == {"ignored": 1}
    assert desk.committed.offset == 1


def test_a_repeated_end_causes_nothing() -> None:
    desk = desk_with(chunk("c", spoken(0.5)), control("c", "end"), control("c", "end"))

    assert len(desk.told("ended")) == 1
    assert desk.counts.outcomes == {"ok": 2, "ignored": 1}
    assert desk.committed.offset == 3


def test_a_chunk_after_the_end_begins_a_new_origin() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0)), control("c", "end"), chunk("c", spoken(1.0)), control("c", "end")
    )

    assert [b["origin"] for b in desk.told("started")] == ["0-0", "0-2"]
    assert [b["origin"] for b in desk.told("ended")] == ["0-0", "0-2"]
    assert len({final["segment_id"] for final in desk.transcripts()}) == 2


def test_a_numbered_chunk_after_the_end_goes_on_with_the_call() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0), sequence=0),
        control("c", "end", sequence=1),
        chunk("c", spoken(1.0), sequence=2, position_ms=1000),
        control("c", "end", sequence=3),
    )

    (resumed,) = desk.told("resumed")
    assert (resumed["origin"], resumed["reason"], resumed["from_sample"]) == (
        "0-2",
        "new_origin",
        8000,
    )
    assert desk.transcripts()[1]["start"] == 1.0


@pytest.mark.parametrize(("first", "event"), [(0, "started"), (1, "started"), (2, "resumed")])
def test_a_first_message_with_a_number_above_one_goes_on_with_a_call(
    first: int, event: str
) -> None:
    desk = desk_with(chunk("c", hushed(0.1), sequence=first))

    assert [len(desk.told(name)) for name in ("started", "resumed")] == [
        int(event == name) for name in ("started", "resumed")
    ]


def test_missing_numbers_are_told_with_their_place() -> None:
    desk = desk_with(
        chunk("c", hushed(1.0), sequence=0),
        chunk("c", hushed(1.0), sequence=4),
        control("c", "end", sequence=5),
    )

    (gap,) = desk.told("gap")
    assert (gap["first_sequence"], gap["last_sequence"], gap["channel"]) == (1, 3, 0)
    assert (gap["gap"]["start_sample"], gap["gap"]["end_sample"]) == (8000, 8000)
    assert gap["source"]["offset"] == 1
    assert total(desk)["received"] == 16_000


def test_repeats_are_dropped_and_counted() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0), sequence=0),
        chunk("c", spoken(0.5), sequence=1),
        chunk("c", spoken(0.5), sequence=1),
        chunk("c", spoken(1.0), sequence=0),
        control("c", "end", sequence=2),
    )

    assert total(desk)["received"] == 24_000
    assert total(desk)["duplicate"] == 12_000
    assert desk.counts.outcomes["duplicate"] == 2
    assert desk.transcripts()[0]["end_sample"] == 12_000


def test_bytes_left_over_at_the_end_are_a_warning() -> None:
    media = {"encoding": "pcm_s16le", "sample_rate": 8000}
    desk = desk_with(
        message("c", spoken(0.5, "pcm_s16le") + b"\1", media),
        message("c", None, {"event": "end"}),
    )

    assert desk.told("ended")[0]["warnings"] == ["odd_bytes"]
    assert total(desk)["received"] == 4000
    assert desk.committed.offset == 2


def test_a_frame_may_be_split_over_messages() -> None:
    media = {"encoding": "pcm_s16le", "sample_rate": 8000, "channels": 2}
    samples = np.stack([speech(1.0), silence(1.0)], axis=1).reshape(-1)
    audio = encoded(samples, "pcm_s16le")
    pieces = [audio[:1], audio[1:3], audio[3:1001], audio[1001:]]

    split = desk_with(*(message("c", p, media) for p in pieces), control("c", "end"))
    once = desk_with(message("c", audio, media), control("c", "end"))

    assert split.told("ended")[0]["warnings"] == []
    assert [t["alternatives"] for t in split.transcripts()] == [
        t["alternatives"] for t in once.transcripts()
    ]


def test_an_audio_message_of_no_bytes_takes_its_number_and_begins_no_session() -> None:
    desk = desk_with(
        chunk("c", b""),
        chunk("c", spoken(0.5), sequence=0),
        chunk("c", b"", sequence=1),
        chunk("c", spoken(0.5), sequence=2),
        control("c", "end"),
    )

    assert desk.told("started")[0]["origin"] == "0-1"
    assert desk.told("gap") == []
    assert total(desk)["received"] == 8000


MEDIA_16K = {"encoding": "pcm_s16le", "sample_rate": 16_000}


class TestFormatChange:
    def changed(self) -> Desk:
        return desk_with(
            chunk("c", hushed(0.5) + spoken(1.0)),
            message("c", spoken(1.0, "pcm_s16le", 16_000), MEDIA_16K),
            control("c", "end"),
        )

    def test_it_ends_the_segments_and_begins_a_new_origin(self) -> None:
        desk = self.changed()

        old, new = desk.told("ended")
        (resumed,) = desk.told("resumed")
        assert (old["origin"], old["reason"]) == ("0-0", "format_change")
        assert (new["origin"], new["reason"]) == ("0-1", "end")
        assert (resumed["origin"], resumed["from_sample"]) == ("0-1", 24_000)
        assert desk.transcripts()[0]["end_reason"] == "format_change"
        assert desk.transcripts()[0]["speech_final"] is False

    def test_times_in_seconds_go_on(self) -> None:
        first, second = self.changed().transcripts()

        assert first["end"] == 1.5
        assert (second["start"], second["end"]) == (1.5, 2.5)
        assert (second["start_sample"], second["end_sample"]) == (0, 16_000)

    @pytest.mark.parametrize(
        "headers",
        [
            {"encoding": "alaw", "sample_rate": 8000},
            {"encoding": "mulaw", "sample_rate": 16_000},
            {"encoding": "mulaw", "sample_rate": 8000, "channels": 2},
        ],
    )
    def test_rate_encoding_and_channels_make_a_format(self, headers: dict[str, object]) -> None:
        desk = desk_with(chunk("c", hushed(0.5)), message("c", hushed(0.5), headers))

        assert len(desk.told("resumed")) == 1

    @pytest.mark.parametrize(("first", "origins"), [(0, 2), (1, 2), (2, 1)])
    def test_its_numbers_may_begin_anew(self, first: int, origins: int) -> None:
        desk = desk_with(
            *[chunk("c", hushed(0.1), sequence=n) for n in range(5)],
            *[chunk("c", hushed(0.1), sequence=first + n, encoding="alaw") for n in range(2)],
        )

        # A higher number may be a late repeat of what was before a change that is over.
        assert len(desk.told("started")) + len(desk.told("resumed")) == origins

    def test_the_message_that_brings_it_is_open_until_the_old_origin_has_ended(self) -> None:
        desk = Desk([], answering=False)
        desk.arrive(
            chunk("c", hushed(0.5)), message("c", hushed(0.5, "pcm_s16le", 16_000), MEDIA_16K)
        )
        desk.settle()

        assert desk.partition.tracker.open_offsets() == (0, 1)

    def test_the_new_origin_does_not_end_before_the_old_one(self) -> None:
        desk = Desk([], answering=False)
        last = spoken(0.5, "pcm_s16le", 16_000)
        desk.arrive(
            chunk("c", spoken(1.0)),
            message("c", last, {**MEDIA_16K, "event": "end"}),
        )
        desk.settle()

        # Only the old origin's final and ended event can free the message that ends the new one.
        assert desk.told("ended") == []
        assert desk.partition.tracker.open_offsets() == (0, 1)

    def test_events_of_both_origins_have_ids_of_their_own(self) -> None:
        last = spoken(0.5, "pcm_s16le", 16_000)
        desk = desk_with(
            chunk("c", spoken(1.0)),
            message("c", last, {**MEDIA_16K, "event": "end"}),
        )

        assert [b["origin"] for b in desk.told("ended")] == ["0-0", "0-1"]
        assert len(desk.events()) == 4


class TestSeparateChannels:
    @staticmethod
    def part(channel: int, value: bytes | None, **headers: object) -> RawMessage:
        return chunk("c", value, channel=channel, channels=2, **headers)

    def test_each_channel_has_its_own_clock_and_numbers(self) -> None:
        desk = desk_with(
            self.part(0, spoken(1.0), sequence=0),
            self.part(1, hushed(0.5), sequence=0),
            self.part(1, spoken(1.0), sequence=1),
            self.part(0, hushed(0.5), sequence=1),
            control("c", "end"),
        )

        finals = {f["channel"]: (f["start"], f["end"]) for f in desk.transcripts()}
        assert finals == {0: (0.0, 1.5), 1: (0.2, 1.5)}
        assert total(desk, 0)["received"] == total(desk, 1)["received"] == 12_000
        assert desk.told("gap") == []
        assert desk.told("ended")[0]["channels"] == 2

    def test_an_end_with_a_channel_ends_that_channel_alone(self) -> None:
        desk = desk_with(
            self.part(0, spoken(1.0)),
            self.part(1, spoken(1.0)),
            self.part(0, None, event="end"),
        )
        assert [f["channel"] for f in desk.transcripts()] == [0]
        assert desk.told("ended") == []

        desk.arrive(self.part(1, spoken(0.5)), self.part(1, None, event="end"))
        desk.settle()

        assert [f["channel"] for f in desk.transcripts()] == [0, 1]
        assert total(desk, 1)["received"] == 12_000
        assert desk.committed.offset == 5

    def test_audio_of_an_ended_channel_begins_a_new_origin(self) -> None:
        desk = desk_with(
            self.part(0, spoken(1.0)),
            self.part(1, spoken(1.0)),
            self.part(0, None, event="end"),
            self.part(0, spoken(1.0)),
        )

        assert [b["origin"] for b in desk.told("resumed")] == ["0-3"]
        assert desk.told("ended")[0]["reason"] == "format_change"

    @pytest.mark.parametrize("event", ["end", "flush", "keepalive"])
    def test_an_event_for_a_channel_without_audio_causes_nothing(self, event: str) -> None:
        desk = desk_with(self.part(0, hushed(0.5)), self.part(1, None, event=event, sequence=0))

        assert desk.told("gap") == desk.told("ended") == []
        assert desk.counts.outcomes["ignored"] == 1
        assert desk.partition.tracker.open_offsets() == (0,)

    def test_a_second_end_of_one_channel_does_not_hold_the_commit(self) -> None:
        desk = desk_with(
            self.part(0, None, event="start"),
            self.part(0, None, event="end"),
        )

        assert desk.committed.offset == 2

    def test_a_channel_that_comes_later_may_say_where_it_begins(self) -> None:
        desk = desk_with(
            self.part(0, spoken(1.0), position_ms=5000),
            self.part(1, spoken(1.0), position_ms=6000),
            control("c", "end"),
        )

        starts = {f["channel"]: (f["start"], f["start_sample"]) for f in desk.transcripts()}
        assert starts == {0: (5.0, 0), 1: (6.0, 8000)}

    def test_a_flush_with_a_channel_flushes_that_channel_alone(self) -> None:
        desk = desk_with(
            self.part(0, spoken(1.0)),
            self.part(1, spoken(1.0)),
            self.part(1, None, event="flush"),
        )

        assert [(f["channel"], f["end_reason"]) for f in desk.transcripts()] == [(1, "flush")]

    def test_a_flush_holds_for_the_same_channels_after_a_take_over(self) -> None:
        desk = Desk([])
        desk.arrive(self.part(1, spoken(1.0)), control("c", "flush"), self.part(0, spoken(1.0)))
        desk.commit()

        desk.take_over()
        desk.arrive(control("c", "end"))
        desk.settle()

        reasons = {f["channel"]: f["end_reason"] for f in desk.transcripts()}
        assert reasons == {0: "end", 1: "flush"}


def test_interleaved_channels_have_their_roles() -> None:
    desk = desk_with(
        stereo("c", spoken(1.0), hushed(1.0), roles="agent,customer"),
        control("c", "end", roles="agent,customer", channels=2),
    )

    (final,) = desk.transcripts()
    (ended,) = desk.told("ended")
    assert (final["channel"], final["channels"], final["role"]) == (0, 2, "agent")
    assert [t["role"] for t in ended["totals"]] == ["agent", "customer"]


def test_an_ended_event_counts_the_channels_that_there_were() -> None:
    desk = desk_with(stereo("c", hushed(1.0), hushed(1.0)), control("c", "end"))

    assert desk.told("ended")[0]["channels"] == 2


def test_mono_audio_of_one_channel_after_interleaved_audio_is_another_format() -> None:
    desk = desk_with(
        stereo("c", hushed(1.0), hushed(1.0), sequence=5),
        chunk("c", hushed(1.0), channels=2, channel=1, sequence=0),
    )

    assert desk.counts.outcomes.get("duplicate") is None
    assert len(desk.told("resumed")) == 2  # the numbers of the first began above one


def test_an_abort_gives_up_the_open_audio_but_not_the_finished_segments() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0) + hushed(1.5) + spoken(1.0)), control("c", "abort"))
    desk.settle()

    (final,) = desk.transcripts()
    assert final["end_reason"] == "silence"
    assert desk.told("ended")[0]["reason"] == "abort"
    assert total(desk)["abort"] == 28_000 - final["end_sample"]
    assert len(desk.speech.dropped) == 1
    assert desk.committed.offset == 2


def test_a_flush_ends_the_segment_where_it_stands() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0)), control("c", "flush"), chunk("c", spoken(1.0)), control("c", "end")
    )

    ends = [(f["end_sample"], f["end_reason"], f["speech_final"]) for f in desk.transcripts()]
    assert ends == [(8000, "flush", True), (16_000, "end", True)]


def test_a_flush_is_open_until_its_final_is_acknowledged() -> None:
    desk = Desk([], answering=False)
    desk.arrive(chunk("c", spoken(1.0)), control("c", "flush"))
    desk.settle()
    assert desk.partition.tracker.open_offsets() == (0, 1)


def test_partials_can_be_switched_off_and_on() -> None:
    for wanted, expected in (("true", 1), ("false", 0)):
        desk = Desk([])
        desk.arrive(chunk("c", spoken(1.0), options=f'{{"partials": {wanted}}}'))
        ((segment, _),) = desk.speech.open_requests.values()
        desk.speech.revise(segment, "half a", 4800)

        assert len(desk.transcripts(Kind.PARTIAL)) == expected


def test_a_partial_is_named_after_what_was_decoded() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", hushed(1.0) + spoken(1.0)))
    ((segment, _),) = desk.speech.open_requests.values()

    desk.speech.revise(segment, "", 1600)  # says nothing yet
    desk.speech.revise(segment, "half a", 4800)

    (partial,) = desk.transcripts(Kind.PARTIAL)
    assert partial["revision"] == 2400
    assert partial["end_sample"] == segment.info.start_sample + 2400
    assert partial["is_final"] is False
    assert header(desk.outbox.sent[-1], "ce_id") == f"{partial['segment_id']}:2400"


@pytest.mark.parametrize(
    ("setting", "option", "finals"),
    [(False, "{}", 0), (False, '{"emit_empty": true}', 1), (True, '{"emit_empty": false}', 0)],
)
def test_a_segment_without_text_has_a_final_only_on_demand(
    setting: bool, option: str, finals: int
) -> None:
    desk = Desk([], limits=Limits(emit_empty=setting))
    desk.speech.silent = True
    desk.arrive(chunk("c", spoken(1.0), options=option), control("c", "end"))
    desk.settle()

    assert len(desk.transcripts()) == finals
    assert desk.told("ended")[0]["finals"] == finals
    assert desk.counts.without_text == 1
    assert total(desk)["decoded"] == 8000
    assert desk.committed.offset == 2


def test_a_segment_has_the_options_of_the_message_that_holds_its_resume_sample() -> None:
    # The span begins with the audio after the flush: its options hold, not those that follow.
    desk = desk_with(
        chunk("c", spoken(1.0)),
        control("c", "flush"),
        chunk("c", hushed(0.5), options='{"min_silence_ms": 2000}', roles="agent"),
        chunk("c", spoken(1.0) + hushed(1.5) + spoken(1.0), roles="customer"),
        control("c", "end"),
    )

    finals = desk.transcripts()
    assert [f["end_reason"] for f in finals] == ["flush", "end"]
    assert finals[1]["role"] == "agent"


def test_a_long_utterance_is_cut_and_its_second_half_decoded_again() -> None:
    config = SegmenterConfig(max_utterance_ms=3000, quiet_search_ms=1000)
    desk = Desk([], endpointing=config)
    for _ in range(5):
        desk.arrive(chunk("c", spoken(1.0)))
    desk.arrive(control("c", "end"))
    desk.settle()

    first, second = desk.transcripts()
    assert first["end_reason"] == "max_length"
    assert second["start_sample"] == first["end_sample"]
    kept = (first["end_sample"] - first["start_sample"]) * 2
    assert desk.speech.kept[first["segment_index"]] == kept
    assert total(desk)["decoded"] == 40_000


def test_a_segments_messages_are_named_in_its_source() -> None:
    desk = desk_with(
        chunk("c", hushed(1.0)),
        chunk("c", spoken(1.0)),
        chunk("c", hushed(0.5)),
        chunk("c", hushed(1.0)),
    )

    (final,) = desk.transcripts()
    # The pre-roll reaches back into the silence; the endpoint is heard in the last message.
    assert final["source"] == {
        "topic": "chunks",
        "partition": 0,
        "first_offset": 0,
        "last_offset": 3,
    }
