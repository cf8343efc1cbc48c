"""An authority of a test's own, and certificates that it signs, as PEM files."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_DAYS = ("-days", "2")
_KEY = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key; `both` holds the key and the certificate in one file."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates below a folder; `certificate` is what others need to trust it."""

    def __init__(self, folder: Path, name: str = "test-authority") -> None:
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl("genpkey", *_KEY, "-out", self._key)
        _openssl(
            *("req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={name}", *_DAYS),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-out", self.certificate),
        )

    def sign(self, name: str, hosts: str = "", password: str | None = None) -> Certificate:
        """A certificate with the common name; `hosts` is its `subjectAltName`.

        With a `password` the key is encrypted by it.
        """
        key, request = self._folder / f"{name}.key", self._folder / f"{name}.csr"
        signed, both = self._folder / f"{name}.pem", self._folder / f"{name}-both.pem"
        _openssl("genpkey", *_KEY, "-out", key)
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n" if hosts else "")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", *_DAYS, "-extfile", extensions, "-out", signed),
        )
        both.write_text(key.read_text() + signed.read_text())
        if password is not None:
            locked = self._folder / f"{name}-locked.key"
            _openssl("pkey", "-in", key, "-aes256", "-passout", f"pass:{password}", "-out", locked)
            key = locked
        return Certificate(signed, key, both)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(
        ["openssl", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
