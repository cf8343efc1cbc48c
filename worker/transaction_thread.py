"""Transactions in a thread of their own, so that the loop waits for no broker."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from worker.transaction_client import Left, Pause
from worker.transactions import Answer, Outcome, Transaction
from worker.transactor import Transactor

logger = logging.getLogger(__name__)

IDLE_S = 1.0  # between looks at the client while nothing is submitted


class TransactionThread:
    """One transactor behind two queues; a `TransactionPort`.

    The thread dies with the process: a transaction that is open then is ended by the brokers, or
    by the next producer of the same name.
    """

    def __init__(self, make_transactor: Callable[[Pause], Transactor], name: str) -> None:
        """`make_transactor` is called in the thread, with what its pauses have to wait by."""
        self._make_transactor = make_transactor
        self._submitted: queue.SimpleQueue[Transaction | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, transaction: Transaction) -> None:
        """Begin with a transaction; the one before must have been answered."""
        self._submitted.put(transaction)

    def answer(self, timeout_s: float) -> Answer | None:
        """What became of it; waits at most `timeout_s`, None if that is not known by then."""
        try:
            return self._answers.get(timeout=timeout_s) if timeout_s else self._answers.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nothing more will be submitted; what is on its way is left to itself."""
        self._leaving.set()
        self._submitted.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work()
        except Left:
            logger.debug("nobody waits for transactions any more")
        except Exception as error:  # the loop has to hear of it, whatever it is
            logger.exception("the thread of transactions has failed")
            self._answers.put(Answer(Outcome.FATAL, f"{type(error).__name__}: {error}"))

    def _work(self) -> None:
        transactor = self._make_transactor(self._leaving.wait)
        failed = transactor.start()
        if failed is not None:
            self._answers.put(failed)
            return
        while not self._leaving.is_set():
            try:
                transaction = self._submitted.get(timeout=IDLE_S)
            except queue.Empty:
                transactor.idle()
                continue
            if transaction is not None:
                self._answers.put(transactor.run(transaction))
