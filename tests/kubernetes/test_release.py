"""The chart on a real node: installed, changed in mid-call in every way, and taken away."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.support.kafka import Topics, wait_until
from tests.support.kubernetes import Namespace, Release
from tests.support.kubernetes_calls import (
    Calls,
    assert_nothing_was_lost,
    assert_nothing_was_repeated,
    members,
)

MakeRelease = Callable[..., Release]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_calls_outlive_every_change_of_the_release_that_serves_them(
    mode: str, kafka: str, topics: Topics, namespace: Namespace, make_release: MakeRelease
) -> None:
    calls = Calls(kafka, topics, parts=7)
    release = make_release("oasr", {"config": {"delivery": {"mode": mode}}})
    release.install()
    release.await_ready(2)
    first, made = release.ready(), release.own()
    assert release.restarts() == 0
    release.test()
    calls.go_on()

    calls.go_on_while(lambda: release.upgrade("config.commits.interval_ms=321"))
    release.await_ready(2)
    assert release.ready().isdisjoint(first)
    assert release.setting("commits.interval_ms") == "321"

    victim = sorted(release.ready())[0]
    calls.go_on_while(lambda: namespace.kubectl("delete", "pod", victim))
    release.await_ready(2)
    assert victim not in release.ready()

    changed = ("config.commits.interval_ms=321",)
    kept = release.ready()
    calls.go_on_while(lambda: release.upgrade(*changed, "replicas=3"))
    release.await_ready(3)
    assert kept < release.ready()

    calls.go_on_while(lambda: release.upgrade(*changed, "replicas=1"))
    release.await_ready(1)

    calls.go_on_while(lambda: release.rollback(1))
    release.await_ready(2)
    assert release.setting("commits.interval_ms") != "321"
    assert release.restarts() == 0
    assert release.own() == made

    calls.go_on()
    assert calls.said
    assert_nothing_was_lost(kafka, topics, calls.number)
    if mode == "exactly-once":
        assert_nothing_was_repeated(kafka, topics)
    release.uninstall()
    release.await_gone()
    wait_until("the group has no member", lambda: members(kafka, topics.chunks) == {}, 20)


def test_a_pod_that_is_not_restricted_is_refused_here(namespace: Namespace) -> None:
    command = ["kubectl", "--namespace", namespace.name, "run", "free", "--image=busybox"]
    refused = subprocess.run(
        [*command, "--dry-run=server"], capture_output=True, text=True, check=False, timeout=60
    )

    assert refused.returncode != 0
    assert "violates PodSecurity" in refused.stderr
