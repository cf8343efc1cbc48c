"""The group `files` of `worker.settings`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from pydantic import PositiveInt, field_validator, model_validator

from worker.addresses import HostRules
from worker.file_source import FileLimits
from worker.https_download import HttpsRules
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

    temp_dir: Path | None = None
    """Where fetched files lie while they are read, without a name; default: that of the system."""
    https_hosts: tuple[str, ...] = ()
    """Hosts from which `https://` is allowed, as a JSON list: `name`, `name:port`, `*.name`."""
    https_private_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that such hosts may have addresses in although they are not public (JSON list)."""
    https_ca_file: Path | None = None
    """Certificates (PEM) of authorities that count for `https://`; default: the system's."""
    s3_buckets: tuple[str, ...] = ()
    """Buckets from which `s3://` is allowed, as a JSON list; needs the extra `s3`."""

    @field_validator("https_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not re.fullmatch(r"(\*\.)?[A-Za-z0-9._-]+(:[0-9]{1,5})?", host):
                raise ValueError("https_hosts are names, with *. in front or :port behind")
        return hosts

    @model_validator(mode="after")
    def _consistent(self) -> Files:
        for root in self.roots:
            if not root.is_absolute():
                raise ValueError("roots must be absolute paths")
        if self.s3_buckets and find_spec("boto3") is None:
            raise ValueError("s3_buckets needs the extra s3: pip install 'oasr-worker[s3]'")
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
            temp_dir=self.temp_dir,
            https=HttpsRules(
                HostRules(self.https_hosts, self.https_private_networks), self.https_ca_file
            ),
            s3_buckets=self.s3_buckets,
        )
