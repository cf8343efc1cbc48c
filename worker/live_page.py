"""The live page: one HTML file and the snapshot that it asks for. Off unless it is asked for.

It has no sign-in, so it listens on the loopback interface alone unless told otherwise, answers
only where it is called by an address or a name that it knows (no other site can then read it by a
name of its own that it lets point here), and changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import logging
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from typing import Final

import orjson

from worker.listening import HttpServer
from worker.live_board import LiveBoard
from worker.settings_live_page import LivePage

logger = logging.getLogger(__name__)

_ANYWHERE: Final = frozenset(("localhost",))
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOT_YET: Final = {"waiting_for": "the next turn of the loop"}
AGE_HEADER: Final = "Snapshot-Age-Ms"


class LivePageServer(HttpServer):
    """Serves the page and the board's snapshots until `close`."""

    def __init__(self, options: LivePage, board: LiveBoard) -> None:
        """Listens at once, on any free port for port 0; ListenError if that is not possible."""

        class Requests(_Requests):
            pass

        Requests.board = board
        Requests.page = page_source().encode()
        Requests.policy = content_security_policy(page_source())
        Requests.names = _ANYWHERE | {name.lower() for name in options.names}
        super().__init__(options.host, options.port, Requests)


def page_source() -> str:
    """The HTML of the page."""
    return files("worker").joinpath("assets", "live.html").read_text(encoding="utf-8")


def content_security_policy(page: str) -> str:
    """The page's own script and style, by their hashes, and questions to where it came from."""
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind] = f"'sha256-{digest}'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes['script']}",
            f"style-src {hashes['style']}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def is_called_by_a_known_name(host: str | None, names: frozenset[str]) -> bool:
    """Whether a Host header is an IP address or one of `names`, with or without a port."""
    if host is None:
        return False
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d{1,5})?", host)
    if found is None:
        return False
    name = found[1].removeprefix("[").removesuffix("]").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True


class _Requests(BaseHTTPRequestHandler):
    board: LiveBoard
    page: bytes
    policy: str
    names: frozenset[str]
    timeout = 10
    server_version = "oasr-worker"
    sys_version = ""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not is_called_by_a_known_name(hosts[0], self.names):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "not a name of this page")
            return
        path = self.path.split("?", 1)[0]
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.page)
        elif path == "/live.json":
            self._show()
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses: other methods, and what is no request."""
        del message, explain
        self._refuse(HTTPStatus(code), "refused")

    def _show(self) -> None:
        seen = self.board.look()
        if seen is None:
            self._answer(HTTPStatus.ACCEPTED, "application/json", orjson.dumps(_NOT_YET))
            return
        body, age_s = seen
        self._answer(
            HTTPStatus.OK, "application/json", body, {AGE_HEADER: str(round(age_s * 1000))}
        )

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._answer(status, "application/json", orjson.dumps({"error": reason}))

    def _answer(
        self,
        status: HTTPStatus,
        content_type: str,
        body: bytes,
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        headers["Content-Security-Policy"] = self.policy
        for name, value in (headers | _HEADERS | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug("live page: %s", format % args)
