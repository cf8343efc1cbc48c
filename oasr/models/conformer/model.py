"""The network as the engine uses it: whole utterances, or one decoding window per stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from oasr.models.conformer.attention import (
    BlockwiseAttend,
    ChunkMask,
    PositionKeyAttention,
    attend_with_bias,
    hidden_score,
)
from oasr.models.conformer.encoder import BlockContext, Encoder
from oasr.models.conformer.layers import lay_out_by_input, normalise
from oasr.models.conformer.positions import (
    InputPositions,
    KeyPositions,
    Positions,
    position_encodings,
)
from oasr.models.conformer.settings import ModelSettings


class CtcHead(nn.Module):
    """Projects encoder frames onto the units."""

    def __init__(self, size: int, vocab: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(size, vocab)


class ConformerModel(nn.Module):
    """Inference over a loaded network; `prepare` has to follow every change of weights."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.encoder = Encoder(settings)
        self.ctc = CtcHead(settings.output_size, settings.vocab)
        self.positions = _positions(self.encoder, settings.output_size)
        self.positions.clear(self.ctc.ctc_lo.weight)
        self.eval()

    def prepare(self, device: torch.device, dtype: torch.dtype) -> ConformerModel:
        """Move the weights to `device` and `dtype` and derive what the forward passes read.

        The feature normalisation stays in single precision.
        """
        cmvn, self.encoder.global_cmvn = self.encoder.global_cmvn, None
        self.requires_grad_(False).to(device=device, dtype=dtype)
        self.encoder.global_cmvn = None if cmvn is None else cmvn.to(device)
        self.encoder.embed.prepare()
        for block in self.encoder.blocks:
            block.prepare()
        if device.type == "cpu":
            lay_out_by_input(self)
        self.positions.clear(self.ctc.ctc_lo.weight)
        return self

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, the caches and the encoder frames."""
        return self.ctc.ctc_lo.weight.dtype

    def ctc_log_probs(self, enc: Tensor) -> Tensor:
        """Log posteriors (B, T, vocab), float32, of encoder frames (B, T, D)."""
        logits: Tensor = self.ctc.ctc_lo(enc)
        return logits.log_softmax(dim=-1, dtype=torch.float32)

    def encode_full(
        self,
        feats: Tensor,
        feat_lengths: Tensor,
        chunk_size: int = -1,
        num_left_chunks: int = -1,
    ) -> tuple[Tensor, Tensor]:
        """Encoder frames (B, T', D) and their counts (B,) of whole utterances (B, T, 80).

        Frames past a row's `feat_lengths` (B,) have no influence on it; output frames past
        its count are undefined. With `chunk_size` > 0 a frame sees its own chunk and
        `num_left_chunks` before it (negative: all), else the whole utterance; a model of one
        `static_chunk_size` always sees in chunks of it. Raises OptionError for another size.
        """
        subsampling = self.settings.subsampling
        counts = (feat_lengths - subsampling.right_context - 1) // subsampling.rate + 1
        counts = counts.clamp_min(0)
        if chunk_size < 1:
            chunk_size = self.settings.static_chunk_size or -1
        self.settings.check_chunk_size(chunk_size)
        x = self._embed(feats.masked_fill(_past(feat_lengths, feats), 0.0))
        frames = x.shape[1]
        if frames == 0:
            return x, counts
        padding = _past(counts, x).squeeze(-1) if int(counts.min()) < frames else None
        attend = BlockwiseAttend(ChunkMask(chunk_size, num_left_chunks), padding)
        encodings = position_encodings(0, frames, x.shape[2]).to(x)
        x = self.positions.embed(x, encodings)
        for index, block in enumerate(self.encoder.blocks):
            keys, scores = self.positions.of_layer(index, encodings)
            x = block(x, BlockContext(keys, partial(attend, scores), padding=padding)).frames
        return normalise(self.encoder.after_norm, x), counts

    def encode_chunk(
        self,
        feats: Tensor,
        offsets: Tensor,
        kv: Tensor,
        cnn: Tensor,
        kv_mask: Tensor,
        mask: ChunkMask | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advance B streams, each at its own offset, by one decoding window or several.

        Args:
            feats: (B, settings.window_frames(chunk), 80); `chunk` encoder frames per stream.
            offsets: (B,) int64, the encoder frame index of each stream's first output frame.
                On the CPU they cost no synchronisation.
            kv: (num_blocks, B, heads, cache_frames, 2 · head_dim), the `new_kv` of earlier
                frames, aligned to the right: column j of stream b is absolute frame
                offsets[b] − cache_frames + j.
            cnn: (num_blocks, B, D, kernel − 1), zeros before a stream's first window; empty
                without convolution modules.
            kv_mask: (B, cache_frames) bool, the columns that a stream sees; the others
                contribute nothing, whatever they hold. They are what the first window sees.
            mask: the windows, of which `chunk` is a multiple, and how far back the later ones
                see; None: there is one window.

        Returns:
            Encoder frames (B, chunk, D); new_kv (num_blocks, B, heads, chunk, 2 · head_dim) of
            these frames alone; new_cnn, shaped like `cnn`. The inputs are left as they are.

        Raises OptionError if the model cannot stream, or not in chunks of this size.
        """
        chunk = self.settings.encoder_frames(feats.shape[1])
        self.settings.check_streaming(chunk if mask is None else mask.chunk_size)
        attend: Callable[..., Tensor] = attend_with_bias
        if mask is not None and mask.chunk_size < chunk:
            attend = _attend_within(mask, kv_mask, chunk)
        x = self.positions.embed_chunk(self._embed(feats), offsets)
        keys, bias = self.positions.of_chunk(offsets, kv_mask, chunk)
        bias = bias.expand(len(self.encoder.blocks), *bias.shape[1:])
        if kv_mask.is_cuda or not bool(kv_mask.all()):
            kv = kv.masked_fill(~kv_mask[None, :, None, :, None], 0.0)
        new_kv, new_cnn = [], []
        for index, block in enumerate(self.encoder.blocks):
            context = BlockContext(keys[index], partial(attend, bias[index]), kv[index], cnn[index])
            result = block(x, context)
            x = result.frames
            new_kv.append(result.entries)
            new_cnn.append(result.conv_history)
        return normalise(self.encoder.after_norm, x), torch.stack(new_kv), torch.stack(new_cnn)

    def _embed(self, feats: Tensor) -> Tensor:
        if self.encoder.global_cmvn is not None:
            feats = self.encoder.global_cmvn(feats)
        out: Tensor = self.encoder.embed(feats.to(self.dtype))
        return out


def _positions(encoder: Encoder, size: int) -> Positions:
    layers = [block.self_attn for block in encoder.blocks]
    key_layers = [layer for layer in layers if isinstance(layer, PositionKeyAttention)]
    return KeyPositions(key_layers, size) if key_layers else InputPositions(len(layers), size)


def _past(lengths: Tensor, frames: Tensor) -> Tensor:
    """(B, T, 1) True at and past the length of each row of frames (B, T, …)."""
    index = torch.arange(frames.shape[1], device=frames.device)
    return (index >= lengths.to(frames.device).unsqueeze(1)).unsqueeze(-1)


def _attend_within(mask: ChunkMask, kv_mask: Tensor, frames: int) -> Callable[..., Tensor]:
    """`attend_with_bias`, which also hides from each of several windows what it must not see."""
    queries = torch.arange(frames, device=kv_mask.device)
    hidden = mask.hidden(queries, torch.arange(-kv_mask.shape[1], frames, device=kv_mask.device))
    assert hidden is not None  # there are windows

    def attend(bias: Tensor, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        masked = bias.masked_fill(hidden, hidden_score(bias.dtype))
        return attend_with_bias(masked, q, keys, values)

    return attend
