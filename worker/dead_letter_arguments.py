"""The arguments of `oasr-worker dead-letters`, and what they ask for."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from worker.errors import ErrorCode

if TYPE_CHECKING:
    from worker.dead_letter_commands import ListRequest, ReplayRequest, ShowRequest

_AGO: Final = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})", re.ASCII)
_LISTED: Final = 100


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """The actions of the command."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    listed = actions.add_parser("list", parents=[common], help="which there are, newest last")
    _add_filters(listed)
    listed.add_argument(
        "--limit",
        type=_positive,
        metavar="N",
        help=f"the newest N; default {_LISTED}, with --json all",
    )
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    listed.add_argument("--summary", action="store_true", help="numbers by code instead")
    show = actions.add_parser("show", parents=[common], help="all about one, but for its audio")
    show.add_argument("letter", metavar="LETTER", help="its id, or PARTITION:OFFSET as in `list`")
    show.add_argument("--value", metavar="FILE", help="write its value there alone; - for stdout")
    show.add_argument("--json", action="store_true", help="one JSON object")
    replay = actions.add_parser(
        "replay", parents=[common], help="send the refused messages again, oldest first"
    )
    _add_replay(replay)


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "places", nargs="*", type=_place, metavar="PARTITION:OFFSET", help="these letters alone"
    )
    _add_filters(replay)
    replay.add_argument("--limit", type=_positive, metavar="N", help="the oldest N alone")
    replay.add_argument(
        "--after",
        type=_place,
        action="append",
        default=[],
        metavar="PARTITION:OFFSET",
        help="begin behind this letter of its partition, as an earlier replay says; repeatable",
    )
    replay.add_argument("--to", metavar="TOPIC", help="instead of the topic they came from")
    replay.add_argument("--rate", type=_rate, metavar="N", help="at most so many a second")
    replay.add_argument(
        "--max-attempts",
        type=_positive,
        default=3,
        metavar="N",
        help="leave what was tried so often; default 3",
    )
    replay.add_argument("--dry-run", action="store_true", help="only say what would go where")
    replay.add_argument("--yes", action="store_true", help="do not ask")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--code",
        action="append",
        default=[],
        choices=[code.value for code in ErrorCode],
        metavar="CODE",
        help="refused for this reason; repeatable",
    )
    parser.add_argument("--topic", help="that came from this topic")
    parser.add_argument("--key", help="of this session or file, as `list` shows it")
    when = "2026-07-25T17:20:00Z, or ago: 90s, 30m, 2h, 7d"
    parser.add_argument("--since", type=_moment, metavar="TIME", help=f"not older than {when}")
    parser.add_argument("--until", type=_moment, metavar="TIME", help="older than that")


def request_of(options: argparse.Namespace) -> ListRequest | ShowRequest | ReplayRequest:
    """What the parsed arguments ask for."""
    from worker.dead_letter_commands import ListRequest, ReplayRequest, ShowRequest
    from worker.dead_letter_read import Selection

    if options.action == "show":
        return ShowRequest(options.letter, options.value, options.json)
    selection = Selection(
        codes=frozenset(options.code),
        topic=options.topic,
        key=options.key,
        since_ms=options.since,
        until_ms=options.until,
        places=frozenset(getattr(options, "places", ())),
    )
    if options.action == "list":
        most = _LISTED if options.limit is None and not options.json else options.limit
        return ListRequest(selection, most, options.json, options.summary)
    return ReplayRequest(
        selection=selection,
        most=options.limit,
        after=dict(options.after),
        to=options.to,
        max_attempts=options.max_attempts,
        per_second=options.rate,
        dry_run=options.dry_run,
        yes=options.yes,
    )


def _moment(text: str) -> int:
    """Milliseconds since the epoch of an ISO time (UTC where it names no zone), or of an age."""
    if ago := _AGO.fullmatch(text):
        return round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("neither an ISO time nor like 30m or 2h") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _place(text: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError("not PARTITION:OFFSET")
    return int(found[1]), int(found[2])


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0.001 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError("must be between 0.001 and 1000000")
    return number
