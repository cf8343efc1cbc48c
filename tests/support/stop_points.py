"""Places in the code at which a worker stops itself, as a machine that is suspended there would.

A worker that was told a place stops there once, as soon as its file exists: SIGSTOP to itself, from
which only SIGCONT wakes it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.chunk_lane import ChunkLane
from worker.messages import Kind
from worker.transaction_client import TransactionClient

WHILE_IT_ENDS_S = 0.001  # after the end of a transaction was asked for


@dataclass(frozen=True, slots=True)
class StopPoint:
    """A method, and whether to stop before it, after it or during it."""

    owner: type
    method: str
    when: str

    def install(self, armed: Path) -> None:
        """From now on the process stops here once `armed` exists."""
        wrapped = getattr(self.owner, self.method)

        def stopping(*arguments: Any) -> Any:
            if self.when == "before":
                stop_if(armed)
            elif self.when == "during" and armed.exists():
                threading.Timer(WHILE_IT_ENDS_S, stop_if, [armed]).start()
            result = wrapped(*arguments)
            if self.when == "after":
                stop_if(armed)
            return result

        setattr(self.owner, self.method, stopping)


def stop_if(armed: Path) -> None:
    """Stop the process, once."""
    try:
        armed.unlink()
    except FileNotFoundError:
        return
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


TRANSACTION_POINTS = {
    "before a transaction": StopPoint(TransactionClient, "begin", "before"),
    "with some of its records sent": StopPoint(TransactionClient, "produce", "after"),
    "between its last record and its positions": StopPoint(
        TransactionClient, "send_positions", "before"
    ),
    "between its last send and its end": StopPoint(TransactionClient, "commit", "before"),
    "while it ends": StopPoint(TransactionClient, "commit", "during"),
    "after a transaction": StopPoint(TransactionClient, "commit", "after"),
}
REVOKE_POINTS = {
    "at the beginning of a revocation": StopPoint(ChunkLane, "revoked", "before"),
    "at the end of a revocation": StopPoint(ChunkLane, "revoked", "after"),
}
COMMIT_POINTS = {
    "before a commit": StopPoint(ChunkLane, "_send_commit", "before"),
    "after a commit": StopPoint(ChunkLane, "_send_commit", "after"),
}
POINTS = TRANSACTION_POINTS | REVOKE_POINTS | COMMIT_POINTS


def install_with_records(point: StopPoint, armed: Path) -> None:
    """Like `install`; a place in a transaction counts only once this has a final in it.

    Other transactions hold nothing that could be repeated.
    """
    if point.owner is not TransactionClient or point.method == "begin":
        point.install(armed)
        return
    hidden = armed.with_suffix(".final")
    produce: Callable[..., None] = TransactionClient.produce

    def noticed(client: TransactionClient, topic: str, record: Any, report: Any) -> None:
        produce(client, topic, record, report)
        if record.kind is Kind.FINAL and armed.exists():
            os.rename(armed, hidden)

    setattr(TransactionClient, "produce", noticed)  # noqa: B010 - a method is replaced
    point.install(hidden)
