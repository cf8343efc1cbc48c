"""The topics that `oasr-worker topics --create` makes."""

from __future__ import annotations

from worker.settings import Settings
from worker.topics import topic_specs

WEEK_MS = 7 * 24 * 3600 * 1000


def test_state_records_go_by_their_age_alone_and_stay_for_more_than_a_week() -> None:
    settings = Settings(kafka={"bootstrap_servers": "127.0.0.1:1"}, topics={"state": "s"})
    (spec,) = [spec for spec in topic_specs(settings) if spec.name == "s"]

    assert spec.config["cleanup.policy"] == "delete"
    assert int(spec.config["retention.ms"]) >= WEEK_MS
