"""`oasr-worker produce`: recorded calls as live ones, or recordings as file jobs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from oasr.audio.pcm import Encoding
from worker.call_files import read_call
from worker.connections import Sender
from worker.file_jobs import FileMessage, claim_check, inline_job
from worker.messages import Headers
from worker.playback import CallPlan, PlannedMessage, Player

MAX_WAIT_S = 0.05
_FLUSH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How recordings become calls; `calls` None plays each recording once.

    `options` is the JSON that every chunk restates.
    """

    calls: int | None = None
    speed: float = 1.0
    chunk_ms: int = 100
    encoding: Encoding | None = None
    separate_channels: bool = False
    loop: bool = False
    options: str | None = None


def plans(paths: list[Path], options: CallOptions, run: str) -> Iterator[CallPlan]:
    """One plan a call, recordings taken in turn; ids hold the recording's name, run and number."""
    recordings = [(path, read_call(path, options.encoding)) for path in paths]
    for number in range(options.calls or len(recordings)):
        path, audio = recordings[number % len(recordings)]
        yield CallPlan(
            session_id=f"{path.stem}-{run}-{number:04d}",
            audio=audio,
            chunk_ms=options.chunk_ms,
            separate_channels=options.separate_channels,
            options=options.options,
        )


def play_calls(
    sender: Sender, topic: str, paths: list[Path], options: CallOptions, console: Console
) -> int:
    """Plays until all is said; the exit status: 0, or 1 when a message was not delivered.

    Ctrl-C ends the calls that are on the line with their `end` event, and 130 is returned.
    """
    player = Player(_to_topic(sender, topic), time.monotonic, options.speed)
    status = 0
    with _progress(console) as progress:
        task = progress.add_task("calls", total=None)
        try:
            for turn in _rounds(options.loop):
                _add_calls(player, list(plans(paths, options, turn)), options)
                _play(player, sender, lambda: _show(progress, task, player, sender))
        except KeyboardInterrupt:
            console.print(f"stopped: {player.stop()} calls ended early")
            status = 130
    return _finish(sender, console) or status


def send_files(
    sender: Sender,
    topic: str,
    paths: list[Path],
    by_reference: bool,
    console: Console,
    options: str | None = None,
) -> int:
    """Sends each recording as a file job with JSON `options`; exit status as of `play_calls`."""
    run = run_id()
    asked: Headers = () if options is None else (("options", options.encode()),)
    make: Callable[[Path], FileMessage] = claim_check if by_reference else inline_job
    for number, path in enumerate(paths):
        message = make(path)
        headers = (*message.headers, *asked)
        sender.send(topic, f"{path.stem}-{run}-{number:04d}", message.value, headers)
        sender.poll(0)
    return _finish(sender, console)


def run_id() -> str:
    """Six letters and digits that tell this run's sessions from any other's."""
    return uuid.uuid4().hex[:6]


def _rounds(loop: bool) -> Iterator[str]:
    yield run_id()
    while loop:
        yield run_id()


def _add_calls(player: Player, calls: list[CallPlan], options: CallOptions) -> None:
    now_s = time.monotonic()
    # calls that begin together would send all their messages at the same instants
    step_s = options.chunk_ms / 1000 / max(1, len(calls))
    for number, plan in enumerate(calls):
        player.add(plan, now_s + number * step_s)


def _play(player: Player, sender: Sender, show: Callable[[], None]) -> None:
    while (wait_s := player.pump()) is not None:
        sender.poll(min(wait_s, MAX_WAIT_S))
        show()


def _to_topic(sender: Sender, topic: str) -> Callable[[PlannedMessage], None]:
    def send(message: PlannedMessage) -> None:
        sender.send(topic, message.session_id, message.value, message.headers)

    return send


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.fields[playing]} calls on the line"),
        BarColumn(),
        TextColumn("{task.fields[finished]} played, {task.fields[delivered]} messages delivered"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show(progress: Progress, task: TaskID, player: Player, sender: Sender) -> None:
    progress.update(
        task,
        total=player.finished + player.playing,
        completed=player.finished,
        playing=player.playing,
        finished=player.finished,
        delivered=sender.delivered,
    )


def _finish(sender: Sender, console: Console) -> int:
    left = sender.finish(_FLUSH_TIMEOUT_S)
    console.print(f"{sender.delivered} messages delivered")
    if left or sender.failures:
        console.print(f"{left + len(sender.failures)} messages were not: {sender.failures[:3]}")
        return 1
    return 0
