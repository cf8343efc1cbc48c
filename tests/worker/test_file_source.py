"""A file job reads what it may read, and nothing else is even looked at."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from worker import local_files
from worker.codec import CodecError, FileJob
from worker.errors import ErrorCode
from worker.file_source import FileLimits, open_source

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
        open_source(file_job, bounds)
    assert "secret" not in caught.value.message
    return caught.value.code


def content(file_job: FileJob, bounds: FileLimits) -> bytes:
    with open_source(file_job, bounds) as file:
        return file.read()


@pytest.mark.parametrize("name", ["a.wav", "deep/b%20c.wav", "deep/../a.wav", "%61.wav", "./a.wav"])
def test_a_file_below_a_root_is_read(root: Path, name: str) -> None:
    assert content(job(f"file://{root}/{name}"), limits(root)) == CONTENT


@pytest.mark.parametrize("uri", ["file://localhost{}", "FILE://{}"])
def test_the_host_may_be_this_one(root: Path, uri: str) -> None:
    assert content(job(uri.format(f"{root}/a.wav")), limits(root)) == CONTENT


def test_a_root_may_be_a_link_and_one_of_several(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)

    assert content(job(f"file://{link}/a.wav"), limits(tmp_path / "none", link)) == CONTENT


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
        "fi\tle:///etc/passwd",
    ],
)
def test_anything_else_is_forbidden(root: Path, uri: str) -> None:
    assert refused(job(uri), limits(root)) is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize("place", [0, 3, 9, -1])
@pytest.mark.parametrize("control", ["\t", "\n", "\r", "\x1f", "\x7f"], ids=ascii)
def test_a_uri_with_control_characters_is_forbidden_though_it_names_a_file(
    root: Path, place: int, control: str
) -> None:
    uri = f"file://{root}/a.wav"
    place %= len(uri) + 1

    found = refused(job(uri[:place] + control + uri[place:]), limits(root))

    assert found is ErrorCode.URI_FORBIDDEN


def test_without_roots_every_file_is_forbidden(root: Path) -> None:
    assert refused(job(f"file://{root}/a.wav"), limits()) is ErrorCode.URI_FORBIDDEN


def test_a_second_slash_in_front_leads_to_the_same_places(root: Path, tmp_path: Path) -> None:
    assert content(job(f"file:///{root}/a.wav"), limits(root)) == CONTENT
    assert refused(job(f"file:///{tmp_path}/secret.wav"), limits(root)) is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize("target", ["secret.wav", "missing.wav", ""])
def test_a_link_that_leads_out_is_forbidden(root: Path, tmp_path: Path, target: str) -> None:
    (root / "link").symlink_to(tmp_path / target)

    assert refused(job(f"file://{root}/link"), limits(root)) is ErrorCode.URI_FORBIDDEN


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link").symlink_to(root / "a.wav")

    assert content(job(f"file://{root}/link"), limits(root)) == CONTENT


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
        assert content(file_job, bounds) == CONTENT
    else:
        assert refused(file_job, bounds) is code


def test_a_large_file_is_hashed_in_pieces(root: Path) -> None:
    large = os.urandom((1 << 20) + 17)
    (root / "large.wav").write_bytes(large)
    claim = job(f"file://{root}/large.wav", sha256=hashlib.sha256(large).hexdigest())

    assert content(claim, limits(root, max_bytes=1 << 22)) == large


def test_a_directory_that_becomes_a_link_after_the_check_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = local_files._allowed

    def check_and_swap(path: Path, roots: tuple[Path, ...]) -> tuple[Path, Path]:
        found = original(path, roots)
        (root / "deep").rename(root / "deep-before")
        (root / "deep").symlink_to(tmp_path)
        return found

    (root / "deep" / "secret.wav").write_bytes(b"inside")
    monkeypatch.setattr(local_files, "_allowed", check_and_swap)

    with pytest.raises(CodecError) as refusal:
        open_source(job(f"file://{root}/deep/secret.wav"), limits(root))

    assert refusal.value.code is ErrorCode.FETCH_FAILED


def test_a_pipe_in_the_place_of_a_checked_file_is_refused_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = local_files._check_regular
    swapped = []

    def check_and_swap(status: os.stat_result) -> None:
        original(status)
        if not swapped:
            swapped.append(True)
            (root / "a.wav").unlink()
            os.mkfifo(root / "a.wav")

    monkeypatch.setattr(local_files, "_check_regular", check_and_swap)

    assert refused(job(f"file://{root}/a.wav"), limits(root)) is ErrorCode.URI_FORBIDDEN


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_devices_are_no_files(device: str) -> None:
    assert refused(job(f"file://{device}"), limits(Path("/dev"))) is ErrorCode.URI_FORBIDDEN
