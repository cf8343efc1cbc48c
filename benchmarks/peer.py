"""The engine beside sherpa-onnx on the same weights, in turn; one JSON line a number of streams.

    python benchmarks/peer.py --export FOLDER [--python PATH]

Each engine runs in its best configuration for two cores: one process of two threads, or two of
one thread; one stream is given one thread. Rounds of the engines take turns and medians count,
so that a busy machine is as unkind to one as to the other. Bars: 1.5 times as fast with 32
streams, no slower with one.
"""

from __future__ import annotations

import json

from streaming import Fleet, arguments, medians

CONFIGURATIONS = ((1, 2), (2, 1))  # processes, threads of each
STREAMS = (1, 8, 32, 128)


def main() -> None:
    parser = arguments()
    parser.set_defaults(rounds=3, streams=0)
    options = parser.parse_args()
    if options.export is None:
        print(json.dumps({"benchmark": "peer", "skipped": "no --export of the model is named"}))
        return
    for streams in (options.streams,) if options.streams else STREAMS:
        options.streams = streams
        fleets = {
            (engine, *configuration): Fleet(options, engine, *configuration)
            for engine in ("oasr", "sherpa-onnx")
            for configuration in (CONFIGURATIONS if streams > 1 else ((1, 1),))
        }
        rounds: dict[tuple[str, int, int], list[dict[str, float]]] = {name: [] for name in fleets}
        for _ in range(options.rounds):
            for name, fleet in fleets.items():
                rounds[name].append(fleet.run())
        for fleet in fleets.values():
            fleet.__exit__()
        print(json.dumps(report(streams, options.paced, rounds)), flush=True)


def report(
    streams: int, is_paced: bool, rounds: dict[tuple[str, int, int], list[dict[str, float]]]
) -> dict[str, object]:
    """The best configuration of each engine and how they compare."""
    line: dict[str, object] = {"benchmark": "peer", "streams": streams, "paced": is_paced}
    # Paced audio cannot be decoded faster than it plays: then the CPU time decides.
    measure = "per_cpu_second" if is_paced else "per_second"
    best: dict[str, float] = {}
    for (engine, processes, threads), found in rounds.items():
        figures = medians(found)
        if figures[measure] > best.get(engine, 0.0):
            best[engine] = figures[measure]
            line[engine] = {"processes": processes, "threads": threads, **figures}
    line["ratio"] = round(best["oasr"] / best["sherpa-onnx"], 2)
    return line


if __name__ == "__main__":
    main()
