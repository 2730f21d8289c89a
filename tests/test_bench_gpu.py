"""The GPU bench, as far as it goes without one: it refuses plainly, and its measurement runs on a CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from bench import gpu
from bench.gpu import flips_per_1000, measure_all, show
from tests.upstream import write_tiny

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).resolve().parent.parent / "bench" / "gpu.sh"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(python: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": python, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_it_refuses_without_a_gpu() -> None:
    done = run(sys.executable)
    assert done.returncode == 2, done.stderr
    assert f"torch {torch.__version__}" in done.stdout
    assert "no GPU" in done.stdout
    assert done.stderr == ""


def test_it_refuses_without_python(tmp_path: Path) -> None:
    done = run(str(tmp_path / "python"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "run.sh --setup-only" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    assert subprocess.run(["shellcheck", SCRIPT], check=False).returncode == 0


def test_a_flip_counts_once_for_the_steps_up_to_it() -> None:
    alone = [[[1], [2], [3], [4]], [[5], [6], [7], [8]]]
    assert flips_per_1000(alone, alone) == 0
    assert flips_per_1000(alone[:1], alone) == 0
    assert flips_per_1000([[[1], [0], [0], [0]], alone[1]], alone) == 1000 / 6


def test_every_figure_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "STEPS", 20)
    monkeypatch.setattr(gpu, "COMPARED", 2)
    monkeypatch.setattr(gpu, "READ_BYTES", 1 << 20)
    console = Console(width=120, record=True, quiet=True)
    rows = measure_all(write_tiny(tmp_path / "weights"), torch.device("cpu"), (1, 3), console)
    assert [row.batch for row in rows] == [1, 3]
    for row in rows:
        assert 0 < row.step_ms < row.ttfa_ms
        assert row.sound_ms > 0
        assert 0 <= row.realtime_streams <= row.batch
        assert row.floor_share > 0
        assert row.flips_per_1000 == 0
    show(console, rows)
