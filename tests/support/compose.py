"""The services of docker-compose.yml as one project, started and watched through Compose itself."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.support.deploy import ROOT

# 8 busy containers may start on two cores
START_TIMEOUT_S = 600.0


class Project:
    """One run of the Compose file under a name of its own."""

    def __init__(self, name: str, ports: dict[str, int], profiles: Sequence[str]) -> None:
        """`ports` are the variables of published ports."""
        self.name = name
        self.ports = ports
        self._environment = {**os.environ, **{key: str(port) for key, port in ports.items()}}
        self._compose = [
            *shlex.split(os.environ["OASR_TEST_COMPOSE"]),
            *("--project-name", name, "--file", str(ROOT / "docker-compose.yml")),
            *(word for profile in profiles for word in ("--profile", profile)),
        ]

    def run(self, *arguments: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """What Compose writes to standard output; fails with its errors if its status is not 0."""
        return _checked([*self._compose, *arguments], timeout_s, self._environment)

    def up(self, services: Sequence[str], workers: int) -> None:
        """Starts the services, or what is missing of them, from images that are there."""
        scale = ("--scale", f"worker={workers}")
        self.run("up", "--detach", "--no-build", "--no-recreate", *scale, *services)

    def containers(self, service: str) -> list[dict[str, Any]]:
        """All containers of a service as the engine describes them, stopped ones too."""
        ids = self.run("ps", "--all", "--quiet", service).split()
        return inspect(ids) if ids else []

    def running(self, service: str) -> list[str]:
        """Ids of a service's containers that run."""
        return [c["Id"] for c in self.containers(service) if c["State"]["Running"]]

    def exit_codes(self, service: str) -> list[int | None]:
        """Exit status of each container of a service; None of one that runs."""
        states = [container["State"] for container in self.containers(service)]
        return [None if state["Running"] else state["ExitCode"] for state in states]

    def healthy(self, service: str) -> list[bool]:
        """Whether each running container of a service passes its health check."""
        return [
            container["State"]["Health"]["Status"] == "healthy"
            for container in self.containers(service)
            if container["State"]["Running"]
        ]

    def ready(self, service: str) -> int:
        """How many of a worker's containers say that they do their share."""
        ask = ("oasr-worker", "health", "--ready", "--port", "9108")
        asked = [
            subprocess.run(["docker", "exec", one, *ask], capture_output=True, check=False)
            for one in self.running(service)
        ]
        return sum(answer.returncode == 0 for answer in asked)

    def logs(self, service: str) -> str:
        """What a service has written."""
        return self.run("logs", "--no-color", service)

    def down(self) -> None:
        """Stops and removes all of it, volumes too."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "60")

    def left(self) -> dict[str, list[str]]:
        """What the engine still has of the project, by kind."""
        mine = f"label=com.docker.compose.project={self.name}"
        return {
            kind: docker(kind, "ls", *every, "--quiet", "--filter", mine).split()
            for kind, every in (("container", ["--all"]), ("network", []), ("volume", []))
        }


def docker(*arguments: str) -> str:
    """What the engine's command line writes; fails with its errors if its status is not 0."""
    return _checked(["docker", *arguments], START_TIMEOUT_S, dict(os.environ))


def inspect(ids: Sequence[str]) -> list[dict[str, Any]]:
    """Containers as the engine describes them."""
    found: list[dict[str, Any]] = json.loads(docker("container", "inspect", *ids))
    return found


def _checked(command: list[str], timeout_s: float, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr[-4000:]}"
    return done.stdout
