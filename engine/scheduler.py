"""Which streams does the next step advance? Arithmetic over counters: no tensors, clock, thread or socket.

A slot belongs to an utterance (a `Stream`) from `open` to `release`. Sentences of a stream are made one after
the other. The stream nearest to its listener's underrun goes first; one that has made no sound yet has
nothing in hand and so is among the nearest. A stream whose ring is full is parked: it keeps its slot and is
not stepped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.errors import Busy
from engine.wire import Parameters, Span

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One `Submit`."""

    number: int
    spans: tuple[Span, ...]


@dataclass(slots=True, eq=False)
class Stream(Generic[Owner]):
    """An utterance in a slot. `owner` is the link it came by."""

    owner: Owner
    utterance: int
    slot: int
    generation: int
    voice: str
    parameters: Parameters
    seed: int
    turn: int
    """When it was last stepped: among equals the one that waited longest goes first."""
    waiting: deque[Sentence] = field(default_factory=deque)
    current: Sentence | None = None
    in_model: bool = False
    """The model holds state for this stream."""
    written: int = 0
    """Samples in the ring so far."""
    read_pos: int = 0
    playhead: int = 0
    parked: bool = False
    """Made sound waits for room in the ring."""
    closing: bool = False
    cancelled: bool = False

    @property
    def wants_step(self) -> bool:
        """There is text to speak and room to put it."""
        return not self.parked and not self.cancelled and bool(self.current or self.waiting)

    @property
    def spoken(self) -> bool:
        """Closed, and nothing is left to make, to deliver or to read: the ring's part may go to another."""
        left = self.current or self.waiting or self.parked or self.read_pos < self.written
        return self.closing and not left

    @property
    def in_hand(self) -> int:
        """Samples that the listener has yet to hear."""
        return self.written - self.playhead


class Scheduler(Generic[Owner]):
    """Slots and the order of work. Every method is constant time or linear in the slots."""

    def __init__(self, *, slots: int, max_batch: int) -> None:
        self._free = list(range(slots - 1, -1, -1))
        self._max_batch = max_batch
        self._streams: dict[int, Stream[Owner]] = {}
        self._running: frozenset[int] = frozenset()
        self._stale: set[int] = set()
        self._generation = 0
        self._turn = 0

    @property
    def streams(self) -> Sequence[Stream[Owner]]:
        """All streams that hold a slot."""
        return list(self._streams.values())

    @property
    def free_slots(self) -> int:
        """Slots that `open` can still give."""
        return len(self._free)

    def open(
        self, owner: Owner, utterance: int, voice: str, parameters: Parameters, seed: int
    ) -> Stream[Owner]:
        """Take a slot. Raises `Busy`."""
        if not self._free:
            raise Busy("every slot of the engine is taken")
        self._generation += 1
        slot = self._free.pop()
        stream = Stream(owner, utterance, slot, self._generation, voice, parameters, seed, turn=self._turn)
        self._streams[slot] = stream
        return stream

    def submit(self, stream: Stream[Owner], sentence: Sentence) -> None:
        """Queue a sentence."""
        stream.waiting.append(sentence)

    def close(self, stream: Stream[Owner]) -> bool:
        """No more sentences. True: all is spoken already, and the stream may be released."""
        stream.closing = True
        return stream.spoken

    def cancel(self, stream: Stream[Owner]) -> bool:
        """Drop what is queued. True: the stream may be released now; False: a running step still holds it."""
        stream.cancelled = True
        stream.waiting.clear()
        return stream.slot not in self._running

    def credit(self, stream: Stream[Owner], read_pos: int, playhead: int) -> None:
        """The reader is at `read_pos`, the listener at `playhead`; neither goes back."""
        stream.read_pos = min(max(stream.read_pos, read_pos), stream.written)
        stream.playhead = min(max(stream.playhead, playhead), stream.written)

    def release(self, stream: Stream[Owner]) -> None:
        """Take the slot back. Its generation never returns."""
        assert stream.slot not in self._running
        assert self._streams.get(stream.slot) is stream
        del self._streams[stream.slot]
        if stream.in_model:
            self._stale.add(stream.slot)
        self._free.append(stream.slot)

    def is_running(self, stream: Stream[Owner]) -> bool:
        """A step that advances this stream is under way."""
        return stream.slot in self._running

    def next_batch(self) -> tuple[list[Stream[Owner]], set[int]]:
        """The streams of the next step, and the slots that the model must forget before it."""
        ready = [stream for stream in self._streams.values() if stream.wants_step]
        ready.sort(key=lambda stream: (stream.in_hand, stream.turn))
        batch = ready[: self._max_batch]
        self._turn += 1
        for stream in batch:
            stream.turn = self._turn
        self._running = frozenset(stream.slot for stream in batch)
        stale, self._stale = self._stale, set()
        return batch, stale

    def commit(self) -> None:
        """The step is over."""
        self._running = frozenset()
