"""What librdkafka says of itself, in the worker's log instead of its own on standard error."""

from __future__ import annotations

import logging
from collections.abc import Callable

from worker.seldom import Seldom

logger = logging.getLogger(__name__)


class ClientLog:
    """The logger of one client, which hands lines over in `poll`; each kind once a minute.

    None is worse than a warning: what the worker cannot go on without is told by itself.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._seldom = Seldom(now)

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Take one line, whose first word is its kind."""
        line = text % arguments if arguments else text
        ending = self._seldom.ending(line.partition(" ")[0])
        if ending is not None:
            logger.log(min(level, logging.WARNING), "librdkafka: %s%s", line, ending)
