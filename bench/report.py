"""What `bench/gateway.py` says of its measurements: the rows, the table, and which promises were kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from gateway.opus import BITRATE, COMPLEXITY

PROMISED_AT: Final = 128
PROMISED_RATIO: Final = 1.5
PROMISED_LAG_MS: Final = 5.0
BUSY_LIMIT: Final = 0.9
"""Past this share of all cores the figures say more about the machine than about the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of streams."""

    streams: int
    cpu_ms_per_stream_s: float
    """Of the gateway's worker: Opus included, the engine not."""
    opus_ms_per_stream_s: float
    """Bare Opus, measured beside the streams."""
    idle_opus_ms_per_stream_s: float
    """Bare Opus before and after, with nothing else to do."""
    ratio: float
    """To bare Opus beside the streams."""
    lag_ms_p99: float | None
    ttfa_ms_p50: float
    ttfa_ms_p95: float
    ttfa_ms_p99: float
    underruns: int
    delivered: float
    """Audio received in the window, of what real time asks for: below 1 the gateway fell behind."""
    machine_busy: float
    """Share of all cores, by everything that ran."""


def show(rows: list[Row], console: Console) -> None:
    """The table."""
    table = Table(title=f"gateway, synthetic engine, Opus {BITRATE // 1000} kbit/s, complexity {COMPLEXITY}")
    headings = (
        "streams",
        "CPU",
        "bare Opus",
        "ratio",
        "(idle)",
        "lag p99",
        "TTFA p50",
        "p95",
        "p99",
        "underruns",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        lag = f"{row.lag_ms_p99:.1f} ms" if row.lag_ms_p99 is not None else "-"
        times = (f"{ms:.0f} ms" for ms in (row.ttfa_ms_p50, row.ttfa_ms_p95, row.ttfa_ms_p99))
        costs = (
            f"{row.cpu_ms_per_stream_s:.2f}",
            f"{row.opus_ms_per_stream_s:.2f}",
            f"{row.ratio:.2f} x",
            f"{row.idle_opus_ms_per_stream_s:.2f}",
        )
        table.add_row(str(row.streams), *costs, lag, *times, str(row.underruns))
    console.print(table)
    console.print("CPU and bare Opus in ms of one core a second of audio; the engine is not counted.")
    console.print(
        "The ratio is to bare Opus measured beside the streams; (idle) is bare Opus before and after."
    )
    for row in rows:
        if row.delivered < 0.99:
            console.print(f"{row.streams} streams: only {row.delivered:.0%} of real time was delivered")
        if row.machine_busy > BUSY_LIMIT:
            console.print(
                f"{row.streams} streams: the machine was {row.machine_busy:.0%} busy, do not trust it"
            )


def judge(rows: list[Row]) -> list[tuple[str, bool | None]]:
    """Each promise, and whether it was kept; `None` where it was not measured."""
    row = next((row for row in rows if row.streams == PROMISED_AT), None)
    lag = row.lag_ms_p99 if row is not None else None
    got_ratio = f": {row.ratio:.2f} x" if row is not None else ""
    got_lag = f": {lag:.1f} ms" if lag is not None else ""
    return [
        (
            f"at most {PROMISED_RATIO} x bare Opus at {PROMISED_AT} streams{got_ratio}",
            row.ratio <= PROMISED_RATIO if row is not None else None,
        ),
        (
            f"event-loop lag p99 at most {PROMISED_LAG_MS:g} ms at {PROMISED_AT} streams{got_lag}",
            lag <= PROMISED_LAG_MS if lag is not None else None,
        ),
    ]
