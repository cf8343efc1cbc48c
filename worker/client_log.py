"""What librdkafka says of itself, in the worker's log instead of its own on standard error."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from worker.seldom import Seldom

logger = logging.getLogger(__name__)

_REQUEST = re.compile(r"\b[A-Z]\w+Request\b")


class ClientLog:
    """The logger of one client, which hands lines over in `poll`; each kind once a minute.

    Lines of a kind begin with the same word and name the same request, if one: that records were
    not taken in time says more than that the list of brokers was not.

    None is worse than a warning: what the worker cannot go on without is told by itself.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._seldom = Seldom(now)

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Take one line."""
        line = text % arguments if arguments else text
        request = _REQUEST.search(line)
        kind = line.partition(" ")[0], request and request.group()
        ending = self._seldom.ending(kind)
        if ending is not None:
            logger.log(min(level, logging.WARNING), "librdkafka: %s%s", line, ending)
