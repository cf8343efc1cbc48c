"""The headers of a message of the Kafka client, also where the client cannot read them."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message

from worker.messages import Headers


def readable_headers(message: Message) -> Headers | None:
    """The headers in their order; None if the name of one is not UTF-8.

    Then the client's call ends in an error, and what it has made by then must not be touched: a
    tuple in it lacks its first element. Ask once a message.
    """
    try:
        found = message.headers()
    except (SystemError, UnicodeDecodeError):
        return None
    return cast(Headers, tuple(found or ()))
