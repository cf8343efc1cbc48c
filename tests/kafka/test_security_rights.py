"""Each right left out: the worker says which, does what it still may, and goes on once it is given.

The lines are those of the table in `docs/security.md`. The worker is the real one but for its
model, and turns in a thread of the test.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from confluent_kafka.admin import AdminClient

from oasr.models.registry import LoadedModel
from tests.support.certificates import Authority
from tests.support.engine import make_engine, tiny_model
from tests.support.kafka import Message, Topics, consume_all, create_topics, produce, wait_until
from tests.support.secured_kafka import PASSWORD, USER, SecuredNode, least_rights, secured_kafka
from tests.support.worker_calls import all_ended, call_messages, ended, excerpt
from worker.assembly import assemble
from worker.clients import common_properties
from worker.delivery import make_outputs
from worker.devkafka import Broker, BrokerKind
from worker.health import Health
from worker.messages import RawMessage
from worker.metrics import PREFIX, Metrics, Registry
from worker.producer import FatalClientError
from worker.settings import Settings

pytestmark = pytest.mark.storm

LIMIT_S = 120.0
STARTS = 400  # sessions whose map is longer than a commit takes
FAST = {"reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 1000, "log_level": 2}
FIELDS = ("chunks", "files", "transcripts", "partials", "events", "dead_letters", "state")


@dataclass(frozen=True, slots=True)
class Case:
    """A right that is left out, what the log says then, and whether the worker is ready."""

    missing: str
    line: str  # a pattern; `{…}` are topics
    ready: bool = True
    mode: str = "at-least-once"


CASES = (
    Case("read chunks", r"consumer of {chunks}: .*Topic authorization failed", ready=False),
    Case("read files", r"consumer of {files}: .*Topic authorization failed", ready=False),
    Case("read the group of calls", r"consumer of {chunks}: .*Group authorization", ready=False),
    Case("read the group of files", r"consumer of {files}: .*Group authorization", ready=False),
    Case("write transcripts", r"final record to {transcripts} not delivered.*Topic authorization"),
    Case("write partials", r"partials to {partials} are dropped: .*Topic authorization"),
    Case("write events", r"event record to {events} not delivered.*Topic authorization"),
    Case("write dead letters", r"dead_letter record to {dead_letters} not .*Topic authorization"),
    *(
        Case(
            f"write {field.replace('_', ' ')}",
            rf"a transaction was aborted: a record to {{{field}}}: .*Topic authorization",
            mode="exactly-once",
        )
        for field in ("transcripts", "events", "dead_letters")
    ),
)


class Turning:
    """A worker whose loop turns in a thread until it is left or cannot go on."""

    def __init__(self, settings: Settings, model: LoadedModel) -> None:
        self.registry, self.health = Registry(), Health()
        self.health.started = True
        metrics = Metrics(self.registry)
        self.loop = assemble(
            settings,
            make_engine(model, max_wait_time=1.0),
            make_outputs(settings, metrics),
            AdminClient(common_properties(settings)),
            metrics,
            self.health,
        )
        self.error: FatalClientError | None = None
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()

    def _turn(self) -> None:
        try:
            self.loop.run()
        except FatalClientError as error:
            self.error = error

    @property
    def is_ready(self) -> bool:
        return all(self.health.ready().values())

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric that have these labels."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        )

    def leave(self) -> None:
        """Hand everything over."""
        self.loop.stop()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        if self.error is not None:  # a consumer that is collected while it is a member aborts
            with suppress(FatalClientError):
                self.loop.run()


@pytest.fixture(scope="module")
def node(own_kafka: Path) -> Iterator[SecuredNode]:
    with secured_kafka(own_kafka) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    torch.set_num_threads(1)
    return tiny_model()


@pytest.fixture
def topics(node: SecuredNode) -> Topics:
    return create_topics(Broker(node.address, BrokerKind.KAFKA), partitions=1)


@pytest.fixture
def group() -> str:
    return f"secured-{uuid.uuid4().hex[:8]}"


Work = Callable[..., Any]


@pytest.fixture
def work(node: SecuredNode, topics: Topics, group: str, model: LoadedModel) -> Work:
    """`work(mode, **kafka)` is a worker that signs in by SCRAM, for the length of the block."""

    @contextmanager
    def working(mode: str = "at-least-once", **kafka: Any) -> Iterator[Turning]:
        settings = Settings(
            kafka={  # type: ignore[arg-type]
                "bootstrap_servers": node.sasl_address,
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": USER,
                "sasl_password": PASSWORD,
                "ssl_ca_location": node.authority.certificate,
                "group": group,
                "session_timeout_ms": 6000,
                "client": FAST,
                **kafka,
            },
            topics={field: getattr(topics, field) for field in FIELDS},  # type: ignore[arg-type]
            commits={"interval_ms": 50},  # type: ignore[arg-type]
            delivery={"mode": mode},  # type: ignore[arg-type]
        )
        running = Turning(settings, model)
        try:
            yield running
        finally:
            running.leave()

    return working


def says(caplog: pytest.LogCaptureFixture, line: str) -> int:
    """How many lines of the log fit the pattern."""
    return sum(bool(re.search(line, record.getMessage())) for record in caplog.records)


def are(count: int) -> Callable[[list[RawMessage]], bool]:
    """For `consume_all`: true of so many records."""
    return lambda found: len(found) == count


def everything(topics: Topics) -> list[Message]:
    """A call, a message that is refused, and a recording that is none."""
    return [
        *call_messages(topics, "call", excerpt(0, 0.0, 5.0)),
        Message(topics.chunks, None, b"no key", {}),
        Message(topics.files, b"file", b"no recording", {"content-type": "audio/wav"}),
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.mode}: {case.missing}")
def test_a_right_that_is_missing_is_named_and_the_worker_goes_on_once_it_is_there(
    node: SecuredNode,
    topics: Topics,
    group: str,
    work: Work,
    caplog: pytest.LogCaptureFixture,
    case: Case,
) -> None:
    rights = least_rights(topics, group, case.mode == "exactly-once")
    node.allow(right for name, right in rights.items() if name != case.missing)
    line = case.line.format(**{field: re.escape(getattr(topics, field)) for field in FIELDS})
    with work(case.mode) as worker:
        produce(node.address, everything(topics))
        wait_until("the line is there", lambda: says(caplog, line) > 0, LIMIT_S)
        if case.ready:
            wait_until("it is ready", lambda: worker.is_ready, LIMIT_S)
        else:
            assert not worker.health.ready()["joined"]
        assert all(worker.health.live().values())
        assert says(caplog, line) <= 2

        node.allow([rights[case.missing]])
        events = consume_all(node.address, topics.events, until=all_ended(1), timeout_s=LIMIT_S)
        finals = ended(events)["call"]["finals"]
        assert isinstance(finals, int)
        for topic, count in ((topics.transcripts, finals), (topics.dead_letters, 2)):
            consume_all(node.address, topic, until=are(count), timeout_s=LIMIT_S)
        wait_until("it is ready", lambda: worker.is_ready, LIMIT_S)
    assert worker.error is None
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("lane", ["calls", "files"])
def test_without_the_right_to_its_transactions_the_worker_ends_with_one_line(
    node: SecuredNode, topics: Topics, group: str, work: Work, lane: str
) -> None:
    rights = least_rights(topics, group, exactly_once=True)
    node.allow(right for name, right in rights.items() if name != f"write transactions of {lane}")
    with work("exactly-once") as worker:
        produce(node.address, everything(topics))
        wait_until("it has ended", lambda: worker.error is not None, LIMIT_S)

    assert re.match(r"transactions: .*[Tt]ransactional [Ii]d authorization", str(worker.error))


def test_maps_wait_for_the_rights_to_write_and_to_read_them(
    node: SecuredNode, topics: Topics, group: str, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    rights = least_rights(topics, group, exactly_once=False)
    state = ("read state", "write state")
    node.allow(right for name, right in rights.items() if name not in state)
    headers = {"event": "start", "encoding": "mulaw", "sample_rate": "8000"}
    produce(
        node.address,
        [Message(topics.chunks, b"call-%d" % n, None, headers) for n in range(STARTS)]
        + [
            Message(topics.chunks, b"call-%d" % n, b"\xff" * 800, headers | {"event": "audio"})
            for n in range(STARTS)
        ],
    )
    refused = rf"state record to {re.escape(topics.state)} not delivered: .*Topic authorization"
    with work() as worker:
        wait_until("it says so", lambda: says(caplog, refused) > 0, LIMIT_S)
        wait_until("it holds back", lambda: worker.metric("commits_total", result="held") > 0)
        node.allow([rights["write state"]])
        found = consume_all(
            node.address, topics.state, until=lambda maps: len(maps) > 0, timeout_s=LIMIT_S
        )
        before = worker.metric("commits_total", result="ok")
        wait_until("it is named", lambda: worker.metric("commits_total", result="ok") > before)
    assert found
    waits = rf"{re.escape(topics.state)}: .*(cannot be read yet|authorization failed)"
    with work() as worker:
        wait_until("it says so", lambda: says(caplog, waits) > 0, LIMIT_S)
        assert worker.metric("open_sessions") == 0
        node.allow([rights["read state"]])
        wait_until("its calls are there", lambda: worker.metric("open_sessions") == STARTS, LIMIT_S)


def test_a_wrong_password_is_named_and_shown_nowhere(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    with work(sasl_password="another-secret") as worker:
        line = r"Kafka client: .*Authentication failed"
        wait_until("it says so", lambda: says(caplog, line) > 0, LIMIT_S)
        assert not worker.is_ready
        assert all(worker.health.live().values())
    assert "another-secret" not in caplog.text


def test_a_broker_that_another_authority_vouches_for_is_not_talked_to(
    work: Work, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    with work(ssl_ca_location=stranger.certificate) as worker:
        line = r"Kafka client: .*certificate"
        wait_until("it says so", lambda: says(caplog, line) > 0, LIMIT_S)
        assert not worker.is_ready
