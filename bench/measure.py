"""One row of `bench/gateway.py`: streams held by client processes, and the gateway's CPU over a window.

Bare Opus is a tight loop on one thread, with the gateway's encoder settings, on the sound that the streams
carry: right after the window and while they go on, so that it meets the same busy caches and the same machine
as the gateway, and beside that on an idle machine before and after.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import opuslib_next

from bench.report import Row
from bench.server import ROOT, BenchError, Server, machine_busy_s, percentile_of_buckets
from gateway.client import connect
from gateway.messages import FRAME_MS
from gateway.opus import BITRATE, COMPLEXITY

RATE: Final = 24_000
FRAME_SAMPLES: Final = RATE * FRAME_MS // 1000

STREAMS_A_PROCESS: Final = 32
RAMP_S_A_STREAM: Final = 0.1
SETTLE_S: Final = 3.0
"""A new stream fills its lead of 2 s first; after that it costs what it always costs."""
PROBES: Final = 60
BARE_SEEDS: Final = 4
BARE_ROUNDS: Final = 8
BARE_PAUSE_S: Final = 0.25


class LoadProcess:
    """One client process, spoken to in lines."""

    def __init__(self, url: str, first: int, count: int) -> None:
        options = {"--url": url, "--first": first, "--count": count, "--ramp-s": count * RAMP_S_A_STREAM}
        arguments = [str(part) for option in options.items() for part in option]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        try:
            print(command, file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise BenchError("a client process ended; see its message above") from error

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("a client process ended; see its message above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def loading(url: str, streams: int) -> Iterator[list[LoadProcess]]:
    """`streams` streams over as many processes as it takes."""
    with ExitStack() as stack:
        processes = []
        for first in range(0, streams, STREAMS_A_PROCESS):
            process = LoadProcess(url, first, min(STREAMS_A_PROCESS, streams - first))
            stack.callback(process.stop)
            processes.append(process)
        yield processes


async def fetch_frames(url: str) -> list[bytes]:
    """20 ms frames of PCM as the streams carry it, of several pitches."""
    frames: list[bytes] = []
    async with connect(url) as client:
        for seed in range(BARE_SEEDS):
            spoken = await client.speak(
                "A sentence to be encoded again and again.", format="pcm", pace="fast", seed=seed
            )
            frames += spoken.packets
    if not frames:
        raise BenchError(f"the gateway gave no sound to encode: {spoken.ended}")
    return frames


def measure_bare_opus(frames: list[bytes], rounds: int) -> list[float]:
    """CPU ms of this thread a second of audio, encoding alone: one figure a round."""
    encoder = opuslib_next.Encoder(RATE, 1, opuslib_next.APPLICATION_AUDIO)
    encoder.bitrate = BITRATE
    encoder.complexity = COMPLEXITY
    costs = []
    for _ in range(rounds):
        begun = time.thread_time()
        for frame in frames:
            encoder.encode(frame, FRAME_SAMPLES)
        costs.append(1e6 * (time.thread_time() - begun) / (len(frames) * FRAME_MS))
    return costs


def mark(processes: list[LoadProcess]) -> tuple[float, int]:
    """(seconds of audio received, underruns) so far, all streams together."""
    for process in processes:
        process.ask("mark")
    answers = [process.answer() for process in processes]
    return sum(a["received_ms"] for a in answers) / 1000, sum(a["underruns"] for a in answers)


def measure(
    server: Server, streams: int, seconds: float, frames: list[bytes], advance: Callable[[str, float], None]
) -> Row:
    """One row. `advance(what, seconds)` waits that long and shows it."""
    idle = measure_bare_opus(frames, BARE_ROUNDS)
    bare: list[float] = []
    with loading(server.url, streams) as processes:
        ttfa_ms = [ms for process in processes for ms in process.answer()["ttfa_ms"]]
        advance("filling the lead", SETTLE_S)
        lag_before, busy_before = server.lag_buckets(), machine_busy_s()
        begun, cpu_before, (audio_before, _) = time.monotonic(), server.cpu_s(), mark(processes)
        advance("measuring", seconds)
        elapsed, cpu_s, (audio_after, _) = time.monotonic() - begun, server.cpu_s(), mark(processes)
        busy_after = machine_busy_s()
        lag = percentile_of_buckets(lag_before, server.lag_buckets(), 0.99)
        for _ in range(BARE_ROUNDS):
            advance("measuring bare Opus", BARE_PAUSE_S)
            bare += measure_bare_opus(frames, 1)
        processes[0].ask(f"probe {PROBES}")
        ttfa_ms += processes[0].answer()["ttfa_ms"]
        _, underruns = mark(processes)
    idle += measure_bare_opus(frames, BARE_ROUNDS)
    opus_ms = statistics.median(bare)
    cpu_ms = 1000 * (cpu_s - cpu_before) / (audio_after - audio_before)
    cuts = statistics.quantiles(ttfa_ms, n=100, method="inclusive")
    return Row(
        streams=streams,
        cpu_ms_per_stream_s=round(cpu_ms, 3),
        opus_ms_per_stream_s=round(opus_ms, 3),
        idle_opus_ms_per_stream_s=round(statistics.median(idle), 3),
        ratio=round(cpu_ms / opus_ms, 3),
        lag_ms_p99=round(1000 * lag, 2) if lag is not None else None,
        ttfa_ms_p50=round(cuts[49], 1),
        ttfa_ms_p95=round(cuts[94], 1),
        ttfa_ms_p99=round(cuts[98], 1),
        underruns=underruns,
        delivered=round((audio_after - audio_before) / (streams * elapsed), 3),
        machine_busy=round((busy_after[0] - busy_before[0]) / (busy_after[1] - busy_before[1]), 3),
    )
