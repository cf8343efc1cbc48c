import json

from oasr.subtitles import Segment, Transcript, clock, to_json, to_srt, to_text, to_vtt


def make_transcript(channels: int = 2) -> Transcript:
    transcript = Transcript("a.wav", "tiny", 8000, channels, 4_000_000)
    transcript.segments += [
        Segment(channels - 1, 3_661_001, 3_662_500, "a < b & c", 0.5),
        Segment(0, 1_050, 2_000, "hello", 1.0),
    ]
    return transcript


def test_the_clock_counts_hours_and_pads():
    assert clock(0) == "00:00:00.000"
    assert clock(3_661_001, ",") == "01:01:01,001"
    assert clock(100 * 3_600_000) == "100:00:00.000"


def test_srt_numbers_cues_by_time_and_separates_them_by_an_empty_line():
    assert to_srt(make_transcript()) == (
        "1\n00:00:01,050 --> 00:00:02,000\n[0] hello\n\n"
        "2\n01:01:01,001 --> 01:01:02,500\n[1] a < b & c\n\n"
    )


def test_vtt_escapes_its_markup_and_names_the_channel_as_voice():
    assert to_vtt(make_transcript()) == (
        "WEBVTT\n\n00:00:01.050 --> 00:00:02.000\n<v Channel 0>hello\n\n"
        "01:01:01.001 --> 01:01:02.500\n<v Channel 1>a &lt; b &amp; c\n\n"
    )


def test_one_channel_is_not_named():
    assert to_text(make_transcript(1)) == "hello\na < b & c\n"
    assert "[0]" not in to_srt(make_transcript(1))
    assert "<v" not in to_vtt(make_transcript(1))


def test_json_is_one_line_with_the_segments_in_order():
    written = to_json(make_transcript())

    assert written.count("\n") == 1
    assert [s["start_ms"] for s in json.loads(written)["segments"]] == [1_050, 3_661_001]
