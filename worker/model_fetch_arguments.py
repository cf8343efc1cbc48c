"""The arguments of `oasr-worker fetch-model`, apart from what carries it out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch and where to."""

    repository: str
    folder: Path
    revision: str
    endpoint: str
    token_file: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them, and what runs the command."""
    parser.add_argument("repository", metavar="OWNER/NAME")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where it goes")
    parser.add_argument("--revision", default="main", help="commit, tag or branch")
    parser.add_argument("--endpoint", default="https://huggingface.co", help="URL of the hub")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the access token")
    parser.set_defaults(command=_fetch, bootstrap_servers=None)  # it asks no broker


def _fetch(options: argparse.Namespace) -> int:
    from worker.model_fetch import run

    return run(
        FetchRequest(
            options.repository,
            options.to,
            options.revision,
            options.endpoint,
            options.token_file,
        )
    )
