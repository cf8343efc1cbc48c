"""`deploy/pin-images`: digests of other projects' images, with a stand-in for the engine."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.support.deploy import DEPLOY, ROOT

ENGINE = """#!/bin/sh
case "$1" in
    pull) echo "pulled $3" >> "$ASKED" ;;
    image) echo "registry.example/$5@sha256:$(printf '%s' "$5" | sha256sum | cut -d' ' -f1)" ;;
esac
"""


def pin_images(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script with an engine that knows a digest of every image."""
    engine = folder / "docker"
    engine.write_text(ENGINE, encoding="utf-8")
    engine.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        [DEPLOY / "pin-images", *arguments],
        env={**environment, "ASKED": str(folder / "asked")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def images_of_others() -> dict[str, str]:
    """What Compose file and Dockerfile name by a tag, by variable, but for our own."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    named = dict(
        re.fullmatch(r"\$\{([A-Z_]+):-(.+)\}", service["image"]).groups()
        for service in services.values()
    )
    base = re.search(r"^ARG BASE_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    named["BASE_IMAGE"] = base.group(1)
    return {name: image for name, image in named.items() if not image.startswith("oasr-worker:")}


def test_every_image_of_others_gets_the_digest_that_its_registry_tells(tmp_path):
    told = pin_images(tmp_path)

    assert told.returncode == 0, told.stderr
    lines = dict(line.split("=", 1) for line in told.stdout.splitlines())
    wanted = images_of_others()
    assert lines.keys() == wanted.keys()
    for name, image in wanted.items():
        assert re.fullmatch(rf"{re.escape(image)}@sha256:[0-9a-f]{{64}}", lines[name])
    assert len((tmp_path / "asked").read_text().splitlines()) == len(wanted)


def test_what_was_pinned_passes_the_check(tmp_path):
    (tmp_path / ".env").write_text(pin_images(tmp_path).stdout, encoding="utf-8")

    assert pin_images(tmp_path, "--check", str(tmp_path / ".env")).returncode == 0


def test_the_check_names_what_has_a_tag_only(tmp_path):
    pinned = pin_images(tmp_path).stdout.splitlines()
    loose = [line.partition("@")[0] if line.startswith("KAFKA") else line for line in pinned]
    (tmp_path / ".env").write_text("\n".join(loose) + "\n", encoding="utf-8")

    checked = pin_images(tmp_path, "--check", str(tmp_path / ".env"))

    assert checked.returncode == 1
    assert re.findall(r"^[A-Z_]+", checked.stdout, re.MULTILINE) == ["KAFKA_IMAGE"]


def test_without_a_file_nothing_is_pinned(tmp_path):
    checked = pin_images(tmp_path, "--check", str(tmp_path / ".env"))

    assert checked.returncode == 1
    assert len(checked.stdout.splitlines()) == len(images_of_others())
