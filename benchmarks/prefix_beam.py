"""Cost of CTC prefix beam search for each encoder frame of each stream; prints one JSON line.

    python benchmarks/prefix_beam.py --streams 64 --vocabulary 5000

The posteriors are synthetic: three frames of four are blank, the others have one clear token
whose runners-up compete (`--doubt` makes them stronger). They come in chunks, as the engine gives
them. Finding the best tokens of a frame counts: it reads the whole vocabulary.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import torch

from oasr.decoding.ctc_prefix_beam import PrefixBeamDecoder, TopTokens, advance_all, top_tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--chunk-size", type=int, default=16)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--doubt", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5, help="the cheapest of these is reported")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chunks = [synthetic_posteriors(options, number) for number in range(options.chunks)]
    run(chunks[:1], options)
    top_us, search_us = min((run(chunks, options) for _ in range(options.rounds)), key=sum)
    report = {
        "us_per_frame_and_stream": round(top_us + search_us, 2),
        "top_tokens_us": round(top_us, 2),
        "search_us": round(search_us, 2),
    }
    print(json.dumps({"benchmark": "prefix_beam", **vars(options), **report}))


def synthetic_posteriors(options: argparse.Namespace, seed: int) -> torch.Tensor:
    """Log posteriors (streams, chunk, vocabulary), blank first."""
    generator = torch.Generator().manual_seed(seed)
    shape = (options.streams, options.chunk_size, options.vocabulary)
    logits = torch.randn(shape, generator=generator) * options.doubt
    clear = torch.randint(1, options.vocabulary, (*shape[:2], 1), generator=generator)
    is_blank = torch.rand((*shape[:2], 1), generator=generator) < 0.75
    clear[is_blank] = 0
    peaks = torch.full(clear.shape, 12.0)
    return torch.log_softmax(logits.scatter_add_(-1, clear, peaks), dim=-1)


def run(chunks: list[torch.Tensor], options: argparse.Namespace) -> tuple[float, float]:
    """CPU microseconds for each frame and stream: the best tokens, the search."""
    decoders = [PrefixBeamDecoder(0, options.beam, options.beam) for _ in range(options.streams)]
    top_s = search_s = 0.0
    for number, log_probs in enumerate(chunks):
        started_s = time.process_time()
        tokens, values = top_tokens(log_probs, options.beam)
        top_s += time.process_time() - started_s
        rows = [TopTokens(*row) for row in zip(tokens, values, strict=True)]
        started_s = time.process_time()
        changed = advance_all(decoders, rows, [number * options.chunk_size] * options.streams)
        for decoder in itertools.compress(decoders, changed):
            _ = decoder.tokens  # what a partial result is made of
        search_s += time.process_time() - started_s
    frames = len(chunks) * options.streams * options.chunk_size
    return top_s / frames * 1e6, search_s / frames * 1e6


if __name__ == "__main__":
    main()
