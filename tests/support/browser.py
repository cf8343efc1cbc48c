"""A headless Chromium, driven over its DevTools protocol on a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_S = 60.0
# the browser reads commands from descriptor 3 and answers on 4
_WITH_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in enumerate(ends, start=3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_POLL_S = 0.05


def chromium() -> str:
    """The program; skips without one, or fails where one is required."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    refuse = pytest.fail if os.environ.get("OASR_REQUIRE_CHROMIUM") == "1" else pytest.skip
    refuse("needs Chromium")
    raise AssertionError


class ProtocolError(Exception):
    """The browser refused a command, for instance as the page gave way to the next."""


class Browser:
    """One page of a browser with a profile of its own; ends with the block.

    `complaints` are what the page's console said that is no plain message: errors, violations of
    its security policy, exceptions, and requests that went elsewhere than to `origin`.
    """

    def __init__(self, profile: Path) -> None:
        self.complaints: list[str] = []
        self.requested: list[str] = []  # addresses
        self._profile = profile
        self._count = 0
        self._unread = b""

    def __enter__(self) -> Self:
        program = chromium()
        ours, theirs = os.pipe(), os.pipe()  # what the browser reads, what it writes
        self._to, self._from = ours[1], theirs[0]
        command = [
            *(sys.executable, "-c", _WITH_PIPES, str(ours[0]), str(theirs[1])),
            program,
            *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"),
            *("--hide-scrollbars", f"--user-data-dir={self._profile}", "about:blank"),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(ours[0], theirs[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            self._attach()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _attach(self) -> None:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        os.close(self._to)
        os.close(self._from)

    def open(self, url: str) -> None:
        """Begin to load a page."""
        answer = self.ask("Page.navigate", url=url)
        assert "errorText" not in answer, answer

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window, and the colour scheme that the user prefers."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def await_true(self, expression: str, timeout_s: float = _TIMEOUT_S) -> None:
        """Returns as soon as the expression is true in the page."""
        deadline = time.monotonic() + timeout_s
        while not self._holds(expression):
            if time.monotonic() > deadline:
                shown = self.value("document.body.innerText")
                raise AssertionError(f"{expression}: not within {timeout_s} s; shown: {shown}")
            time.sleep(_POLL_S)

    def _holds(self, expression: str) -> bool:
        """Whether it is true now; between two pages nothing is."""
        try:
            return bool(self.value(f"document.body !== null && ({expression})"))
        except ProtocolError:
            return False

    def screenshot(self, path: Path) -> None:
        """A picture of the window as PNG."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, to the page."""
        return self._ask(method, self._session, **parameters)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        command = {"id": number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise ProtocolError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser has ended"
            self._unread += piece
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded":
                entry = parameters["entry"]
                self.complaints.append(f"{entry['source']}: {entry['text']}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(parameters["args"]))
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])
