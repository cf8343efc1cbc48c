from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from worker.demo_calls import CALLS, RECORDINGS, programme
from worker.demo_report import Expected, Tally
from worker.demo_summary import print_summary
from worker.demo_worker import WorkerFailed, named_bootstrap_servers, worker, write_settings
from worker.messages import RawMessage

CALL = Expected("call", ("one two", "three"))
FILE = Expected("file", ("four five",), is_file=True)


def record(key: str, body: dict[str, Any], record_id: str) -> RawMessage:
    return RawMessage(
        "out", 0, 0, 0, key.encode(), orjson.dumps(body), (("ce_id", record_id.encode()),)
    )


def final(
    key: str, text: str, start: int = 0, channel: int = 0, last_offset: int = 1
) -> RawMessage:
    body = {
        "is_final": True,
        "channel": channel,
        "start_sample": start,
        "alternatives": [{"transcript": text}],
        "source": {"partition": 3, "last_offset": last_offset},
    }
    return record(key, body, f"{key}:{channel}:{start}:final")


def closing(key: str, finals: int, event: str = "ended", origin: int = 0) -> RawMessage:
    return record(key, {"event": event, "finals": finals}, f"{key}:{origin}:{event}")


def told(*messages: RawMessage) -> Tally:
    tally = Tally([CALL, FILE])
    for message in messages:
        tally.see(message, at_s=10.0)
    return tally


COMPLETE = (
    final("call", "two", start=900),
    final("call", "one", start=100),
    final("call", "three", channel=1),
    closing("call", 3),
    final("file", "four five"),
    closing("file", 1, "completed"),
)


def test_all_is_well_when_every_closing_event_states_what_was_received() -> None:
    tally = told(*COMPLETE)

    assert tally.complete
    assert tally.problems() == []


def test_the_order_of_finals_and_closing_events_does_not_matter() -> None:
    assert told(*reversed(COMPLETE)).complete


def test_a_repeated_final_and_a_repeated_event_count_once() -> None:
    assert told(*COMPLETE, *COMPLETE).complete


def test_a_missing_closing_event_is_a_problem() -> None:
    tally = told(*COMPLETE[:-1])

    assert not tally.closed
    assert tally.problems() == ["file: no completed event"]


def test_a_final_that_did_not_come_is_a_problem() -> None:
    tally = told(*COMPLETE[1:])

    assert tally.closed
    assert not tally.complete
    assert tally.problems() == ["call: ended states 3 finals, 2 were received"]


def test_a_final_too_many_is_a_problem() -> None:
    assert told(*COMPLETE, final("call", "more", start=5000)).problems() == [
        "call: ended states 3 finals, 4 were received"
    ]


def test_a_call_that_went_on_under_a_second_origin_adds_its_statements() -> None:
    split = [*COMPLETE[:3], closing("call", 1), closing("call", 2, origin=5), *COMPLETE[4:]]

    assert told(*split).complete


def test_a_dead_letter_is_a_problem() -> None:
    letter = RawMessage("dead", 0, 0, 0, b"call", b"", (("error.code", b"odd_bytes"),))

    assert told(*COMPLETE, letter).problems() == ["dead letter: odd_bytes"]


def test_records_of_somebody_else_s_sessions_are_none_of_our_business() -> None:
    assert told(*COMPLETE, final("stranger", "x"), closing("stranger", 7)).complete


def test_word_errors_are_counted_per_channel_in_the_order_of_speaking() -> None:
    summary = told(*COMPLETE).summary()

    assert (summary.calls_wer.errors, summary.calls_wer.words) == (0, 3)
    assert (summary.files_wer.errors, summary.files_wer.words) == (0, 2)
    assert (summary.calls, summary.calls_ended, summary.files, summary.files_completed) == (
        (1, 1, 1, 1)
    )
    assert summary.segments == 4


def test_words_of_a_channel_that_was_not_heard_are_all_wrong() -> None:
    assert told(COMPLETE[0]).summary().calls_wer.errors == 2


def test_latency_runs_from_the_producing_of_the_last_message_to_the_final() -> None:
    tally = Tally([CALL])
    for offset in range(1, 21):
        tally.see(final("call", "x", start=offset, last_offset=offset), at_s=20.0)
        tally.produced(3, offset, at_s=20.0 - offset / 1000)
    tally.produced(2, 1, at_s=0.0)  # another partition

    summary = tally.summary()

    assert [round(ms) for ms in summary.latencies_ms] == list(range(1, 21))
    assert round(summary.latency_ms(50) or 0) == 10
    assert round(summary.latency_ms(95) or 0) == 19


def test_a_final_of_messages_that_we_did_not_send_has_no_latency() -> None:
    assert told(*COMPLETE).summary().latency_ms(50) is None


def test_the_summary_shows_the_figures_and_every_problem() -> None:
    out = io.StringIO()
    tally = told(*COMPLETE[:-1])

    print_summary(Console(file=out, width=100), tally.summary(), 61.4, tally.problems())

    text = out.getvalue()
    assert "1 of 1 ended" in text
    assert "0 of 1 completed" in text
    assert "0.0 % (0 of 3 words)" in text
    assert "61 s" in text
    assert "FAILED file: no completed event" in text


def test_the_bundled_programme_has_eight_calls_and_four_recordings_with_known_texts() -> None:
    played = programme(8, "run")

    assert len(played.plans) == 8
    assert len(played.files) >= 4
    ids = [plan.session_id for plan in played.plans] + [name for name, _ in played.files]
    assert ids == [expected.id for expected in played.expected]
    assert len(set(ids)) == len(ids)
    for plan, expected in zip(played.plans, played.expected, strict=False):
        assert plan.audio.encoding == "mulaw"
        assert (plan.audio.sample_rate, plan.audio.roles) == (8000, ("agent", "customer"))
        assert all(expected.texts)
    assert all(expected.texts[0] for expected in played.expected if expected.is_file)


def test_more_calls_than_are_bundled_play_some_of_them_again() -> None:
    bundled = len(list(CALLS.glob("*.wav")))

    played = programme(bundled + 1, "run")

    assert played.plans[0].audio == played.plans[-1].audio
    assert played.plans[0].session_id != played.plans[-1].session_id


@pytest.mark.parametrize("folder", [CALLS, RECORDINGS])
def test_bundled_audio_names_its_source_and_licence(folder: Path) -> None:
    assert "icence" in (folder / "README.md").read_text()


def test_the_demo_s_settings_are_what_its_worker_will_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OASR_MODEL__CHUNK_SIZE", "8")

    settings = write_settings(tmp_path / "demo.yaml", "broker:1", "abc", partitions=4)

    assert settings.kafka.bootstrap_servers == "broker:1"
    assert settings.topics.chunks == "oasr-demo-abc.chunks"
    assert settings.topics.partitions == 4
    assert settings.model.chunk_size == 8


def test_a_broker_that_the_environment_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OASR_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    assert named_bootstrap_servers() is None

    monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", "here:9092")
    assert named_bootstrap_servers() == "here:9092"


def test_a_worker_that_does_not_start_fails_with_the_end_of_its_log(tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "demo.yaml", "broker:1", "abc", partitions=1)
    (tmp_path / "demo.yaml").write_text("nonsense: 1")

    with (
        pytest.raises(WorkerFailed, match="nonsense"),
        worker(tmp_path / "demo.yaml", settings, tmp_path / "worker.log"),
    ):
        pass


def test_ctrl_c_while_the_demo_looks_for_its_broker_ends_it_with_130() -> None:
    script = (
        "import signal, sys, time, worker.devkafka_ready as ready\n"
        "from worker.cli import main\n"
        # a shell ignores it for what it runs in the background, and so would its descendants
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*args):\n"
        "    sys.stderr.write('waiting\\n')\n"
        "    time.sleep(300)\n"
        "ready.await_broker = wait\n"
        "sys.exit(main(['demo', '--bootstrap-servers', '127.0.0.1:1']))\n"
    )
    demo = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    assert demo.stderr is not None
    with demo.stderr:
        assert demo.stderr.readline() == b"waiting\n"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
