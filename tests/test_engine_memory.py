"""Utterances of ChatTTS, a fifth of them cancelled: one end each, every slot free, memory flat.

Few here, to be quick; `SAYFLOW_UTTERANCES=2000` makes the long run of it.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra [torch] is not installed")

from engine.chattts import model as chattts  # noqa: E402
from engine.chattts import quantise, random_weights  # noqa: E402
from engine.chattts.model import ChatTTSModel  # noqa: E402
from engine.loop import StepLoop  # noqa: E402
from engine.ring import RingReader, RingWriter  # noqa: E402
from engine.wire import (  # noqa: E402
    Audio,
    Closed,
    Credit,
    Failed,
    FromEngine,
    Open,
    Parameters,
    Span,
    Submit,
)

UTTERANCES = int(os.environ.get("SAYFLOW_UTTERANCES", "400"))
WARM = UTTERANCES // 5
SLOTS = 4
RING = 48_000


class Gateway:
    """Reads what it is told at once, and counts the ends of each utterance."""

    def __init__(self) -> None:
        self.reader, fd = RingReader.create(SLOTS, RING)
        self.ring = RingWriter.attach(fd, SLOTS, RING)
        os.close(fd)
        self.loop: StepLoop | None = None
        self.ends: Counter[int] = Counter()
        self.written: dict[int, int] = {}
        self.changed = threading.Condition()

    def has_news(self, live: set[int]) -> bool:
        """There is sound to take, or one of these has ended."""
        return bool(self.written) or any(self.ends[number] for number in live)

    def emit(self, messages: Sequence[FromEngine]) -> None:
        with self.changed:
            for message in messages:
                match message:
                    case Audio(blocks):
                        self.written.update({block.utterance: block.write_pos for block in blocks})
                    case Closed(utterance) | Failed(utterance=utterance):
                        self.ends[utterance] += 1
                    case _:
                        pass
            self.changed.notify_all()


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StepLoop]:
    monkeypatch.setattr(chattts, "STEPS_EXTRA", 1)
    monkeypatch.setattr(chattts, "STEPS_PER_CHAR", 1)
    torch.set_num_threads(1)
    random_weights.write(tmp_path, size="tiny", seed=7)
    quantise.quantise(tmp_path)
    model = ChatTTSModel(tmp_path, slots=SLOTS)
    model.warm_up()
    found = StepLoop(model)
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert len(model.rows) <= SLOTS, "those of a stream that has just ended are forgotten with the next step"


def speak(loop: StepLoop, gateway: Gateway, numbers: range, draw: random.Random) -> None:
    """These utterances, as many at once as there are slots; returns when each has ended."""
    live: set[int] = set()
    left = list(numbers)
    while left or live:
        while left and len(live) < SLOTS:
            number = left.pop(0)
            loop.open(gateway, Open(number, "aspen", Parameters(), number))
            loop.submit(gateway, Submit(number, 0, (Span("好", "zh", 0, 1),)))
            if draw.random() < 0.2:
                loop.cancel(gateway, number)
            else:
                loop.close(gateway, number)
            live.add(number)
        # The loop tells us under its lock: it must not be called under ours.
        with gateway.changed:
            gateway.changed.wait_for(partial(gateway.has_news, live), 5)
            written = gateway.written
            gateway.written = {}
            live = {number for number in live if not gateway.ends[number]}
        for number, position in written.items():
            loop.credit(gateway, Credit(number, position, position))


def test_many_utterances(loop: StepLoop) -> None:
    gateway, draw = Gateway(), random.Random(5)
    speak(loop, gateway, range(WARM), draw)
    gc.collect()
    resident = resident_kib()
    tracemalloc.start()
    speak(loop, gateway, range(WARM, UTTERANCES - WARM), draw)
    gc.collect()
    middle = tracemalloc.get_traced_memory()[0]
    speak(loop, gateway, range(UTTERANCES - WARM, UTTERANCES), draw)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - middle
    tracemalloc.stop()
    assert set(gateway.ends.values()) == {1}, "exactly one end each"
    assert len(gateway.ends) == UTTERANCES
    assert loop.figures()["slots_used"] == 0
    assert grown < 64 * 1024, f"{grown} bytes more after {WARM} utterances: the counter of ends grows"
    assert resident_kib() - resident < 20_000


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
