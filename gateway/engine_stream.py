"""One utterance's stream from the engine: what was asked for, what was written, what was read.

`engine_client` feeds it the engine's messages, which it holds against the rules of the link; the listener
hears what is right, in order. A message that no engine of this version would send raises `LinkError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from engine import wire
from engine.ring import RingReader
from gateway.errors import EngineFailed, SpeechError

CREDIT_SHARE: Final = 8
"""A credit waits until this part of the ring has come free, so that a full one is refilled in few steps."""


class Listener(Protocol):
    """Who hears of a stream."""

    def on_audio(self, chunk: Chunk) -> None:
        """Samples are in the ring."""

    def on_sentence_done(self, done: wire.SentenceDone) -> None:
        """All of the sentence's samples came before this."""

    def on_failed(self, error: SpeechError) -> None:
        """The stream is over and nothing more comes."""

    def lead_ms(self) -> float:
        """Sound taken from the ring that was not heard yet."""


class EngineStream:
    """One utterance's slot in the engine."""

    def __init__(
        self,
        send: Callable[[wire.ToEngine], None],
        ring: RingReader,
        utterance: int,
        listener: Listener,
    ) -> None:
        self._send = send
        self._ring = ring
        self._slot: wire.Opened | None = None
        self._written = 0
        self._read = 0
        self._credited = 0
        self._closing = False
        self._sentences: deque[int] = deque()
        """Submitted, and not at their end."""
        self.utterance = utterance
        self.listener = listener

    def submit(self, sentence: int, spans: tuple[wire.Span, ...]) -> None:
        """Speak this after what was submitted before."""
        self._sentences.append(sentence)
        self._send(wire.Submit(self.utterance, sentence, spans))

    def close(self) -> None:
        """No more sentences: the slot comes free when all is made and taken. Idempotent."""
        if not self._closing:
            self._closing = True
            self._send(wire.Close(self.utterance))

    def cancel(self) -> None:
        """Free the slot now. The listener hears nothing more."""
        self.listener = _nobody
        self._send(wire.Cancel(self.utterance))

    def take(self, chunk: Chunk) -> bytes:
        """A chunk's samples, int16. Any thread; each chunk once, in order.

        Raises `StaleGeneration` or `CorruptBlock`.
        """
        assert self._slot is not None
        data = self._ring.read(self._slot.slot, self._slot.generation, chunk.start, chunk.stop, chunk.crc)
        self._read = chunk.stop
        return data

    # --- for the link -------------------------------------------------------------------------------------

    def opened(self, message: wire.Opened) -> None:
        """The engine gave the slot."""
        if not 0 <= message.slot < self._ring.slots:
            raise wire.LinkError("a slot that the ring has not")
        self._slot = message

    def wrote(self, block: wire.Block) -> None:
        """The engine wrote a block."""
        if self._slot is None or block.generation != self._slot.generation:
            raise wire.LinkError("audio for a slot that was not opened")
        if not self._sentences:
            raise wire.LinkError("audio without a sentence")
        if not self._written < block.write_pos <= self._read + self._ring.samples:
            raise wire.LinkError("audio outside the ring's free part")
        chunk = Chunk(self, self._written, block.write_pos, block.crc)
        self._written = block.write_pos
        self.listener.on_audio(chunk)

    def ended(self, done: wire.SentenceDone) -> None:
        """All of a sentence was written."""
        if done.end_pos != self._written:
            raise wire.LinkError("a sentence's end without its sound")
        if not self._sentences or self._sentences.popleft() != done.sentence:
            raise wire.LinkError("the end of a sentence that is not being spoken")
        self.listener.on_sentence_done(done)

    def closed(self) -> None:
        """The slot is free: too early, where a sentence is left that nobody cancelled."""
        if self._sentences:
            self.listener.on_failed(EngineFailed("the engine ended the utterance in the middle"))

    def credit(self, sample_rate: int) -> wire.Credit | None:
        """What the engine is to be told: that much has come free, or that nothing is left to read."""
        read = self._read
        fresh = read - self._credited
        if fresh == 0 or (fresh < self._ring.samples // CREDIT_SHARE and read < self._written):
            return None
        self._credited = read
        unheard = int(self.listener.lead_ms() * sample_rate / 1000)
        return wire.Credit(self.utterance, read, max(0, read - unheard))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples [start, stop) of a stream, in its ring until `take`."""

    stream: EngineStream
    start: int
    stop: int
    crc: int

    @property
    def samples(self) -> int:
        """How many."""
        return self.stop - self.start

    def take(self) -> bytes:
        """See `EngineStream.take`."""
        return self.stream.take(self)


class _Nobody:
    def on_audio(self, chunk: Chunk) -> None: ...
    def on_sentence_done(self, done: wire.SentenceDone) -> None: ...
    def on_failed(self, error: SpeechError) -> None: ...
    def lead_ms(self) -> float:
        return 0.0


_nobody: Final = _Nobody()
