"""How far one channel of a file is on the topic: window after window, each acknowledged."""

from __future__ import annotations

from collections import deque


class Progress:
    """Follows the windows of one channel, which begin in their order and end in any.

    `samples` is where the last window ends of those that are safe together with all before them.
    """

    def __init__(self, samples: int) -> None:
        """`samples` is how far a former owner came."""
        self.samples = samples
        self._before = samples
        self._open: deque[int] = deque()  # ends of windows, ascending
        self._safe: set[int] = set()

    def was_published(self, end_sample: int) -> bool:
        """Whether a former owner had the window acknowledged that ends here."""
        return end_sample <= self._before

    def begin(self, end_sample: int) -> None:
        """The turn of a window has come."""
        self._open.append(end_sample)

    def safe(self, end_sample: int) -> None:
        """What a window caused is acknowledged."""
        self._safe.add(end_sample)
        while self._open and self._open[0] in self._safe:
            reached = self._open.popleft()
            self._safe.discard(reached)
            self.samples = max(self.samples, reached)
