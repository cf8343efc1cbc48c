"""Settings come from the environment and a file, and a mistake in either stops the start."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from oasr.audio.pcm import Encoding
from worker.settings import Settings, SettingsError, load
from worker.settings_groups import Model
from worker.settings_models import ServedModel

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in os.environ:
        if name.upper().startswith("OASR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")


def problems(config_file=None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(config_file)
    return caught.value.problems


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_one_variable_is_enough():
    settings = load()

    assert settings.kafka.bootstrap_servers == "broker:9092"
    assert (settings.kafka.group, settings.files_group) == ("oasr-worker", "oasr-worker.files")
    assert settings.topics.chunks == "oasr.audio.chunks"
    assert (settings.http.port, settings.endpointing.min_silence_ms) == (9108, 800)


def test_brokers_are_required_and_named_as_the_variable(monkeypatch):
    monkeypatch.delenv("OASR_KAFKA__BOOTSTRAP_SERVERS")

    assert problems() == ["kafka.bootstrap_servers (OASR_KAFKA__BOOTSTRAP_SERVERS): Field required"]


def test_the_environment_wins_over_the_file_and_the_rest_of_the_group_stays(monkeypatch, tmp_path):
    path = written(
        tmp_path / "config.yaml",
        "kafka: {group: from-file, bootstrap_servers: other:1}\naudio: {encoding: alaw}\n",
    )
    monkeypatch.setenv("OASR_CONFIG_FILE", str(path))
    monkeypatch.setenv("oasr_audio__sample_rate", "8000")

    settings = load()

    assert (settings.kafka.bootstrap_servers, settings.kafka.group) == ("broker:9092", "from-file")
    assert settings.chunk_defaults().encoding is Encoding.ALAW
    assert settings.chunk_defaults().sample_rate == 8_000
    assert load(path) == settings


def test_lists_and_mappings_are_json(monkeypatch):
    monkeypatch.setenv("OASR_FILES__ROOTS", '["/data", "/more"]')
    monkeypatch.setenv("OASR_KAFKA__CLIENT", '{"client.rack": "a"}')

    settings = load()

    assert settings.files.roots == (Path("/data"), Path("/more"))
    assert settings.kafka.client == {"client.rack": "a"}


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("OASR_MODEL__DIR", "")

    assert load().model.dir is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OASR_KAFKA__BOOTSTRAP", "kafka.bootstrap"),
        ("OASR_BROKER__HOST", "OASR_BROKER__HOST sets nothing"),
        ("OASR_WORKER_PORT_9108_TCP", "OASR_WORKER_PORT_9108_TCP sets nothing"),
        ("oasr_htp", "oasr_htp sets nothing"),
    ],
)
def test_a_stray_name_stops_the_start(monkeypatch, name, expected):
    monkeypatch.setenv(name, "value-not-to-be-shown")

    assert len(problems()) == 1
    assert expected in problems()[0]
    assert "value-not" not in problems()[0]


def test_switches_of_the_test_suites_are_no_stray_names(monkeypatch):
    monkeypatch.setenv("OASR_TEST_BOOTSTRAP", "x")
    monkeypatch.setenv("OASR_REQUIRE_BROKER", "1")

    assert load().kafka.bootstrap_servers == "broker:9092"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HTTP__PORT": "70000"}, "http.port"),
        ({"HTTP__PORT": "x"}, "http.port"),
        ({"MODEL__DEVICE": "gpu"}, "model.device"),
        ({"MODEL__NUM_LEFT_CHUNKS": "-1"}, "model.num_left_chunks"),
        ({"AUDIO__ENCODING": "opus"}, "audio.encoding"),
        ({"TOPICS__PARTIALS": "oasr.transcripts"}, "two topics have the same name"),
        ({"TOPICS__CHUNKS": "a b"}, "topics.chunks"),
        ({"BACKPRESSURE__LOW_AUDIO_S": "600"}, "low_audio_s must be below"),
        ({"ENDPOINTING__MAX_UTTERANCE_MS": "3000"}, "max_utterance_ms must be at least"),
        ({"ENDPOINTING__PRE_ROLL_MS": "1950"}, "no_speech_ms must be at least"),
        ({"SESSIONS__TTL_MS": "5000"}, "idle_finalize_ms must not exceed"),
        ({"FILES__ROOTS": '["data"]'}, "roots must be absolute"),
        ({"FILES__ROOTS": "/data"}, "files"),
        ({"KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "needs sasl_mechanism"),
        ({"KAFKA__SASL_MECHANISM": "PLAIN"}, "needs a SASL security_protocol"),
        (
            {"KAFKA__GROUP_PROTOCOL": "consumer", "KAFKA__SESSION_TIMEOUT_MS": "6000"},
            "session_timeout_ms is the broker's",
        ),
        ({"KAFKA__MAX_POLL_INTERVAL_MS": "20000"}, "must not be below session_timeout_ms"),
        ({"KAFKA__CLIENT": '{"enable.auto.commit": true}'}, "is the worker's own"),
        ({"KAFKA__PRODUCER": '{"message.timeout.ms": 5}'}, "is the worker's own"),
        ({"KAFKA__CONSUMER": '{"ssl.keystore.password": "hunter2"}'}, "holds a secret"),
        ({"DRAIN_TIMEOUT_MS": "0"}, "drain_timeout_ms"),
        ({"LANES": "none"}, "lanes"),
        ({"MODELS__FILES__DEVICE": "gpu"}, "models.files.device"),
        ({"MODELS__FILES__NICE": "20"}, "models.files.nice"),
        ({"MODELS__FILES__DECODING__BEAM": "0"}, "models.files.decoding.beam"),
        ({"MODELS__A_B__DTYPE": "int8"}, "models.a_b"),
        ({"MODELS__LIVE__OWN_PROCESS": "true"}, "models.live runs in the worker's own process"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(f"OASR_{name}", value)

    assert any(expected in line for line in problems())
    assert not any("hunter2" in line for line in problems())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka: [", "not YAML at line 1"),
        ("- a\n", "not a mapping"),
        ("1: {}\n", "not a mapping"),
        ("kafka: {grupp: x}\n", "kafka.grupp"),
        ("broker: {host: x}\n", "broker"),
        ("kafka: text\n", "kafka is not a mapping"),
        ("http: 9108\n", "http is not a mapping"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, text, expected):
    assert any(expected in line for line in problems(written(tmp_path / "c.yaml", text)))


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert problems(tmp_path / "missing.yaml") == [
        f"{tmp_path}/missing.yaml: No such file or directory"
    ]


@pytest.mark.parametrize("text", ["", "kafka:\n", "http: {}\n"])
def test_an_empty_file_or_group_sets_nothing(tmp_path, text):
    assert load(written(tmp_path / "c.yaml", text)) == load()


def test_secrets_are_hidden_wherever_settings_are_shown(monkeypatch):
    monkeypatch.setenv("OASR_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("OASR_KAFKA__SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("OASR_KAFKA__SASL_PASSWORD", "hunter2")

    settings = load()

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.describe())
    assert settings.describe()["kafka.sasl_password"]
    assert settings.describe()["kafka.client"] == {}


@pytest.mark.parametrize(
    ("lanes", "reads"), [("both", (True, True)), ("live", (True, False)), ("files", (False, True))]
)
def test_a_worker_may_read_one_lane_alone(monkeypatch, lanes, reads):
    monkeypatch.setenv("OASR_LANES", lanes)
    settings = load()

    assert (settings.reads_calls, settings.reads_files) == reads


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        load().kafka.group = "other"


def test_the_engine_gets_its_share(monkeypatch):
    monkeypatch.setenv("OASR_ENGINE__MAX_BATCH_SIZE", "8")
    monkeypatch.setenv("OASR_MODEL__CHUNK_SIZE", "25")
    monkeypatch.setenv("OASR_ENGINE__MAX_NUM_BLOCKS", "600")
    config = load().engine_config()

    assert (config.max_batch_size, config.chunk_size, config.num_left_chunks) == (8, 25, 4)
    assert (config.max_batch_frames, config.max_chunks_per_step) == (3000, 8)
    assert config.max_num_blocks == 600
    assert config.block_size_frames >= config.chunk_size


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 1.0),
        ({"MODEL__DEVICE": "cuda:1"}, 0.2),
        ({"ENGINE__MAX_WAIT_TIME_MS": "0"}, 0.0),
    ],
)
def test_the_wait_bound_fits_the_device_unless_it_is_set(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(f"OASR_{name}", value)

    assert load().engine_config().max_wait_time == expected


def test_one_model_serves_both_lanes_where_no_other_is_named(monkeypatch):
    monkeypatch.setenv("OASR_MODEL__CHUNK_SIZE", "8")
    settings = load()

    assert list(settings.served_models) == ["live"]
    assert settings.served_models["live"].chunk_size == 8
    assert not settings.engine_config().one_forward_per_step


@pytest.mark.parametrize(
    ("lanes", "names"),
    [
        ("both", ["live", "files", "german"]),
        ("live", ["live", "files", "german"]),
        ("files", ["files", "german"]),
    ],
)
def test_models_have_names_and_what_they_leave_out_is_as_for_one(
    monkeypatch, tmp_path, lanes, names
):
    path = written(
        tmp_path / "c.yaml",
        """
models:
  german: {dir: /models/german, chunk_size: 8}
  files: {dir: /models/whisper, engine: {max_batch_frames: 12000, torch_threads: 2}}
""",
    )
    monkeypatch.setenv("OASR_LANES", lanes)
    monkeypatch.setenv("OASR_MODELS__FILES__DTYPE", "int8")
    monkeypatch.setenv("OASR_MODELS__FILES__DECODING__SEARCH", "prefix_beam")
    settings = load(path)
    models = settings.served_models

    assert list(models) == names
    assert models["files"].decoding.search == "prefix_beam"
    config = settings.engine_config(models["files"])
    assert (config.dtype, config.max_batch_frames) == ("int8", 12_000)
    german = settings.engine_config(models["german"])
    assert (german.chunk_size, german.max_batch_frames) == (8, 3_000)
    assert config.one_forward_per_step is german.one_forward_per_step is (lanes != "files")


def test_the_documentation_lists_every_setting_with_its_default_and_meaning():
    rows = re.findall(
        r"^\| `([a-zA-Z0-9_.]+)` \| `([^`]+)` \| (.+) \|$",
        DOCS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert sorted(rows) == sorted(documented_settings())


def documented_settings():
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for inner, part in field.annotation.model_fields.items():
                yield f"{name}.{inner}", shown_default(part), meaning(part)
        else:
            yield name, shown_default(field), meaning(field)
    for inner in ServedModel.model_fields.keys() - Model.model_fields.keys():
        part = ServedModel.model_fields[inner]
        yield f"models.NAME.{inner}", shown_default(part), meaning(part)


def shown_default(field) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool | None):
        return str(default).lower()
    return "[]" if default == () else str(default)


def meaning(field) -> str:
    assert field.description
    return " ".join(field.description.split())
