"""An HTTP server with threads of its own, which end with the process."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)


class ListenError(Exception):
    """The address cannot be listened on; the message says why."""


class HttpServer:
    """Answers requests until `close`; also a context manager."""

    def __init__(self, host: str, port: int, requests: type[BaseHTTPRequestHandler]) -> None:
        """Listens at once, on any free port for port 0; ListenError if that is not possible."""
        try:
            self._server = _server_class(host)((host, port), requests)
        except OSError as error:
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            name="http",
            daemon=True,
            kwargs={"poll_interval": 0.1},
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stops listening and waits for the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = AF_INET

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that hangs up early is no event for the log."""
        logger.debug("a request failed", exc_info=True)


class _ServerV6(_Server):
    address_family = AF_INET6


def _server_class(host: str) -> type[_Server]:
    return _ServerV6 if ":" in host else _Server
