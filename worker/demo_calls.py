"""The bundled calls and recordings, with the texts that are known to be said in them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.call_files import find_audio, read_call
from worker.demo_report import Expected
from worker.file_jobs import FileMessage, inline_job
from worker.playback import CallPlan

_ASSETS: Final = Path(__file__).parent / "assets"
CALLS: Final = _ASSETS / "calls"
RECORDINGS: Final = _ASSETS / "recordings"


@dataclass(frozen=True, slots=True)
class Programme:
    """What the demo plays, and what should come of it."""

    plans: tuple[CallPlan, ...]
    files: tuple[tuple[str, FileMessage], ...]
    expected: tuple[Expected, ...]


def programme(calls: int, run: str) -> Programme:
    """As many calls as asked for, bundled ones in turn, and all bundled recordings.

    The ids hold `run`, so that one demo's records are not taken for another's.
    """
    plans, files, expected = [], [], []
    for number, path in enumerate(itertools.islice(itertools.cycle(find_audio([CALLS])), calls)):
        plan = CallPlan(f"{path.stem}-{run}-{number}", read_call(path))
        plans.append(plan)
        expected.append(Expected(plan.session_id, _call_texts(path, plan.audio.channels)))
    texts = {
        entry["file"]: entry["text"]
        for entry in json.loads((RECORDINGS / "reference.json").read_text())
    }
    for path in find_audio([RECORDINGS]):
        file_id = f"{path.stem}-{run}"
        files.append((file_id, inline_job(path)))
        expected.append(Expected(file_id, (texts[path.name],), is_file=True))
    return Programme(tuple(plans), tuple(files), tuple(expected))


def _call_texts(path: Path, channels: int) -> tuple[str, ...]:
    said = json.loads(path.with_suffix(".json").read_text())["segments"]
    said.sort(key=lambda utterance: utterance["start"])
    return tuple(
        " ".join(utterance["text"] for utterance in said if utterance["channel"] == channel)
        for channel in range(channels)
    )
