"""The rules that hold the packages together, read off the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted([*ROOT.glob("oasr/**/*.py"), *ROOT.glob("worker/**/*.py")])
MOST_LINES = 300
MOST_FUNCTION_LINES = 50

# Layers of `oasr`, lowest first: a package imports its own and lower ones.
LAYERS = ("errors", "audio", "features", "decoding", "models", "cache", "engine")
TORCH_FREE = (
    "oasr/engine/scheduler.py",
    "oasr/engine/batching.py",
    "oasr/engine/waiting.py",
    "oasr/engine/shortest.py",
    "oasr/engine/config.py",
    "oasr/engine/preemption.py",
    "oasr/engine/fair_queue.py",
    "oasr/engine/shares.py",
    "oasr/engine/request.py",
    "oasr/audio/segmenter.py",
)
KAFKA_FREE = (
    "worker/offsets.py",
    "worker/session_map.py",
    "worker/session_map_codec.py",
    "worker/metadata.py",
    "worker/codec.py",
    "worker/records.py",
    "worker/sessions.py",
    "worker/channels.py",
    "worker/streams.py",
    "worker/partition.py",
    "worker/commits.py",
    "worker/backpressure.py",
)


def imports_of(path: Path) -> set[str]:
    """Modules that a file names in its import statements, also the lazy ones."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found.add(node.module)
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES
    for function in functions(path):
        assert (function.end_lineno or 0) - function.lineno < MOST_FUNCTION_LINES, function.name


@pytest.mark.parametrize("path", sorted(ROOT.glob("oasr/**/*.py")), ids=name_of)
def test_the_engine_knows_neither_the_worker_nor_kafka_nor_metrics(path: Path) -> None:
    roots = {module.split(".")[0] for module in imports_of(path)}

    assert not roots & {"worker", "confluent_kafka", "prometheus_client", "pydantic"}


@pytest.mark.parametrize("layer", LAYERS)
def test_packages_of_the_engine_import_only_what_lies_below_them(layer: str) -> None:
    above = {f"oasr.{name}" for name in LAYERS[LAYERS.index(layer) + 1 :]}
    for path in [*ROOT.glob(f"oasr/{layer}/**/*.py"), *ROOT.glob(f"oasr/{layer}.py")]:
        for module in imports_of(path):
            assert not any(module == name or module.startswith(f"{name}.") for name in above), path


@pytest.mark.parametrize("name", TORCH_FREE)
def test_bookkeeping_imports_no_torch(name: str) -> None:
    roots = {module.split(".")[0] for module in imports_of(ROOT / name)}

    assert "torch" not in roots


@pytest.mark.parametrize("name", KAFKA_FREE)
def test_rules_about_messages_import_no_kafka_client(name: str) -> None:
    roots = {module.split(".")[0] for module in imports_of(ROOT / name)}

    assert not roots & {"confluent_kafka", "prometheus_client", "torch"}


def test_only_the_metrics_know_prometheus() -> None:
    users = {
        name_of(path)
        for path in MODULES
        if any(m.split(".")[0] == "prometheus_client" for m in imports_of(path))
    }

    assert users == {"worker/metrics.py"}


def test_only_the_tracing_knows_opentelemetry_and_only_once_it_is_asked_for() -> None:
    users = {
        name_of(path)
        for path in MODULES
        if any(m.split(".")[0] == "opentelemetry" for m in imports_of(path))
    }
    program = "import sys, worker.run; sys.exit('opentelemetry' in sys.modules)"

    assert users == {"worker/tracing.py"}
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        name_of(path)
        for path in MODULES
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    }

    assert readers == {"worker/settings.py"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_keeps_state_that_changes(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_public_module_and_class_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), "the module has no docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name
