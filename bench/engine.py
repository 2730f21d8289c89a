"""What the ChatTTS engine does on this machine, beside the ChatTTS package itself and the floor.

    python bench/engine.py [--weights DIR] [--json FILE] [--threads 2]

Every engine is measured in a process of its own (`engine_worker`), one after the other in this one run:
steps a second of one stream, time to first audio, streams held in real time, resident memory. Without
`--weights` a full-size random checkpoint is made (1.2 GB, kept in `.bench/`). `--end-to-end` adds streams
through the whole gateway, measured by its clients.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

# Run as a script, this file's own folder comes first, where `import gateway` would find another file.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.end_to_end import hold  # noqa: E402
from engine.config import EngineConfig  # noqa: E402

ROOT: Final = Path(__file__).resolve().parent.parent
REAL_TIME: Final = 46.875
"""Steps a second."""
WEIGHT_BYTES: Final = {"fp32": 188.8e6 * 4, "int8": 188.8e6}
"""Of the layers and the code heads, which every step reads once, whatever the batch."""
LIMIT_S: Final = 900


def worker(config: EngineConfig, most: int) -> dict[str, Any]:
    """The figures of one engine."""
    run = subprocess.run(
        [sys.executable, "-m", "bench.engine_worker", str(most)],
        input=msgspec.json.encode(config),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        timeout=LIMIT_S,
        check=True,
    )
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def bandwidth_gb_s(threads: int) -> float:
    """What this machine reads from memory with so many threads: the best of several passes over 512 MB."""
    parts = [np.ones(64 << 20, np.float32) for _ in range(threads)]

    def once() -> float:
        began = time.perf_counter()
        readers = [threading.Thread(target=part.sum) for part in parts]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return sum(part.nbytes for part in parts) / (time.perf_counter() - began) / 1e9

    return max(once() for _ in range(7))


def weights_folder(given: Path | None, console: Console) -> Path:
    """The folder to measure, with its 8-bit form."""
    folder = given or ROOT / ".bench" / "chattts-random"
    command = [sys.executable, "-m", "engine.cli", "weights"]
    if given is None and not (folder / "asset" / "gpt" / "model.safetensors").exists():
        console.print(f"Writing full-size random weights to {folder} ...")
        subprocess.run(
            [*command, "random", str(folder), "--size", "full", "--seed", "1"], cwd=ROOT, check=True
        )
    if not (folder / "sayflow" / "gpt.int8.onnx").exists():
        subprocess.run([*command, "quantise", str(folder)], cwd=ROOT, check=True)
    return folder


def promises(figures: dict[str, Any]) -> list[tuple[str, bool | None]]:
    """Each promise, and whether it was kept; `None` where it was not measured."""
    int8, ratio, through = figures["ours"]["int8"], figures["ratio"], figures["end_to_end"]
    return [
        ("one stream at least 5 x upstream's steps a second", None if ratio is None else ratio >= 5),
        ("real-time factor at most 0.7", int8["rtf"] <= 0.7),
        ("at least 4 real-time streams in the engine", int8["realtime_streams"] >= 4),
        ("at least 3 real-time streams end to end", None if through is None else through >= 3),
        ("first audio within 0.6 s", int8["ttfa_s"] <= 0.6),
        ("at most 1.2 GB", int8["rss_gb"] <= 1.2),
    ]


def show(console: Console, figures: dict[str, Any]) -> None:
    """The table, the floor, the promises."""
    table = Table(title="ChatTTS, full size, one stream")
    for heading in ("engine", "steps/s", "RTF", "first audio", "real-time streams", "memory"):
        table.add_column(heading, justify="left" if heading == "engine" else "right")
    rows = {"ChatTTS package": figures["upstream"]}
    rows |= {f"ours, {name}": found for name, found in figures["ours"].items()}
    for name, found in rows.items():
        if found is None:
            table.add_row(name, "not installed")
            continue
        table.add_row(
            name,
            f"{found['steps_per_s']:.1f}",
            f"{found['rtf']:.2f}",
            f"{found['ttfa_s']:.2f} s",
            str(found["realtime_streams"]),
            f"{found['rss_gb']:.2f} GB",
        )
    console.print(table)
    floor = figures["floor"]
    console.print(
        f"memory bandwidth {floor['gb_s']:.1f} GB/s: reading the 8-bit weights takes {floor['int8_ms']:.1f}"
        f" ms a step; our step takes {floor['step_ms']:.1f} ms, of which that is {floor['share']:.0%}"
    )
    for promise, is_kept in promises(figures):
        verdict = {True: "kept", False: "NOT kept", None: "not measured"}[is_kept]
        console.print(f"{verdict}: {promise}")


@click.command()
@click.option("--weights", type=click.Path(path_type=Path), help="Real or random, full size.")
@click.option("--threads", default=2, show_default=True)
@click.option("--slots", default=8, show_default=True)
@click.option("--end-to-end/--no-end-to-end", default=True, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every figure.")
def main(
    weights: Path | None,
    threads: int,
    slots: int,
    end_to_end: bool,
    json_path: Path | None,
) -> None:
    """Measure the engine on this machine."""
    console = Console(width=120)
    folder = str(weights_folder(weights, console))

    def ours(precision: Any, most: int) -> dict[str, Any]:
        console.print(f"ours, {precision} ...")
        return worker(
            EngineConfig(
                kind="chattts",
                weights=folder,
                threads=threads,
                slots=slots,
                backend="onnx",
                precision=precision,
            ),
            most,
        )

    gb_s = bandwidth_gb_s(threads)
    found: dict[str, Any] = {"fp32": ours("fp32", 2), "int8": ours("int8", slots)}
    console.print("the ChatTTS package ...")
    try:
        upstream = worker(EngineConfig(kind="chattts-upstream", weights=folder, threads=threads), 1)
    except subprocess.CalledProcessError:
        upstream = None
    step_ms = 1000 / found["int8"]["steps_per_s"]
    floor_ms = WEIGHT_BYTES["int8"] / gb_s / 1e6
    figures = {
        "upstream": upstream,
        "ours": found,
        "ratio": found["int8"]["steps_per_s"] / upstream["steps_per_s"] if upstream else None,
        "floor": {"gb_s": gb_s, "int8_ms": floor_ms, "step_ms": step_ms, "share": floor_ms / step_ms},
        "end_to_end": hold(folder, threads, console) if end_to_end else None,
    }
    show(console, figures)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
