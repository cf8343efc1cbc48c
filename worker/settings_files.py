"""The group `files` of `worker.settings`."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt, model_validator

from worker.file_source import FileLimits
from worker.settings_groups import Group


class Files(Group):
    """What may be read on behalf of file messages."""

    roots: tuple[Path, ...] = ()
    """Directories from which `file://` is allowed, as a JSON list; default: none."""
    workers: PositiveInt = 2
    """Files that are read and decoded at once, each in a process of its own."""
    max_bytes: PositiveInt = 1 << 30
    """Largest file."""
    max_duration_s: PositiveInt = 4 * 3_600
    """Longest file."""
    decode_timeout_s: PositiveInt = 1_800
    """How long a process may decode one file; waiting for the engine does not count."""
    stall_timeout_s: PositiveInt = 60
    """How long a process may decode without any progress until it is ended."""
    max_memory_bytes: PositiveInt = 1 << 30
    """Memory that decoding may take in each process, over what the process has without a file."""
    fetch_timeout_s: PositiveInt = 600
    """How long finding and checking a file, and all attempts to fetch it, may take together."""

    @model_validator(mode="after")
    def _absolute(self) -> Files:
        for root in self.roots:
            if not root.is_absolute():
                raise ValueError("roots must be absolute paths")
        return self

    def limits(self) -> FileLimits:
        """The same for whoever reads the files."""
        return FileLimits(
            roots=self.roots,
            max_bytes=self.max_bytes,
            max_duration_s=self.max_duration_s,
            decode_timeout_s=self.decode_timeout_s,
            fetch_timeout_s=self.fetch_timeout_s,
            stall_timeout_s=self.stall_timeout_s,
            max_memory_bytes=self.max_memory_bytes,
        )
