"""librdkafka's mock cluster from the client's own wheel: brokers that fail on command.

It lives in this process and speaks the protocol on real sockets; no broker, no Java. What it
cannot do: it checks no metadata length, hides no aborted records, keeps 5 MiB a partition.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import confluent_kafka

PRODUCE: Final = 0
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
HEARTBEAT: Final = 12
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
GROUP_HEARTBEAT: Final = 68

_RD_KAFKA_PRODUCER: Final = 0
_CLUSTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_INT = ctypes.c_int
_INT32 = ctypes.c_int32

# name -> (result, arguments); every function that is called is here, and no other may be.
_SIGNATURES: Final = {
    "rd_kafka_conf_new": (ctypes.c_void_p, []),
    "rd_kafka_conf_set": (_INT, [ctypes.c_void_p, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "rd_kafka_new": (ctypes.c_void_p, [_INT, ctypes.c_void_p, _TEXT, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_mock_cluster_new": (_CLUSTER, [ctypes.c_void_p, _INT]),
    "rd_kafka_mock_cluster_destroy": (None, [_CLUSTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_CLUSTER]),
    "rd_kafka_mock_topic_create": (_INT, [_CLUSTER, _TEXT, _INT, _INT]),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [_CLUSTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_INT)],
    ),
    "rd_kafka_mock_clear_request_errors": (None, [_CLUSTER, ctypes.c_int16]),
    "rd_kafka_mock_broker_set_down": (_INT, [_CLUSTER, _INT32]),
    "rd_kafka_mock_broker_set_up": (_INT, [_CLUSTER, _INT32]),
    "rd_kafka_mock_partition_set_leader": (_INT, [_CLUSTER, _TEXT, _INT32, _INT32]),
    "rd_kafka_mock_set_controller_id": (None, [_CLUSTER, _INT32]),
    "rd_kafka_mock_coordinator_set": (_INT, [_CLUSTER, _TEXT, _TEXT, _INT32]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_CLUSTER, _INT32]),
    "rd_kafka_mock_set_group_consumer_session_timeout_ms": (None, [_CLUSTER, _INT]),
    "rd_kafka_mock_set_group_consumer_heartbeat_interval_ms": (None, [_CLUSTER, _INT]),
}


class MockCluster:
    """Brokers 1 to `brokers`, until the block ends."""

    def __init__(self, brokers: int = 3) -> None:
        self._library = _library()
        self._brokers = range(1, brokers + 1)
        conf = self._call("rd_kafka_conf_new")
        error = ctypes.create_string_buffer(512)
        # The owner of the cluster is no client of it: what it has to say is of no interest.
        self._call("rd_kafka_conf_set", conf, b"log_level", b"2", error, len(error))
        self._owner = self._call("rd_kafka_new", _RD_KAFKA_PRODUCER, conf, error, len(error))
        assert self._owner, error.value.decode()
        self._cluster = self._call("rd_kafka_mock_cluster_new", self._owner, brokers)
        assert self._cluster, "no mock cluster"
        self._call("rd_kafka_mock_group_initial_rebalance_delay_ms", self._cluster, 0)
        self._call("rd_kafka_mock_set_controller_id", self._cluster, 1)

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call("rd_kafka_mock_cluster_destroy", self._cluster)
        self._call("rd_kafka_destroy", self._owner)

    @property
    def bootstrap_servers(self) -> str:
        """Where the brokers listen."""
        found: bytes = self._call("rd_kafka_mock_cluster_bootstraps", self._cluster)
        return found.decode()

    def create_topics(self, names: Iterable[str], partitions: int) -> None:
        """Make topics whose partitions have one replica each."""
        for name in names:
            self._check("rd_kafka_mock_topic_create", name.encode(), partitions, 1)

    def fail(self, api_key: int, errors: Sequence[int]) -> None:
        """Answer the next requests of this kind with these errors, one each."""
        codes = (_INT * len(errors))(*errors)
        name = "rd_kafka_mock_push_request_errors_array"
        self._call(name, self._cluster, api_key, len(errors), codes)

    def heal(self, api_key: int) -> None:
        """Forget the errors that no request has met."""
        self._call("rd_kafka_mock_clear_request_errors", self._cluster, api_key)

    def stop_brokers(self, brokers: Iterable[int] = ()) -> None:
        """Close the brokers' connections and refuse new ones; all of them without an argument."""
        for broker in brokers or self._brokers:
            self._check("rd_kafka_mock_broker_set_down", broker)

    def start_brokers(self, brokers: Iterable[int] = ()) -> None:
        """Let brokers answer again on the ports that they had."""
        for broker in brokers or self._brokers:
            self._check("rd_kafka_mock_broker_set_up", broker)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition."""
        self._check("rd_kafka_mock_partition_set_leader", topic.encode(), partition, broker)

    def coordinate(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group."""
        self._check("rd_kafka_mock_coordinator_set", b"group", group.encode(), broker)

    def time_members(self, session_timeout_ms: int, heartbeat_ms: int) -> None:
        """The broker's times for members of the `consumer` protocol."""
        name = "rd_kafka_mock_set_group_consumer_session_timeout_ms"
        self._call(name, self._cluster, session_timeout_ms)
        name = "rd_kafka_mock_set_group_consumer_heartbeat_interval_ms"
        self._call(name, self._cluster, heartbeat_ms)

    def _check(self, name: str, *arguments: object) -> None:
        code = self._call(name, self._cluster, *arguments)
        assert code == 0, f"{name}: error {code}"

    def _call(self, name: str, *arguments: object) -> Any:
        return getattr(self._library, name)(*arguments)


def _library() -> ctypes.CDLL:
    """The library that the Python client itself uses, with typed functions."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
