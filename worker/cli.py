"""The command line, `oasr-worker`: run, demo, produce, tail, health, and what operators need."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.dead_letter_arguments import add_arguments as add_dead_letters
from worker.dead_letter_arguments import request_of
from worker.leaving import leave_at_once_when_asked
from worker.model_fetch_arguments import add_arguments as add_fetch_model

if TYPE_CHECKING:
    from worker.settings import Settings

# what this module imports is there before any signal can be answered, so it stays small: the
# commands import torch, rich and the Kafka client themselves
USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130
_BOOTSTRAP_VARIABLE: Final = "OASR_KAFKA__BOOTSTRAP_SERVERS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit status: 2 for bad settings or arguments, 130 after Ctrl-C."""
    try:
        leave_at_once_when_asked()
        options = _parser().parse_args(arguments)
        if options.bootstrap_servers:
            from worker.settings import name_brokers

            name_brokers(options.bootstrap_servers)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of our output has gone; nothing may be written any more, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oasr-worker", description="Turns live calls and recordings on Kafka into transcripts."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = _common()
    run = commands.add_parser("run", parents=[common], help="work until SIGTERM or Ctrl-C")
    run.set_defaults(command=_run)
    check = commands.add_parser(
        "check-config", parents=[common], help="print the effective settings, secrets hidden"
    )
    check.set_defaults(command=_check_config)
    health = commands.add_parser(
        "health", parents=[common], help="ask the worker of this machine how it is; status 0 or 1"
    )
    health.add_argument(
        "--ready", action="store_true", help="whether it does its share, not only whether it lives"
    )
    health.add_argument(
        "--port", type=_positive, help="of this machine; asks there and reads no settings"
    )
    health.set_defaults(command=_health)
    topics = commands.add_parser("topics", parents=[common], help="list the topics, or create them")
    topics.add_argument("--create", action="store_true", help="create those that are missing")
    topics.set_defaults(command=_topics)
    _add_sessions(commands.add_parser("sessions", help="show open sessions, or end some"), common)
    letters = commands.add_parser("dead-letters", help="show refused messages, or replay them")
    add_dead_letters(letters, common)
    letters.set_defaults(command=_dead_letters)
    add_fetch_model(commands.add_parser("fetch-model", help="download a model from a hub"))
    tail = commands.add_parser("tail", parents=[common], help="watch the transcripts come in")
    tail.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    tail.add_argument("--from-beginning", action="store_true", help="show what is there already")
    tail.set_defaults(command=_tail)
    _add_produce(commands.add_parser("produce", parents=[common], help="play recordings as calls"))
    _add_demo(
        commands.add_parser("demo", parents=[common], help="broker, worker and calls at once")
    )
    return parser


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="settings as YAML")
    common.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", help=f"brokers; as {_BOOTSTRAP_VARIABLE}"
    )
    return common


def _add_produce(produce: argparse.ArgumentParser) -> None:
    produce.description = (
        "Plays recordings of any kind that is read, or all of a folder, as live calls. "
        "Ctrl-C ends those that are on the line."
    )
    produce.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    produce.add_argument("--calls", type=_positive, help="how many at once; default: one a file")
    produce.add_argument(
        "--speed", type=_speed, default=1.0, help="times real time; 0: as fast as possible"
    )
    produce.add_argument("--chunk-ms", type=_positive, default=100, help="audio of one message")
    produce.add_argument(
        "--encoding",
        choices=("mulaw", "alaw", "pcm_s16le"),
        help="default: the file's own if it is G.711, else pcm_s16le",
    )
    produce.add_argument(
        "--separate-channels", action="store_true", help="one message a channel, not interleaved"
    )
    produce.add_argument("--loop", action="store_true", help="start again when all is played")
    produce.add_argument("--files", action="store_true", help="send file jobs instead of calls")
    produce.add_argument(
        "--by-reference", action="store_true", help="with --files: file:// instead of the bytes"
    )
    produce.add_argument(
        "--options",
        metavar="JSON",
        help="""what is asked of the worker, on every message: '{"words": true}'""",
    )
    produce.set_defaults(command=_produce)


def _add_sessions(sessions: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = sessions.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "list", parents=[common], help="which are open, and what holds each partition's commit"
    )
    listed.add_argument("--json", action="store_true", help="one JSON array, for programs")
    listed.add_argument(
        "--most", type=_positive, default=20, metavar="N", help="sessions a partition; default 20"
    )
    listed.set_defaults(command=_list_sessions)
    abort = actions.add_parser(
        "abort", parents=[common], help="end sessions: what they said so far is kept"
    )
    abort.add_argument("sessions", nargs="+", metavar="SESSION", help="ids, as `list` shows them")
    abort.add_argument(
        "--wait", type=_positive, default=30, metavar="S", help="for the end; default 30"
    )
    abort.set_defaults(command=_abort_sessions)


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.description = (
        "Starts a local broker (or uses --bootstrap-servers) and a worker, plays bundled calls at "
        "real-time pace, shows the transcripts and checks that all arrived."
    )
    demo.add_argument("--calls", type=_positive, default=8, help="calls at once; default 8")
    demo.add_argument("--speed", type=_speed, default=1.0, help="times real time")
    demo.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    demo.add_argument(
        "--time-limit",
        type=_positive,
        default=180,
        metavar="S",
        help="for all to arrive; default 180",
    )
    demo.add_argument(
        "--broker", choices=("kafka", "container", "mock"), help="default: the best there is"
    )
    demo.add_argument("--cache-dir", type=Path, help="where Kafka's jars are kept")
    demo.set_defaults(command=_demo)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _speed(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1000:
        raise argparse.ArgumentTypeError("must be between 0 and 1000")
    return number


def _settings(options: argparse.Namespace) -> Settings:
    from worker.settings import SettingsError, load

    try:
        return load(options.config)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
        raise SystemExit(USAGE_ERROR) from None


def _run(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from worker.run import run

    return run(settings)


def _check_config(options: argparse.Namespace) -> int:
    for name, value in _settings(options).describe().items():
        sys.stdout.write(f"{name} = {value}\n")
    return 0


def _health(options: argparse.Namespace) -> int:
    from worker.probe import ask

    path = "/readyz" if options.ready else "/livez"
    if options.port:
        return ask("127.0.0.1", options.port, path)
    http = _settings(options).http
    return ask(http.host, http.port, path)


def _topics(options: argparse.Namespace) -> int:
    from worker.commands import topics

    return topics(_settings(options), options.create)


def _list_sessions(options: argparse.Namespace) -> int:
    from worker.commands import list_sessions

    return list_sessions(_settings(options), options.most, options.json)


def _abort_sessions(options: argparse.Namespace) -> int:
    from worker.commands import abort_sessions

    return abort_sessions(_settings(options), options.sessions, options.wait)


def _dead_letters(options: argparse.Namespace) -> int:
    from worker.commands import dead_letters

    return dead_letters(_settings(options), request_of(options))


def _tail(options: argparse.Namespace) -> int:
    from worker.commands import tail

    return tail(_settings(options), options.plain, options.from_beginning)


def _produce(options: argparse.Namespace) -> int:
    from worker.commands import produce
    from worker.errors import CodecError
    from worker.options import parse_options
    from worker.produce import CallOptions

    if options.by_reference and not options.files:
        sys.stderr.write("--by-reference goes with --files\n")
        return USAGE_ERROR
    try:
        parse_options(options.options or "{}")
    except CodecError as error:
        sys.stderr.write(f"--options: {error.message}\n")
        return USAGE_ERROR
    calls = CallOptions(
        calls=options.calls,
        speed=options.speed,
        chunk_ms=options.chunk_ms,
        encoding=options.encoding,
        separate_channels=options.separate_channels,
        loop=options.loop,
        options=options.options,
    )
    return produce(_settings(options), options.paths, calls, options.files, options.by_reference)


def _demo(options: argparse.Namespace) -> int:
    from worker.demo import DemoOptions, demo

    return demo(
        DemoOptions(
            calls=options.calls,
            speed=options.speed,
            plain=options.plain,
            time_limit_s=options.time_limit,
            broker=options.broker,
            cache_dir=options.cache_dir,
        )
    )
