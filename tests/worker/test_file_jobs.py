from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from worker.codec import parse_file
from worker.file_jobs import FileMessage, claim_check, inline_job
from worker.messages import RawMessage


def as_job(message: FileMessage) -> object:
    return parse_file(RawMessage("t", 0, 0, 0, b"file", message.value, message.headers))


@pytest.mark.parametrize("name", ["a.wav", "b.flac", "C.WAV", "d.mp3", "e.m4a", "f.opus"])
def test_an_inline_job_is_the_file_s_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"content")

    job = as_job(inline_job(path))

    assert (job.audio, job.uri) == (b"content", None)


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"song\.txt is none of \.wav, "):
        inline_job(tmp_path / "song.txt")


def test_a_claim_check_names_place_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "with space.wav"
    path.write_bytes(b"content")

    job = as_job(claim_check(path))

    assert (job.audio, job.size_bytes) == (None, 7)
    assert job.uri == path.resolve().as_uri()
    assert job.sha256 == hashlib.sha256(b"content").hexdigest()
