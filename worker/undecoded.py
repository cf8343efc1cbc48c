"""How old the audio is that the engine has not decoded, stream by stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_COARSEST_S: Final = 0.05  # what comes within this counts as one arrival


@dataclass(slots=True)
class _Arrivals:
    """When the audio of a stream came: up to which sample, at what time."""

    fed: int = 0
    marks: deque[tuple[int, float]] = field(default_factory=deque)

    def add(self, samples: int, now: float) -> None:
        self.fed += samples
        if self.marks and now - self.marks[-1][1] < _COARSEST_S:
            self.marks[-1] = (self.fed, self.marks[-1][1])
        else:
            self.marks.append((self.fed, now))

    def oldest(self, undecoded: int) -> float | None:
        """When the first of the last `undecoded` samples came; forgets all before it."""
        decoded = self.fed - undecoded
        while self.marks and self.marks[0][0] <= decoded:
            self.marks.popleft()
        return self.marks[0][1] if self.marks else None


class UndecodedAudio:
    """Remembers when audio came, for as long as it is not decoded."""

    def __init__(self) -> None:
        self._streams: dict[str, _Arrivals] = {}

    def opened(self, request_id: str) -> None:
        """A stream begins."""
        self._streams[request_id] = _Arrivals()

    def fed(self, request_id: str, samples: int, now: float) -> None:
        """Samples of a stream came; those of one that has ended are nobody's."""
        arrivals = self._streams.get(request_id)
        if arrivals is not None:
            arrivals.add(samples, now)

    def ended(self, request_id: str) -> None:
        """A stream is over."""
        self._streams.pop(request_id, None)

    def age_s(self, runnable: Mapping[str, int], now: float) -> float:
        """Age of the oldest sample of `runnable`: undecoded samples of streams to be decoded.

        A stream that is not among them has too little audio for a step: nothing waits there.
        """
        oldest = now
        for request_id, arrivals in self._streams.items():
            undecoded = runnable.get(request_id)
            if undecoded is None:
                arrivals.oldest(0)
                continue
            came = arrivals.oldest(undecoded)
            oldest = oldest if came is None else min(oldest, came)
        return now - oldest
