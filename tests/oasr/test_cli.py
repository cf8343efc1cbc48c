import io
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from oasr import cli
from oasr.decoding.wer import Wer
from tests.support.encoders import encoded
from tests.support.whisper import MODEL_DIR

DATA = Path(__file__).parents[1] / "data"
CALL = DATA / "calls" / "call-00.wav"
SPEECH = DATA / "speech"
VOICEMAIL = DATA / "recordings" / "voicemail-00.wav"


def utterances(call: Path) -> list[dict]:
    document = json.loads(call.with_suffix(".json").read_text())
    return sorted(document["segments"], key=lambda u: u["start"])


def run(capsys, *argv: object) -> tuple[int, str, str]:
    status = cli.main(["transcribe", *map(str, argv)])
    return status, *capsys.readouterr()


def test_a_call_comes_out_by_channel_with_times_inside_the_truth(capsys):
    status, out, err = run(capsys, CALL, "--format", "json")

    assert (status, err) == (0, "")
    document = json.loads(out)
    assert (document["channels"], document["sample_rate"]) == (2, 8000)
    truth = utterances(CALL)
    assert [s["channel"] for s in document["segments"]] == [u["channel"] for u in truth]
    for segment, spoken in zip(document["segments"], truth, strict=True):
        assert segment["start_ms"] <= spoken["start"] * 1000 + 100
        assert segment["end_ms"] >= spoken["end"] * 1000 - 100
        assert 0 < segment["confidence"] <= 1
    wer = Wer()
    for segment, spoken in zip(document["segments"], truth, strict=True):
        wer.add(spoken["text"], segment["text"])
    assert wer.rate < 0.2


def test_words_alternatives_and_hotwords_come_as_asked_for(capsys):
    options = ["--search", "rescoring", "--words", "--alternatives", 3, "--boost", 5]
    hotword = ["--hotword", "june sixteenth"]
    status, out, err = run(capsys, CALL, "--format", "json", *options, *hotword)

    assert (status, err) == (0, "")
    segments = json.loads(out)["segments"]
    assert "june sixteenth" in [segment["text"] for segment in segments]
    assert max(len(segment["alternatives"]) for segment in segments) == 2
    for segment in segments:
        assert " ".join(word["text"] for word in segment["words"]) == segment["text"]
        assert segment["text"] not in segment["alternatives"]
        times = [word[edge] for word in segment["words"] for edge in ("start_ms", "end_ms")]
        assert times == sorted(times)
        assert segment["start_ms"] <= times[0]
        assert times[-1] <= segment["end_ms"]
        assert all(0 < word["confidence"] <= 1 for word in segment["words"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--search", "greedy", "--alternatives", "2"], "n_best must be 1 with greedy search"),
        (["--hotword", "42"], "no tokens can write '42'"),
        (["--hotword", "a", "--boost", "99"], "hotwords must be boosts above 0"),
    ],
)
def test_what_the_model_cannot_decode_is_refused_by_name(capsys, options, said):
    status, out, err = run(capsys, CALL, *options)

    assert (status, out) == (2, "")
    assert said in err


def test_streaming_shows_partials_aside_and_finals_with_times_and_channel(capsys):
    status, out, err = run(capsys, CALL, "--stream")

    assert status == 0
    finals = out.splitlines()
    pattern = re.compile(r"\[00:00:\d\d\.\d{3} --> 00:00:\d\d\.\d{3}\] ch[01] .+")
    assert all(pattern.fullmatch(line) for line in finals)
    assert len(finals) == len(utterances(CALL))
    partials = err.splitlines()
    assert len(partials) > len(finals)
    assert all(line.startswith("~ [") for line in partials)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_words_that_may_still_change_are_dimmed(capsys, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)

    status, out, _ = run(capsys, CALL, "--stream")

    assert status == 0
    shown = [part.split("] ")[1][4:] for part in terminal.getvalue().split("\r\x1b[2K~ ")[1:]]
    partials = [
        re.fullmatch(r"([^\x1b]*)(\x1b\[2m([^\x1b]+)\x1b\[22m)?(\r\x1b\[2K)?", s) for s in shown
    ]
    assert all(partials)
    assert any(p[1].strip() and p[3] for p in partials), "stable words before unstable ones"
    assert "\x1b" not in out


def test_several_files_come_in_order_with_progress_on_standard_error(capsys):
    second = DATA / "recordings" / "voicemail-05.flac"
    status, out, err = run(capsys, VOICEMAIL, second)

    assert status == 0
    heads = [line for line in out.splitlines() if line.startswith("== ")]
    assert heads == [f"== {VOICEMAIL}", f"== {second}"]
    assert "2/2" in err
    assert "2/2" not in out


def test_a_bad_file_fails_and_the_others_are_done(capsys, tmp_path):
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"not audio at all")
    missing = tmp_path / "missing.wav"

    status, out, err = run(capsys, bad, missing, VOICEMAIL)

    assert status == 1
    assert f"oasr: {bad}: the file is of no kind that is read" in err
    assert f"oasr: {missing}: " in err
    assert [line for line in out.splitlines() if line.startswith("==")] == [f"== {VOICEMAIL}"]


def test_subtitles_go_to_the_output_folder(capsys, tmp_path):
    status, out, _ = run(capsys, CALL, "--format", "srt", "--output-dir", tmp_path / "out")

    assert (status, out) == (0, "")
    written = (tmp_path / "out" / "call-00.srt").read_text()
    assert written.startswith("1\n00:00:")
    assert written.count(" --> ") == len(utterances(CALL))


@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_an_mp3_becomes_subtitles_of_its_words_that_fit_the_screen(capsys, tmp_path, kind):
    samples, rate = soundfile.read(SPEECH / "librispeech-1995-1837-0001.wav", dtype="int16")
    mp3 = tmp_path / "speech.mp3"
    mp3.write_bytes(encoded(samples[:, None], rate, "mp3", "libmp3lame"))

    status, out, _ = run(capsys, mp3, "--model", MODEL_DIR, "--dtype", "int8", "--format", kind)

    stamps = re.findall(r"(\d+):(\d+):(\d+)[.,](\d+)", out)
    times_s = [3600 * int(h) + 60 * int(m) + int(s) + int(ms) / 1000 for h, m, s, ms in stamps]
    shown = re.sub(r"^(WEBVTT|\d+|.* --> .*)$", "", out, flags=re.MULTILINE)
    wer = Wer()
    said = json.loads((SPEECH / "reference.json").read_text())[0]["text"]
    wer.add(said, " ".join(re.sub(r"[^a-z' ]", " ", shown.lower().replace("\n", " ")).split()))
    assert status == 0
    assert wer.errors <= 1
    assert len(times_s) >= 4
    assert times_s == sorted(times_s)
    assert times_s[-1] <= len(samples) / rate
    assert max(map(len, out.splitlines())) <= 42


def test_files_of_the_same_stem_do_not_overwrite_each_other(capsys, tmp_path):
    samples, rate = soundfile.read(VOICEMAIL, dtype="int16")
    for name in ("a.wav", "a.flac"):
        soundfile.write(tmp_path / name, samples[: 3 * rate], rate)

    run(capsys, tmp_path / "a.wav", tmp_path / "a.flac", "--output-dir", tmp_path)

    assert (tmp_path / "a.wav.txt").read_text() == (tmp_path / "a.flac.txt").read_text() != ""


def test_a_truncated_file_keeps_its_good_part_and_warns(capsys, tmp_path):
    broken = tmp_path / "broken.wav"
    broken.write_bytes(VOICEMAIL.read_bytes()[:-20_000])

    status, out, err = run(capsys, broken)

    assert status == 0
    assert out
    assert "warning: " in err


def test_a_silent_file_is_an_empty_transcript(capsys, tmp_path):
    path = tmp_path / "silent.wav"
    soundfile.write(path, np.zeros(160_000, dtype=np.int16), 16_000)

    assert run(capsys, path) == (0, "", "")


def test_speech_without_a_pause_is_cut_and_all_of_it_decoded(capsys, tmp_path):
    samples, rate = soundfile.read(VOICEMAIL, dtype="int16")
    loud = samples[np.abs(samples.astype(np.int32)).reshape(-1) > 40]
    path = tmp_path / "long.wav"
    soundfile.write(path, np.tile(loud, 70 * rate // len(loud) + 1), rate)

    status, out, _ = run(capsys, path, "--format", "json")

    segments = json.loads(out)["segments"]
    assert status == 0
    assert len(segments) >= 3
    assert all(s["end_ms"] - s["start_ms"] <= 30_000 for s in segments)
    for one, after in pairwise(segments):
        assert after["start_ms"] >= one["end_ms"]


def test_mulaw_in_a_wav_is_read(capsys, tmp_path):
    samples, rate = soundfile.read(VOICEMAIL, dtype="int16")
    path = tmp_path / "mulaw.wav"
    soundfile.write(path, samples, rate, subtype="ULAW")

    status, out, _ = run(capsys, path)

    assert status == 0
    assert len(out.splitlines()) >= 3


@pytest.mark.parametrize(
    "argv",
    [
        ["transcribe"],
        ["transcribe", "a.wav", "--format", "xml"],
        ["transcribe", "a.wav", "--chunk-size", "0"],
        ["transcribe", "a.wav", "--batch-size", "0"],
        ["transcribe", "a.wav", "--device", "abacus"],
        ["sing"],
        [],
    ],
)
def test_wrong_usage_exits_with_2(argv, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(argv)

    assert left.value.code == 2
    assert "usage: oasr" in capsys.readouterr().err


def test_a_missing_model_is_named(capsys, tmp_path):
    status, out, err = run(capsys, VOICEMAIL, "--model", tmp_path / "nothing")

    assert (status, out) == (2, "")
    assert "nothing" in err


def test_an_output_folder_that_cannot_be_made_is_named(capsys, tmp_path):
    (tmp_path / "taken").write_text("")

    status, _, err = run(capsys, VOICEMAIL, "--output-dir", tmp_path / "taken")

    assert status == 1
    assert "taken" in err


def test_a_reader_that_leaves_ends_the_program_without_a_traceback():
    command = f"{sys.executable} -m oasr.cli transcribe {VOICEMAIL} {CALL} | true"

    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120
    )

    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_an_interrupt_ends_with_130(capsys, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.Transcriber, "read", interrupt)

    assert run(capsys, VOICEMAIL)[0] == 130


def test_streaming_chunk_and_context_can_be_chosen(capsys):
    status, out, _ = run(
        capsys, VOICEMAIL, "--stream", "--chunk-size", "8", "--left-chunks", "4", "--batch-size", 2
    )

    assert status == 0
    assert out


def test_the_module_runs_as_a_program(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["oasr", "--version"])
    with pytest.raises(SystemExit) as left:
        cli.main()

    assert left.value.code == 0
    assert capsys.readouterr().out.strip()
