"""The live page in a real browser: it shows what the worker says, and hostile names stay text."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser
from tests.support.kafka_clients import wait_until
from worker.live_board import LiveBoard
from worker.live_page import LivePageServer
from worker.settings_live_page import LivePage

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
HOSTILE_SCRIPT = "</script><script>document.title='owned'</script>\u202eevil"


def channel(index: int, role: str, **more: Any) -> dict[str, Any]:
    return {
        "channel": index,
        "role": role,
        "finals": 2,
        "speaking": True,
        "segment_s": 3.2,
        "waiting": 0,
        **more,
    }


def call(number: int, name: str, channels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": name,
        "origin": f"0-{number}",
        "state": "open",
        "elapsed_s": 65.0,
        "quiet_s": 0.2,
        "isolated": False,
        "channels": channels,
    }


def scene() -> dict[str, Any]:
    """A snapshot with two calls, of which one is named by an enemy."""
    polite = call(1, "call-1", [channel(0, "agent", partial="how can i", last="good morning")])
    hostile = call(2, HOSTILE, [channel(0, HOSTILE, partial=HOSTILE_SCRIPT, last=HOSTILE)])
    return {
        "worker": {
            "version": "0.1.0",
            "group": HOSTILE,
            "model": "tiny",
            "device": "cpu",
            "delivery": "at-least-once",
        },
        "queue": {"runnable_audio_s": 1.5, "undecoded_age_s": 0.4, "files_age_s": 0.0},
        "batches": [1, 4, 2],
        "step_ms": {"p50": 20, "p90": 30, "p99": 40},
        "final_ms": {"p50": 310, "p90": 420, "p99": 530},
        "finals": 12,
        "sessions": {"open": 7, "shown": [polite, hostile]},
        "files": {"open": 1, "shown": [{"id": HOSTILE, "told_s": 61.0}]},
        "partitions": {
            "owned": 1,
            "shown": [
                {"topic": HOSTILE, "partition": 3, "lag": 17, "paused": True, "isolated": False}
            ],
        },
    }


class Stage:
    """A board that a thread keeps up to date, as the loop does."""

    def __init__(self) -> None:
        self.board = LiveBoard()
        self.scene = scene()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()

    def _turn(self) -> None:
        while not self._stop.is_set():
            self.board.update(lambda: self.scene)
            self._stop.wait(0.02)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def running_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def browser(running_browser: Browser) -> Browser:
    """The browser with an empty page, of which nothing is remembered."""
    running_browser.open("about:blank")
    running_browser.await_true("location.href === 'about:blank'")
    running_browser.complaints.clear()
    running_browser.requested.clear()
    return running_browser


@pytest.fixture
def stage() -> Iterator[Stage]:
    running = Stage()
    yield running
    running.close()


@pytest.fixture
def page(stage: Stage) -> Iterator[LivePageServer]:
    with LivePageServer(LivePage(port=0), stage.board) as server:
        yield server


def shown(browser: Browser) -> str:
    return str(browser.value("document.body.innerText"))


def test_the_page_shows_calls_figures_and_partitions_and_follows_them(
    browser: Browser, page: LivePageServer, stage: Stage, tmp_path: Path
) -> None:
    browser.resize(1280, 1000)
    browser.open(f"http://localhost:{page.port}/")
    browser.await_true("document.querySelectorAll('.call').length === 2")

    text = shown(browser)
    for expected in (
        "live",
        "call-1",
        "1:05",
        "agent",
        "good morning how can i",
        "310 ms",
        "p90 420 ms",
        "0.4 s",
        "2 heard last, 5 more",
        "paused",
    ):
        assert expected.lower() in text.lower()

    later = copy.deepcopy(stage.scene)
    later["sessions"] = {"open": 1, "shown": later["sessions"]["shown"][:1]}
    later["sessions"]["shown"][0]["channels"][0]["partial"] = "how can i help you"
    stage.scene = later
    browser.await_true("document.querySelectorAll('.call').length === 1")
    browser.await_true("document.body.innerText.includes('how can i help you')")
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_hostile_names_and_texts_stay_text_and_nothing_else_is_fetched(
    browser: Browser, page: LivePageServer
) -> None:
    address = f"http://127.0.0.1:{page.port}/"
    browser.open(address)
    browser.await_true("document.querySelectorAll('.call').length === 2")

    assert browser.value("document.title") == "oasr-worker live"
    assert browser.value("document.images.length") == 0
    assert browser.value("document.scripts.length") == 1
    assert browser.value("document.querySelectorAll('.call .id')[1].textContent") == HOSTILE
    assert browser.value("document.querySelectorAll('.call .partial')[1].textContent") == (
        HOSTILE_SCRIPT
    )
    assert browser.value("document.querySelector('#files td').textContent") == HOSTILE
    assert {url for url in browser.requested if not url.startswith("data:")} == {
        address,
        f"{address}live.json",
    }
    assert browser.complaints == []


def test_the_policy_stops_markup_that_would_be_inserted(
    browser: Browser, page: LivePageServer
) -> None:
    browser.open(f"http://127.0.0.1:{page.port}/")
    browser.await_true("document.querySelectorAll('.call').length === 2")
    refused = browser.value(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }"
        " catch (error) { return error.name; } })()"
    )

    assert refused == "TypeError"


def test_a_phone_in_the_dark_shows_the_whole_page_without_scrolling_sideways(
    browser: Browser, page: LivePageServer
) -> None:
    browser.resize(360, 740, dark=True)
    browser.open(f"http://localhost:{page.port}/")
    browser.await_true("document.querySelectorAll('.call').length === 2")

    assert browser.value("document.documentElement.scrollWidth") <= 360
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"


def test_without_a_loop_that_turns_the_page_says_so(browser: Browser) -> None:
    with LivePageServer(LivePage(port=0), LiveBoard()) as server:
        browser.open(f"http://localhost:{server.port}/")
        browser.await_true('document.body.innerText.includes("waiting for the worker\'s loop")')
    browser.await_true("document.body.innerText.includes('no answer from the worker')")


def test_a_page_that_nobody_sees_asks_nothing(
    browser: Browser, page: LivePageServer, stage: Stage
) -> None:
    browser.open(f"http://localhost:{page.port}/")
    browser.await_true("document.querySelectorAll('.call').length === 2")
    browser.value(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})"
    )
    wait_until("nobody asks", lambda: not stage.board.is_watched, 60)

    browser.value("delete document.hidden")
    browser.value("document.dispatchEvent(new Event('visibilitychange'))")
    wait_until("the page asks again", lambda: stage.board.is_watched, 60)
