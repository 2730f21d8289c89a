"""Settings: who wins, what is refused, and that each fault is one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config import Config, ConfigError, EngineSettings, load


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SAYFLOW_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sayflow.toml"


def refused(path: Path | None = None, overrides: dict[str, Any] | None = None) -> str:
    """The one line that says why."""
    with pytest.raises(ConfigError) as caught:
        load(path, overrides or {})
    line = str(caught.value)
    assert line
    assert "\n" not in line
    return line


def test_the_defaults() -> None:
    config = load(None, {})
    assert (config.host, config.port, config.token) == ("127.0.0.1", 8080, None)
    assert set(config.engines) == {"main"}
    assert config.engines["main"].kind == "embedded"
    assert config.lead_ms == 2000


def test_each_source_wins_over_those_below_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('port = 1\nhost = "file"\nvoice = "file"\nlead_ms = 500\n')
    monkeypatch.setenv("SAYFLOW_PORT", "2")
    monkeypatch.setenv("SAYFLOW_HOST", "env")
    config = load(file, {"port": 3})
    assert (config.port, config.host, config.voice, config.lead_ms) == (3, "env", "file", 500)
    assert config.bundle == Config().bundle


def test_an_engines_settings_are_merged_field_by_field(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[engines.main]\nslots = 3\nthreads = 4\nsynthetic_rtf = 0.5\n")
    monkeypatch.setenv("SAYFLOW_ENGINES__MAIN__SLOTS", "5")
    config = load(file, {"engines": {"main": {"kind": "synthetic"}}})
    assert config.engines["main"] == EngineSettings(kind="synthetic", slots=5, threads=4, synthetic_rtf=0.5)


def test_a_lexicon_is_ready_for_use(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(
        'chunk_size = 500\n[lexicon]\nnginx = "engine x"\n[lexicon.zh]\nAI = "人工智能"\n', "utf-8"
    )
    config = load(file, {})
    assert [(entry.word, entry.language) for entry in config.words.entries] == [("nginx", None), ("AI", "zh")]
    child = Config.model_validate_json(config.model_dump_json())
    assert child.words.entries == config.words.entries
    assert child == config
    monkeypatch.setenv("SAYFLOW_LEXICON", '{"k8s": "kubernetes"}')
    assert {entry.word for entry in load(None, {}).words.entries} == {"k8s"}


def test_lists_come_from_every_source(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('origins = ["http://file"]\n')
    assert load(file, {}).origins == ("http://file",)
    monkeypatch.setenv("SAYFLOW_ORIGINS", '["http://env"]')
    assert load(file, {}).origins == ("http://env",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("prot = 1", "prot"),
        ("port = 70000", "port"),
        ('port = "x"', "port"),
        ("lead_ms = 199", "lead_ms"),
        ("bundle = 26", "bundle"),
        ('token = ""', "token"),
        ("chunk_size = 49", "chunk_size"),
        ("chunk_size = 501", "chunk_size"),
        ("release_ms = -1", "release_ms"),
        ("release_ms = 60001", "release_ms"),
        ('code = "speak"', "code"),
        ('thoughts = "speak"', "thoughts"),
        ("[lexicon]\nnginx = 1", "lexicon.nginx"),
        ('[lexicon]\nnginx = "..."', "lexicon"),
        ('[lexicon.fr]\nnginx = "x"', "lexicon"),
        ("auth_s = 0", "auth_s"),
        ('log_level = "loud"', "log_level"),
        ("[engines.main]\nfoo = 1", "engines.main.foo"),
        ('[engines.main]\nkind = "chattts9"', "engines.main.kind"),
        ("[engines.main]\nslots = 0", "engines.main.slots"),
        ("engines = 5", "engines"),
        ("port = = 5", "sayflow.toml"),
        ("port = 1\nport = 2", "sayflow.toml"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_in_one_line(file: Path, text: str, names: str) -> None:
    file.write_text(text)
    assert names in refused(file)


def test_each_fault_is_named(file: Path) -> None:
    file.write_text("prot = 1\nport = -1\n")
    line = refused(file)
    assert "prot" in line
    assert "port" in line


def test_a_file_that_is_not_there_or_not_text(file: Path, tmp_path: Path) -> None:
    assert str(file) in refused(file)
    assert str(tmp_path) in refused(tmp_path)
    file.write_bytes(b"\xff\xfe")
    assert str(file) in refused(file)


@pytest.mark.parametrize("name", ["port", "engines"])
def test_what_is_wrong_on_the_command_line(name: str) -> None:
    assert name in refused(overrides={name: "x"})
    assert "nonsense" in refused(overrides={"nonsense": 1})


@pytest.mark.parametrize(
    ("variable", "value", "names"),
    [
        ("SAYFLOW_PORT", "x", "port"),
        ("SAYFLOW_ENGINES__MAIN__SLOTS", "many", "engines.main.slots"),
        ("SAYFLOW_ENGINES__MAIN__FOO", "1", "engines.main.foo"),
        ("SAYFLOW_ORIGINS", "http://a", "origins"),
        ("SAYFLOW_ENGINES", "{", "engines"),
    ],
)
def test_what_is_wrong_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, names: str
) -> None:
    monkeypatch.setenv(variable, value)
    line = refused()
    assert names in line
    assert "None" not in line  # there is no file to blame


def test_an_engine_that_is_not_main_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYFLOW_ENGINES__OTHER__SLOTS", "3")
    with pytest.raises(ConfigError, match="'main', not 'other'"):
        load(None, {})


def test_settings_do_not_change() -> None:
    config = load(None, {})
    with pytest.raises(ValidationError):
        config.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.engines["main"].slots = 1  # type: ignore[misc]


def test_a_child_reads_what_its_parent_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('port = 1\ntoken = "secret"\norigins = ["http://a"]\n[engines.main]\nstyles = "/x"\n')
    monkeypatch.setenv("SAYFLOW_LEAD_MS", "900")
    config = load(file, {"voice": "v"})
    assert Config.model_validate_json(config.model_dump_json()) == config
    monkeypatch.setenv("SAYFLOW_LEAD_MS", "1000")
    assert Config.model_validate_json(config.model_dump_json()).lead_ms == 900


def test_what_clients_are_told() -> None:
    config = load(None, {"lead_ms": 700, "utterances": 3, "write_deadline_s": 4})
    limits = config.limits(80)
    assert (limits.lead_ms, limits.utterances, limits.write_deadline_s) == (700, 3, 4.0)
    assert limits.sentence_chars == 80
    for name in ("message_bytes", "text_chars", "pending_chars"):
        assert getattr(limits, name) == getattr(config, name)
