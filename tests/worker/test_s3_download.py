"""Claim checks of s3://, on a server that speaks S3."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from worker.codec import CodecError, FileJob
from worker.downloads import Downloading
from worker.errors import ErrorCode
from worker.file_source import FileLimits, open_source
from worker.s3_download import locate, open_s3

SERVER = Path(__file__).parents[1] / "support" / "s3_server.py"
LIMITS = FileLimits((), 1 << 20, 60, fetch_timeout_s=5, s3_buckets=("calls",))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


@pytest.fixture
def client(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client, while the environment names the server as operators do."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made = boto3.client("s3")
    for bucket in ("calls", "other"):
        made.create_bucket(Bucket=bucket)
    return made


def refused(uri: str, limits: FileLimits = LIMITS) -> CodecError:
    with pytest.raises(CodecError) as caught:
        open_source(FileJob("f", None, uri), limits)
    return caught.value


def test_an_object_of_a_listed_bucket_is_read(client: Any) -> None:
    client.put_object(Bucket="calls", Key="2026/a b.wav", Body=b"recording" * 20_000)

    with open_source(FileJob("f", None, "s3://calls/2026/a%20b.wav"), LIMITS) as file:
        assert file.read() == b"recording" * 20_000


def test_another_bucket_is_forbidden_though_it_could_be_read(client: Any) -> None:
    client.put_object(Bucket="other", Key="a.wav", Body=b"x")

    assert refused("s3://other/a.wav").code is ErrorCode.URI_FORBIDDEN


def test_an_object_that_is_not_there_is_asked_for_once(client: Any) -> None:
    del client

    error = refused("s3://calls/none.wav")

    assert (error.code, error.message) == (ErrorCode.FETCH_FAILED, "the server answered 404")


def test_a_large_object_and_a_wrong_claim_are_refused(client: Any) -> None:
    client.put_object(Bucket="calls", Key="large.wav", Body=bytes(2 << 20))
    client.put_object(Bucket="calls", Key="small.wav", Body=b"x")

    assert refused("s3://calls/large.wav").code is ErrorCode.VALUE_TOO_LARGE
    with pytest.raises(CodecError) as caught:
        open_source(FileJob("f", None, "s3://calls/small.wav", sha256="0" * 64), LIMITS)
    assert caught.value.code is ErrorCode.HASH_MISMATCH


def test_a_server_that_is_away_is_tried_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del client
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{unused.getsockname()[1]}")
        pauses: list[float] = []
        downloading = Downloading(1 << 20, 3.0, now=lambda: sum(pauses), sleep=pauses.append)

        with pytest.raises(CodecError) as caught:
            downloading.fetch(lambda _attempt: open_s3("s3://calls/a.wav", ("calls",)))

    assert caught.value.code is ErrorCode.FETCH_UNAVAILABLE
    assert pauses


@pytest.mark.parametrize(
    "uri", ["s3://calls", "s3://calls/", "s3://calls/a?versionId=1", "s3://user@calls/a", "s3:///a"]
)
def test_what_names_no_object_of_the_bucket_is_forbidden(uri: str) -> None:
    with pytest.raises(CodecError) as caught:
        locate(uri, ("calls",))

    assert caught.value.code is ErrorCode.URI_FORBIDDEN
