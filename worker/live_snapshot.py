"""What the live page shows, as plain data: read off the lanes in the loop's thread."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from oasr import __version__
from worker.channels import Channel
from worker.cloudevents import ModelName
from worker.gauges import Subjects
from worker.identity import SessionState
from worker.live_board import LiveBoard
from worker.partition import Partition
from worker.recognizers import is_isolated
from worker.sessions import Session
from worker.settings import Settings

MOST_PARTITIONS: Final = 64
MOST_FILES: Final = 20
MOST_CHARS: Final = 400  # of a text; its end is what is new

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """Where to look."""

    subjects: Subjects
    steps: Collection[tuple[int, float]]  # the last ones of the engine: batch size, seconds
    latencies_s: Collection[float]  # of the last finals


def show_on(
    board: LiveBoard | None, scene: Scene, settings: Settings, model: ModelName
) -> Callable[[], None]:
    """What the loop calls every turn: brings the board, if there is one, up to date."""
    if board is None:
        return lambda: None
    page = settings.live_page
    about = {
        "version": __version__,
        "group": settings.kafka.group,
        "model": model.name,
        "device": settings.model.device,
        "delivery": settings.delivery.mode,
    }
    return lambda: board.update(
        lambda: {
            "worker": about,
            **snapshot(scene, time.monotonic(), page.most_sessions, page.show_text),
        }
    )


def snapshot(scene: Scene, now: float, most_sessions: int, show_text: bool) -> Row:
    """Everything that the page shows; `now` is the loop's clock.

    No text is in it unless `show_text`. However much is open, no more than `most_sessions`
    sessions (those heard last), `MOST_FILES` files and `MOST_PARTITIONS` partitions are in it.
    """
    files, recognizer = scene.subjects.files, scene.subjects.recognizer
    partitions = scene.subjects.chunks.partitions.values()
    sessions = [(s, p) for p in partitions for s in p.sessions.all()]
    heard_last = heapq.nlargest(most_sessions, sessions, key=lambda place: place[0].last_sign)
    return {
        "queue": {
            "runnable_audio_s": _rounded(sum(recognizer.held_s().values())),
            "undecoded_age_s": _rounded(recognizer.undecoded_age_s()),
            "files_age_s": _rounded(files.oldest_age_s()),
        },
        "batches": [size for size, _ in scene.steps],
        "step_ms": _percentiles_ms([took_s for _, took_s in scene.steps]),
        "final_ms": _percentiles_ms(scene.latencies_s),
        "finals": len(scene.latencies_s),
        "sessions": {
            "open": len(sessions),
            "shown": [_session(s, p, now, show_text) for s, p in heard_last],
        },
        "files": {
            "open": files.open_jobs,
            "shown": [
                {"id": file_id, "told_s": _rounded(told_s)}
                for file_id, told_s in islice(files.progress(), MOST_FILES)
            ],
        },
        "partitions": _partitions(scene),
    }


def _session(session: Session, partition: Partition, now: float, show_text: bool) -> Row:
    roles = session.last_context.roles
    channels = sorted(session.channels.items())
    return {
        "id": session.identity.session_id,
        "origin": session.identity.origin_name,
        "state": "open" if session.state is SessionState.OPEN else "ending",
        "elapsed_s": _rounded(session.elapsed_ms / 1000),
        "quiet_s": _rounded(now - session.last_activity),
        "isolated": is_isolated(partition),
        "channels": [
            _channel(channel, roles[index] if index < len(roles) else "", show_text)
            for index, channel in channels
        ],
    }


def _channel(channel: Channel, role: str, show_text: bool) -> Row:
    segment = channel.open_segment
    row: Row = {
        "channel": channel.index,
        "role": role,
        "finals": channel.finals,
        "speaking": segment is not None,
        "segment_s": 0.0,
        "waiting": len(channel.closed_segments),
    }
    if segment is not None:
        row["segment_s"] = _rounded(
            (channel.position - segment.info.start_sample) / channel.media_rate
        )
    if show_text:
        row["partial"] = "" if segment is None else segment.text[-MOST_CHARS:]
        waiting = [closed.text for closed in channel.closed_segments]
        row["last"] = (waiting[-1] if waiting else channel.last_text)[-MOST_CHARS:]
    return row


def _partitions(scene: Scene) -> Row:
    places = [(r, n, p) for r, owned in scene.subjects.lanes for n, p in sorted(owned.items())]
    return {
        "owned": len(places),
        "shown": [
            {
                "topic": reader.topic,
                "partition": number,
                "lag": reader.lag(number, partition.tracker.watermark),
                "paused": number in reader.paused,
                "isolated": is_isolated(partition),
            }
            for reader, number, partition in places[:MOST_PARTITIONS]
        ],
    }


def _percentiles_ms(values_s: Collection[float]) -> Row | None:
    """Median and tail of the values, by nearest rank; None without any."""
    if not values_s:
        return None
    ordered = sorted(values_s)
    return {
        f"p{percent}": round(ordered[-(-percent * len(ordered) // 100) - 1] * 1000)
        for percent in (50, 90, 99)
    }


def _rounded(seconds: float) -> float:
    return round(seconds, 1)
