"""A file job reads what it may read, and nothing else is even looked at."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from worker.codec import CodecError, FileJob
from worker.errors import ErrorCode
from worker.file_source import FileLimits, locate

CONTENT = b"RIFF and so on"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed directory with a file, beside one that is not allowed."""
    allowed = tmp_path / "allowed"
    (allowed / "deep").mkdir(parents=True)
    (allowed / "a.wav").write_bytes(CONTENT)
    (allowed / "deep" / "b c.wav").write_bytes(CONTENT)
    (tmp_path / "secret.wav").write_bytes(CONTENT)
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed-not" / "a.wav").write_bytes(CONTENT)
    return allowed


def job(uri: str | None = None, audio: bytes | None = None, **claims: object) -> FileJob:
    return FileJob("f", audio, uri, **claims)  # type: ignore[arg-type]


def limits(*roots: Path, max_bytes: int = 1000) -> FileLimits:
    return FileLimits(roots, max_bytes, 60)


def refused(file_job: FileJob, bounds: FileLimits) -> ErrorCode:
    with pytest.raises(CodecError) as caught:
        locate(file_job, bounds)
    assert "secret" not in caught.value.message
    return caught.value.code


@pytest.mark.parametrize("name", ["a.wav", "deep/b%20c.wav", "deep/../a.wav", "%61.wav", "./a.wav"])
def test_a_file_below_a_root_is_read(root: Path, name: str) -> None:
    found = locate(job(f"file://{root}/{name}"), limits(root))

    assert isinstance(found, Path)
    assert found.read_bytes() == CONTENT


@pytest.mark.parametrize("uri", ["file://localhost{}", "FILE://{}"])
def test_the_host_may_be_this_one(root: Path, uri: str) -> None:
    assert locate(job(uri.format(f"{root}/a.wav")), limits(root)) == root / "a.wav"


def test_a_root_may_be_a_link_and_one_of_several(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)

    assert locate(job(f"file://{link}/a.wav"), limits(tmp_path / "none", link)) == root / "a.wav"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.wav",
        "deep/../../secret.wav",
        "%2e%2e/secret.wav",
        "..%2Fsecret.wav",
        "../allowed-not/a.wav",
        "a.wav%00.wav",
        "a.wav?x",
        "a.wav#x",
    ],
)
def test_a_path_that_leads_out_is_forbidden(root: Path, name: str) -> None:
    assert refused(job(f"file://{root}/{name}"), limits(root)) is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize(
    "uri",
    [
        "file:////etc/passwd",
        "file://///etc/passwd",
        "file:///etc/passwd",
        "file://other-host/a.wav",
        "file://[bad/a.wav",
        "http://localhost/a.wav",
        "s3://bucket/a.wav",
        "",
    ],
)
def test_anything_else_is_forbidden(root: Path, uri: str) -> None:
    assert refused(job(uri), limits(root)) is ErrorCode.URI_FORBIDDEN


def test_without_roots_every_file_is_forbidden(root: Path) -> None:
    assert refused(job(f"file://{root}/a.wav"), limits()) is ErrorCode.URI_FORBIDDEN


def test_a_second_slash_in_front_leads_to_the_same_places(root: Path, tmp_path: Path) -> None:
    assert locate(job(f"file:///{root}/a.wav"), limits(root)) == root / "a.wav"
    assert refused(job(f"file:///{tmp_path}/secret.wav"), limits(root)) is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize("target", ["secret.wav", "missing.wav", ""])
def test_a_link_that_leads_out_is_forbidden(root: Path, tmp_path: Path, target: str) -> None:
    (root / "link").symlink_to(tmp_path / target)

    assert refused(job(f"file://{root}/link"), limits(root)) is ErrorCode.URI_FORBIDDEN


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link").symlink_to(root / "a.wav")

    assert locate(job(f"file://{root}/link"), limits(root)) == root / "a.wav"


def test_a_link_to_itself_is_refused(root: Path) -> None:
    (root / "loop").symlink_to(root / "loop")

    assert refused(job(f"file://{root}/loop"), limits(root)) in (
        ErrorCode.URI_FORBIDDEN,
        ErrorCode.FETCH_FAILED,
    )


def test_what_is_no_regular_file_is_forbidden_and_not_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")  # opening it would wait for a writer

    assert refused(job(f"file://{root}/pipe"), limits(root)) is ErrorCode.URI_FORBIDDEN
    assert refused(job(f"file://{root}/deep"), limits(root)) is ErrorCode.URI_FORBIDDEN
    assert refused(job(f"file://{root}"), limits(root)) is ErrorCode.URI_FORBIDDEN


def test_whether_a_file_outside_exists_is_not_told(root: Path, tmp_path: Path) -> None:
    there = refused(job(f"file://{tmp_path}/secret.wav"), limits(root))
    missing = refused(job(f"file://{tmp_path}/missing.wav"), limits(root))

    assert there is missing is ErrorCode.URI_FORBIDDEN


def test_a_missing_file_cannot_be_fetched(root: Path) -> None:
    assert refused(job(f"file://{root}/none.wav"), limits(root)) is ErrorCode.FETCH_FAILED


DIGEST = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
    ("claims", "max_bytes", "code"),
    [
        ({"sha256": DIGEST, "size_bytes": SIZE}, SIZE, None),
        ({"sha256": "0" * 64}, SIZE, ErrorCode.HASH_MISMATCH),
        ({"size_bytes": SIZE + 1}, SIZE, ErrorCode.SIZE_MISMATCH),
        ({"size_bytes": SIZE, "sha256": "0" * 64}, SIZE, ErrorCode.HASH_MISMATCH),
        ({}, SIZE - 1, ErrorCode.VALUE_TOO_LARGE),
        ({"size_bytes": 1}, SIZE - 1, ErrorCode.VALUE_TOO_LARGE),
    ],
)
def test_claims_and_limits_are_checked(
    root: Path, inline: bool, claims: dict[str, object], max_bytes: int, code: ErrorCode | None
) -> None:
    where = {"audio": CONTENT} if inline else {"uri": f"file://{root}/a.wav"}
    file_job = job(**where, **claims)  # type: ignore[arg-type]
    bounds = limits(root, max_bytes=max_bytes)

    if code is None:
        assert locate(file_job, bounds) == (CONTENT if inline else root / "a.wav")
    else:
        assert refused(file_job, bounds) is code


def test_a_large_file_is_hashed_in_pieces(root: Path) -> None:
    large = os.urandom((1 << 20) + 17)
    (root / "large.wav").write_bytes(large)
    claim = job(f"file://{root}/large.wav", sha256=hashlib.sha256(large).hexdigest())

    assert locate(claim, limits(root, max_bytes=1 << 22)) == root / "large.wav"
