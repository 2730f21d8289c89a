"""What the gateway costs: CPU a stream-second beside bare Opus, event-loop lag, first audio, underruns.

    python bench/gateway.py [--streams 1,16,64,128] [--seconds 12] [--json FILE]

Starts the real server with the synthetic engine, and for each number of streams measures a row (`measure`),
then prints the table and says which promises were kept (`report`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

# Run as a script, this file's own folder comes first, where `import gateway` would find this file.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.measure import BARE_PAUSE_S, BARE_ROUNDS, SETTLE_S, fetch_frames, measure  # noqa: E402
from bench.report import Row, judge, show  # noqa: E402
from bench.server import BenchError, serving  # noqa: E402


def parse_streams(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    """Numbers between commas."""
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter("numbers between commas, such as 1,16,64") from error
    if min(numbers) < 1:
        raise click.BadParameter("at least 1")
    return numbers


@click.command()
@click.option("--streams", default="1,16,64,128", show_default=True, callback=parse_streams)
@click.option(
    "--seconds", default=12.0, show_default=True, type=click.FloatRange(1.0), help="Of each window."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows.")
def main(streams: list[int], seconds: float, json_path: Path | None) -> None:
    """Measure the gateway on this machine."""
    out = Console()
    # Cut by a file's 80 columns the table would be of no use.
    console = out if out.is_terminal else Console(width=120)
    rows: list[Row] = []
    try:
        # A probe needs a slot beside the streams; the one before it may still be giving up its own.
        with (
            serving(kind="synthetic", slots=max(streams) + 4, synthetic_rtf=0.02) as server,
            Progress(console=Console(stderr=True)) as progress,
        ):
            frames = asyncio.run(fetch_frames(server.url))
            bar = progress.add_task(
                "", total=len(streams) * (SETTLE_S + seconds + BARE_ROUNDS * BARE_PAUSE_S)
            )

            def advance(what: str, wait_s: float) -> None:
                progress.update(bar, description=f"{count} streams: {what}")
                end = time.monotonic() + wait_s
                while (left := end - time.monotonic()) > 0:
                    step = min(0.5, left)
                    time.sleep(step)
                    progress.advance(bar, step)

            for count in streams:
                progress.update(bar, description=f"{count} streams: starting")
                rows.append(measure(server, count, seconds, frames, advance))
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    show(rows, console)
    for promise, kept in judge(rows):
        verdict = {True: "kept", False: "NOT kept", None: "not measured"}[kept]
        console.print(f"{verdict}: {promise}")
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
