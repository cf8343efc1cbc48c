"""One bad request never fails its batch mates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from oasr.engine.request import Request, RequestOutput

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


def failed_output(request: Request, stage: ErrorStage, decoded_samples: int = 0) -> RequestOutput:
    """The terminal output of a request of which nothing can be told but that `stage` failed."""
    return RequestOutput(
        request.request_id,
        finished=True,
        finish_reason="error",
        error_stage=stage.value,
        decoded_samples=decoded_samples,
    )


def aborted_output(request: Request, decoded_samples: int = 0) -> RequestOutput:
    """The terminal output of an aborted request."""
    return RequestOutput(
        request.request_id,
        finished=True,
        finish_reason="abort",
        decoded_samples=decoded_samples,
    )


def run_isolated(
    stage: ErrorStage,
    run: Callable[[Sequence[Item]], Sequence[Result | None]],
    items: Sequence[Item],
) -> list[Result | None]:
    """`run(items)`; where that raises, each half alone, down to the items that raise alone: None.

    `run` must change nothing before it is certain to return.
    """
    if len(items) == 1:
        return [run_alone(stage, lambda item: run([item])[0], items[0])]
    try:
        return [*run(items)]
    except Exception:
        logger.exception("%s failed for a batch of %d", stage, len(items))
    half = len(items) // 2
    return run_isolated(stage, run, items[:half]) + run_isolated(stage, run, items[half:])


def run_alone(stage: ErrorStage, run: Callable[[Item], Result], item: Item) -> Result | None:
    """`run(item)`, or None where that raises."""
    try:
        return run(item)
    except Exception:
        logger.exception("%s failed for one request", stage)
        return None
