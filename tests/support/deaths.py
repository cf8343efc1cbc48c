"""What had become of an owner's last commit when it died; `Desk.take_over` follows."""

from __future__ import annotations

from tests.support.partitions import Desk


def nothing(desk: Desk) -> None:
    del desk


def commit_lost_on_its_way(desk: Desk) -> None:
    desk.prepare()


def commit_answer_lost(desk: Desk) -> None:
    commit = desk.prepare()
    desk.committed.offset, desk.committed.metadata = commit.offset, commit.metadata
