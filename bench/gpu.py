"""What the ChatTTS engine's torch backend does on a GPU: `bench/gpu.sh`.

The build is checked, then exactness by the tests that run on the device, then every batch size is measured
on full-size weights, random ones (1.2 GB, kept in `.bench/`) unless others are named. What one step costs is
the wall time from the host's call to the codes on the host; sound is what the vocoder takes a step when it is
fed 16 at a time. Memory is that of slots as long as the engine has them. Exits with 2 where there is no GPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import torch
from rich.console import Console
from rich.table import Table

from engine.chattts import weights
from engine.chattts.cuda_step import CudaStep, cuda_graphs
from engine.chattts.gpt import Gpt, slots_that_fit
from engine.chattts.model import PROMPT_POSITIONS
from engine.chattts.row import MAX_STEPS, Settings
from engine.chattts.vocoder import StreamingVocoder, Vocoder
from engine.chattts.weights import Checkpoint

ROOT: Final = Path(__file__).resolve().parent.parent
BATCHES: Final = (1, 8, 32, 128, 512)
STEP_MS: Final = 512 / 24
"""Of audio that one step makes."""
POSITIONS: Final = PROMPT_POSITIONS + MAX_STEPS
"""That a slot has, as in the engine; of these a stream here uses `PROMPT + STEPS`."""
PROMPT: Final = 40
STEPS: Final = 200
"""A stream ends in the smallest bucket of positions."""
FIRST_STEPS: Final = 12
LOOKAHEAD: Final = 4
"""Steps of the first sound, and of its context on the right."""
FED: Final = 16
COMPARED: Final = 8
"""Streams of each batch that are held against themselves alone."""
READ_BYTES: Final = 2 << 30
"""Of one pass that measures the memory's bandwidth."""
RESERVE: Final = 4 << 30
"""Bytes for weights, graphs, the vocoder and what torch itself takes."""
SETTINGS: Final = Settings(min_steps=STEPS)

Codes = list[list[list[int]]]
"""[streams, steps, 4]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One batch size."""

    batch: int
    step_ms: float
    sound_ms: float
    """Of the vocoder, a step."""
    realtime_streams: int
    ttfa_ms: float
    """Of a stream that joins: prefill, its first steps, their sound."""
    gb: float
    """Taken on the whole device."""
    floor_share: float
    """The time in which memory hands over what a step must read, of the time it took."""
    flips_per_1000: float
    """Steps whose codes differ from those of the same request alone, of all up to the first such."""


@contextmanager
def timed(device: torch.device, into: list[float]) -> Iterator[None]:
    """Milliseconds from an idle device to an idle device."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize()
    into.append((time.perf_counter() - began) * 1000)


def bandwidth_gb_s(device: torch.device) -> float:
    """What the device reads from its memory: the best of several passes over so many bytes."""
    block = torch.ones(READ_BYTES // 4, device=device)
    spent: list[float] = []
    for _ in range(8):
        with timed(device, spent):
            block.sum()
    return READ_BYTES / min(spent) / 1e6


def bytes_of_a_step(gpt: Gpt, batch: int, positions: float) -> float:
    """Weights once, and each stream's keys and values."""
    shape = gpt.shape
    attention = 2 * shape.hidden * (shape.heads + shape.kv_heads) * shape.head_dim
    layers = shape.layers * (attention + 3 * shape.hidden * shape.intermediate)
    cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * batch * positions
    return (layers + cache) * gpt.dtype.itemsize + 4 * gpt.head_codes.numel()


class Batch:
    """So many streams of one prompt and different seeds."""

    def __init__(self, checkpoint: Checkpoint, streams: int, *, device: torch.device) -> None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._streams = streams
        self.gpt = Gpt(checkpoint, slots=streams, max_positions=POSITIONS, dtype=dtype, device=device)
        self._step = CudaStep(self.gpt, capture=cuda_graphs() if device.type == "cuda" else None)
        self._step.warm_up()
        self.prefill_ms: list[float] = []

    def speak(self, seeds: list[int]) -> tuple[Codes, list[float]]:
        """Codes of `STEPS` steps of each stream, and the milliseconds of each step."""
        gpt, slots = self.gpt, range(self._streams)
        prompt = gpt.embed_text(torch.arange(PROMPT))
        for _ in range(3):
            gpt.reset(0)
            with timed(gpt.device, self.prefill_ms):
                hidden = gpt.prefill(0, prompt, 0)[-1]
        prefix = gpt.save_prefix(0, PROMPT)
        for slot in slots:
            gpt.restore_prefix(slot, prefix)
            self._step.begin(slot, hidden, SETTINGS, [])
        codes: Codes = [[] for _ in slots]
        spent: list[float] = []
        for at in range(STEPS):
            with timed(gpt.device, spent):
                drawn = self._step.step(slots, seeds, [at] * len(seeds))
            for row, one in zip(codes, drawn, strict=True):
                row.append(one.codes)
        return codes, spent


def sound_ms(vocoder: Vocoder, streams: int, hidden: int) -> tuple[float, float]:
    """Of a step of each of so many streams; and of the first sound of one."""
    device = vocoder.device
    stream = StreamingVocoder(vocoder, slots=streams)
    states = torch.randn(streams, FED, hidden, device=device)
    fed: list[float] = []
    for _ in range(6):
        with timed(device, fed):
            stream.feed(range(streams), states)
    first: list[float] = []
    for _ in range(3):
        stream.reset(0)
        with timed(device, first):
            stream.feed([0], states[:1, :FIRST_STEPS])
            stream.peek(0, LOOKAHEAD)
    return statistics.median(fed) / FED, min(first)


def flips_per_1000(codes: Codes, alone: Codes) -> float:
    """Of streams with these codes in a batch, and those alone. After its first flip a stream is another."""
    flips = steps = 0
    for here, there in zip(codes, alone, strict=False):
        differs = [one != other for one, other in zip(here, there, strict=True)]
        flips += any(differs)
        steps += differs.index(True) + 1 if any(differs) else len(differs)
    return 1000 * flips / steps


def measure(checkpoint: Checkpoint, vocoder: Vocoder, streams: int, alone: Codes, gb_s: float) -> Row:
    """One batch size."""
    device = vocoder.device
    batch = Batch(checkpoint, streams, device=device)
    codes, spent = batch.speak(list(range(streams)))
    step = statistics.median(spent[STEPS // 2 :])
    sound, first = sound_ms(vocoder, streams, checkpoint.gpt_shape.hidden)
    floor = bytes_of_a_step(batch.gpt, streams, PROMPT + 0.75 * STEPS) / gb_s / 1e6
    free, total = torch.cuda.mem_get_info() if device.type == "cuda" else (0, 0)
    return Row(
        batch=streams,
        step_ms=step,
        sound_ms=sound,
        realtime_streams=int(streams * min(1.0, STEP_MS / (step + sound))),
        ttfa_ms=min(batch.prefill_ms) + FIRST_STEPS * step + first,
        gb=(total - free) / 1e9,
        floor_share=floor / step,
        flips_per_1000=flips_per_1000(codes, alone),
    )


def show(console: Console, rows: list[Row]) -> None:
    """The table."""
    table = Table(title=f"ChatTTS on torch, {PROMPT} to {PROMPT + STEPS} positions a stream")
    columns: dict[str, Callable[[Row], str]] = {
        "batch": lambda row: str(row.batch),
        "step": lambda row: f"{row.step_ms:.2f} ms",
        "sound": lambda row: f"{row.sound_ms:.2f} ms",
        "real-time streams": lambda row: str(row.realtime_streams),
        "first audio": lambda row: f"{row.ttfa_ms:.0f} ms",
        "memory": lambda row: f"{row.gb:.1f} GB",
        "of the bandwidth floor": lambda row: f"{row.floor_share:.0%}",
        "flips in 1,000 steps": lambda row: f"{row.flips_per_1000:.2f}",
    }
    for heading in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    console.print(table)
    console.print("Real time: step and sound, one after the other, within 21.33 ms.")


@torch.inference_mode()
def measure_all(folder: Path, device: torch.device, batches: tuple[int, ...], console: Console) -> list[Row]:
    """Every batch size that fits."""
    checkpoint = weights.load(folder)
    gb_s = bandwidth_gb_s(device)
    console.print(f"memory bandwidth {gb_s:.0f} GB/s")
    vocoder = Vocoder.load(checkpoint.decoder, checkpoint.vocos, device=device)
    single = Batch(checkpoint, 1, device=device)
    alone = [codes for seed in range(COMPARED) for codes in single.speak([seed])[0]]
    del single
    rows = []
    for streams in batches:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            free = torch.cuda.mem_get_info()[0]
            room = slots_that_fit(free, checkpoint.gpt_shape, POSITIONS, torch.bfloat16, RESERVE)
            if room < streams:
                console.print(f"{streams} streams do not fit: there is room for {room}")
                continue
        rows.append(measure(checkpoint, vocoder, streams, alone, gb_s))
    return rows


@click.command()
@click.option("--weights", "folder", type=click.Path(path_type=Path), help="Real or random, full size.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every figure.")
def main(folder: Path | None, json_path: Path | None) -> None:
    """Check and measure the torch backend on this machine's GPU."""
    console = Console(width=120)
    console.print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    if not torch.cuda.is_available():
        console.print("There is no GPU that this torch can use; nothing was measured.")
        sys.exit(2)
    device = torch.device("cuda")
    found = torch.cuda.get_device_properties(device)
    console.print(f"{found.name}, {found.total_memory / 1e9:.0f} GB, {os.cpu_count()} CPU cores")
    began = time.monotonic()
    tests = ["tests/test_cuda_step.py", "tests/test_gpt.py"]
    exact = (
        subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False).returncode == 0
    )
    if folder is None:
        folder = ROOT / ".bench" / "chattts-random"
        if not (folder / "asset" / "gpt" / "model.safetensors").exists():
            console.print(f"Writing full-size random weights to {folder} ...")
            command = [sys.executable, "-m", "engine.cli", "weights", "random", str(folder)]
            subprocess.run([*command, "--size", "full", "--seed", "1"], cwd=ROOT, check=True)
    rows = measure_all(folder, device, BATCHES, console)
    show(console, rows)
    console.print(
        f"exactness on the device: {'passed' if exact else 'FAILED'}; {time.monotonic() - began:.0f} s"
    )
    if json_path is not None:
        figures = {"device": found.name, "exact": exact, "rows": [dataclasses.asdict(row) for row in rows]}
        json_path.write_text(json.dumps(figures, indent=2) + "\n")
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()
