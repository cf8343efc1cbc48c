"""When to stop reading: by the audio that the engine could decode now.

Not by open sessions or other audio that is held: an open segment ends only when its next chunk is
read, so a gate that counts it could wait for itself. When the engine has nothing to do, everything
is read again. Audio behind a cut that is not committed is told by a gate of its own
(`behind_cuts`): the commit needs no chunk either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Backpressure:
    """Decides which partitions to pause and to resume; pure but for the clock."""

    def __init__(
        self,
        high_s: float,
        low_s: float,
        min_pause_s: float,
        now: Callable[[], float],
    ) -> None:
        self._high_s = high_s
        self._low_s = low_s
        self._min_pause_s = min_pause_s
        self._now = now
        self._paused_since: dict[int, float] = {}

    def twin(self) -> Backpressure:
        """Another one with the same marks."""
        return Backpressure(self._high_s, self._low_s, self._min_pause_s, self._now)

    @property
    def paused(self) -> frozenset[int]:
        """Partitions that are to stay paused."""
        return frozenset(self._paused_since)

    def update(self, held_s: Mapping[int, float], has_work: bool) -> frozenset[int]:
        """The partitions that should be paused, given the seconds that each holds.

        Nothing stays paused once what is held has nothing to wait for (`has_work` is False).
        """
        total_s = sum(held_s.values())
        if not has_work:
            self._paused_since.clear()
        elif total_s > self._high_s:
            self._pause_largest(held_s)
        elif total_s < self._low_s:
            now = self._now()
            self._paused_since = {
                number: since
                for number, since in self._paused_since.items()
                if now - since < self._min_pause_s
            }
        return self.paused

    def forget(self, partition: int) -> None:
        """A partition is not ours any more."""
        self._paused_since.pop(partition, None)

    def _pause_largest(self, held_s: Mapping[int, float]) -> None:
        """Pause those that hold most, until what the others hold is below the low mark."""
        unpaused = {n: s for n, s in held_s.items() if n not in self._paused_since}
        rest_s = sum(unpaused.values())
        for number in sorted(unpaused, key=lambda n: (-unpaused[n], n)):
            if rest_s <= self._low_s:
                break
            self._paused_since[number] = self._now()
            rest_s -= unpaused[number]
