"""Made sound on its way into the ring: what fits is written, the rest waits in order.

One `Outlet` a stream. It is bounded by what one model step makes, since a stream with sound waiting here is
parked and not stepped.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from engine.ring import MAX_BLOCK, SAMPLE_BYTES, RingWriter
from engine.wire import Block, SentenceDone


class Outlet:
    """Writes one stream's sound and says what a reader must be told."""

    def __init__(self, ring: RingWriter, *, slot: int, generation: int, utterance: int) -> None:
        self._ring = ring
        self._slot = slot
        self._generation = generation
        self._utterance = utterance
        self._waiting: deque[memoryview | SentenceDone] = deque()
        self.made = 0
        """Samples put so far."""
        self.written = 0
        """Samples in the ring so far."""
        ring.begin(slot, generation)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, pcm: NDArray[np.int16]) -> None:
        """Sound, after all that was put before."""
        if len(pcm):
            self._waiting.append(memoryview(pcm.astype("<i2").tobytes()))
            self.made += len(pcm)

    def put_end(self, sentence: int, *, truncated: bool = False, unsaid: bool = False) -> None:
        """The sentence ends here."""
        self._waiting.append(SentenceDone(self._utterance, sentence, self.made, truncated, unsaid))

    def drain(self, read_pos: int) -> tuple[list[Block], list[SentenceDone]]:
        """Write what fits, the reader being at `read_pos`."""
        blocks: list[Block] = []
        ends: list[SentenceDone] = []
        while self._waiting:
            item = self._waiting[0]
            if isinstance(item, SentenceDone):
                ends.append(item)
                self._waiting.popleft()
                continue
            room = self._ring.samples - (self.written - read_pos)
            count = min(room, MAX_BLOCK, len(item) // SAMPLE_BYTES)
            if count == 0:
                break
            crc = self._ring.write(self._slot, self.written, item[: count * SAMPLE_BYTES])
            self.written += count
            blocks.append(Block(self._utterance, self._generation, self.written, crc))
            if count * SAMPLE_BYTES == len(item):
                self._waiting.popleft()
            else:
                self._waiting[0] = item[count * SAMPLE_BYTES :]
        return blocks, ends
