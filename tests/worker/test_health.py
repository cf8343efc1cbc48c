"""Probes tell start, life and readiness apart, from a thread that the loop cannot block."""

from __future__ import annotations

import http.client
import json
import socket

import pytest
from prometheus_client import CollectorRegistry, Gauge

from worker.health import CHECKS, Health, HealthServer
from worker.listening import ListenError
from worker.metrics import Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(clock)


@pytest.fixture
def server(health):
    registry = CollectorRegistry()
    Gauge("answer", "The answer.", registry=registry).set(42)
    with HealthServer("127.0.0.1", 0, registry, health) as running:
        yield running


def ask(server: HealthServer, path: str, method: str = "GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def running(health: Health) -> None:
    health.started = health.joined = True
    health.turned()
    health.saw_broker()


def test_a_worker_that_loads_its_model_is_alive_and_neither_started_nor_ready(health):
    assert health.startup() == {"started": False}
    assert all(health.live().values())
    assert not all(health.ready().values())


def test_a_worker_that_has_just_started_is_alive_for_as_long_as_a_turn_may_take(health, clock):
    clock.now += 1_000
    health.begin()
    clock.now += 30
    assert all(health.startup().values())
    assert all(health.live().values())

    clock.now += 1
    assert not all(health.live().values())


def test_a_worker_that_turns_in_its_group_is_all_three(health):
    running(health)

    for checks in (health.startup(), health.live(), health.ready()):
        assert all(checks.values())


@pytest.mark.parametrize(
    ("change", "live", "ready"),
    [
        ("the loop hangs", False, True),
        ("the brokers are away", True, False),
        ("it left the group", True, False),
        ("it drains", True, False),
        ("a fatal error", False, False),
    ],
)
def test_each_trouble_fails_the_probes_that_it_should(health, clock, change, live, ready):
    running(health)
    clock.now += 61
    if change != "the loop hangs":
        health.turned()
    if change != "the brokers are away":
        health.saw_broker()
    health.joined = change != "it left the group"
    health.draining = change == "it drains"
    health.fatal = "fenced" if change == "a fatal error" else None

    assert all(health.live().values()) is live
    assert all(health.ready().values()) is ready


def test_probes_answer_with_the_name_of_each_check(server, health):
    status, body, headers = ask(server, "/readyz?verbose")
    assert status == 503
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["status"] == "failing"
    assert json.loads(body)["checks"]["joined"] is False

    running(health)

    assert ask(server, "/readyz")[0] == 200
    assert ask(server, "/livez")[0] == 200
    status, body, _ = ask(server, "/startupz")
    assert (status, json.loads(body)) == (200, {"status": "ok", "checks": {"started": True}})


def test_every_check_is_a_series_that_a_scrape_asks_anew(health, clock):
    registry = CollectorRegistry()
    Metrics(registry).watch_health(CHECKS, health.passes)

    def passing() -> set[str]:
        name = "oasr_worker_health_check_status"
        return {c for c in CHECKS if registry.get_sample_value(name, {"check": c}) == 1}

    assert set(CHECKS) == {*health.startup(), *health.live(), *health.ready()}
    assert passing() == {"loop", "no_fatal_error", "not_draining"}
    running(health)
    assert passing() == set(CHECKS)
    clock.now += 31
    assert passing() == set(CHECKS) - {"loop"}


def test_metrics_are_exposed(server):
    status, body, headers = ask(server, "/metrics")

    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"answer 42.0" in body


def test_other_paths_are_not_found_and_head_has_no_body(server):
    assert ask(server, "/")[0] == 404
    status, body, headers = ask(server, "/metrics", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_a_client_that_hangs_up_does_not_disturb_the_next(server):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as half:
            half.sendall(b"GET /metrics HTTP/1.1\r\n")

    assert ask(server, "/livez")[0] == 200


def test_a_port_that_is_taken_is_named(server, health):
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        HealthServer("127.0.0.1", server.port, CollectorRegistry(), health)


def test_a_closed_server_gives_its_port_back(health):
    first = HealthServer("127.0.0.1", 0, CollectorRegistry(), health)
    port = first.port
    first.close()

    with HealthServer("127.0.0.1", port, CollectorRegistry(), health) as again:
        assert ask(again, "/livez")[0] == 200
