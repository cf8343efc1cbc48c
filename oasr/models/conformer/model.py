"""The conformer as the engine uses it: whole utterances, or one decoding window per stream."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from oasr.errors import OptionError
from oasr.models.conformer.attention import (
    BlockwiseAttend,
    ChunkMask,
    attend_with_bias,
    hidden_score,
)
from oasr.models.conformer.encoder import BlockContext, ConformerEncoder
from oasr.models.conformer.positions import PositionTable
from oasr.models.conformer.settings import ModelSettings


class CtcHead(nn.Module):
    """Projects encoder frames onto the units."""

    def __init__(self, size: int, vocab: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(size, vocab)


class ConformerModel(nn.Module):
    """Inference over a loaded conformer; `prepare` has to follow every change of weights."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.encoder = ConformerEncoder(settings)
        self.ctc = CtcHead(settings.output_size, settings.vocab)
        layers = [block.self_attn for block in self.encoder.blocks]
        self.positions = PositionTable(layers, settings.output_size)
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
            block.self_attn.prepare()
        self.positions.clear()
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
        `num_left_chunks` before it (negative: all), else the whole utterance.
        """
        counts = (((feat_lengths - 1) // 2 - 1) // 2).clamp_min(0)
        x = self._embed(feats.masked_fill(_past(feat_lengths, feats), 0.0))
        frames = x.shape[1]
        if frames == 0:
            return x, counts
        padding = _past(counts, x).squeeze(-1) if int(counts.min()) < frames else None
        attend = BlockwiseAttend(ChunkMask(chunk_size, num_left_chunks), padding)
        # Not from the table, which would keep the rows of the longest file there ever was.
        keys, scores = self.positions.project(0, frames)
        keys, scores = keys.permute(1, 2, 0, 3).unsqueeze(1), scores.permute(1, 2, 0)
        for index, block in enumerate(self.encoder.blocks):
            context = BlockContext(keys[index], partial(attend, scores[index]), padding=padding)
            x = block(x, context).frames
        return self.encoder.after_norm(x), counts

    def encode_chunk(
        self, feats: Tensor, offsets: Tensor, kv: Tensor, cnn: Tensor, kv_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advance B streams, each at its own offset, by one decoding window.

        Args:
            feats: (B, (chunk − 1) · 4 + 7, 80), one window per stream.
            offsets: (B,) int64, the encoder frame index of each stream's first output frame.
                On the CPU they cost no synchronisation.
            kv: (num_blocks, B, heads, cache_frames, 2 · head_dim), the `new_kv` of earlier
                frames, aligned to the right: column j of stream b is absolute frame
                offsets[b] − cache_frames + j.
            cnn: (num_blocks, B, D, kernel − 1), zeros before a stream's first window.
            kv_mask: (B, cache_frames) bool, the columns that a stream sees; the others
                contribute nothing, whatever they hold.

        Returns:
            Encoder frames (B, chunk, D); new_kv (num_blocks, B, heads, chunk, 2 · head_dim) of
            this window alone; new_cnn, shaped like `cnn`. The inputs are left as they are.

        Raises OptionError if the model is not `settings.supports_streaming`.
        """
        if not self.settings.supports_streaming:
            raise OptionError("streaming_unsupported", "the model was not trained to stream")
        x = self._embed(feats)
        keys, bias = self._chunk_positions(offsets, kv_mask, x.shape[1])
        if kv_mask.is_cuda or not bool(kv_mask.all()):
            kv = kv.masked_fill(~kv_mask[None, :, None, :, None], 0.0)
        new_kv, new_cnn = [], []
        for index, block in enumerate(self.encoder.blocks):
            attend = partial(attend_with_bias, bias[index])
            result = block(x, BlockContext(keys[index], attend, kv[index], cnn[index]))
            x = result.frames
            new_kv.append(result.entries)
            new_cnn.append(result.conv_history)
        return self.encoder.after_norm(x), torch.stack(new_kv), torch.stack(new_cnn)

    def _embed(self, feats: Tensor) -> Tensor:
        if self.encoder.global_cmvn is not None:
            feats = self.encoder.global_cmvn(feats)
        out: Tensor = self.encoder.embed(feats.to(self.dtype))
        return out

    def _chunk_positions(
        self, offsets: Tensor, kv_mask: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Key parts (layers, B, H, chunk, d) and score bias (layers, B, H, 1, S + chunk)."""
        if not (offsets.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.positions.reserve(int(offsets.max()) + chunk)
        cached = kv_mask.shape[1]
        span = torch.arange(-cached, chunk, device=offsets.device)
        rows = (offsets.unsqueeze(1) + span).to(kv_mask.device)
        keys = self.positions.keys[rows[:, cached:]].permute(2, 0, 3, 1, 4)
        bias = self.positions.scores[rows.clamp_min(0)].permute(2, 0, 3, 1)
        hidden = nn.functional.pad(~kv_mask, (0, chunk))
        bias = bias.masked_fill(hidden[None, :, None, :], hidden_score(bias.dtype))
        return keys, bias.unsqueeze(3)


def _past(lengths: Tensor, frames: Tensor) -> Tensor:
    """(B, T, 1) True at and past the length of each row of frames (B, T, …)."""
    index = torch.arange(frames.shape[1], device=frames.device)
    return (index >= lengths.to(frames.device).unsqueeze(1)).unsqueeze(-1)
