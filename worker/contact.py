"""Whether the brokers that lead our partitions can be heard; silence without them is no sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

INTERVAL_MS: Final = 1_000  # of the client's statistics, from which all of it is read

_NO_BROKER: Final = -1  # a leader that is not known; also a connection without a broker's number


class Contact:
    """What one consumer says about its connections."""

    def __init__(self) -> None:
        self.is_there = False  # until the statistics show it

    def all_down(self) -> None:
        """The client has no connection left."""
        self.is_there = False

    def told(self, statistics: Mapping[str, Any]) -> None:
        """Read the client's statistics: the leaders of what it reads must be connected.

        While it reads nothing, any broker will do.
        """
        brokers = statistics.get("brokers", {}).values()
        connected = {broker.get("nodeid") for broker in brokers if broker.get("state") == "UP"}
        leaders = {
            partition.get("leader")
            for topic in statistics.get("topics", {}).values()
            for number, partition in topic.get("partitions", {}).items()
            if partition.get("fetch_state") == "active" and int(number) >= 0
        }
        self.is_there = bool(connected) and leaders <= connected - {_NO_BROKER}
