"""The 8-bit file: made once, of these very weights, and never used for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.chattts import layout, quantise, random_weights
from engine.chattts.onnx_graph import VERSION
from engine.chattts.weights import WeightsError
from engine.cli import main


@pytest.fixture
def root(tmp_path: Path) -> Path:
    random_weights.write(tmp_path / "tiny", size="tiny", seed=7)
    return tmp_path / "tiny"


def test_the_command_makes_the_file_and_shows_how_far_it_is(root: Path) -> None:
    assert quantise.find(root) is None
    result = CliRunner().invoke(main, ["weights", "quantise", str(root)])
    assert result.exit_code == 0, result.output
    assert "100%" in result.output or "quantising" in result.output
    path = quantise.find(root)
    assert path is not None
    assert path.is_relative_to(root / "sayflow")
    assert not list(root.glob(".quantise-*")), "nothing else is left behind"
    modes = {file.stat().st_mode for file in path.parent.iterdir()}
    assert len(modes) == 1, "who may read one file may read both"


def test_progress_ends_at_the_end(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    quantise.quantise(root, progress=lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 1
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen), "and it never goes back"
    quantise.quantise(root)
    assert quantise.find(root) is not None, "made again in the old one's place"


def test_a_file_of_other_weights_is_refused(root: Path, tmp_path: Path) -> None:
    quantise.quantise(root)
    random_weights.write(tmp_path / "other", size="tiny", seed=8)
    (tmp_path / "other" / layout.GPT).replace(root / layout.GPT)
    with pytest.raises(WeightsError, match=r"other weights.*quantise"):
        quantise.find(root)


def test_a_file_of_another_shape_is_refused(root: Path) -> None:
    quantise.quantise(root)
    config = root / layout.GPT_CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 20_000.0}))
    with pytest.raises(WeightsError, match="other weights"):
        quantise.find(root)


def test_a_file_of_another_version_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quantise.quantise(root)
    monkeypatch.setattr(quantise, "VERSION", VERSION + 1)
    with pytest.raises(WeightsError, match="another version"):
        quantise.find(root)


def test_a_damaged_file_is_refused(root: Path) -> None:
    path = quantise.quantise(root)
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 50)
    with pytest.raises(WeightsError, match="quantise"):
        quantise.find(root)


def test_a_folder_that_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["weights", "quantise", str(tmp_path)])
    assert result.exit_code == 1
    assert "missing" in result.output
    assert list(tmp_path.iterdir()) == []
