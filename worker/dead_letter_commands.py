"""`oasr-worker dead-letters list | show | replay`: what was refused, why, and its second chance."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from worker.connections import Sender, connection
from worker.dead_letter_read import Letter, Selection, read_letter
from worker.dead_letter_replay import (
    Handled,
    NotReplayable,
    Outgoing,
    ReplayRules,
    outgoing,
    selected,
    whole,
)
from worker.dead_letter_sending import Back, Replay, Shown, Way
from worker.dead_letter_topic import LetterTopic, Span
from worker.dead_letter_view import json_line, json_summary, listed, shown, summary
from worker.settings import Settings

DONE: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class ListRequest:
    """`list`: the newest `most` of a selection, or their number by code."""

    selection: Selection
    most: int | None
    as_json: bool = False
    as_summary: bool = False


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """`show`: one letter by its place or its id; `value`: where its value goes, `-` for stdout."""

    letter: str
    value: str | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """`replay`: the oldest `most` of a selection, behind the given offsets of partitions."""

    selection: Selection
    most: int | None = None
    after: Mapping[int, int] = field(default_factory=dict)
    to: str | None = None
    max_attempts: int = 3
    per_second: float | None = None
    dry_run: bool = False
    yes: bool = False


def carry_out(settings: Settings, request: ListRequest | ShowRequest | ReplayRequest) -> int:
    """The exit status: 1 if something asked for could not be done."""
    with LetterTopic(connection(settings), settings.topics.dead_letters) as topic:
        if isinstance(request, ListRequest):
            return list_letters(topic, request)
        if isinstance(request, ShowRequest):
            return show_letter(topic, request)
        return replay_letters(settings, topic, request)


def list_letters(topic: LetterTopic, request: ListRequest) -> int:
    """Prints letters, oldest first."""
    span = topic.span(request.selection.since_ms, {})
    found = selected(topic.records(span), request.selection, Handled())
    if request.as_summary:
        counts = Counter((letter.code, letter.source.topic) for letter in found)
        if request.as_json:
            sys.stdout.write(json_summary(counts) + "\n")
        else:
            _console().print(summary(counts))
        return DONE
    if request.as_json and request.most is None:
        for letter in found:
            sys.stdout.write(json_line(letter) + "\n")
        return DONE
    newest: deque[Letter] = deque(maxlen=request.most)
    count = 0
    for letter in found:
        newest.append(letter)
        count += 1
    if request.as_json:
        sys.stdout.writelines(json_line(letter) + "\n" for letter in newest)
    else:
        _console().print(listed(newest))
        if count > len(newest):
            sys.stdout.write(f"… and {count - len(newest)} older ones (--limit)\n")
    return DONE


def show_letter(topic: LetterTopic, request: ShowRequest) -> int:
    """Prints one letter without its value, or writes the value alone."""
    letter = _find(topic, request.letter)
    if letter is None:
        sys.stderr.write(f"there is no dead letter {request.letter}\n")
        return FAILED
    if request.value is None:
        sys.stdout.write((json_line(letter, True) if request.as_json else shown(letter)) + "\n")
        return DONE
    if request.value == "-" and sys.stdout.isatty():
        sys.stderr.write("a value is not written to a terminal\n")
        return USAGE_ERROR
    try:
        _, value, _ = whole(letter, topic.original)
    except NotReplayable as reason:
        sys.stderr.write(f"{letter.place} has no value: {reason}\n")
        return FAILED
    if request.value == "-":
        sys.stdout.buffer.write(value or b"")
    else:
        Path(request.value).write_bytes(value or b"")
    return DONE


def _find(topic: LetterTopic, name: str) -> Letter | None:
    """A letter by its place, or the newest of an id."""
    partition, _, offset = name.partition(":")
    if partition.isdecimal() and offset.isdecimal():
        raw = topic.original(topic.topic, int(partition), int(offset))
        return None if raw is None else read_letter(raw)
    found = None
    for raw in topic.records(topic.span(None, {})):
        letter = read_letter(raw)
        if letter is not None and letter.id == name:
            found = letter
    return found


def replay_letters(settings: Settings, topic: LetterTopic, request: ReplayRequest) -> int:
    """Sends letters again, once somebody agreed; says how far it came wherever it stops."""
    if not (request.dry_run or request.yes or sys.stdin.isatty()):
        sys.stderr.write("replaying wants --yes where nobody can be asked, or --dry-run\n")
        return USAGE_ERROR
    inputs = frozenset((settings.topics.chunks, settings.topics.files))
    rules = ReplayRules(inputs, request.to, request.max_attempts)
    span = topic.span(request.selection.since_ms, request.after)
    total = 0
    if not request.dry_run:
        total = sum(1 for _ in _chosen(topic, span, request, Handled()))
        if not request.yes and total and not _agreed(total, request.to):
            return FAILED
    way: Way = Shown(_say) if request.dry_run else Back(Sender(connection(settings)))
    handled = Handled()
    replay = Replay(way, handled, _complain, request.per_second)

    def ready(letter: Letter) -> Outgoing:
        return outgoing(letter, rules, topic.original)

    try:
        with _progress(total) as counted:
            replay.run(counted(_chosen(topic, span, request, handled)), ready)
    finally:
        # also after Ctrl-C: what is on its way is waited for and counted
        replay.finish()
        _report(replay, handled, request)
    return FAILED if replay.refused or replay.failed or replay.unconfirmed else DONE


def _chosen(
    topic: LetterTopic, span: Span, request: ReplayRequest, handled: Handled
) -> Iterator[Letter]:
    letters = selected(topic.records(span), request.selection, handled)
    return islice(letters, request.most)


def _report(replay: Replay, handled: Handled, request: ReplayRequest) -> None:
    """The account; where a replay came to, for the next one to begin behind."""
    told = f"{replay.replayed} {'would be replayed' if request.dry_run else 'replayed'}"
    for number, what in (
        (replay.refused, "cannot be"),
        (replay.failed, "not taken by the broker"),
        (replay.unconfirmed, "not confirmed: a next replay sends them again"),
    ):
        told += f", {number} {what}" if number else ""
    if replay.stopped is not None:
        told += "; stopped, because the next one would meet the same"
    _complain(told)
    behind = [f"--after {n}:{offset}" for n, offset in handled.up_to().items() if offset >= 0]
    if behind and not request.dry_run and not request.selection.places:
        _complain(f"to go on behind what is done: {' '.join(behind)}")


def _agreed(total: int, to: str | None) -> bool:
    sys.stderr.write(f"Send {total} messages again to {to or 'where they came from'}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Iterator[Letter]], Iterator[Letter]]]:
    """A bar on a terminal while letters go through what it yields."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal or not total)

    def counted(letters: Iterator[Letter]) -> Iterator[Letter]:
        task = bar.add_task("replaying", total=total)
        for letter in letters:
            yield letter
            bar.advance(task)

    with bar:
        yield counted


def _console() -> Console:
    return Console(markup=False, highlight=False, emoji=False)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")
