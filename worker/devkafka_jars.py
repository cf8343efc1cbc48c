"""Apache Kafka's jars, fetched once by Maven at pinned versions into a cache."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from worker.devkafka import KAFKA_VERSION, BrokerUnavailable

MINIMUM_JAVA = 17
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_TIMEOUT_S = 600
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oasr</groupId><artifactId>devkafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""


def java_program() -> str:
    """The `java` on the path, if it is new enough; raises `BrokerUnavailable`."""
    java = shutil.which("java")
    if java is None:
        raise BrokerUnavailable("no java on the path")
    told = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False, timeout=60
    ).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        raise BrokerUnavailable(f"Java {MINIMUM_JAVA} is needed")
    return java


def kafka_jars(cache_dir: Path, say: Callable[[str], object]) -> Path:
    """The folder with the jars, fetched first if the cache has none; raises `BrokerUnavailable`.

    Two processes may ask at once: one fetches, the other waits for it.
    """
    cache_dir = cache_dir.expanduser()
    jars = cache_dir / "libs"
    if jars.is_dir():
        return jars
    cache_dir.mkdir(parents=True, exist_ok=True)
    with open(cache_dir / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            say(f"fetching Apache Kafka {KAFKA_VERSION} with Maven (43 MB, once)")
            _fetch(cache_dir, jars)
    return jars


def _fetch(cache_dir: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerUnavailable("no mvn on the path to fetch Kafka's jars with")
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix="fetch-") as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(_POM)
        fetched = Path(folder) / "libs"
        command = [maven, "-B", "-q", "-f", str(pom), _COPY, f"-DoutputDirectory={fetched}"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise BrokerUnavailable(f"mvn took more than {_FETCH_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise BrokerUnavailable(f"mvn failed: {done.stdout[-2000:].strip()}")
        # a rename is all or nothing: whoever sees the folder sees every jar
        os.rename(fetched, jars)
