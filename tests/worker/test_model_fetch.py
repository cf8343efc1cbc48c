"""A model comes from a hub whole and checked, or not at all, and the token goes nowhere else."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from worker.cli import main

REPOSITORY, REVISION = "acme/conformer", "0123abcd"
FILES = {"train.yaml": b"a: 1\n", "final.pt": b"weights" * 5_000, "units.txt": b"<blank> 0\n"}


class HubServer(ThreadingHTTPServer):
    """A hub of one repository whose large file lies on another host."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.asked: list[tuple[str, str, str | None]] = []  # path, host, token
        self.needs_token: str | None = None
        self.extra: list[dict[str, object]] = [
            {"type": "directory", "path": "runs"},
            {"type": "file", "path": "../outside", "size": 1},
            {"type": "file", "path": ".hidden", "size": 1},
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def listing(self) -> list[dict[str, object]]:
        listed: list[dict[str, object]] = []
        for name, content in FILES.items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(content)}
            if name == "final.pt":
                entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
            listed.append(entry)
        return listed + self.extra


class Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_GET(self) -> None:
        hub, token = self.server, self.headers["Authorization"]
        host = self.headers["Host"].partition(":")[0]
        hub.asked.append((self.path, host, token))
        if host == "127.0.0.1" and hub.needs_token not in (None, token):
            self._answer(401, b"")
        elif self.path == f"/api/models/{REPOSITORY}/tree/{REVISION}":
            self._answer(200, json.dumps(hub.listing()).encode())
        elif self.path == f"/{REPOSITORY}/resolve/{REVISION}/final.pt":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{hub.server_port}/blobs/final.pt")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            content = hub.files.get(self.path.rpartition("/")[2])
            self._answer(404 if content is None else 200, content or b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(hub: HubServer, folder: Path, *more: str) -> int:
    endpoint = ["--endpoint", hub.url, "--revision", REVISION]
    return main(["fetch-model", REPOSITORY, "--to", str(folder), *endpoint, *more])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_files_of_the_repository_and_nothing_else_are_fetched(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models" / "conformer"

    assert fetch(hub, folder) == 0
    assert contents(folder) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
    assert capsys.readouterr().out.endswith(f"3 files fetched into {folder}\n")


def test_what_is_there_already_is_not_fetched_again_and_what_is_damaged_is(
    hub: HubServer, tmp_path: Path
) -> None:
    assert fetch(hub, tmp_path) == 0
    (tmp_path / "final.pt").write_bytes(b"weighty" * 5_000)  # as long, and another
    hub.asked.clear()

    assert fetch(hub, tmp_path) == 0
    assert contents(tmp_path) == FILES
    assert [path.rpartition("/")[2] for path, _, _ in hub.asked] == [REVISION, *["final.pt"] * 2]


def test_the_token_goes_to_the_hub_and_not_to_where_it_sends_us(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.needs_token = "Bearer secret"
    (tmp_path / "token").write_text("secret\n")

    assert fetch(hub, tmp_path / "model", "--token-file", str(tmp_path / "token")) == 0
    assert {(host, token) for _, host, token in hub.asked} == {
        ("127.0.0.1", "Bearer secret"),
        ("localhost", None),
    }


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("final.pt", b"weighty" * 5_000, "final.pt came damaged"),
        ("final.pt", b"weights", "final.pt came damaged"),
        ("units.txt", b"x" * 1_000, "units.txt came damaged"),
        ("units.txt", None, "the hub answered 404"),
    ],
)
def test_a_file_that_does_not_come_as_listed_ends_it_and_is_not_left_behind(
    hub: HubServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    said: str,
) -> None:
    if content is None:
        del hub.files[name]
    else:
        hub.files[name] = content

    assert fetch(hub, tmp_path) == 1
    assert said in capsys.readouterr().err
    assert set(contents(tmp_path)) <= set(FILES) - {name}


def test_what_cannot_be_fetched_is_one_line(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--to", str(tmp_path)]
    hub.needs_token = "Bearer other"
    assert fetch(hub, tmp_path) == 1
    assert main(["fetch-model", "../etc", *folder, "--endpoint", hub.url]) == 1
    assert main(["fetch-model", REPOSITORY, *folder, "--endpoint", "file:///etc"]) == 1
    assert main(["fetch-model", REPOSITORY, *folder, "--endpoint", "http://127.0.0.1:9"]) == 1

    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("the hub answered 401")
    assert [line.partition(":")[0] for line in others] == [
        "a repository is named OWNER/NAME",
        "the endpoint is no http or https URL",
        "the hub cannot be reached",
    ]
