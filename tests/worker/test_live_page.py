"""The live page answers by address or known name alone, keeps a strict policy, changes nothing."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.listening import ListenError
from worker.live_board import LiveBoard
from worker.live_page import (
    AGE_HEADER,
    LivePageServer,
    content_security_policy,
    is_called_by_a_known_name,
    page_source,
)
from worker.settings_live_page import LivePage

NAMES = frozenset(("localhost", "worker.example"))


@pytest.fixture
def board() -> LiveBoard:
    return LiveBoard()


@pytest.fixture
def server(board: LiveBoard) -> Iterator[LivePageServer]:
    options = LivePage(enabled=True, port=0, names=("worker.example",))
    with LivePageServer(options, board) as running:
        yield running


def ask(
    server: LivePageServer, path: str, method: str = "GET", hosts: tuple[str, ...] = ("localhost",)
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        for host in hosts:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_the_page_and_its_snapshots_are_served(server: LivePageServer, board: LiveBoard) -> None:
    status, headers, body = ask(server, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body.decode() == page_source()

    assert ask(server, "/live.json")[0] == 202  # nobody has looked so far, so nothing was computed
    board.update(lambda: {"calls": 3})
    status, headers, body = ask(server, "/live.json?x=1")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["calls"] == 3
    assert int(headers[AGE_HEADER]) >= 0
    assert ask(server, "/live.json", "HEAD")[2] == b""


@pytest.mark.parametrize("path", ["/", "/live.json", "/nothing", "/../etc/passwd"])
def test_every_answer_forbids_scripts_frames_and_readers_from_elsewhere(
    server: LivePageServer, path: str
) -> None:
    _, headers, _ = ask(server, path)

    assert headers["content-security-policy"] == content_security_policy(page_source())
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"])
def test_nothing_can_be_written(server: LivePageServer, method: str) -> None:
    status, headers, body = ask(server, "/live.json", method)

    assert status == 501
    assert json.loads(body) == {"error": "refused"}
    assert "script-src" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (("localhost",), 200),
        (("LOCALHOST:9109",), 200),
        (("127.0.0.1:9109",), 200),
        (("[::1]:9109",), 200),
        (("worker.example",), 200),
        (("evil.example",), 421),
        (("localhost.evil.example",), 421),
        (("127.0.0.1.evil.example:9109",), 421),
        (("localhost", "evil.example"), 421),
        (("",), 421),
        ((), 421),
    ],
)
def test_who_lets_a_name_of_his_own_point_here_is_refused(
    server: LivePageServer, hosts: tuple[str, ...], status: int
) -> None:
    assert ask(server, "/", hosts=hosts)[0] == status
    assert (ask(server, "/live.json", hosts=hosts)[0] == 421) is (status == 421)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=40))
def test_a_host_header_of_any_text_is_judged_without_an_error(text: str) -> None:
    known = is_called_by_a_known_name(text, NAMES)

    bare = re.sub(r":\d{1,5}$", "", text).lower().strip("[]")
    assert not known or bare in NAMES or re.fullmatch(r"[0-9a-f.:%]+.*", bare)


def test_the_policy_names_the_page_s_own_script_and_style_and_nothing_else() -> None:
    page = page_source()
    policy = content_security_policy(page)

    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none';")


def test_the_page_is_one_file_that_fetches_nothing_else_and_writes_no_markup() -> None:
    page = page_source()

    assert not re.findall(r"""(?:src|href|action)\s*=\s*["'](?!data:,)""", page)
    assert not re.findall(r"@import|url\(", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in page


def test_a_port_that_is_taken_is_named(server: LivePageServer, board: LiveBoard) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        LivePageServer(LivePage(port=server.port), board)


@pytest.mark.parametrize("name", ["", "worker.example:9109", "http://worker", "a b"])
def test_names_are_host_names_without_a_port(name: str) -> None:
    with pytest.raises(ValueError, match="host names without a port"):
        LivePage(names=(name,))


def test_it_is_off_on_loopback_and_silent_about_text_by_default() -> None:
    page = LivePage()

    assert (page.enabled, page.host, page.show_text) == (False, "127.0.0.1", False)
