"""Opens what an `s3://` URI names, in a listed bucket.

Endpoint, region and credentials come from where the AWS clients look for them: the environment,
profiles, the identity of the pod. Needs the extra `s3`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

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

_SLOW_DOWN: Final = frozenset(("RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling"))


@contextmanager
def open_s3(uri: str, buckets: Sequence[str]) -> Iterator[Body]:
    """The body of an object; CodecError if the URI is forbidden or refused, else Temporary."""
    bucket, key = locate(uri, buckets)
    import botocore.exceptions  # only here: the extra may not be installed

    try:
        answer = _client().get_object(Bucket=bucket, Key=key)
        with closing(answer["Body"]) as body:
            yield Body(answer.get("ContentLength"), body.iter_chunks(READ_BYTES))
    except botocore.exceptions.ClientError as error:
        told = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if told in _SLOW_DOWN:
            raise Temporary(f"the server answered {status}") from error
        check_status(status)
        raise Temporary("the server answered with an error") from error
    except (botocore.exceptions.BotoCoreError, OSError) as error:
        raise Temporary(f"the connection failed: {type(error).__name__}") from error


def locate(uri: str, buckets: Sequence[str]) -> tuple[str, str]:
    """Bucket and key of a percent-encoded URI; CodecError if the bucket is not listed."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be read") from error
    if parts.netloc not in buckets:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the bucket is not listed in files.s3_buckets")
    key = unquote(parts.path).removeprefix("/")
    if not key or parts.query or parts.fragment:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI is no bucket and key")
    return parts.netloc, key


def _client() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": 1},
        ),
    )
