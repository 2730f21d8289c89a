"""The gateway under measurement: the real `sayflow serve` as a child, its worker's CPU time, its metrics."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

ROOT: Final = Path(__file__).resolve().parent.parent
READY_S: Final = 120.0
STOP_S: Final = 40.0
"""Longer than the gateway's own drain of 30 s."""
WORKER: Final = b"gateway.worker"
LAG: Final = "sayflow_event_loop_lag_seconds"

CONFIG: Final = """\
host = "127.0.0.1"
log_level = "warning"

[engines.main]
"""


class BenchError(Exception):
    """The measurement cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway."""

    base: str
    worker: int
    """Process id of the one gateway worker."""

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"ws://{self.base}/v1/stream"

    def cpu_s(self) -> float:
        """User and system time of the gateway worker, all its threads, so far. Resolution 10 ms."""
        fields = Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lag_buckets(self) -> dict[float, float]:
        """Upper bound, s, to cumulative count of the event loop's lag so far; empty if not exported."""
        with urllib.request.urlopen(f"http://{self.base}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {
            float(sample.labels["le"]): sample.value
            for family in text_string_to_metric_families(text)
            if family.name == LAG
            for sample in family.samples
            if sample.name.endswith("_bucket")
        }


def percentile_of_buckets(
    before: dict[float, float], after: dict[float, float], share: float
) -> float | None:
    """What `share` of the observations between two scrapes stay under, interpolated in its bucket."""
    counts = [(bound, after[bound] - before.get(bound, 0.0)) for bound in sorted(after)]
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = share * counts[-1][1]
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            if bound == float("inf"):
                return low  # All that is known: more than the last bound.
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    raise AssertionError("the last bucket holds everything")


@contextmanager
def serving(**engine: str | int | float) -> Iterator[Server]:
    """Start a gateway with an engine of these settings, wait until it is ready, and end it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        config, log = Path(folder, "bench.toml"), Path(folder, "log")
        config.write_text(
            CONFIG + "".join(f"{name} = {json.dumps(value)}\n" for name, value in engine.items())
        )
        command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(config), "--port", str(port)]
        with log.open("wb") as output:
            parent = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            _await_ready(parent, f"http://127.0.0.1:{port}/readyz", log)
            yield Server(f"127.0.0.1:{port}", _find_worker(parent.pid))
        finally:
            parent.terminate()
            try:
                parent.wait(STOP_S)
            except subprocess.TimeoutExpired:
                parent.kill()
                parent.wait()


def _await_ready(parent: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and parent.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)  # Nothing tells another process that a port is open.
    last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    state = "did not get ready" if parent.poll() is None else f"ended with {parent.returncode}"
    raise BenchError(f"`sayflow serve` {state}; its last lines:\n{last}")


def _find_worker(parent: int) -> int:
    """The one descendant of `parent` that is a gateway worker."""
    parents: dict[int, int] = {}
    workers: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # It ended meanwhile.
        pid = int(folder.name)
        parents[pid] = int(stat.rpartition(")")[2].split()[1])
        if WORKER in command:
            workers.append(pid)

    def descends(pid: int) -> bool:
        while pid in parents and pid != parent:
            pid = parents[pid]
        return pid == parent

    found = [pid for pid in workers if descends(pid)]
    if len(found) != 1:
        raise BenchError(f"expected one gateway worker below process {parent}, found {len(found)}")
    return found[0]


def machine_busy_s() -> tuple[float, float]:
    """(busy, all) CPU seconds of the machine so far, over all cores."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    total = sum(fields)
    idle = fields[3] + fields[4]
    return (total - idle) / os.sysconf("SC_CLK_TCK"), total / os.sysconf("SC_CLK_TCK")
