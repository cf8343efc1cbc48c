"""An HTTPS server on a loopback port, with a certificate of an authority of its own."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Web:
    """What the server answers by path, and what it was asked."""

    port: int
    ca_file: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # (path with query, host)

    def url(self, path: str, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"


def content(body: bytes, status: int = 200, stated: int | None = None, **headers: str) -> Answer:
    """An answer with a body, whose length may be stated wrongly."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body) if stated is None else stated))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def endless(request: BaseHTTPRequestHandler) -> None:
    """Bytes without end and without a stated length."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(bytes(1 << 16))
    except OSError:
        return


@contextmanager
def web(folder: Path, *names: str) -> Iterator[Web]:
    """A server for these names."""
    authority = trustme.CA()
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append((self.path, self.headers["Host"]))
            path = self.path.partition("?")[0]
            served.answers.get(path, content(b"", 404))(self)

        def log_message(self, *_arguments: object) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> tuple[ssl.SSLSocket, object]:
            connection, address = self.socket.accept()
            connection.settimeout(30)
            return context.wrap_socket(connection, server_side=True), address

        def handle_error(self, *_arguments: object) -> None:
            """Clients may leave when they like."""

    with Server(("127.0.0.1", 0), Handler) as server:
        served = Web(server.server_port, ca_file)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield served
        server.shutdown()
        thread.join()
