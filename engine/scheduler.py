"""Which streams does the next step advance? Arithmetic over counters: no tensors, clock, thread or socket.

A slot belongs to an utterance (a `Stream`) from `open` to `release`, and all that it may need is allocated
with it, so that nothing that runs is ever preempted. Sentences of a stream are made one after the other:
begun, prefilled in pieces, stepped. The stream nearest to its listener's underrun goes first; one that has
made no sound yet has nothing in hand and so is among the nearest. Steps come before prefill, which gets a
piece a step where no listener is about to wait for it. A stream whose ring is full is parked: it keeps its
slot and is not stepped.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from engine.errors import Busy
from engine.wire import Parameters, Span

Owner = TypeVar("Owner")

POOR_S: Final = 0.5
RICH_S: Final = 2.0
"""While any stream has less than `POOR_S` in hand, those with more than `RICH_S` wait: a smaller batch is
over sooner."""
TIGHT_S: Final = 0.15
"""A stream that sounds and has less in hand is stepped without a prefill beside it."""
PATIENCE: Final = 8
"""Steps in a row that a prefill is put off at most."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One `Submit`."""

    number: int
    spans: tuple[Span, ...]
    resume: bytes = b""


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
    waiting_since: float = 0.0
    """When the first of them came, in the clock of `now`."""
    current: Sentence | None = None
    prefilling: bool = False
    """The current sentence is not ready for its first step."""
    in_model: bool = False
    """The model holds state for this stream."""
    written: int = 0
    """Samples in the ring so far."""
    read_pos: int = 0
    playhead: int = 0
    heard_at: float | None = None
    """When the listener was at `playhead`; None: not known yet."""
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

    def in_hand(self, now: float, sample_rate: int) -> float:
        """Seconds that the listener has yet to hear, if it has not stopped meanwhile."""
        since = 0.0 if self.heard_at is None else now - self.heard_at
        return max(0.0, (self.written - self.playhead) / sample_rate - since)


@dataclass(frozen=True, slots=True)
class Batch(Generic[Owner]):
    """What one model call does. A stream is in one of the two at most."""

    steps: tuple[Stream[Owner], ...] = ()
    prefill: tuple[Stream[Owner], ...] = ()

    @property
    def streams(self) -> tuple[Stream[Owner], ...]:
        """All of them."""
        return self.steps + self.prefill


class Scheduler(Generic[Owner]):
    """Slots and the order of work. Every method is constant time or linear in the slots.

    `window_s`: a sentence that comes while others are stepped waits so long for more to begin with it.
    """

    def __init__(
        self, *, slots: int, max_batch: int, sample_rate: int = 24_000, window_s: float = 0.0
    ) -> None:
        self._free = list(range(slots))
        """A heap: the slots in use lie close together, which is what a batch over them costs by."""
        self._max_batch = max_batch
        self._rate = sample_rate
        self._window_s = window_s
        self._streams: dict[int, Stream[Owner]] = {}
        self._running: frozenset[int] = frozenset()
        self._stale: set[int] = set()
        self._generation = 0
        self._turn = 0
        self._put_off = 0

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
        slot = heapq.heappop(self._free)
        stream = Stream(owner, utterance, slot, self._generation, voice, parameters, seed, turn=self._turn)
        self._streams[slot] = stream
        return stream

    def submit(self, stream: Stream[Owner], sentence: Sentence, now: float = 0.0) -> None:
        """Queue a sentence."""
        if not stream.waiting:
            stream.waiting_since = now
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

    def credit(self, stream: Stream[Owner], read_pos: int, playhead: int, now: float = 0.0) -> None:
        """The reader is at `read_pos`, the listener at `playhead`; neither goes back."""
        stream.read_pos = min(max(stream.read_pos, read_pos), stream.written)
        stream.playhead = min(max(stream.playhead, playhead), stream.written)
        stream.heard_at = now

    def release(self, stream: Stream[Owner]) -> None:
        """Take the slot back. Its generation never returns."""
        assert stream.slot not in self._running
        assert self._streams.get(stream.slot) is stream
        del self._streams[stream.slot]
        if stream.in_model:
            self._stale.add(stream.slot)
        heapq.heappush(self._free, stream.slot)

    def is_running(self, stream: Stream[Owner]) -> bool:
        """A step that advances this stream is under way."""
        return stream.slot in self._running

    @property
    def has_work(self) -> bool:
        """`begin_next` or `next_batch` would name something."""
        return bool(self._stale) or any(stream.wants_step for stream in self._streams.values())

    def begin_next(self, now: float = 0.0) -> tuple[list[Stream[Owner]], set[int]]:
        """The streams whose next sentence becomes the current one, and slots that the model must forget."""
        assert not self._running
        stale, self._stale = self._stale, set()
        fresh = [stream for stream in self._streams.values() if stream.wants_step and not stream.current]
        busy = any(stream.wants_step and stream.current for stream in self._streams.values())
        if busy and all(now - stream.waiting_since < self._window_s for stream in fresh):
            return [], stale
        for stream in fresh:
            stream.current = stream.waiting.popleft()
            stream.waiting_since = now
        self._running = frozenset(stream.slot for stream in fresh)
        return fresh, stale

    def next_batch(self, now: float = 0.0) -> Batch[Owner]:
        """What the next model call does."""
        assert not self._running
        ready = [stream for stream in self._streams.values() if stream.wants_step and stream.current]
        if not ready:
            return Batch()
        in_hand = {stream.slot: stream.in_hand(now, self._rate) for stream in ready}
        ready.sort(key=lambda stream: (in_hand[stream.slot], stream.turn))
        if in_hand[ready[0].slot] < POOR_S:
            ready = [stream for stream in ready if in_hand[stream.slot] <= RICH_S]
        steps = [stream for stream in ready if not stream.prefilling][: self._max_batch]
        prefill = [stream for stream in ready if stream.prefilling][:1]
        tight = any(stream.written and in_hand[stream.slot] < TIGHT_S for stream in steps)
        if prefill and tight and self._put_off < PATIENCE:
            self._put_off += 1
            prefill = []
        elif prefill:
            self._put_off = 0
        self._turn += 1
        for stream in (*steps, *prefill):
            stream.turn = self._turn
        self._running = frozenset(stream.slot for stream in (*steps, *prefill))
        return Batch(tuple(steps), tuple(prefill))

    def commit(self) -> None:
        """What `begin_next` or `next_batch` named is done."""
        self._running = frozenset()
