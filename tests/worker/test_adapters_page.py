"""The bridges of docs/adapters.md, as they stand there, make calls of what a platform sends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.ingress import example
from tests.support.partitions import Desk
from worker.ingress import READERS
from worker.messages import RawMessage

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")


class Log:
    """What a producer wrote, in order."""

    def __init__(self) -> None:
        self.messages: list[RawMessage] = []

    def produce(self, topic: str, key: str, value: str | bytes, headers: Mapping[str, str]) -> None:
        data = value if isinstance(value, bytes) else value.encode()
        pairs = tuple((name, text.encode()) for name, text in headers.items())
        offset = len(self.messages)
        self.messages.append(RawMessage(topic, 0, offset, 1, key.encode(), data, pairs))

    def poll(self, timeout_s: float) -> None: ...

    def flush(self) -> None: ...


async def socket(frames: list[str | bytes]) -> AsyncIterator[str | bytes]:
    for frame in frames:
        yield frame


def frames_of(name: str) -> list[str | bytes]:
    """An example as the platform sent it: JSON as text, audio as bytes."""
    return [
        (raw.value or b"").decode()
        if b"+json" in (dict(raw.headers).get("content-type") or b"")
        else raw.value or b""
        for raw in example(name)
    ]


def bridge_of(section: str) -> Any:
    """The `bridge` of the Python block below a heading of the page."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, f"docs/adapters.md, {section}", "exec"), names)
    return names["bridge"]


def test_the_bridge_of_twilio_makes_a_call_of_its_messages():
    log = Log()

    asyncio.run(bridge_of("Twilio and Telnyx")(socket(frames_of("twilio")), log))

    desk = Desk(log.messages)
    desk.run()
    assert desk.dead_letters() == []
    (ended,) = desk.told("ended")
    assert ended["session_id"] == "CA" + "0" * 31 + "1"
    assert [total["received"]["samples"] for total in ended["totals"]] == [1920, 1920]


def test_the_bridge_of_audiohook_writes_what_the_example_has():
    log = Log()

    asyncio.run(bridge_of("Genesys AudioHook")(socket(frames_of("audiohook")), log, "call-7f3a"))

    assert [(raw.key, raw.value, dict(raw.headers)) for raw in log.messages] == [
        (raw.key, raw.value, dict(raw.headers)) for raw in example("audiohook")
    ]


@pytest.mark.parametrize("media_type", list(READERS))
def test_the_page_names_every_shape(media_type):
    assert f"`{media_type}`" in PAGE
