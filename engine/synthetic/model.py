"""The synthetic model: a tone and a counter for each utterance, of a length that the text decides.

Every 10 ms block (240 samples) of an utterance carries its seed and the block's number in the least
significant bits of its first 64 samples; the rest is a tone whose pitch the seed decides. So a listener of
PCM can tell sample for sample whose sound it is, and one of Opus by the pitch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnknownVoice
from engine.model import ModelSpec, Output
from engine.wire import Parameters, Span, Voice

RATE = 24_000
BLOCK = 240
"""Samples a numbered block (10 ms)."""
BLOCKS_A_CHAR = 6
"""60 ms of sound a character."""
BLOCKS_A_STEP = 8
TONES = 40
MARK_BITS = 64


def tone_hz(seed: int) -> float:
    """The pitch of a seed: one of `TONES`, 100 Hz apart, each a whole number of periods in 10 ms."""
    return 300.0 + 100.0 * (seed % TONES)


@cache
def _tone(pitch: int) -> NDArray[np.int16]:
    wave = np.sin(2.0 * math.pi * tone_hz(pitch) / RATE * np.arange(BLOCK))
    tone: NDArray[np.int16] = (wave * 9000.0).astype(np.int16)
    return tone


def make_blocks(seed: int, first: int, count: int) -> NDArray[np.int16]:
    """Blocks `first` to `first + count` of the utterance with this seed, end to end."""
    blocks = np.tile(_tone(seed % TONES), (count, 1))
    marks = np.empty((count, 2), dtype="<u4")
    marks[:, 0] = seed & 0xFFFF_FFFF
    marks[:, 1] = np.arange(first, first + count)
    bits = np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")
    blocks[:, :MARK_BITS] = (blocks[:, :MARK_BITS] & ~np.int16(1)) | bits
    return blocks.reshape(-1)


def read_mark(samples: NDArray[np.int16]) -> tuple[int, int]:
    """(seed, number) of a block: the inverse of `make_blocks`, for the listener."""
    bits = (samples[:MARK_BITS] & 1).astype(np.uint8)
    seed, number = np.packbits(bits, bitorder="little").view("<u4")
    return int(seed), int(number)


@dataclass(slots=True)
class _Row:
    seed: int
    number: int = 0
    left: int = 0


class SyntheticModel:
    """`SpeechModel` of tones; `rtf` seconds of work a second of sound."""

    def __init__(self, *, slots: int, rtf: float) -> None:
        self._rtf = rtf
        self._rows: dict[int, _Row] = {}
        self.spec = ModelSpec(
            name="synthetic",
            sample_rate=RATE,
            slots=slots,
            max_batch=slots,
            max_steps=1 << 20,
            max_chars=200,
            voices=(Voice("tone", "Tone", ("zh", "en")),),
            default_voice="tone",
        )

    def warm_up(self) -> tuple[float, ...]:
        """Measure a step."""
        start = time.monotonic()
        make_blocks(0, 0, BLOCKS_A_STEP)
        return (time.monotonic() - start,)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Any seed has its tone."""
        if voice != "tone":
            raise UnknownVoice("the synthetic engine has the voice 'tone' only")
        self._rows[slot] = _Row(seed)

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        """60 ms of sound a character."""
        self._rows[slot].left = BLOCKS_A_CHAR * sum(len(span.text) for span in spans)
        return False

    def prefill(self, slot: int) -> bool:
        """Nothing to do."""
        return True

    def step(self, slots: Sequence[int]) -> list[Output]:
        """80 ms of sound for each slot."""
        outputs = [self._advance(slot, self._rows[slot]) for slot in slots]
        if self._rtf:
            time.sleep(self._rtf * BLOCKS_A_STEP * BLOCK / RATE)
        return outputs

    def _advance(self, slot: int, row: _Row) -> Output:
        count = min(BLOCKS_A_STEP, row.left)
        pcm = make_blocks(row.seed, row.number, count)
        row.number += count
        row.left -= count
        return Output(slot=slot, pcm=pcm, finished=row.left == 0)

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """A step is short."""
        return 1.0 + self._rtf

    def close(self, slot: int) -> None:
        """Forget the row."""
        self._rows.pop(slot, None)

    def interrupt(self, slot: int) -> None:
        """A step is over sooner than it could be stopped."""

    def figures(self) -> dict[str, float]:
        """None."""
        return {}
