"""URIs of claim checks that want out of what is allowed, and a network that sees where they get.

Everything follows from the random generator that is given, so that a number names a URI. No real
connection is made: a connection of ours notes where it was to lead and answers, with redirects too.
"""

from __future__ import annotations

import io
import ipaddress
import os
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import quote

import urllib3

from worker.addresses import HostRules
from worker.codec import CodecError, FileJob
from worker.errors import ErrorCode
from worker.file_source import FileLimits, open_source
from worker.https_download import HttpsRules

INSIDE: Final = b"inside"
SECRET: Final = b"secret"
CODES: Final = frozenset(
    (ErrorCode.URI_FORBIDDEN, ErrorCode.FETCH_FAILED, ErrorCode.FETCH_UNAVAILABLE)
)
_CANARY: Final = "cAnArY"
_BUCKETS: Final = ("recordings", "a.b")
# Names that may be asked for, and where they lead: the network of the internet is theirs to name.
_LISTED: Final = {
    "public.example": ("93.184.216.34",),
    "two.example": ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"),
    "inner.example": ("10.0.0.1",),
    "both.example": ("93.184.216.34", "192.168.1.1"),
    "here.example": ("127.0.0.1",),
    "mapped.example": ("::ffff:10.0.0.1",),
    "six.example": ("2002:7f00:1::",),
    "nat.example": ("64:ff9b::a9fe:a9fe",),
    "link.example": ("fe80::1%eth0",),
    "cloud.example": ("169.254.169.254",),
    "zero.example": ("0.0.0.0",),
    "93.184.216.34": ("93.184.216.34",),
    "127.0.0.1": ("127.0.0.1",),
    "below.wide.example": ("93.184.216.35",),
    "inner.wide.example": ("172.16.0.1",),
}
_HOSTS: Final = (
    *_LISTED,
    *(("public.example", "two.example", "below.wide.example") * 8),
    *("evil.example", "wide.example", "evilwide.example", "public.example.", "PUBLIC.EXAMPLE"),
    *("public.example.evil.example", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"),
    *("localhost", "", ".", "xn--public.example", "pub\u00adlic.example", "ｐublic.example"),
    *("public。example", "a" * 70 + ".example", "public.example%00.evil.example", "[fe80::1%25x]"),
    *("public.example\\.evil.example", "public.example#", "public.example?", _CANARY),
)
_PORTS: Final = (*("",) * 12, ":443", ":8443", ":80", ":0", ":65536", ":-1", ":", ":4 4", ":٣")
_SCHEMES: Final = (
    *("file", "file", "file", "file", "https", "https", "https", "https", "s3", "s3", "http"),
    *("FILE", "hTTps", "ftp", "data", "jar:file", "file+https", "", "gopher", "\u2066https"),
)
_USERS: Final = (*("",) * 20, "user@", "user:pw@", "public.example@", "@")
_NAMES: Final = (
    *("inside.wav", "inside.wav", "deep", "deep/inside.wav", "..", "..", ".", "", "secret.wav"),
    *("out", "out/secret.wav", "link.wav", "leads-out.wav", "loop", "pipe", "tree", "etc"),
    *("passwd", "proc", "self", "environ", "a" * 300, "\u202e", "é.wav", "%", "~", _CANARY),
)
_ODD: Final = (
    *(
        "%00",
        "%2e%2e",
        "%2f",
        "%5c",
        "\\",
        "%",
        "%zz",
        "\t",
        "\n",
        "\r\nX: 1",
        " ",
        "\0",
        "?x",
        "#x",
    ),
    *(";", "//", "/./", "/../", "%252e%252e", "%c0%ae", "%ff", "@", ":", "\u2028", "ｅ", "[", "]"),
)


@dataclass
class Place:
    """A folder that may be read, all that lies around it, and the network."""

    base: Path
    limits: FileLimits
    connections: list[tuple[str, int]] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)  # what servers answer next
    buckets: list[str] = field(default_factory=list)  # that were asked for


@contextmanager
def place(base: Path) -> Iterator[Place]:
    """The folder `base/tree` is a root; nothing of the network is real meanwhile."""
    base = base.resolve()
    root = base / "tree"
    (root / "deep").mkdir(parents=True)
    (root / "inside.wav").write_bytes(INSIDE)
    (root / "deep" / "inside.wav").write_bytes(INSIDE)
    (base / "secret.wav").write_bytes(SECRET)
    (root / "link.wav").symlink_to("deep/inside.wav")
    (root / "leads-out.wav").symlink_to("../secret.wav")
    (root / "out").symlink_to("..")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    context = ssl.create_default_context()
    hosts = (*(h for h in _LISTED if ".wide." not in h), "public.example:8443", "*.wide.example")
    limits = FileLimits(
        roots=(root,),
        max_bytes=1000,
        max_duration_s=60,
        fetch_timeout_s=0.4,  # type: ignore[arg-type]  # one attempt: less than the first pause
        https=HttpsRules(HostRules(hosts)),
        s3_buckets=_BUCKETS,
    )
    made = Place(base, limits)
    pool = "urllib3.connectionpool.HTTPSConnectionPool.ConnectionCls"
    with (
        patch(pool, _connection(made)),
        patch("socket.getaddrinfo", _addresses),
        patch("worker.s3_download._client", lambda: _Buckets(made)),
        patch("worker.https_download._trust", lambda _path: context),  # made anew, it takes 5 ms
    ):
        yield made


def hostile_uri(rng: random.Random, base: Path) -> str:
    """A URI, or what somebody might think to be one."""
    scheme = rng.choice(_SCHEMES)
    where = f"{rng.choice(_USERS)}{rng.choice(_HOSTS)}{rng.choice(_PORTS)}"
    path = "/".join(["", *(rng.choice(_NAMES) for _ in range(rng.randrange(5)))])
    if scheme.lower() == "file":
        where = where if rng.random() < 0.1 else rng.choice(("", "", "localhost"))
        path = f"{base}/tree{path}" if rng.random() < 0.8 else path
    elif scheme == "s3":
        where = rng.choice((*_BUCKETS, "others", "recordings.evil", "", "Recordings", where))
    if rng.random() < 0.3:
        path = quote(path, safe=rng.choice(("/", "")))
    uri = f"{scheme}://{where}{path}"
    while rng.random() < 0.35:
        at = rng.randrange(len(uri) + 1)
        cut = at + (rng.randrange(3) if rng.random() < 0.3 else 0)
        uri = uri[:at] + rng.choice(_ODD) + uri[cut:]
    return uri


def one_uri(number: int, around: Place) -> str:
    """What becomes of the URI of this number, and of the redirects behind it."""
    rng = random.Random(number)
    uri, *redirects = (hostile_uri(rng, around.base) for _ in range(rng.choice((1, 1, 1, 2, 3, 8))))
    return check_uri(uri, around, redirects)


def check_uri(uri: str, around: Place, redirects: list[str]) -> str:
    """What becomes of a claim check, which is one of few things; AssertionError for another one."""
    around.connections.clear()
    around.buckets.clear()
    around.redirects[:] = redirects
    refusal = None
    try:
        with open_source(FileJob("f", None, uri), around.limits) as file:
            assert file.read() == INSIDE
    except CodecError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in CODES
        assert _CANARY not in refusal.message
        assert refusal.message.isprintable()
    public = {a for addresses in _LISTED.values() for a in addresses if _is_public(a)}
    assert all(address in public for address, _port in around.connections)
    assert all(port in (443, 8443) for _address, port in around.connections)
    assert len(around.connections) <= 6
    assert set(around.buckets) <= set(_BUCKETS)
    if refusal is None:
        return f"read {uri.partition(':')[0].lower()}"
    return refusal.code.value


def _is_public(address: str) -> bool:
    """The few networks of the internet that this page's names lead to."""
    networks = ("93.184.216.0/24", "2606:2800:220:1::/64")
    found = ipaddress.ip_address(address.partition("%")[0])
    return any(found in ipaddress.ip_network(network) for network in networks)


def _addresses(host: str, port: int, **_more: Any) -> list[tuple[Any, ...]]:
    host.encode("idna")  # as the real one does; UnicodeError
    found = _LISTED.get(host)
    if found is None:
        raise socket.gaierror("no such name")
    return [(0, 0, 0, "", (address, port)) for address in found]


def _connection(around: Place) -> type[urllib3.connection.HTTPSConnection]:
    class Connection(urllib3.connection.HTTPSConnection):
        """Leads nowhere, notes whereto it should have, and answers."""

        def connect(self) -> None:
            around.connections.append((self.host, self.port))
            self.is_verified = True
            redirect = around.redirects.pop(0) if around.redirects else None
            self.sock = _Socket(redirect)  # type: ignore[assignment]

    return Connection


class _Socket:
    """Takes a request whole; its answer is a recording, or leads on."""

    def __init__(self, redirect: str | None) -> None:
        self._asked = b""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + INSIDE
        if redirect is not None:
            location = redirect.encode().replace(b"\r", b"").replace(b"\n", b"")
            head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
        self._answer = head

    def sendall(self, data: bytes) -> None:
        self._asked += data

    def makefile(self, *_mode: object) -> io.BufferedReader:
        lines = self._asked.split(b"\r\n")
        assert lines[0].startswith(b"GET /")
        assert lines[0].endswith(b" HTTP/1.1")
        assert len(lines[0].split(b" ")) == 3
        names = [line.partition(b":")[0].lower() for line in lines[1:-2]]
        # Nothing of a URI became a header of its own.
        assert sorted(names) == [b"accept-encoding", b"host", b"user-agent"]
        return io.BufferedReader(io.BytesIO(self._answer))  # type: ignore[arg-type]

    def settimeout(self, _seconds: object) -> None: ...

    def close(self) -> None: ...


class _Buckets:
    """Buckets that all hold what is asked for."""

    def __init__(self, around: Place) -> None:
        self._around = around

    def get_object(self, **asked: str) -> dict[str, Any]:
        self._around.buckets.append(asked["Bucket"])
        assert asked["Key"]
        return {"ContentLength": len(INSIDE), "Body": _Body()}


class _Body:
    def iter_chunks(self, _size: int) -> Iterator[bytes]:
        yield INSIDE

    def close(self) -> None: ...
