"""Shape and conduct of one network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from oasr.errors import OptionError

SAMPLE_RATE = 16_000


class Subsampling(NamedTuple):
    """A front end: square convolutions without padding, and a projection by its WeNet name."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    projection: str

    @property
    def rate(self) -> int:
        """Feature frames per encoder frame."""
        return math.prod(self.strides)

    @property
    def right_context(self) -> int:
        """Feature frames after its first that an encoder frame needs."""
        pairs = enumerate(self.kernels)
        return sum((kernel - 1) * math.prod(self.strides[:layer]) for layer, kernel in pairs)

    def outputs(self, inputs: int) -> int:
        """What is left of `inputs` frames, or of as many bands."""
        return max((inputs - self.right_context - 1) // self.rate + 1, 0)


SUBSAMPLINGS: MappingProxyType[str, Subsampling] = MappingProxyType(
    {
        "conv2d": Subsampling((3, 3), (2, 2), "out.0"),
        "conv2d2": Subsampling((3,), (2,), "out.0"),
        "conv2d6": Subsampling((3, 5), (2, 3), "linear"),
        "conv2d8": Subsampling((3, 3, 3), (2, 2, 2), "linear"),
    }
)


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """Shape of the attention decoder; `right_blocks` is 0 without a right-to-left one."""

    attention_heads: int
    linear_units: int
    num_blocks: int
    right_blocks: int
    bidirectional: bool


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Shape and conduct of one network; frames are encoder frames unless named otherwise."""

    output_size: int
    num_blocks: int
    attention_heads: int
    linear_units: int
    kernel: int  # of the convolution modules; 1 without them
    vocab: int
    decoder: DecoderSettings
    encoder: str = "conformer"  # or "transformer", whose blocks have no convolution module
    input_layer: str = "conv2d"
    pos_enc: str = "rel_pos"  # or "abs_pos"
    conv_norm: str = "batch_norm"
    activation: str = "swish"
    macaron: bool = True
    causal: bool = False
    dynamic_chunk: bool = False
    static_chunk_size: int = 0  # the one chunk size that was trained; 0: any, or none
    cmvn_file: str | None = None  # None: features are not normalised
    blank_id: int = 0
    sos: int | None = None  # None: the last unit, in recipes that do not list their special tokens
    eos: int | None = None
    ctc_weight: float = 0.5
    reverse_weight: float = 0.0
    num_mel_bins: int = 80
    sample_rate: int = SAMPLE_RATE
    units_file: str = "units.txt"
    special_tokens: tuple[str, ...] = ()

    @property
    def subsampling(self) -> Subsampling:
        """The front end."""
        return SUBSAMPLINGS[self.input_layer]

    @property
    def subsampling_rate(self) -> int:
        """Feature frames per encoder frame."""
        return self.subsampling.rate

    @property
    def right_context(self) -> int:
        """Feature frames after its first that an encoder frame needs."""
        return self.subsampling.right_context

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.output_size // self.attention_heads

    @property
    def sos_id(self) -> int:
        """The token before the first one of a decoder's input."""
        return self.vocab - 1 if self.sos is None else self.sos

    @property
    def eos_id(self) -> int:
        """The token after the last one of a decoder's output."""
        return self.vocab - 1 if self.eos is None else self.eos

    @property
    def supports_streaming(self) -> bool:
        """True if trained to decode chunk by chunk with no look-ahead inside the network."""
        looks_back_only = self.causal or self.encoder == "transformer"
        return looks_back_only and (self.dynamic_chunk or self.static_chunk_size > 0)

    def check_streaming(self, chunk_size: int) -> None:
        """OptionError unless streams can be decoded in chunks of `chunk_size` frames."""
        if not self.supports_streaming:
            raise OptionError("streaming_unsupported", "the model was not trained to stream")
        self.check_chunk_size(chunk_size)

    def check_chunk_size(self, chunk_size: int) -> None:
        """OptionError if the model was trained with another chunk size than this one alone."""
        trained = self.static_chunk_size
        if trained and chunk_size != trained:
            raise OptionError(
                "chunk_size_unsupported",
                f"the model was trained in chunks of {trained} frames, not of {chunk_size}",
            )

    def window_frames(self, chunk: int) -> int:
        """Feature frames from which `chunk` encoder frames are computed."""
        return (chunk - 1) * self.subsampling_rate + self.right_context + 1

    def encoder_frames(self, feature_frames: int) -> int:
        """Encoder frames that `feature_frames` feature frames give."""
        return self.subsampling.outputs(feature_frames)
