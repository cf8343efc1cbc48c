"""Claim checks over https: what is listed comes whole, what is not is never connected to."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.web import Web, content, endless, web
from worker.addresses import HostRules, is_allowed
from worker.codec import CodecError
from worker.downloads import Body, Downloading, Temporary, check_status
from worker.errors import ErrorCode
from worker.https_download import HttpsRules, open_https

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
RECORDING = bytes(range(256)) * 1_000
HOST = "recordings.example"
SIGNATURE = "X-Amz-Signature=5ec4e7"


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server that is known as a host of the internet, and whose names all lead to it."""
    resolved = socket.getaddrinfo

    def names(host: str, port: int, *arguments: Any, **more: Any) -> Any:
        leads_to = "127.0.0.1" if host.endswith(".example") else host
        return resolved(leads_to, port, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", names)
    with web(tmp_path, HOST, "elsewhere.example") as served:
        yield served


def rules(server: Web, *hosts: str) -> HttpsRules:
    listed = hosts or (f"{HOST}:{server.port}",)
    return HttpsRules(HostRules(listed, LOOPBACK), server.ca_file)


def download(
    server: Web, path: str, https: HttpsRules | None = None, **more: Any
) -> tuple[bytes, Time]:
    time = Time()
    settings = {"max_bytes": 1 << 20, "timeout_s": 20.0, **more}
    downloading = Downloading(now=time.now, sleep=time.sleep, **settings)
    found = rules(server) if https is None else https
    url = server.url(path, HOST) if path.startswith("/") else path
    with downloading.fetch(lambda attempt: open_https(url, attempt, found)) as file:
        file.seek(0)
        return file.read(), time


def refused(server: Web, path: str, https: HttpsRules | None = None, **more: Any) -> CodecError:
    with pytest.raises(CodecError) as caught:
        download(server, path, https, **more)
    assert SIGNATURE not in caught.value.message
    assert HOST not in caught.value.message
    return caught.value


def test_a_listed_host_is_read_with_its_query_and_its_name(server: Web) -> None:
    server.answers["/a.wav"] = content(RECORDING)

    found, time = download(server, f"/a.wav?{SIGNATURE}")

    assert found == RECORDING
    assert server.asked == [(f"/a.wav?{SIGNATURE}", f"{HOST}:{server.port}")]
    assert time.pauses == []


@pytest.mark.parametrize("listed", ["other.example", HOST, f"*.{HOST}", "*.other.example"])
def test_a_host_or_port_that_is_not_listed_is_never_connected_to(server: Web, listed: str) -> None:
    entry = listed if listed == HOST else f"{listed}:{server.port}"

    error = refused(server, f"/a.wav?{SIGNATURE}", rules(server, entry))

    assert error.code is ErrorCode.URI_FORBIDDEN
    assert server.asked == []


def test_hosts_below_a_listed_name_are_read(server: Web) -> None:
    server.answers["/a.wav"] = content(RECORDING)

    assert download(server, "/a.wav", rules(server, f"*.example:{server.port}"))[0] == RECORDING


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("http://recordings.example/a.wav", "use https://"),
        (f"https://user:{SIGNATURE}@recordings.example/a.wav", "a password"),
        ("https:///a.wav", "scheme"),
        ("https://recordings.example:99999/a.wav", "cannot be read"),
        ("https://other.example\\@recordings.example/a.wav", "scheme"),
    ],
)
def test_what_is_no_plain_https_uri_is_refused(server: Web, uri: str, told: str) -> None:
    error = refused(server, uri)

    assert error.code is ErrorCode.URI_FORBIDDEN
    assert told in error.message
    assert server.asked == []


def test_a_listed_host_with_a_private_address_is_never_connected_to(server: Web) -> None:
    private = HttpsRules(HostRules((f"{HOST}:{server.port}",)), server.ca_file)

    error = refused(server, "/a.wav", private)

    assert error.code is ErrorCode.URI_FORBIDDEN
    assert "not public" in error.message
    assert server.asked == []


def test_a_name_is_resolved_once_and_the_judged_address_is_connected_to(
    server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/a.wav"] = content(RECORDING)
    original = socket.getaddrinfo
    asked = []

    def once(host: str, *arguments: Any, **more: Any) -> Any:
        asked.append(host)
        return original(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    download(server, "/a.wav")

    assert asked.count(HOST) == 1
    assert set(asked) == {HOST, "127.0.0.1"}


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "2002:7f00:1::"),
    ],
)
def test_an_address_that_is_not_public_is_not_allowed(text: str) -> None:
    assert not is_allowed(text, ())


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_a_public_address_is_allowed(text: str) -> None:
    assert is_allowed(text, (ipaddress.ip_network("::ffff:0:0/96"),))


def test_redirects_are_followed_where_they_are_allowed(server: Web) -> None:
    there = server.url("/b.wav", "elsewhere.example")
    server.answers["/a.wav"] = content(b"", 302, Location=there)
    server.answers["/b.wav"] = content(RECORDING)
    both = rules(server, f"{HOST}:{server.port}", f"elsewhere.example:{server.port}")

    assert download(server, "/a.wav", both)[0] == RECORDING
    assert refused(server, "/a.wav").code is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize(
    "location",
    [
        "http://recordings.example/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[recordings.example/",
        "file:///etc/passwd",
    ],
)
def test_a_redirect_leads_nowhere_else(server: Web, location: str) -> None:
    server.answers["/a.wav"] = content(b"", 307, Location=location)
    listed = rules(server, f"{HOST}:{server.port}", HOST, "169.254.169.254")

    assert refused(server, "/a.wav", listed).code is ErrorCode.URI_FORBIDDEN


def test_redirects_in_a_circle_end(server: Web) -> None:
    server.answers["/a.wav"] = content(b"", 301, Location="/a.wav")

    assert refused(server, "/a.wav").code is ErrorCode.FETCH_FAILED
    assert len(server.asked) == 6


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 304])
def test_what_is_not_there_is_asked_for_once(server: Web, status: int) -> None:
    server.answers["/a.wav"] = content(b"", status)

    error = refused(server, f"/a.wav?{SIGNATURE}")

    assert (error.code, error.message) == (
        ErrorCode.FETCH_FAILED,
        f"the server answered {status}",
    )
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_may_pass_is_tried_again_with_growing_pauses(server: Web, status: int) -> None:
    server.answers["/a.wav"] = content(b"", status)

    error = refused(server, "/a.wav")

    assert error.code is ErrorCode.FETCH_UNAVAILABLE
    assert error.message == f"the server answered {status} (tried {len(server.asked)} times)"
    assert len(server.asked) >= 4


def test_a_server_that_recovers_is_read_after_the_pause_that_it_asked_for(server: Web) -> None:
    answers = [content(b"", 503, Retry_After="7"), content(RECORDING)]
    server.answers["/a.wav"] = lambda request: answers.pop(0)(request)

    found, time = download(server, "/a.wav")

    assert found == RECORDING
    assert time.pauses == [7.0]


def test_a_body_that_breaks_off_is_fetched_again(server: Web) -> None:
    answers = [content(RECORDING[:1_000], stated=len(RECORDING)), content(RECORDING)]
    server.answers["/a.wav"] = lambda request: answers.pop(0)(request)

    found, time = download(server, "/a.wav")

    assert found == RECORDING
    assert len(time.pauses) == 1


def test_too_much_is_refused_as_it_comes(server: Web) -> None:
    server.answers["/stated"] = content(RECORDING)
    server.answers["/endless"] = endless

    for path in ("/stated", "/endless"):
        assert refused(server, path, max_bytes=100_000).code is ErrorCode.VALUE_TOO_LARGE


def test_a_compressed_body_is_refused(server: Web) -> None:
    server.answers["/a.wav"] = content(b"x", Content_Encoding="gzip")

    assert refused(server, "/a.wav").code is ErrorCode.FETCH_FAILED


def test_a_certificate_of_a_stranger_or_of_another_name_does_not_count(
    server: Web, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with web(tmp_path / "other", HOST) as other:
        foreign = HttpsRules(rules(server).reach, other.ca_file)
        assert refused(server, "/a.wav", foreign).code is ErrorCode.FETCH_FAILED
    named = rules(server, f"wrong.example:{server.port}")
    assert refused(server, server.url("/a", "wrong.example"), named).code is ErrorCode.FETCH_FAILED
    assert server.asked == []


def test_a_name_without_an_address_and_a_closed_port_are_tried_again(
    server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        closed = f"https://{HOST}:{port}/a.wav"
        error = refused(server, closed, rules(server, f"{HOST}:{port}"))
        assert error.code is ErrorCode.FETCH_UNAVAILABLE

    def unknown(*_arguments: Any, **_more: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "again")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert refused(server, "/a.wav").code is ErrorCode.FETCH_UNAVAILABLE


def test_nothing_of_an_address_is_logged(server: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server.answers["/a.wav"] = content(b"", 500)

    refused(server, f"/a.wav?{SIGNATURE}")

    assert SIGNATURE not in caplog.text


def opener(
    *parts: bytes, step_s: float = 0.0, time: Time | None = None
) -> Callable[[int], AbstractContextManager[Body]]:
    @contextmanager
    def open_body(_attempt: int) -> Iterator[Body]:
        def trickle() -> Iterator[bytes]:
            for part in parts:
                if time is not None:
                    time.now_s += step_s
                yield part

        yield Body(None, trickle())

    return open_body


def test_a_download_that_trickles_is_ended_at_the_limit() -> None:
    time = Time()
    downloading = Downloading(1 << 20, 20.0, now=time.now, sleep=time.sleep)

    with pytest.raises(CodecError) as caught:
        downloading.fetch(opener(*[b"x"] * 1_000, step_s=1.0, time=time))

    assert caught.value.code is ErrorCode.FETCH_UNAVAILABLE
    assert time.now_s <= 22


def test_the_file_has_no_name_while_it_is_there(tmp_path: Path) -> None:
    with Downloading(1 << 20, 20.0, tmp_path).fetch(opener(b"abc")) as file:
        file.seek(0)
        assert file.read() == b"abc"
        assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    time = Time()
    downloading = Downloading(1 << 20, 20.0, tmp_path / "none", time.now, time.sleep)

    with pytest.raises(CodecError) as caught:
        downloading.fetch(opener(b"abc"))

    assert caught.value.code is ErrorCode.FETCH_UNAVAILABLE
    assert "temporary directory" in caught.value.message


def test_every_status_is_a_file_or_a_refusal() -> None:
    for status in range(100, 600):
        try:
            check_status(status)
        except Temporary:
            assert status >= 500 or status in (408, 425, 429)
        except CodecError:
            assert not 200 <= status < 300 or status in (204, 206)
