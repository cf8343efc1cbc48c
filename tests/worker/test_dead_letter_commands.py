"""`oasr-worker dead-letters`: what people and programs see, and what is sent."""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from tests.support.letters import FakeTopic, on_topic, refused
from tests.support.messages import audio_message, message
from worker import dead_letter_commands
from worker.dead_letter_arguments import add_arguments, request_of
from worker.dead_letter_commands import ReplayRequest, replay_letters, show_letter
from worker.dead_letter_read import Selection, read_letter
from worker.dead_letter_replay import Handled, Outgoing
from worker.dead_letter_sending import Back, Replay
from worker.dead_letter_topic import LogSilent
from worker.errors import ErrorCode
from worker.messages import RawMessage

AUDIO = b"\x01\x02\x03audio"
SETTINGS: Any = SimpleNamespace(topics=SimpleNamespace(chunks="calls", files="files"))
ALL = Selection()


def letters() -> FakeTopic:
    """Three letters on partition 0, two on partition 1."""
    raw = audio_message(AUDIO, extra=(("x", b"\xff\x1b[31m"), ("y", None)), roles="agent")
    records = [
        on_topic(refused(raw)),
        on_topic(refused(replace(raw, offset=8, key=b"call [2]\x1b")), partition=1),
        on_topic(refused(replace(raw, offset=9), ErrorCode.ENCODING_UNSUPPORTED)),
        on_topic(refused(replace(raw, topic="elsewhere", offset=10)), partition=1),
        on_topic(refused(replace(raw, offset=11, value=None))),
    ]
    return FakeTopic([replace(record, timestamp_ms=60_000 * n) for n, record in enumerate(records)])


class Wire:
    """A sender whose broker answers when it is asked to."""

    def __init__(self, *errors: KafkaError | None, answering: bool = True) -> None:
        self.sent: list[Outgoing] = []
        self.errors = list(errors)
        self.checked: list[str] = []
        self.answering = answering
        self.polled_s = 0.0
        self.interrupted_at: int | None = None
        self._due: list[Any] = []

    def check(self, topic: str) -> None:
        self.checked.append(topic)

    def send(self, topic: str, key: Any, value: Any, headers: Any, report: Any) -> None:
        if len(self.sent) == self.interrupted_at:
            raise KeyboardInterrupt
        self.sent.append(Outgoing(topic, key, value, headers))
        self._due.append(report)

    def poll(self, timeout_s: float) -> None:
        self.polled_s += timeout_s
        while self.answering and self._due:
            self._due.pop(0)(self.errors.pop(0) if self.errors else None, None)

    def finish(self, timeout_s: float) -> int:
        assert timeout_s > 0
        self.poll(0)
        return len(self._due)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(dead_letter_commands, "Sender", lambda _properties: made)
    monkeypatch.setattr(dead_letter_commands, "connection", lambda _settings: {})
    return made


def parsed(*arguments: str) -> Any:
    parser = argparse.ArgumentParser()
    common = argparse.ArgumentParser(add_help=False)
    add_arguments(parser, common)
    return request_of(parser.parse_args(arguments))


def run(topic: FakeTopic, *arguments: str) -> int:
    """As the command line does."""
    request = parsed(*arguments)
    do = {
        "list": lambda: dead_letter_commands.list_letters(topic, request),  # type: ignore[arg-type]
        "show": lambda: show_letter(topic, request),  # type: ignore[arg-type]
        "replay": lambda: replay_letters(SETTINGS, topic, request),  # type: ignore[arg-type]
    }
    return do[arguments[0]]()


class TestList:
    def test_people_see_a_row_a_letter(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        console = Console(width=200, markup=False, highlight=False)
        monkeypatch.setattr(dead_letter_commands, "_console", lambda: console)
        assert run(letters(), "list") == 0

        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 6
        assert lines[1].split() == [
            *("0:0", "1970-01-01", "00:00:00", "encoding_required", "calls:2:7", "call-1"),
            *("1", "8", "the", "audio", "has", "no", "encoding"),
        ]
        assert "call [2]\\x1b" in lines[-2] + lines[-1] + lines[2]

    def test_programs_see_a_line_of_json_a_letter(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(letters(), "list", "--json", "--code", "encoding_unsupported") == 0

        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line) == {
            "partition": 0,
            "offset": 1,
            "time_ms": 120_000,
            "id": "calls:2:9:-:encoding_unsupported",
            "code": "encoding_unsupported",
            "message": "the audio has no encoding",
            "stage": "codec",
            "attempts": 1,
            "source": {
                "topic": "calls",
                "partition": 2,
                "offset": 9,
                "timestamp_ms": 1_700_000_000_123,
            },
            "key": "call-1",
            "value": "whole",
            "value_bytes": 8,
            "whole": True,
        }

    def test_the_newest_are_shown_and_the_others_counted(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "list", "--json", "--limit", "2") == 0
        newest = [json.loads(line)["time_ms"] for line in capsys.readouterr().out.splitlines()]
        assert run(letters(), "list", "--limit", "2") == 0

        assert newest == [180_000, 240_000]
        assert capsys.readouterr().out.splitlines()[-1] == "… and 3 older ones (--limit)"

    def test_a_summary_counts_by_code_and_topic(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(letters(), "list", "--summary", "--json") == 0
        counted = json.loads(capsys.readouterr().out)
        assert run(letters(), "list", "--summary") == 0

        assert counted == {
            "letters": 5,
            "codes": [
                {"code": "encoding_required", "topic": "calls", "letters": 3},
                {"code": "encoding_required", "topic": "elsewhere", "letters": 1},
                {"code": "encoding_unsupported", "topic": "calls", "letters": 1},
            ],
        }
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert shown[1] == ["3", "encoding_required", "calls"]
        assert shown[-1] == ["5", "in", "all"]


class TestShow:
    @pytest.mark.parametrize("name", ["1:0", "calls:2:8:-:encoding_required"])
    def test_all_but_the_value_is_shown(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "show", name) == 0

        out = capsys.readouterr().out
        assert "id        calls:2:8:-:encoding_required" in out
        assert "key       call [2]\\x1b (9 bytes)" in out
        assert "value     whole, 8 bytes" in out
        assert "from      calls:2:8 of 2023-11-14T22:13:20.123Z" in out
        assert "  x: \\xff\\x1b[31m" in out
        assert "  y: null" in out
        assert "audio\n" not in out
        assert "\x1b" not in out

    def test_programs_see_the_headers_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(letters(), "show", "0:0", "--json") == 0

        headers = json.loads(capsys.readouterr().out)["headers"]
        assert ["x", "\\xff\x1b[31m"] in headers
        assert ["y", None] in headers
        assert not [name for name, _ in headers if name.startswith("error.")]

    def test_the_value_goes_to_a_file_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "show", "0:0", "--value", str(tmp_path / "a")) == 0

        assert (tmp_path / "a").read_bytes() == AUDIO
        assert capsys.readouterr().out == ""

    def test_the_value_goes_to_a_pipe_but_not_to_a_terminal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipe = io.TextIOWrapper(io.BytesIO())
        monkeypatch.setattr("sys.stdout", pipe)
        assert run(letters(), "show", "0:0", "--value", "-") == 0
        pipe.flush()
        assert pipe.buffer.getvalue() == AUDIO  # type: ignore[attr-defined]

        monkeypatch.setattr(pipe, "isatty", lambda: True, raising=False)
        assert run(letters(), "show", "0:0", "--value", "-") == 2
        assert pipe.buffer.getvalue() == AUDIO  # type: ignore[attr-defined]

    def test_a_value_that_is_nowhere_is_status_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        raw = on_topic(refused(audio_message(b"x" * 90_000), max_bytes=50_000))

        assert run(FakeTopic([raw]), "show", "0:0", "--value", "-") == 1
        assert "0:0 has no value: its topic does not have" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["0:77", "calls:2:1:-:odd_bytes", "", "0:1:2"])
    def test_a_letter_that_is_not_there_is_status_1(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "show", name) == 1
        assert capsys.readouterr().err == f"there is no dead letter {name}\n"


class TestReplay:
    def test_everything_goes_back_and_the_end_is_told(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "replay", "--yes", "--topic", "calls") == 0

        assert [m.topic for m in wire.sent] == ["calls"] * 4
        assert wire.checked == ["calls"]
        assert [m.value for m in wire.sent] == [AUDIO, AUDIO, AUDIO, None]
        assert capsys.readouterr().err.splitlines() == [
            "4 replayed",
            "to go on behind what is done: --after 0:2 --after 1:1",
        ]

    def test_what_cannot_go_back_is_named_and_status_1(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "replay", "--yes") == 1

        told = capsys.readouterr().err.splitlines()
        reason = "it does not come from a topic of this worker's input"
        assert told[0] == f"1:1 encoding_required: not replayed: {reason}"
        assert told[1] == "4 replayed, 1 cannot be"
        assert len(wire.sent) == 4

    def test_a_dry_run_sends_nothing_and_says_all(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(letters(), "replay", "--dry-run", "--to", "files") == 1

        told = capsys.readouterr()
        assert wire.sent == []
        assert told.out.splitlines() == [
            "0:0 encoding_required -> files: call-1, 8 bytes",
            "1:0 encoding_required -> files: call [2]\\x1b, 8 bytes",
            "0:1 encoding_unsupported -> files: call-1, 8 bytes",
            "0:2 encoding_required -> files: call-1, null",
        ]
        assert told.err.splitlines()[-1] == "4 would be replayed, 1 cannot be"

    def test_nobody_to_ask_is_a_usage_error(
        self, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

        assert run(letters(), "replay") == 2
        assert wire.sent == []

    @pytest.mark.parametrize(("answer", "sent"), [("y\n", 4), ("n\n", 0), ("", 0), ("maybe\n", 0)])
    def test_somebody_has_to_agree(
        self, wire: Wire, monkeypatch: pytest.MonkeyPatch, answer: str, sent: int
    ) -> None:
        stdin = io.StringIO(answer)
        monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin", stdin)

        assert run(letters(), "replay", "--topic", "calls") == (0 if sent else 1)
        assert len(wire.sent) == sent

    def test_it_can_be_taken_up_where_it_was_left(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        chosen = ("replay", "--yes", "--topic", "calls")
        run(letters(), *chosen, "--limit", "2")
        left = capsys.readouterr().err.splitlines()[-1].split(": ", 1)[1].split()
        assert left == ["--after", "0:0", "--after", "1:0"]

        run(letters(), *chosen, *left)

        whole = Wire()
        topic = letters()
        selection = Selection(topic="calls")
        _replay(topic, whole, ReplayRequest(selection, yes=True))
        assert sorted(map(repr, wire.sent)) == sorted(map(repr, whole.sent))

    def test_single_letters_are_replayed_by_their_places(self, wire: Wire) -> None:
        assert run(letters(), "replay", "--yes", "0:1", "1:0") == 0

        offsets = [dict(m.headers)["replay.attempts"] for m in wire.sent]
        assert offsets == [b"1", b"1"]

    def test_ctrl_c_waits_for_what_is_on_its_way_and_says_how_far_it_came(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wire.interrupted_at = 2

        with pytest.raises(KeyboardInterrupt):
            run(letters(), "replay", "--yes", "--topic", "calls")

        told = capsys.readouterr().err.splitlines()
        assert told[0] == "2 replayed, 1 not confirmed: a next replay sends them again"
        assert told[1] == "to go on behind what is done: --after 0:0 --after 1:0"

    def test_brokers_that_never_answer_leave_all_to_the_next_replay(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wire.answering = False

        assert run(letters(), "replay", "--yes", "--topic", "calls") == 1
        assert capsys.readouterr().err.splitlines() == [
            "0 replayed, 4 not confirmed: a next replay sends them again"
        ]

    def test_a_message_that_is_too_large_does_not_stop_the_others(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wire.errors = [KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)]

        assert run(letters(), "replay", "--yes", "--topic", "calls") == 1
        told = capsys.readouterr().err.splitlines()
        assert told[0].startswith("0:0 encoding_required: not taken: ")
        assert told[1] == "3 replayed, 1 not taken by the broker"

    def test_an_error_that_all_would_meet_stops_it_before_that_letter(
        self, wire: Wire, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wire.errors = [None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]

        assert run(letters(), "replay", "--yes", "--topic", "calls") == 1
        assert len(wire.sent) == 2
        told = capsys.readouterr().err.splitlines()
        assert "stopped" in told[-2]
        assert told[-1].endswith("--after 0:0")

    def test_it_keeps_the_rate(self) -> None:
        wire, clock = Wire(), [0.0]

        class Slow(Back):
            def wait(self, seconds: float) -> None:
                clock[0] += seconds

        found = [read_letter(raw) for raw in letters().log]
        replay = Replay(Slow(wire), Handled(), lambda _line: None, 4.0, lambda: clock[0])  # type: ignore[arg-type]
        replay._handled.done = lambda *_place: None  # type: ignore[method-assign]

        replay.run([x for x in found if x], lambda x: Outgoing("calls", x.key, x.value, x.headers))

        assert clock[0] == 1.0  # the first of five goes at once

    def test_a_client_that_refuses_a_message_reports_it(self) -> None:
        class Full(Wire):
            def send(self, *_arguments: Any) -> None:
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

        errors: list[KafkaError | None] = []
        letter = read_letter(letters().log[0])
        assert letter is not None
        Back(Full()).send(Outgoing("calls", b"k", b"v", ()), letter, errors.append)  # type: ignore[arg-type]

        assert [e.code() for e in errors if e] == [KafkaError.MSG_SIZE_TOO_LARGE]


def _replay(topic: FakeTopic, wire: Wire, request: ReplayRequest) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letter_commands, "Sender", lambda _properties: wire)
        patch.setattr(dead_letter_commands, "connection", lambda _settings: {})
        replay_letters(SETTINGS, topic, request)  # type: ignore[arg-type]


class TestArguments:
    def test_times_are_iso_or_ages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.time", lambda: 1_000_000.0)

        selection = parsed("list", "--since", "2h", "--until", "1970-01-12T13:46:40").selection

        assert selection.since_ms == (1_000_000 - 7200) * 1000
        assert selection.until_ms == 1_000_000_000  # UTC
        zoned = parsed("list", "--since", "1970-01-12T14:46:40+01:00").selection.since_ms
        assert zoned == 1_000_000_000

    @pytest.mark.parametrize(
        "arguments",
        [
            ("list", "--since", "yesterday"),
            ("list", "--code", "typo"),
            ("list", "--limit", "0"),
            ("replay", "7"),
            ("replay", "--after", "1:x"),
            ("replay", "--rate", "0"),
            ("replay", "--max-attempts", "-1"),
            ("show",),
            ("burn",),
            (),
        ],
    )
    def test_nonsense_is_a_usage_error(
        self, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as left:
            parsed(*arguments)

        assert left.value.code == 2
        assert capsys.readouterr().err

    def test_all_of_a_replay_reaches_the_request(self) -> None:
        request = parsed(
            *("replay", "3:4", "--code", "odd_bytes", "--code", "key_required", "--topic", "t"),
            *("--key", "k", "--limit", "5", "--after", "0:1", "--after", "1:2", "--to", "u"),
            *("--rate", "2.5", "--max-attempts", "9", "--dry-run", "--yes"),
        )

        codes = frozenset(("odd_bytes", "key_required"))
        selection = Selection(codes, "t", "k", places=frozenset(((3, 4),)))
        assert request == ReplayRequest(selection, 5, {0: 1, 1: 2}, "u", 9, 2.5, True, True)


def test_a_log_that_gives_nothing_is_one_line() -> None:
    assert str(LogSilent("dead")) == "dead: the brokers have given nothing for 60 s"
    assert isinstance(LogSilent("dead"), OSError)  # which commands explain


def test_an_empty_topic_has_nothing(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeTopic([]), "list") == 0
    assert run(FakeTopic([]), "replay", "--yes") == 0
    assert wire.sent == []
    assert capsys.readouterr().err == "0 replayed\n"


def test_a_record_that_is_no_letter_is_passed_over(wire: Wire) -> None:
    foreign = RawMessage("dead", 0, 0, 0, b"k", b"v", ())
    topic = FakeTopic([foreign, on_topic(refused(message()))])

    assert run(topic, "replay", "--yes") == 0
    assert len(wire.sent) == 1
