"""Passwords come from the environment or from files, and are shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker import cli
from worker.clients import common_properties
from worker.settings import SettingsError, load

SECRET = "hunter2-of-the-broker"
SASL = {
    "OASR_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "OASR_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "OASR_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
    "OASR_KAFKA__SASL_USERNAME": "worker",
}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("OASR_"):
            monkeypatch.delenv(name)
    for name, value in SASL.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["sasl_password", "ssl_key_password"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def variable(name: str) -> str:
    return f"OASR_KAFKA__{name.upper()}"


def property_of(name: str) -> str:
    return {"sasl_password": "sasl.password", "ssl_key_password": "ssl.key.password"}[name]


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_password_may_stand_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, ending: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes((SECRET + ending).encode())
    monkeypatch.setenv(variable(f"{name}_file"), str(file))

    assert common_properties(load())[property_of(name)] == SECRET


def test_a_password_stands_in_one_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    monkeypatch.setenv(variable(f"{name}_file"), str(file))
    monkeypatch.setenv(variable(name), "another-secret")

    with pytest.raises(SettingsError, match=f"{name} and {name}_file exclude each other") as caught:
        load()
    assert SECRET not in str(caught.value)
    assert "another-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [(None, "No such file"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "no text")],
)
def test_a_password_file_that_holds_none_stops_the_start_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    contents: bytes | None,
    reason: str,
) -> None:
    file = tmp_path / "password"
    if contents is not None:
        file.write_bytes(contents)
    monkeypatch.setenv(variable(f"{name}_file"), str(file))

    with pytest.raises(SettingsError, match=f"{name}_file.*{reason}"):
        load()


@pytest.mark.parametrize("in_file", [False, True], ids=["environment", "file"])
def test_no_way_to_show_settings_shows_a_password(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    in_file: bool,
) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    if in_file:
        monkeypatch.setenv(variable(f"{name}_file"), str(file))
    else:
        monkeypatch.setenv(variable(name), SECRET)
    settings = load()

    assert common_properties(settings)[property_of(name)] == SECRET
    assert cli.main(["check-config"]) == 0
    shown = capsys.readouterr()
    everything = (
        *(shown.out, shown.err, str(settings), repr(settings), repr(settings.kafka)),
        *(settings.model_dump_json(), str(settings.describe()), repr(settings.kafka.sasl_secret)),
        repr(settings.kafka.ssl_key_secret),
    )
    assert f"kafka.{name}" in shown.out
    for text in everything:
        assert SECRET not in text
