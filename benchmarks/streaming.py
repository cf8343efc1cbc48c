"""How many streams the engine keeps up with, features included; prints one JSON line.

    python benchmarks/streaming.py --streams 32 --processes 2
    python benchmarks/streaming.py --streams 32 --paced

Backlog: all audio is there at once. Paced: it comes as it plays, in pieces; then the busy times
say how long what a piece completed took. `--engine sherpa-onnx --export FOLDER` runs sherpa-onnx
on an export of the same weights instead. The streams are divided among the processes, which
start together. `per_cpu_second` holds on a busy machine better than `per_second` does.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from load import SAMPLE_RATE, Recognizer, backlog, paced, rotations

PIECE_MS = 100
UNREPORTED = ("serve", "model", "export", "python")


def main() -> None:
    options = arguments().parse_args()
    if options.serve:
        serve(options)
        return
    with Fleet(options, options.engine, options.processes, options.threads) as fleet:
        rounds = [fleet.run() for _ in range(options.rounds)]
    chosen = {k: v for k, v in vars(options).items() if k not in UNREPORTED}
    print(json.dumps({"benchmark": "streaming", **chosen, **medians(rounds)}))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("oasr", "sherpa-onnx"), default="oasr")
    parser.add_argument("--export", type=Path, help="folder of sherpa-onnx's export of the model")
    parser.add_argument("--python", default=sys.executable, help="where sherpa-onnx is installed")
    parser.add_argument("--model", help="a model directory; the bundled one by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--seconds", type=int, default=8, help="audio of each stream")
    parser.add_argument("--paced", action="store_true", help="feed in real time")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many are reported")
    parser.add_argument("--chunk-size", type=int, default=16)
    parser.add_argument("--left-chunks", type=int, default=4)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser


class Fleet:
    """Processes that each decode their share of the streams whenever `run` is called."""

    def __init__(
        self, options: argparse.Namespace, engine: str, processes: int, threads: int
    ) -> None:
        python = options.python if engine == "sherpa-onnx" else sys.executable
        shares = [
            len(range(first, options.streams, processes))
            for first in range(min(processes, options.streams))
        ]
        common = ["--engine", engine, "--threads", str(threads), "--serve"]
        for name in ("seconds", "chunk_size", "left_chunks", "device", "dtype", "model", "export"):
            if getattr(options, name) is not None:
                common += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        if options.paced:
            common.append("--paced")
        self._children = [
            subprocess.Popen(
                [python, __file__, *common, "--streams", str(share)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for share in shares
        ]
        for child in self._children:
            self._answer(child)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.communicate()  # its input ends, and so does it

    def run(self) -> dict[str, float]:
        """One round of all processes at once."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        found = [self._answer(child) for child in self._children]
        audio_s = sum(report["audio_s"] for report in found)
        together = {
            "per_second": audio_s / max(report["wall_s"] for report in found),
            "per_cpu_second": audio_s / sum(report["cpu_s"] for report in found),
            "peak_rss_mib": sum(report["peak_rss_mib"] for report in found),
        }
        for name in ("busy_p50_ms", "busy_p99_ms", "late_turns"):
            if name in found[0]:
                together[name] = max(report[name] for report in found)
        return together

    @staticmethod
    def _answer(child: subprocess.Popen[str]) -> dict[str, float]:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise SystemExit(child.wait() or 1)
        answer: dict[str, float] = json.loads(line)
        return answer


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: round(statistics.median(r[name] for r in rounds), 2) for name in rounds[0]}


def serve(options: argparse.Namespace) -> None:
    """Decodes once for every line on standard input; a JSON line each."""
    make: Callable[[argparse.Namespace], Recognizer]
    if options.engine == "oasr":
        from ours import make_recognizer as make
    else:
        from sherpa import make_recognizer as make
    recognizer = make(options)
    feeds = rotations(options.seconds * SAMPLE_RATE, options.streams)
    backlog(recognizer, [feed[: 2 * SAMPLE_RATE] for feed in feeds])
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        report = paced(recognizer, feeds, PIECE_MS) if options.paced else backlog(recognizer, feeds)
        report["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
