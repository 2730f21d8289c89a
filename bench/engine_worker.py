"""One engine under measurement, in a process of its own, so that its memory is its own too.

    python -m bench.engine_worker < EngineConfig as JSON

Prints one line of JSON. The engine is loaded, warmed up and stepped as `engine.process` does it; in the place
of a gateway stand listeners who take each block at once and play it from the first one on.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from engine import wire
from engine.config import EngineConfig
from engine.loop import StepLoop
from engine.model import SpeechModel
from engine.process import load
from engine.ring import RingReader, RingWriter

STEP: Final = 512
"""Samples."""
TEXT: Final = "今天天气很好我们一起去公园走走"
"""14 characters and one: 304 steps at most by the engine's own rule, which random weights always reach."""
STEPS: Final = 304
MOST_STREAMS: Final = 10
RING_S: Final = 60
"""A listener reads at once, so that nothing parks."""
PATIENCE_S: Final = 400.0
TICK_S: Final = 0.02


@dataclass(slots=True)
class Listener:
    """Plays from the first block on."""

    begun_at: float
    ttfa_s: float | None = None
    ended_at: float | None = None
    samples: int = 0
    underruns: int = 0
    waited_s: float = 0.0
    """In all its underruns."""
    _plays_from: float = 0.0

    def feed(self, now: float, write_pos: int, rate: int) -> None:
        """Samples up to `write_pos` are there."""
        if self.ttfa_s is None:
            self.ttfa_s = now - self.begun_at
            self._plays_from = now
        late = now - self._plays_from - self.samples / rate
        if late > 0 and self.samples:
            self.underruns += 1
            self.waited_s += late
            self._plays_from += late
        self.samples = write_pos

    def playhead(self, now: float, rate: int) -> int:
        """The sample that is heard now."""
        heard = 0 if self.ttfa_s is None else int((now - self._plays_from) * rate)
        return min(heard, self.samples)


@dataclass(eq=False)
class Listeners:
    """A gateway's end of the link (`engine.loop.Link`)."""

    ring: RingWriter
    rate: int
    at: dict[int, Listener] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    error: str | None = None

    def emit(self, messages: Sequence[wire.FromEngine]) -> None:
        """From the loop."""
        now = time.monotonic()
        with self.changed:
            for message in messages:
                match message:
                    case wire.Audio(blocks):
                        for block in blocks:
                            self.at[block.utterance].feed(now, block.write_pos, self.rate)
                    case wire.SentenceDone(utterance=utterance):
                        self.at[utterance].ended_at = now
                    case wire.Failed():
                        self.error = f"{message.code}: {message.message}"
                    case _:
                        pass
            self.changed.notify_all()


class Bench:
    """A loop that runs."""

    def __init__(self, model: SpeechModel) -> None:
        self._rate = model.spec.sample_rate
        self._loop = StepLoop(model)
        self.slots = model.spec.slots
        samples = RING_S * self._rate
        self._reader, fd = RingReader.create(self.slots, samples)
        self._listeners = Listeners(RingWriter.attach(fd, self.slots, samples), self._rate)
        os.close(fd)
        self._default_voice = model.spec.default_voice
        self._number = 0
        threading.Thread(target=self._loop.run, daemon=True).start()

    def speak(self, streams: int, text: str = TEXT) -> list[Listener]:
        """So many streams of one sentence each, begun together; when all have ended."""
        numbers = range(self._number, self._number + streams)
        self._number += streams
        link = self._listeners
        began = time.monotonic()
        for number in numbers:
            link.at[number] = Listener(began)
            parameters = wire.Parameters(temperature=0.7)
            self._loop.open(link, wire.Open(number, self._default_voice, parameters, number))
            span = wire.Span(text, "zh", 0, len(text))
            self._loop.submit(link, wire.Submit(number, 0, (span,)))
        heard = [link.at[number] for number in numbers]
        while not all(listener.ended_at for listener in heard):
            now = time.monotonic()
            if now - began > PATIENCE_S:
                link.error = "the streams did not end"
            if link.error:
                raise SystemExit(link.error)
            for number, listener in zip(numbers, heard, strict=True):
                place = listener.playhead(now, self._rate)
                self._loop.credit(link, wire.Credit(number, listener.samples, place))
            with link.changed:
                link.changed.wait(TICK_S)
        for number in numbers:
            self._loop.cancel(link, number)
        return heard


def measure(config: EngineConfig, most: int) -> dict[str, Any]:
    """Every figure of this engine."""
    if config.kind == "chattts-upstream":
        from engine.upstream import model as upstream

        # It stops at no length of the text's own.
        upstream.MAX_STEPS = STEPS  # type: ignore[misc]
    began = time.monotonic()
    model = load(config)
    loaded = time.monotonic()
    step_s = model.warm_up()
    ready = time.monotonic()
    bench = Bench(model)
    repeats = 1 if config.kind == "chattts-upstream" else 3
    singles = [bench.speak(1)[0] for _ in range(repeats)]
    took = sorted((one.ended_at or 0.0) - one.begun_at for one in singles)[repeats // 2]
    steps = singles[0].samples / STEP
    held, table = 0, []
    for count in range(1, min(most, bench.slots) + 1 if repeats > 1 else 1):
        # Twice, since other work on the machine may spoil one.
        tries = [bench.speak(count)]
        if any(listener.underruns for listener in tries[0]):
            tries.append(bench.speak(count))
        best = min(tries, key=lambda heard: sum(listener.waited_s for listener in heard))
        span = max((one.ended_at or 0.0) - one.begun_at for one in best)
        table.append(
            {
                "streams": count,
                "steps_per_s": sum(one.samples for one in best) / STEP / span,
                "ttfa_s": sorted(one.ttfa_s or 0.0 for one in best)[count // 2],
                "ttfa_max_s": max(one.ttfa_s or 0.0 for one in best),
                "underruns": sum(one.underruns for one in best),
                "waited_s": sum(one.waited_s for one in best),
            }
        )
        if table[-1]["underruns"] == 0:
            held = count
        elif count > held + 1:
            break
    return {
        "steps_per_s": steps / took,
        "rtf": took / (singles[0].samples / model.spec.sample_rate),
        "realtime_streams": held,
        "ttfa_s": sorted(one.ttfa_s or 0.0 for one in singles)[repeats // 2],
        "rss_gb": resident_gb(),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "load_s": loaded - began,
        "warm_up_s": ready - loaded,
        "step_s": step_s,
        "streams": table,
        "figures": model.figures(),
    }


def resident_gb() -> float:
    """Memory of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e9


def main() -> None:
    """Read the engine's settings, print its figures."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    most = int(sys.argv[1]) if len(sys.argv) > 1 else MOST_STREAMS
    print(json.dumps(measure(config, most)), flush=True)


if __name__ == "__main__":
    main()
