from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.cli import main


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def status(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)


COMMANDS = (
    *("run", "demo", "produce", "tail", "topics", "check-config", "health"),
    *("sessions list", "sessions abort"),
    *("dead-letters list", "dead-letters show", "dead-letters replay"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*command.split(), "--help") == 0
    assert "--bootstrap-servers" in capsys.readouterr().out


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert status() == 2
    assert "COMMAND" in capsys.readouterr().err


def test_check_config_prints_effective_settings_with_the_flag_s_brokers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status("check-config", "--bootstrap-servers", "a:1,b:2") == 0

    assert "kafka.bootstrap_servers = a:1,b:2\n" in capsys.readouterr().out


def test_check_config_reads_the_named_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("http: {port: 1234}")

    assert status("check-config", "--config", str(tmp_path / "c.yaml")) == 0

    assert "http.port = 1234\n" in capsys.readouterr().out


def test_check_config_hides_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OASR_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("OASR_KAFKA__SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("OASR_KAFKA__SASL_PASSWORD", "hunter2")

    assert status("check-config") == 0

    shown = capsys.readouterr()
    assert "kafka.sasl_password" in shown.out
    assert "hunter2" not in shown.out + shown.err


@pytest.mark.parametrize("command", ["run", "tail", "topics", "check-config"])
def test_bad_settings_are_one_line_each_and_status_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("http: {port: -1}\nkafka: {grupe: x}\n")

    assert status(command, "--config", str(tmp_path / "c.yaml")) == 2

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert any("http.port" in line for line in lines)
    assert any("kafka.grupe" in line for line in lines)


def test_produce_names_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("produce", "/nowhere/call.wav") == 1
    assert "/nowhere/call.wav" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce",),
        ("produce", "x.wav", "--calls", "0"),
        ("produce", "x.wav", "--speed", "-1"),
        ("produce", "x.wav", "--encoding", "mp3"),
        ("produce", "x.wav", "--by-reference"),
        ("produce", "x.wav", "--options", '{"word": true}'),
        ("produce", "x.wav", "--options", "words"),
        ("demo", "--broker", "pigeon"),
    ],
)
def test_arguments_that_make_no_sense_are_usage_errors(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*arguments) == 2
    assert capsys.readouterr().err


def test_the_module_and_the_program_are_the_same_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "worker", "--help"], capture_output=True, text=True, check=True
    )

    assert "usage: oasr-worker" in done.stdout


def test_a_signal_can_be_answered_before_torch_is_imported() -> None:
    script = (
        "import os, signal, sys, worker.cli\n"
        "assert not {'torch', 'numpy', 'rich', 'confluent_kafka'} & set(sys.modules)\n"
        "worker.cli._run = lambda options: os.kill(os.getpid(), signal.SIGTERM)\n"
        "worker.cli.main(['run'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)

    assert done.returncode == 128 + 15


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            'set -o pipefail; "$0" -m worker check-config | head -n 0',
            sys.executable,
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
