"""A track: one utterance's sound on its way from the engine's ring to the client's socket.

Chunks and sentence ends come in on the event loop. The pump's encoding thread turns them into packets; back
on the loop `dispatch` makes messages of them. A track is encoded by one thread at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.ring import CorruptBlock, StaleGeneration
from gateway.engine_stream import Chunk
from gateway.errors import EngineFailed, SpeechError
from gateway.messages import TICKS_PER_MS, AudioMessage
from gateway.opus import PacketEncoder
from gateway.playout import Playout


@dataclass(frozen=True, slots=True)
class SentenceEnd:
    """All samples of sentence `number` came before."""

    number: int


@dataclass(frozen=True, slots=True)
class Packet:
    """`FRAME_MS` of sound. `starts`: the sentence whose first packet it is."""

    data: bytes
    starts: int | None


@dataclass(frozen=True, slots=True)
class Starts:
    """Sentence `number` is heard from `start_ms` on; its audio follows."""

    number: int
    start_ms: int


class Track:
    """The sound of one utterance."""

    def __init__(self, *, stream: int, encoder: PacketEncoder, playout: Playout, bundle: int) -> None:
        self.stream = stream
        self.playout = playout
        self._encoder = encoder
        self._bundle = bundle
        self._items: deque[Chunk | SentenceEnd] = deque()
        self._packets: deque[Packet] = deque()
        self._mid_sentence = False
        self._next_sentence = 0
        self._sequence = 0
        self._complete = False
        self._last_sent = False
        self._failure: SpeechError | None = None

    # --- event loop: in -----------------------------------------------------------------------------------

    def put(self, item: Chunk | SentenceEnd) -> None:
        """More sound, or the end of a sentence."""
        assert not self._complete
        self._items.append(item)

    def end(self) -> None:
        """Nothing will follow."""
        self._complete = True

    @property
    def is_fresh(self) -> bool:
        """Nothing was sent yet: the first packets take the short way."""
        return self._sequence == 0

    @property
    def drained(self) -> bool:
        """All that was put has been dispatched."""
        return not self._items and not self._packets

    @property
    def finished(self) -> bool:
        """All is sent, the `last` flag too."""
        return self._complete and self.drained and (self._last_sent or self.is_fresh)

    def due(self, now: float) -> int:
        """Packets to encode at this tick."""
        if self._last_sent or not (self._items or self._packets or self._complete):
            return 0
        return self.playout.due(now)

    # --- encoding thread ----------------------------------------------------------------------------------

    def encode(self, count: int) -> None:
        """Turn what is there into packets, until `count` wait. A broken ring is kept for `dispatch`."""
        try:
            while len(self._packets) < count and self._items:
                self._encode_one(self._items.popleft())
        except StaleGeneration:
            self._failure = EngineFailed("the engine's sound was overwritten", code="bad_audio")
        except CorruptBlock:
            self._failure = EngineFailed("the engine's sound arrived damaged", code="bad_audio")

    def _encode_one(self, item: Chunk | SentenceEnd) -> None:
        if isinstance(item, Chunk):
            packets = self._encoder.feed(item.take())
            number = self._next_sentence
        else:
            packets = self._encoder.flush()
            number = item.number
            self._next_sentence = number + 1
        for data in packets:
            self._packets.append(Packet(data, None if self._mid_sentence else number))
            self._mid_sentence = True
        if isinstance(item, SentenceEnd):
            self._mid_sentence = False

    # --- event loop: out ----------------------------------------------------------------------------------

    def dispatch(self, count: int, now: float) -> list[Starts | AudioMessage]:
        """At most `count` packets as messages. Raises `SpeechError` for sound that cannot be trusted."""
        if self._failure is not None:
            raise self._failure
        out: list[Starts | AudioMessage] = []
        while self._packets and count > 0:
            take = self._run_length(min(count, self._bundle))
            closing = self._complete and not self._items and take == len(self._packets)
            if take < self._bundle and not closing and not self._items and self._may_wait(take, now):
                break
            packets = [self._packets.popleft() for _ in range(take)]
            count -= take
            out += self._message(packets, last=closing, now=now)
        if self._complete and self.drained and not self._last_sent and not self.is_fresh:
            out += self._message([], last=True, now=now)
        return out

    def _run_length(self, limit: int) -> int:
        """Packets that fit one message: a sentence's first packet is a message's first."""
        for index in range(1, min(limit, len(self._packets))):
            if self._packets[index].starts is not None:
                return index
        return min(limit, len(self._packets))

    def _may_wait(self, take: int, now: float) -> bool:
        boundary = take < len(self._packets)
        return not boundary and self._mid_sentence and self.playout.hold(now)

    def _message(self, packets: list[Packet], *, last: bool, now: float) -> list[Starts | AudioMessage]:
        out: list[Starts | AudioMessage] = []
        start_ms = self.playout.sent
        starts = packets[0].starts if packets else None
        if starts is not None:
            out.append(Starts(starts, start_ms))
        out.append(
            AudioMessage(
                stream=self.stream,
                sequence=self._sequence,
                timestamp=start_ms * TICKS_PER_MS & 0xFFFF_FFFF,
                packets=[packet.data for packet in packets],
                reset=starts is not None,
                last=last,
            )
        )
        self._sequence += 1
        self._last_sent = last
        if packets:
            self.playout.on_sent(len(packets), now)
        return out
