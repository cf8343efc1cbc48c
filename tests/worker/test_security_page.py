"""What `docs/security.md` says is so: the rights that were tried, and the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import AclOperation, ResourceType

from tests.support.kafka_clients import Topics
from tests.support.secured_kafka import least_rights

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
FIELDS = ("chunks", "files", "transcripts", "partials", "events", "dead_letters", "state")
TOPICS = Topics(*(f"topics.{field}" for field in FIELDS))
RESOURCES = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
}


def test_the_rights_are_those_that_were_tried_on_a_broker() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| (READ|WRITE) \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)
    always = least_rights(TOPICS, "G", exactly_once=False)
    tried = least_rights(TOPICS, "G", exactly_once=True)

    assert len(rows) == len(tried)
    assert {name for name, *_ in rows} == tried.keys()
    for name, operation, resource, modes in rows:
        right = tried[name]
        assert right.operation is AclOperation[operation]
        named = right.name.replace("G.files", "F")
        prefix = ", prefix" if right.is_prefix else ""
        assert resource == f"{RESOURCES[right.resource]}{prefix} `{named}`"
        assert modes == ("yes" if name in always else "exactly once only")


def test_every_test_that_shows_something_exists() -> None:
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = re.findall(r"`(test_\w+)`", PAGE)

    assert len(named) > 20
    assert set(named) - written == set()


def test_every_path_of_the_page_is_there() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).is_file(), path
