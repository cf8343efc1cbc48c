"""`oasr-worker health`: asks the worker of this machine how it is, as container engines do.

Engines ask every few seconds, so this imports next to nothing.
"""

from __future__ import annotations

import http.client
import sys
from typing import Final

UNWELL: Final = 1
TIMEOUT_S: Final = 5.0
_OWN: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def ask(host: str, port: int, path: str, timeout_s: float = TIMEOUT_S) -> int:
    """Writes what the worker that listens on `host` answers to a GET of `path`.

    0 where it answers 200, else 1. An address that stands for all is asked on the loopback one.
    """
    host = _OWN.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        sys.stdout.write(f"{answer.read().decode(errors='replace')}\n")
        return 0 if answer.status == http.client.OK else UNWELL
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer from {host}:{port}: {error}\n")
        return UNWELL
    finally:
        connection.close()
