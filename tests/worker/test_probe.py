"""`oasr-worker health`, on a server that answers what the test wants."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from worker.cli import main
from worker.listening import HttpServer


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one setting without a default."""
    monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """`answering(200)` starts a server; the paths that were asked for come into its list."""
    servers: list[HttpServer] = []

    def start(status: int, body: bytes = b'{"loop": true}', host: str = "0.0.0.0") -> list[str]:
        asked: list[str] = []

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keeps the test's output clean."""

        servers.append(HttpServer("127.0.0.1", 0, Answer))
        monkeypatch.setenv("OASR_HTTP__HOST", host)
        monkeypatch.setenv("OASR_HTTP__PORT", str(servers[-1].port))
        return asked

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])
def test_a_worker_that_lives_has_status_0_and_its_answer_is_shown(
    answering: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], host: str
) -> None:
    asked = answering(200, host=host)

    assert main(["health"]) == 0
    assert asked == ["/livez"]
    assert capsys.readouterr().out == '{"loop": true}\n'


def test_ready_is_another_question(answering: Callable[..., list[str]]) -> None:
    asked = answering(503)

    assert main(["health", "--ready"]) == 1
    assert asked == ["/readyz"]


@pytest.mark.parametrize("status", [302, 404, 500, 503])
def test_any_other_answer_has_status_1(answering: Callable[..., list[str]], status: int) -> None:
    answering(status, b"\xff")

    assert main(["health"]) == 1


def test_with_a_port_neither_settings_nor_heavy_modules_are_loaded(
    answering: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(200)
    port = os.environ["OASR_HTTP__PORT"]
    for name in ("OASR_HTTP__PORT", "OASR_HTTP__HOST", "OASR_KAFKA__BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name)
    program = (
        "import sys; from worker.cli import main\n"
        "status = main(['health', '--port', sys.argv[1]])\n"
        "sys.exit(status or int(bool({'torch', 'numpy', 'pydantic'} & set(sys.modules))))"
    )

    assert subprocess.run([sys.executable, "-c", program, port], check=False).returncode == 0
    assert asked == ["/livez"]


def test_no_answer_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OASR_HTTP__HOST", "127.0.0.1")
    monkeypatch.setenv("OASR_HTTP__PORT", "1")

    assert main(["health"]) == 1
    assert capsys.readouterr().err.startswith("no answer from 127.0.0.1:1: ")
