"""Runs the model: owns the weights' forwards and the caches of the running streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from oasr.cache.cnn_cache import CnnCache
from oasr.cache.paged_kv import KvLayout, PagedKv
from oasr.cache.parking import StreamCaches
from oasr.decoding.ctc_greedy import best_path
from oasr.decoding.ctc_prefix_beam import TopTokens, top_tokens
from oasr.decoding.loudness import LoudnessTrack
from oasr.decoding.near_ties import near_tie_frames
from oasr.decoding.rescored_beam import SecondOpinion
from oasr.engine.config import EngineConfig
from oasr.engine.geometry import WindowGeometry
from oasr.engine.request import Request
from oasr.engine.search import Posteriors, Search
from oasr.engine.stream_context import StreamContext
from oasr.models.conformer.attention import ChunkMask
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.registry import LoadedModel

# Windows of one forward: with more rows the products gain nothing, and their cost in masked
# scores grows with the windows of one stream.
MAX_WINDOWS = 16
MAX_WINDOWS_OF_A_STREAM = 8


class WindowInput(NamedTuple):
    """One window of a stream, or several that follow each other."""

    slot: int
    features: Tensor  # (frames, mel)
    top: int  # tokens of each frame that its search wants to know; 0: the best one is enough


class UtteranceInput(NamedTuple):
    """A whole utterance."""

    features: Tensor  # (frames, mel)
    top: int  # as in WindowInput


class ModelRunner:
    """Forwards of whole utterances, and of one window of many streams."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        settings = loaded.settings
        self._model = loaded.model
        self.search = Search(settings.blank_id, loaded.tokenizer, _second_opinion(loaded))
        self._device = torch.device(config.device)
        self._offline_chunk_size = config.offline_chunk_size
        self._num_left_chunks = config.num_left_chunks
        self.geometry = WindowGeometry(
            config.chunk_size,
            settings.subsampling_rate,
            settings.right_context,
            config.finalize_padding_ms,
        )
        layout = KvLayout(
            settings.num_blocks,
            settings.attention_heads,
            settings.head_dim,
            config.chunk_size,
            config.num_left_chunks,
            config.block_size_frames,
        )
        dtype = getattr(torch, config.dtype)
        self._mask = ChunkMask(config.chunk_size, config.num_left_chunks)
        self.kv = PagedKv(layout, self._device, dtype, max_num_blocks=config.max_num_blocks)
        self._cnn = CnnCache(
            settings.num_blocks, settings.output_size, settings.kernel - 1, self._device, dtype
        )
        self.caches = StreamCaches(self.kv, self._cnn, config.max_batch_size)

    def allocate_stream(self, request: Request) -> None:
        """Gives a newly admitted stream its decode state; its first window makes the caches."""
        context = StreamContext(self.search.decoder(request.decoding))
        if request.decoding.word_times:
            context.loudness = LoudnessTrack()
        request.stream_context = context

    def free_stream(self, request: Request) -> None:
        """Takes the caches of an ended stream back."""
        self.caches.close(request.stream_context.cache)
        request.stream_context = None

    def windows_at_once(self, streams: int, due: int) -> int:
        """How many windows of each of `streams` to decode in one forward; each has `due`.

        Few streams that are behind catch up with products as large as those of many. Where the
        pool has a ceiling, room for one window is all that a stream may take.
        """
        if self.kv.pool.has_ceiling:
            return 1
        return max(1, min(due, MAX_WINDOWS // streams, MAX_WINDOWS_OF_A_STREAM))

    def decode_windows(self, rows: Sequence[WindowInput]) -> list[list[Posteriors | None]]:
        """The windows of each slot, as many of each; None where the model gave no number.

        The streams may be at different offsets. Their caches move on when all went well.
        """
        slots = [row.slot for row in rows]
        count = self.geometry.windows_in(len(rows[0].features))
        if count > 1 and not all(self.kv.reserve(slots, count)):
            raise MemoryError(f"no room for {count} windows of {len(rows)} streams")
        windows = torch.stack([row.features for row in rows])
        slot_index = torch.tensor(slots, device=self._device)
        kv, kv_mask, offsets = self.kv.gather(slots)
        cnn = self._cnn.gather(slot_index)
        encoded, new_kv, new_cnn = self._model.encode_chunk(
            windows, offsets, kv, cnn, kv_mask, self._mask
        )
        chunk = self.geometry.chunk_size
        tops = [row.top for row in rows for _ in range(count)]
        found = self._posteriors(encoded.view(len(tops), chunk, -1), [chunk] * len(tops), tops)
        self.kv.write(slots, new_kv)
        self._cnn.scatter(slot_index, new_cnn)
        self.kv.advance(slots, new_kv.shape[3])
        return [found[first : first + count] for first in range(0, len(found), count)]

    def decode_utterances(self, rows: Sequence[UtteranceInput]) -> list[Posteriors | None]:
        """Whole utterances; None where the model gave no number."""
        lengths = torch.tensor([len(row.features) for row in rows], device=self._device)
        encoded, encoded_lengths = self._model.encode_full(
            pad_sequence([row.features for row in rows], batch_first=True),
            lengths,
            chunk_size=self._offline_chunk_size,
            num_left_chunks=self._num_left_chunks if self._offline_chunk_size > 0 else -1,
        )
        return self._posteriors(encoded, encoded_lengths.tolist(), [row.top for row in rows])

    def _posteriors(
        self, encoded: Tensor, lengths: Sequence[int], tops: Sequence[int]
    ) -> list[Posteriors | None]:
        log_probs = self._model.ctc_log_probs(encoded)
        ids, scores = best_path(log_probs)
        best = self._top_tokens(log_probs, lengths, tops)
        # Beams compare readings, not frames.
        near = near_tie_frames(log_probs, scores) if 0 in tops else np.zeros(scores.shape, bool)
        return [
            None
            if np.isnan(scores[row, :length]).any()
            else Posteriors(
                ids[row, :length],
                scores[row, :length],
                best.get(row),
                encoded[row, :length],
                bool(near[row, :length].any()),
            )
            for row, length in enumerate(lengths)
        ]

    def _top_tokens(
        self, log_probs: Tensor, lengths: Sequence[int], tops: Sequence[int]
    ) -> dict[int, TopTokens]:
        """The best tokens of the rows that want more than one."""
        rows = [row for row, top in enumerate(tops) if top]
        if not rows:
            return {}
        chosen = log_probs if len(rows) == len(tops) else log_probs[rows]
        tokens, values = top_tokens(chosen, max(tops))
        return {
            row: TopTokens(
                tokens[at, : lengths[row], : tops[row]], values[at, : lengths[row], : tops[row]]
            )
            for at, row in enumerate(rows)
        }


def _second_opinion(loaded: LoadedModel) -> SecondOpinion | None:
    if not loaded.decoder_weights:
        return None
    decoder = AttentionDecoder.from_weights(loaded.settings, loaded.decoder_weights)
    return SecondOpinion(decoder, loaded.settings.reverse_weight)
