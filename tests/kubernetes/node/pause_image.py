"""`pause_image.py BUSYBOX TAR`: what holds a pod's namespaces, of a static busybox."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def archive(files: dict[str, bytes]) -> bytes:
    """A tar of files that may be executed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            entry.mode = 0o755
            tar.addfile(entry, io.BytesIO(contents))
    return packed.getvalue()


def image(busybox: bytes) -> bytes:
    """An archive as `docker save` writes one, named local/pause:1."""
    layer = archive({"bin/busybox": busybox})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/busybox", "sleep", "1000000000"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [
        {
            "Config": "config.json",
            "RepoTags": ["docker.io/local/pause:1"],
            "Layers": ["layer.tar"],
        }
    ]
    return archive(
        {
            "layer.tar": layer,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(image(Path(sys.argv[1]).read_bytes()))
