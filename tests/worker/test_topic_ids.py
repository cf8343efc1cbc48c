"""A topic is known by the id that the cluster gave it, else by its name."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from worker.assignment import Patience
from worker.topic_ids import topic_id


class FakeAdmin:
    """Describes one topic, or fails to."""

    def __init__(self, answer: Any = None, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._future: Future[Any] = Future()
        if error is None:
            self._future.set_result(answer)
        else:
            self._future.set_exception(error)

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout > 0
        self.asked = list(topics.topic_names)
        return {"calls": self._future}


def test_it_is_the_clusters() -> None:
    admin = FakeAdmin(SimpleNamespace(topic_id="VZ5a0VbTQHq7l9yEUuVdEg"))

    assert topic_id(admin, "calls") == "VZ5a0VbTQHq7l9yEUuVdEg"  # type: ignore[arg-type]
    assert admin.asked == ["calls"]


def test_it_is_the_name_where_the_cluster_gives_none(caplog: pytest.LogCaptureFixture) -> None:
    error = KafkaException(KafkaError(KafkaError.UNSUPPORTED_VERSION))

    assert topic_id(FakeAdmin(error=error), "calls") == "calls"  # type: ignore[arg-type]
    assert "no id of topic calls" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
        KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
        TimeoutError(),
    ],
)
def test_a_failure_that_may_pass_is_no_other_id(error: Exception) -> None:
    times = iter(range(100))
    patience = Patience(lambda: next(times), lambda _seconds: None, limit_s=3.0)

    with pytest.raises(KafkaException):
        topic_id(FakeAdmin(error=error), "calls", patience)  # type: ignore[arg-type]
