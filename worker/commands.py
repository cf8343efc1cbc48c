"""Commands that talk to a broker; what fails outside ends them with one clear line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from oasr.errors import AudioError
from worker import session_commands
from worker.call_files import find_audio
from worker.connections import Sender, connection
from worker.dead_letter_commands import ListRequest, ReplayRequest, ShowRequest, carry_out
from worker.feed import TopicMissing
from worker.produce import CallOptions, play_calls, send_files
from worker.settings import Settings
from worker.tail import tail as follow
from worker.topics import TopicError, ensure_topics, existing_partitions, topic_specs

FAILED = 1

Arguments = ParamSpec("Arguments")


def _explained(command: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """What goes wrong outside this program is one line for its user, not a stack trace."""

    @wraps(command)
    def explained(*args: Arguments.args, **kwargs: Arguments.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except KafkaException as error:
            sys.stderr.write(f"Kafka: {error.args[0].str()}\n")
        except (AudioError, OSError, TopicError, TopicMissing, ValueError) as error:
            sys.stderr.write(f"{error}\n")
        return FAILED

    return explained


@_explained
def topics(settings: Settings, create: bool) -> int:
    """Lists the worker's topics; status 1 when some are missing and `create` is not set."""
    admin = AdminClient(connection(settings))
    specs = topic_specs(settings)
    if create:
        for name in ensure_topics(admin, specs):
            sys.stdout.write(f"created {name}\n")
    there = existing_partitions(admin)
    for spec in specs:
        partitions = there.get(spec.name)
        found = "missing" if partitions is None else f"{partitions} partitions"
        sys.stdout.write(f"{spec.name}: {found}\n")
    # what was created a moment ago may not be in the next metadata yet
    return 0 if create or all(spec.name in there for spec in specs) else FAILED


@_explained
def list_sessions(settings: Settings, most: int, as_json: bool) -> int:
    """Shows which sessions are open and what holds each partition's commit."""
    return session_commands.list_sessions(settings, most, as_json)


@_explained
def abort_sessions(settings: Settings, keys: list[str], wait_s: float) -> int:
    """Ends sessions by an `abort` event."""
    return session_commands.abort_sessions(settings, keys, wait_s)


@_explained
def dead_letters(
    settings: Settings,
    request: ListRequest | ShowRequest | ReplayRequest,
) -> int:
    """Shows refused messages, or sends them again."""
    return carry_out(settings, request)


@_explained
def tail(settings: Settings, plain: bool, from_beginning: bool) -> int:
    """Follows the output topics until Ctrl-C."""
    names = settings.topics
    watched = [names.transcripts, names.partials, names.events, names.dead_letters]
    return follow(connection(settings), watched, Console(), plain, from_beginning)


@_explained
def produce(
    settings: Settings, paths: list[Path], calls: CallOptions, files: bool, by_reference: bool
) -> int:
    """Plays recordings as calls, or sends them as file jobs."""
    found = find_audio(paths)
    sender = Sender(connection(settings))
    topic = settings.topics.files if files else settings.topics.chunks
    sender.check(topic)
    console = Console(stderr=True, highlight=False)
    if files:
        return send_files(sender, topic, found, by_reference, console, calls.options)
    return play_calls(sender, topic, found, calls, console)
