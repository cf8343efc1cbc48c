"""Opens what an `https://` URI names, at a listed host and a judged address, redirects included."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import urllib3

from worker.addresses import HostRules, Unresolved, resolve
from worker.codec import CodecError
from worker.downloads import (
    CONNECT_TIMEOUT_S,
    READ_BYTES,
    READ_TIMEOUT_S,
    Body,
    Temporary,
    check_status,
)
from worker.errors import ErrorCode

_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True)
class HttpsRules:
    """Where https may lead, and whose certificates count (None: those of the system)."""

    reach: HostRules = field(default_factory=HostRules)
    ca_file: Path | None = None


@contextmanager
def open_https(uri: str, attempt: int, rules: HttpsRules) -> Iterator[Body]:
    """The body of an answer; CodecError if the URI is forbidden or refused, else Temporary."""
    context = _trust(rules.ca_file)
    try:
        with _answer(uri, attempt, rules.reach, context) as response:
            check_status(response.status, _retry_after(response))
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise CodecError(ErrorCode.FETCH_FAILED, "the server compressed the file")
            yield Body(response.length_remaining, _parts(response))
    except Unresolved as error:
        raise Temporary(str(error)) from error
    except urllib3.exceptions.SSLError as error:
        # The errors of certificates, of ssl as of urllib3, are ValueErrors.
        if error.args and isinstance(error.args[0], ValueError):
            raise CodecError(
                ErrorCode.FETCH_FAILED, "the certificate of the server does not count here"
            ) from error
        raise Temporary("the connection failed: SSLError") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Temporary(f"the connection failed: {type(error).__name__}") from error


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Temporary("files.https_ca_file cannot be read") from error


@contextmanager
def _answer(
    uri: str, attempt: int, reach: HostRules, context: ssl.SSLContext
) -> Iterator[urllib3.BaseHTTPResponse]:
    for _ in range(_MOST_REDIRECTS + 1):
        with _one_answer(uri, attempt, reach, context) as response:
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                yield response
                return
            uri = _joined(uri, location)
    raise CodecError(ErrorCode.FETCH_FAILED, f"more than {_MOST_REDIRECTS} redirects")


def _joined(uri: str, location: str) -> str:
    try:
        return urljoin(uri, location)
    except ValueError as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "a redirect cannot be read") from error


@contextmanager
def _one_answer(
    uri: str, attempt: int, reach: HostRules, context: ssl.SSLContext
) -> Iterator[urllib3.BaseHTTPResponse]:
    parts, host, port = _split(uri)
    addresses = resolve(host, port, reach)
    pool = urllib3.HTTPSConnectionPool(
        addresses[attempt % len(addresses)],  # never resolved again
        port,
        ssl_context=context,
        server_hostname=host,
        timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
        retries=False,
    )
    with pool:
        response = pool.urlopen(
            "GET",
            f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}",
            headers={
                "Host": host if port == 443 else f"{host}:{port}",
                "Accept-Encoding": "identity",
                "User-Agent": "oasr-worker",
            },
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            yield response
        finally:
            response.close()


def _split(uri: str) -> tuple[SplitResult, str, int]:
    try:
        parts = urlsplit(uri)
        host, port = (parts.hostname or "").rstrip("."), parts.port or 443
        host = host.encode("idna").decode("ascii").lower() if not host.isascii() else host
    except (ValueError, UnicodeError) as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be read") from error
    if parts.scheme.lower() == "http":
        raise CodecError(
            ErrorCode.URI_FORBIDDEN, "http:// is not read: nothing protects it; use https://"
        )
    if parts.scheme.lower() != "https" or not host or "\\" in uri:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI has a scheme that is not read")
    if "@" in parts.netloc:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI has a user name or a password")
    return parts, host, port


def _retry_after(response: urllib3.BaseHTTPResponse) -> float:
    stated = response.headers.get("Retry-After", "")
    return float(stated) if stated.isascii() and stated.isdigit() else 0.0


def _parts(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    # One receipt each, so that a slow sender is noticed.
    while part := response.read1(READ_BYTES, decode_content=False):
        yield part
