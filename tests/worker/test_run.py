"""How a worker ends that cannot go on: the probes know it, one line says it, the status is 1."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from oasr.errors import ModelError
from tests.support.whisper import MODEL_DIR
from worker import run as run_module
from worker.devkafka_server import free_ports
from worker.producer import FatalClientError
from worker.settings import Settings


class Ended(BaseException):
    """In the place of the process's end."""


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def live(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FatalClientError("consumer of chunks: fenced"), "ERROR   worker.run: consumer of chunks"),
        (
            KafkaException(KafkaError(KafkaError._FATAL, "dead")),
            "ERROR   worker.run: KafkaError{code=_FATAL",
        ),
        (RuntimeError("session: OPEN -> CLOSED"), "CRITICAL worker.run: the worker fails"),
    ],
)
def test_the_probes_hear_of_what_ends_the_worker_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    line: str,
) -> None:
    (port,) = free_ports(1)
    answers: list[int] = []

    def fail(*_arguments: object) -> int:
        answers.append(live(port))
        raise error

    def end() -> None:
        answers.append(live(port))
        raise Ended

    monkeypatch.setattr(run_module, "_run", fail)
    monkeypatch.setattr(run_module, "_end_now", end)
    settings = Settings(
        kafka={"bootstrap_servers": "127.0.0.1:1"}, http={"host": "127.0.0.1", "port": port}
    )

    with pytest.raises(Ended):
        run_module.run(settings)

    assert answers == [200, 503]
    (told,) = [said for said in capsys.readouterr().err.splitlines() if " worker.run: " in said][1:]
    assert line in told


def test_a_model_that_cannot_be_used_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object) -> int:
        raise ModelError("no train.yaml")

    monkeypatch.setattr(run_module, "_run", fail)
    settings = Settings(
        kafka={"bootstrap_servers": "127.0.0.1:1"}, http={"host": "127.0.0.1", "port": 0}
    )

    assert run_module.run(settings) == 1
    assert "ERROR   worker.run: no train.yaml" in capsys.readouterr().err


def test_a_model_for_recordings_starts_no_worker_that_is_to_read_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(
        kafka={"bootstrap_servers": "127.0.0.1:1"},
        http={"host": "127.0.0.1", "port": 0},
        model={"dir": MODEL_DIR, "dtype": "int8"},
        lanes="both",
    )

    assert run_module.run(settings) == 1
    assert "reads recordings alone, no live calls" in capsys.readouterr().err
