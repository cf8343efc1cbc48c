"""Metrics and probes over HTTP: `/metrics`, `/startupz`, `/livez`, `/readyz`.

The server has a thread of its own, so that a loop that hangs is seen. It reads `Health`, which
the loop writes; each check is one attribute, so no lock is needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

import orjson

from worker.listening import HttpServer
from worker.metrics import Registry, exposition

logger = logging.getLogger(__name__)

MAX_TURN_AGE_S: Final = 30.0
MAX_BROKER_AGE_S: Final = 60.0
CHECKS: Final = ("started", "loop", "no_fatal_error", "joined", "broker", "not_draining")

Checks = dict[str, bool]


class Health:
    """What the loop says about itself.

    Live never depends on brokers: an outage must not restart workers that would only have to
    join again. Ready gates rollouts: joined is enough, with no partitions too.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_turn_age_s: float = MAX_TURN_AGE_S,
        max_broker_age_s: float = MAX_BROKER_AGE_S,
    ) -> None:
        self._clock = clock
        self._max_turn_age_s = max_turn_age_s
        self._max_broker_age_s = max_broker_age_s
        self._last_turn: float | None = None
        self._broker_seen: float | None = None
        self.started = False  # the model is loaded and warm
        self.joined = False  # an assignment came, be it empty
        self.draining = False
        self.fatal: str | None = None  # why the worker cannot go on

    def begin(self) -> None:
        """The model is ready, and the loop's first turn is due."""
        self.turned()
        self.started = True

    def turned(self) -> None:
        """The loop has turned."""
        self._last_turn = self._clock()

    def saw_broker(self) -> None:
        """A broker has answered."""
        self._broker_seen = self._clock()

    def startup(self) -> Checks:
        """Whether the model is ready; no broker is asked for."""
        return {"started": self.started}

    def live(self) -> Checks:
        """Whether the loop turns; true while the model still loads."""
        turning = not self.started or self._age(self._last_turn) <= self._max_turn_age_s
        return {"loop": turning, "no_fatal_error": self.fatal is None}

    def ready(self) -> Checks:
        """Whether this worker does its share of the group's work."""
        return {
            "started": self.started,
            "joined": self.joined,
            "broker": self._age(self._broker_seen) <= self._max_broker_age_s,
            "not_draining": not self.draining,
            "no_fatal_error": self.fatal is None,
        }

    def passes(self, check: str) -> bool:
        """Whether one of `CHECKS` passes now."""
        return {**self.startup(), **self.live(), **self.ready()}[check]

    def _age(self, moment: float | None) -> float:
        return float("inf") if moment is None else self._clock() - moment


class HealthServer(HttpServer):
    """Serves probes and metrics until `close`; also a context manager."""

    def __init__(self, host: str, port: int, registry: Registry, health: Health) -> None:
        """Listens at once, on any free port for port 0; ListenError if that is not possible."""

        class Handler(_ProbeHandler):
            pass

        Handler.registry = registry
        Handler.probes = {
            "/startupz": health.startup,
            "/livez": health.live,
            "/readyz": health.ready,
        }
        super().__init__(host, port, Handler)


class _ProbeHandler(BaseHTTPRequestHandler):
    registry: Registry
    probes: dict[str, Callable[[], Checks]]
    timeout = 10
    server_version = "oasr-worker"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.split("?", 1)[0]
        if path == "/metrics":
            content_type, page = exposition(self.registry, self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content_type, page)
            return
        probe = self.probes.get(path)
        if probe is None:
            self._answer(HTTPStatus.NOT_FOUND, "application/json", b'{"error":"not found"}')
            return
        checks = probe()
        passed = all(checks.values())
        status = HTTPStatus.OK if passed else HTTPStatus.SERVICE_UNAVAILABLE
        body = {"status": "ok" if passed else "failing", "checks": checks}
        self._answer(status, "application/json", orjson.dumps(body))

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug("http: %s", format % args)
