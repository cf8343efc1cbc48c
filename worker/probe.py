"""`oasr-worker health`: asks the worker of this machine how it is, as container engines do."""

from __future__ import annotations

import http.client
import sys
from http import HTTPStatus
from typing import Final

from worker.settings_groups import Http

UNWELL: Final = 1
TIMEOUT_S: Final = 5.0
_OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def ask(http_settings: Http, path: str, timeout_s: float = TIMEOUT_S) -> int:
    """Writes what the worker answers to a GET of `path`; 0 where it answers 200, else 1."""
    host = _OWN.get(http_settings.host, http_settings.host)
    connection = http.client.HTTPConnection(host, http_settings.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        sys.stdout.write(f"{answer.read().decode(errors='replace')}\n")
        return 0 if answer.status == HTTPStatus.OK else UNWELL
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer from {host}:{http_settings.port}: {error}\n")
        return UNWELL
    finally:
        connection.close()
