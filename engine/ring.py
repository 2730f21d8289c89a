"""The shared memory through which sound goes from an engine to a gateway: one ring a slot.

The gateway imports this module (standard library only). It makes the memory, one piece a link and engine
incarnation, and hands the engine its descriptor; a memfd has no name, so nothing can be left behind. One
writer and one reader a slot. Positions come over the socket: the ring holds samples and, for each slot, the
generation that owns it, so that a reader can never take another utterance's samples for its own.

Layout: a 64-byte header, a 64-byte cell a slot (its generation), then `slots` rings of `samples` int16 each.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from typing import Final

SAMPLE_BYTES: Final = 2
MAX_BLOCK: Final = 4096
"""Samples of one block: what is checked and copied at once (171 ms at 24 kHz)."""

_MAGIC: Final = 0x5346_5231  # "SFR1"
_HEADER: Final = struct.Struct("<III")
_CELL: Final = 64


class RingError(Exception):
    """The memory is not a ring of the announced shape, or could not be had."""


class StaleGeneration(Exception):
    """The slot belongs to another utterance by now; nothing was returned."""


class CorruptBlock(Exception):
    """The samples are not those that the engine wrote; nothing was returned."""


class _Ring:
    def __init__(self, memory: mmap.mmap, slots: int, samples: int) -> None:
        self.slots = slots
        self.samples = samples
        self._view = memoryview(memory)
        # Native and aligned, so that a stamp is one load or store: `struct` goes byte by byte, and a reader
        # could meet a stamp half written.
        self._stamps = self._view[_CELL : _CELL * (1 + slots)].cast("Q")[:: _CELL // 8]

    def _pieces(self, slot: int, start: int, stop: int) -> list[memoryview]:
        """The one or two stretches of memory that hold samples [start, stop)."""
        assert 0 <= slot < self.slots
        assert 0 <= start <= stop <= start + self.samples
        base = _CELL * (1 + self.slots) + slot * self.samples * SAMPLE_BYTES
        first, count = start % self.samples, stop - start
        whole = min(count, self.samples - first)
        at = base + first * SAMPLE_BYTES
        pieces = [self._view[at : at + whole * SAMPLE_BYTES]]
        if whole < count:
            pieces.append(self._view[base : base + (count - whole) * SAMPLE_BYTES])
        return pieces


def ring_bytes(slots: int, samples: int) -> int:
    """Size of the memory."""
    return _CELL * (1 + slots) + slots * samples * SAMPLE_BYTES


class RingReader(_Ring):
    """The gateway's end; it owns the memory."""

    @classmethod
    def create(cls, slots: int, samples: int) -> tuple[RingReader, int]:
        """The ring, and the descriptor to send and then close.

        Raises `RingError` where the memory cannot be had: `posix_fallocate` makes a lack of it an error here
        and not a SIGBUS at the first write.
        """
        size = ring_bytes(slots, samples)
        fd = os.memfd_create("sayflow-ring", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, size)
            memory = mmap.mmap(fd, size)
        except OSError as error:
            os.close(fd)
            raise RingError(
                f"cannot have {size} bytes of shared memory for the ring: {error.strerror}"
            ) from error
        _HEADER.pack_into(memory, 0, _MAGIC, slots, samples)
        return cls(memory, slots, samples), fd

    def read(self, slot: int, generation: int, start: int, stop: int, crc: int) -> bytes:
        """Samples [start, stop) of a block, little-endian int16.

        Raises `StaleGeneration` or `CorruptBlock`. The owner is looked up after the copy: a writer stamps the
        slot before it writes, so a copy made under the right stamp holds none of the next owner's samples.
        """
        data = b"".join(self._pieces(slot, start, stop))
        if self._stamps[slot] != generation:
            raise StaleGeneration(f"slot {slot} is past generation {generation}")
        if zlib.crc32(data) != crc:
            raise CorruptBlock(f"slot {slot}, samples {start} to {stop}")
        return data


class RingWriter(_Ring):
    """The engine's end."""

    @classmethod
    def attach(cls, fd: int, slots: int, samples: int) -> RingWriter:
        """Map the descriptor, which stays the caller's. Raises `RingError` for memory of another shape."""
        size = ring_bytes(slots, samples)
        if os.fstat(fd).st_size != size:
            raise RingError(f"ring of {os.fstat(fd).st_size} bytes, expected {size}")
        memory = mmap.mmap(fd, size)
        if _HEADER.unpack_from(memory, 0) != (_MAGIC, slots, samples):
            raise RingError("ring header is not of this version or shape")
        return cls(memory, slots, samples)

    def begin(self, slot: int, generation: int) -> None:
        """Give the slot to a generation. Before its first write."""
        assert 0 <= slot < self.slots
        self._stamps[slot] = generation

    def write(self, slot: int, position: int, data: memoryview) -> int:
        """Put little-endian int16 samples at `position`; returns their CRC-32.

        The caller knows by credits that the reader is done with what was there.
        """
        assert len(data) % SAMPLE_BYTES == 0
        count = len(data) // SAMPLE_BYTES
        assert count <= MAX_BLOCK
        taken = 0
        for piece in self._pieces(slot, position, position + count):
            piece[:] = data[taken : taken + len(piece)]
            taken += len(piece)
        return zlib.crc32(data)
