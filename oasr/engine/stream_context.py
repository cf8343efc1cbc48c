"""Decode state of one running stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from oasr.cache.parking import StreamCache
from oasr.decoding.loudness import LoudnessTrack, Sounds
from oasr.engine.geometry import WindowGeometry
from oasr.engine.search import Decoder
from oasr.features.framing import FrameBuffer


@dataclass(slots=True)
class StreamContext:
    """What a stream carries from step to step."""

    decoder: Decoder
    cache: StreamCache = field(default_factory=StreamCache)  # made at the first forward
    buffer: FrameBuffer = field(default_factory=FrameBuffer)
    features: Tensor | None = None  # (frames, mel) from the start of the next window on
    real_samples: int = 0  # pushed by the caller, silence left out
    padded: bool = False  # the final silence is in the buffer
    windows: int = 0  # decoded
    text: str = ""
    loudness: LoudnessTrack | None = None  # of the real samples, where word times are wanted

    def decoded_samples(self, geometry: WindowGeometry) -> int:
        """Real samples that the decoded windows cover."""
        return min(self.real_samples, geometry.samples_end(self.windows))

    def sounds(self, end_sample: int) -> Sounds | None:
        """Where speech can be heard before a sample; None where nobody wants to know."""
        return None if self.loudness is None else self.loudness.sounds(end_sample)
