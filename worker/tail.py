"""`oasr-worker tail`: what the worker says about the calls, as it says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from worker.feed import Feed
from worker.live import LiveTranscripts

_POLL_S = 0.1


def tail(
    connection: Mapping[str, Any],
    topics: Sequence[str],
    console: Console,
    plain: bool = False,
    from_beginning: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Shows partials, finals, events and dead letters until Ctrl-C; the exit status is 0.

    Raises TopicMissing, KafkaException when the brokers do not answer.
    """
    with (
        Feed(connection, topics, from_beginning) as feed,
        LiveTranscripts(console, plain) as live,
    ):
        try:
            while not stopped():
                live.show(feed.poll(_POLL_S))
        except KeyboardInterrupt:
            return 0
    return 0
