"""An engine that misbehaves as told: the synthetic model in the true engine process, and one fault.

Run as `python -m tests.faulty_engine FD` in place of `engine.process`. `FAULT` names the fault, `NAME` or
`NAME@N`: from the N-th model step on (counted over all slots), else from the first one. Faults of the model
are in `FaultyModel`, faults of the process (what it writes to the socket and the ring) in `FaultyPeer`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from engine import process, wire
from engine.errors import BadAudio
from engine.model import Output
from engine.ring import RingWriter
from engine.synthetic.model import SyntheticModel
from engine.wire import Span

FAULT, _, _COUNT = os.environ.get("FAULT", "").partition("@")
FROM_STEP: Final = int(_COUNT or 1)
VICTIM: Final = 666
"""The seed of the utterance that faults of a row hit."""

steps = 0
"""Model steps so far."""


def is_due(name: str) -> bool:
    return name == FAULT and steps >= FROM_STEP


class FaultyModel(SyntheticModel):
    """Tones, until it goes wrong."""

    def step(self, slots: Sequence[int]) -> list[Output]:
        global steps
        steps += 1
        if is_due("exit"):
            os._exit(1)
        if FAULT == "raise" and steps == FROM_STEP:
            raise RuntimeError("told to raise")
        if is_due("hang"):
            time.sleep(3600)
        if is_due("slow"):
            time.sleep(0.95)
        if FAULT == "nothing" and steps == FROM_STEP:
            return []
        return [self._spoil(output) for output in super().step(slots)]

    def _spoil(self, output: Output) -> Output:
        row = self._rows[output.slot]
        if row.seed != VICTIM:
            return output
        if is_due("row"):
            return Output(slot=output.slot, pcm=output.pcm, error=BadAudio("the model made noise"))
        if is_due("silent"):
            return Output(slot=output.slot, pcm=np.zeros(0, np.int16), finished=output.finished)
        if is_due("wrong_slot"):
            return Output(slot=output.slot + 1000, pcm=output.pcm)
        return output

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        if FAULT == "begin" and self._rows[slot].seed == VICTIM:
            raise RuntimeError("told to raise")
        return super().begin(slot, spans, number=number, resume=resume)


def _raw(size: int, version: int, body: bytes) -> bytes:
    return size.to_bytes(4, "little") + version.to_bytes(1, "little") + body


def _frame(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return _raw(len(body) + 1, wire.VERSION, body)


GARBAGE: Final[dict[str, bytes]] = {
    "huge_frame": _raw(wire.MAX_FRAME + 1, wire.VERSION, b""),
    "empty_frame": _raw(0, wire.VERSION, b""),
    "other_version": _raw(2, 99, b"\x90"),
    "not_msgpack": _raw(3, wire.VERSION, b"\xc1\xc1"),
    "unknown_tag": _frame(["sing", 1]),
    "wrong_types": _frame(["audio", "loud"]),
    "second_ready": _frame(["ready"]),
    "random": bytes(range(255, -1, -1)) * 4,
}

Twist = Callable[[wire.FromEngine], list[wire.FromEngine]]

TWISTS: Final[dict[str, Twist]] = {
    "stale_generation": lambda m: [_audio(m, lambda b: (b.utterance, b.generation + 1, b.write_pos, b.crc))],
    "backwards": lambda m: [_audio(m, lambda b: (b.utterance, b.generation, 0, b.crc))],
    "past_the_ring": lambda m: [_audio(m, lambda b: (b.utterance, b.generation, 1 << 40, b.crc))],
    "wrong_crc": lambda m: [_audio(m, lambda b: (b.utterance, b.generation, b.write_pos, b.crc ^ 1))],
    "slot_out_of_range": lambda m: [_opened(m, 4096)],
    "negative_slot": lambda m: [_opened(m, -1)],
    "no_opened": lambda m: [] if isinstance(m, wire.Opened) else [m],
    "other_sentence": lambda m: [_done(m, 77, unsaid=False)],
    "other_sentence_unsaid": lambda m: [_done(m, 77, unsaid=True)],
    "done_twice": lambda m: [m, m] if isinstance(m, wire.SentenceDone) else [m],
    "done_first": lambda m: [
        *(wire.SentenceDone(block.utterance, 0, 0, False, False) for block in _blocks(m)),
        m,
    ],
    "closed_early": lambda m: [m, *(wire.Closed(block.utterance) for block in _blocks(m))],
    "closed_twice": lambda m: [m, m] if isinstance(m, wire.Closed) else [m],
    "failed": lambda m: [m, *(wire.Failed(block.utterance, "busy", "no") for block in _blocks(m))],
    "strange_code": lambda m: [
        m,
        *(wire.Failed(block.utterance, "<x>\n", "a\nb\x1b[0m") for block in _blocks(m)),
    ],
    "strangers": lambda m: [
        wire.Audio((wire.Block(1 << 40, 1, 480, 0),)),
        wire.SentenceDone(1 << 40, 0, 0, False, False),
        wire.Closed(1 << 40),
        wire.Failed(1 << 40, "busy", "no"),
        wire.Opened(1 << 40, 0, 1),
        wire.Checkpoint(1 << 40, 0, b"x"),
        m,
    ],
    "mute": lambda m: [],
}
AT_ONCE: Final = frozenset({"slot_out_of_range", "negative_slot", "no_opened"})
"""Twists of what is said before the first step."""


def _opened(message: wire.FromEngine, slot: int) -> wire.FromEngine:
    if not isinstance(message, wire.Opened):
        return message
    return wire.Opened(message.utterance, slot, message.generation)


def _done(message: wire.FromEngine, sentence: int, *, unsaid: bool) -> wire.FromEngine:
    if not isinstance(message, wire.SentenceDone):
        return message
    return wire.SentenceDone(message.utterance, sentence, message.end_pos, False, unsaid)


def _blocks(message: wire.FromEngine) -> tuple[wire.Block, ...]:
    return message.blocks if isinstance(message, wire.Audio) else ()


def _audio(
    message: wire.FromEngine, change: Callable[[wire.Block], tuple[int, int, int, int]]
) -> wire.FromEngine:
    if not isinstance(message, wire.Audio):
        return message
    return wire.Audio(tuple(wire.Block(*change(block)) for block in message.blocks))


class FaultyPeer(process.Peer):
    """Twists messages, or slips bytes in between them."""

    def emit(self, messages: Sequence[wire.FromEngine]) -> None:
        twist = TWISTS.get(FAULT)
        if twist is None or (steps < FROM_STEP and FAULT not in AT_ONCE):
            super().emit(messages)
        else:
            super().emit([twisted for message in messages for twisted in twist(message)])
        if FAULT in GARBAGE and steps >= FROM_STEP:
            with self._lock:
                self._unsent += GARBAGE[FAULT]
            self._wake.send(b"\0")


class FaultyRing(RingWriter):
    """Writes other samples than it says."""

    def write(self, slot: int, position: int, data: memoryview) -> int:
        crc = super().write(slot, position, data)
        if is_due("corrupt"):
            piece = self._pieces(slot, position, position + 1)[0]
            piece[0] ^= 0xFF
        return crc


def main() -> int:
    """The engine's own `main`, with these parts in it."""
    process.load = lambda config: FaultyModel(slots=config.slots, rtf=config.synthetic_rtf)
    process.Peer = FaultyPeer  # type: ignore[misc]
    process.RingWriter = FaultyRing  # type: ignore[attr-defined]
    return process.main()


if __name__ == "__main__":
    sys.exit(main())
