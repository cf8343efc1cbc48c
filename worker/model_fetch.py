"""`oasr-worker fetch-model`: the files of a model repository, checked, into a directory.

Speaks the two requests of the Hugging Face hub that this takes: the list of a revision's files,
and one file. Mirrors that answer them alike do as well.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from worker.model_fetch_arguments import FetchRequest

FAILED: Final = 1
_TIMEOUT_S: Final = 60.0
_BLOCK_BYTES: Final = 1 << 20
_MOST_LIST_BYTES: Final = 4 << 20
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,127}", re.ASCII)  # never a path


class FetchError(Exception):
    """The model cannot be fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository."""

    name: str
    size_bytes: int
    sha256: str | None  # of large files

    def lies_in(self, folder: Path) -> bool:
        """Whether the folder has it, whole."""
        path = folder / self.name
        if not path.is_file() or path.stat().st_size != self.size_bytes:
            return False
        if self.sha256 is None:
            return True
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


class Hub:
    """One revision of one repository."""

    def __init__(self, endpoint: str, repository: str, revision: str, token: str | None) -> None:
        """FetchError for what cannot be an endpoint or a repository."""
        if urllib.parse.urlsplit(endpoint).scheme not in ("http", "https"):
            raise FetchError("the endpoint is no http or https URL")
        if not _REPOSITORY.fullmatch(repository):
            raise FetchError("a repository is named OWNER/NAME")
        self._endpoint = endpoint.rstrip("/")
        self._repository = repository
        self._revision = urllib.parse.quote(revision, safe="")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._opener = urllib.request.build_opener(_NoTokenElsewhere)

    def files(self) -> list[HubFile]:
        """The files beside each other at the top of the repository."""
        with self._open(f"api/models/{self._repository}/tree/{self._revision}") as answer:
            body = answer.read(_MOST_LIST_BYTES)
        try:
            listed = json.loads(body)
            found = [_hub_file(entry) for entry in listed if entry["type"] == "file"]
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError("the hub's list of files cannot be read") from error
        return [file for file in found if _FILE_NAME.fullmatch(file.name)]

    def fetch(self, file: HubFile, folder: Path) -> None:
        """Put a file into the folder, whole or not at all."""
        part = folder / f".{file.name}.part"
        digest, size_bytes = hashlib.sha256(), 0
        name = urllib.parse.quote(file.name)
        try:
            path = f"{self._repository}/resolve/{self._revision}/{name}"
            with self._open(path) as answer, part.open("wb") as out:
                while (block := answer.read(_BLOCK_BYTES)) and size_bytes <= file.size_bytes:
                    out.write(block)
                    digest.update(block)
                    size_bytes += len(block)
            if size_bytes != file.size_bytes or file.sha256 not in (None, digest.hexdigest()):
                raise FetchError(f"{file.name} came damaged")
            part.replace(folder / file.name)
        except (OSError, HTTPException) as error:
            raise FetchError(f"{file.name}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def _open(self, path: str) -> Any:
        request = urllib.request.Request(f"{self._endpoint}/{path}", headers=self._headers)
        try:
            return self._opener.open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            raise FetchError(f"the hub answered {error.code} for {path}") from error
        except OSError as error:
            raise FetchError(f"the hub cannot be reached: {error}") from error


class _NoTokenElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows redirects, to other hosts without the token."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> Any:
        """The request that follows."""
        following = super().redirect_request(req, *rest)
        if following is not None and following.host != req.host:
            following.remove_header("Authorization")
        return following


def fetch_model(hub: Hub, folder: Path) -> int:
    """Fetch what the folder lacks; the number of files. FetchError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [file for file in hub.files() if not file.lies_in(folder)]
    for file in missing:
        sys.stdout.write(f"{file.name}: {file.size_bytes} bytes\n")
        sys.stdout.flush()
        hub.fetch(file, folder)
    if not (folder / "train.yaml").is_file():
        raise FetchError("the repository holds no known kind of model: train.yaml is missing")
    return len(missing)


def run(request: FetchRequest) -> int:
    """Fetch as the command line asks; exit status 1 with one line for what cannot be."""
    try:
        token_file = request.token_file
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
        hub = Hub(request.endpoint, request.repository, request.revision, token)
        count = fetch_model(hub, request.folder)
    except (FetchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    sys.stdout.write(f"{count} files fetched into {request.folder}\n")
    return 0


def _hub_file(entry: dict[str, Any]) -> HubFile:
    large = entry.get("lfs") or {}
    return HubFile(str(entry["path"]), int(entry["size"]), large.get("oid"))
