"""Shows records as they come: live on a terminal, as plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.live import Live

from worker.messages import RawMessage
from worker.transcript_view import TranscriptView

_REFRESH_PER_SECOND = 8


class LiveTranscripts:
    """Settled lines scroll up, partials stay below them until their final replaces them.

    Without a terminal, or when asked to be plain, every line is printed once, partials included.
    """

    def __init__(self, console: Console, plain: bool = False) -> None:
        self._console = console
        self._view = TranscriptView()
        self._live: Live | None = None
        if console.is_terminal and not plain:
            self._live = Live(
                self._view,
                console=console,
                refresh_per_second=_REFRESH_PER_SECOND,
                transient=True,
            )

    def __enter__(self) -> LiveTranscripts:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, messages: Iterable[RawMessage]) -> None:
        """Takes records in the order in which they came."""
        for message in messages:
            settled, passing = self._view.see(message)
            for line in settled if self._live is not None else settled + passing:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
