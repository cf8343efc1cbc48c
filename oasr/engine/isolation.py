"""One bad request never fails its batch mates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class ErrorStage(StrEnum):
    """Which part failed; `RequestOutput.error_stage`."""

    INPUT = "input"  # samples that are not finite
    CACHE = "cache"  # no room for the stream's history
    FEATURES = "features"
    FORWARD = "forward"
    DECODE = "decode"


def run_isolated(
    stage: ErrorStage,
    run: Callable[[Sequence[Item]], Sequence[Result | None]],
    items: Sequence[Item],
) -> list[Result | None]:
    """`run(items)`; where that raises, each item alone, and None for those that raise again.

    `run` must change nothing before it is certain to return.
    """
    try:
        return [*run(items)]
    except Exception:
        logger.exception("%s failed for a batch of %d", stage, len(items))
    if len(items) == 1:
        return [None]
    return [result for item in items for result in run_isolated(stage, run, [item])]
