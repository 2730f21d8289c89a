"""The ring: wrap-around, and that no interleaving ever hands out another generation's samples."""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ring
from engine.ring import MAX_BLOCK, CorruptBlock, RingError, RingReader, RingWriter, StaleGeneration

ROOT = Path(__file__).resolve().parent.parent
CELL = 64


def make(slots: int, samples: int) -> tuple[RingReader, RingWriter]:
    reader, fd = RingReader.create(slots, samples)
    try:
        return reader, RingWriter.attach(fd, slots, samples)
    finally:
        os.close(fd)


def pcm(*samples: int) -> bytes:
    return struct.pack(f"<{len(samples)}h", *samples)


def write(writer: RingWriter, slot: int, position: int, data: bytes) -> int:
    return writer.write(slot, position, memoryview(data))


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- one writer and one reader, in turns ------------------------------------------------------------------


def test_what_was_written_is_read() -> None:
    reader, writer = make(2, 8)
    writer.begin(1, 5)
    crc = write(writer, 1, 0, pcm(1, -2, 3))
    assert crc == zlib.crc32(pcm(1, -2, 3))
    assert reader.read(1, 5, 0, 3, crc) == pcm(1, -2, 3)


def test_a_block_may_wrap() -> None:
    reader, writer = make(1, 8)
    writer.begin(0, 1)
    crc = write(writer, 0, 6, pcm(1, 2, 3, 4, 5))
    assert reader.read(0, 1, 6, 11, crc) == pcm(1, 2, 3, 4, 5)
    full = write(writer, 0, 11, pcm(*range(8)))
    assert reader.read(0, 1, 11, 19, full) == pcm(*range(8))


@given(
    st.integers(1, 40),
    st.integers(0, 2**40),
    st.lists(st.binary(max_size=40).map(lambda raw: raw[: len(raw) // 2 * 2]), max_size=20),
)
def test_a_stream_of_blocks_goes_through_whole(samples: int, start: int, blocks: list[bytes]) -> None:
    reader, writer = make(2, samples)
    writer.begin(0, 1)
    writer.begin(1, 2)
    at = start
    for block in blocks:
        block = block[: samples * 2]
        crc = write(writer, 0, at, block)
        assert reader.read(0, 1, at, at + len(block) // 2, crc) == block
        at += len(block) // 2


def test_slots_do_not_overlap() -> None:
    reader, writer = make(3, 5)
    crcs = []
    for slot in range(3):
        writer.begin(slot, 10 + slot)
        crcs.append(write(writer, slot, 2, pcm(*[slot + 1] * 5)))
    for slot in range(3):
        assert reader.read(slot, 10 + slot, 2, 7, crcs[slot]) == pcm(*[slot + 1] * 5)


def test_generations_are_64_bit() -> None:
    reader, writer = make(1, 4)
    writer.begin(0, 2**64 - 1)
    assert reader.read(0, 2**64 - 1, 0, 0, 0) == b""
    with pytest.raises(StaleGeneration):
        reader.read(0, 2**32 - 1, 0, 0, 0)


def test_a_slot_given_on_is_stale_before_a_sample_is_written() -> None:
    reader, writer = make(1, 4)
    writer.begin(0, 1)
    crc = write(writer, 0, 0, pcm(1, 2))
    writer.begin(0, 2)
    with pytest.raises(StaleGeneration):
        reader.read(0, 1, 0, 2, crc)


def test_a_slot_that_nobody_had_is_stale() -> None:
    reader, _ = make(1, 4)
    with pytest.raises(StaleGeneration):
        reader.read(0, 1, 0, 2, zlib.crc32(bytes(4)))


@pytest.mark.parametrize("bit", [0, 15, 16, 47])
def test_one_flipped_bit_is_corrupt(bit: int) -> None:
    reader, writer = make(1, 8)
    writer.begin(0, 1)
    data = bytearray(pcm(10, 20, 30))
    crc = write(writer, 0, 7, bytes(data))
    data[bit // 8] ^= 1 << bit % 8
    write(writer, 0, 7, bytes(data))
    with pytest.raises(CorruptBlock):
        reader.read(0, 1, 7, 10, crc)


def test_the_largest_block_passes_and_one_sample_more_does_not() -> None:
    _, writer = make(1, 3 * MAX_BLOCK)
    writer.begin(0, 1)
    write(writer, 0, 0, bytes(2 * MAX_BLOCK))
    with pytest.raises(AssertionError):
        write(writer, 0, 0, bytes(2 * MAX_BLOCK + 2))


@pytest.mark.parametrize(("slot", "start", "stop"), [(2, 0, 1), (-1, 0, 1), (0, 0, 9), (0, 5, 4), (0, -1, 1)])
def test_a_place_outside_the_ring_is_refused(slot: int, start: int, stop: int) -> None:
    reader, _ = make(2, 8)
    with pytest.raises(AssertionError):
        reader.read(slot, 1, start, stop, 0)


# --- shape and memory -------------------------------------------------------------------------------------


def test_attaching_to_another_shape_is_refused() -> None:
    _, fd = RingReader.create(2, 100)
    try:
        for slots, samples in ((1, 100), (3, 100), (2, 99), (2, 101), (100, 2)):
            with pytest.raises(RingError):
                RingWriter.attach(fd, slots, samples)
        # One slot of 232 samples takes as many bytes; the header tells.
        assert ring.ring_bytes(1, 232) == ring.ring_bytes(2, 100)
        with pytest.raises(RingError, match="shape"):
            RingWriter.attach(fd, 1, 232)
        RingWriter.attach(fd, 2, 100)
    finally:
        os.close(fd)


def test_attaching_to_memory_that_is_no_ring_is_refused() -> None:
    fd = os.memfd_create("not-a-ring")
    try:
        os.ftruncate(fd, ring.ring_bytes(2, 100))
        with pytest.raises(RingError, match="header"):
            RingWriter.attach(fd, 2, 100)
    finally:
        os.close(fd)


def test_the_descriptor_stays_the_callers() -> None:
    before = open_fds()
    reader, fd = RingReader.create(1, 10)
    writer = RingWriter.attach(fd, 1, 10)
    os.close(fd)
    writer.begin(0, 1)
    assert reader.read(0, 1, 0, 3, write(writer, 0, 0, pcm(1, 2, 3))) == pcm(1, 2, 3)
    del reader, writer
    assert open_fds() == before


def test_a_ring_outlives_its_writer() -> None:
    reader, writer = make(1, 10)
    writer.begin(0, 1)
    crc = write(writer, 0, 0, pcm(1, 2, 3))
    del writer
    assert reader.read(0, 1, 0, 3, crc) == pcm(1, 2, 3)


LIMITED = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
from engine.ring import RingError, RingReader
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
before = len(os.listdir("/proc/self/fd"))
try:
    RingReader.create(8, 100_000)
except RingError as error:
    print("refused:", error)
assert len(os.listdir("/proc/self/fd")) == before
RingReader.create(1, 1000)
"""


def test_memory_that_cannot_be_had_is_an_error_and_not_a_signal() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(ROOT)], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("refused: cannot have 1600576 bytes")


# --- interleavings ----------------------------------------------------------------------------------------


class SlowReader(RingReader):
    """Copies one sample at a time; between any two of them the writer may do something."""

    between: Callable[[], None]

    def _pieces(self, slot: int, start: int, stop: int) -> list[memoryview]:
        copied: list[memoryview] = []
        self.between()
        for piece in super()._pieces(slot, start, stop):
            for at in range(0, len(piece), 2):
                copied.append(memoryview(bytes(piece[at : at + 2])))
                self.between()
        return copied


@given(st.integers(1, 6), st.integers(0, 6), st.lists(st.integers(0, 4), min_size=8, max_size=8))
def test_no_interleaving_hands_out_the_next_owners_samples(
    samples: int, start: int, writer_steps: list[int]
) -> None:
    """The CRC is made to agree always here, so that only the stamp is left to tell."""
    reader, fd = SlowReader.create(1, samples)
    writer = RingWriter.attach(fd, 1, samples)
    os.close(fd)

    def later() -> Iterator[None]:
        """Generations 2, 3, ... take the slot and write a sample at a time, of their own number."""
        for generation in itertools.count(2):
            writer.begin(0, generation)
            yield
            for position in range(samples):
                write(writer, 0, position, pcm(generation))
                yield

    steps, budget = later(), iter(writer_steps)

    def between() -> None:
        for _ in range(next(budget, 0)):
            next(steps)

    writer.begin(0, 1)
    for position in range(samples):
        write(writer, 0, start + position, pcm(1))
    assert isinstance(reader, SlowReader)
    reader.between = between
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.ring.zlib.crc32", lambda data: 0)
        try:
            data = reader.read(0, 1, start, start + samples, 0)
        except StaleGeneration:
            assert any(writer_steps[: samples + 1])
            return
    assert data == pcm(*[1] * samples)


RACING_WRITER = """
import struct, sys
sys.path.insert(0, sys.argv[1])
from engine.ring import RingWriter
fd, samples, block = map(int, sys.argv[2:])
writer = RingWriter.attach(fd, 1, samples)
print("ready", flush=True)
for generation in range(1, 1 << 62):
    writer.begin(0, generation)
    data = memoryview(struct.pack("<h", generation % 30000) * block)
    for position in range(0, samples, block):
        writer.write(0, position, data)
"""


def test_a_reader_racing_a_writer_process_sees_its_own_generation_or_none() -> None:
    """Again without the CRC: the order of stamp, samples and look-up alone must hold."""
    samples, block = 2048, 512
    reader, fd = RingReader.create(1, samples)
    stamps = memoryview(mmap.mmap(fd, ring.ring_bytes(1, samples))).cast("Q")
    with subprocess.Popen(
        [sys.executable, "-c", RACING_WRITER, str(ROOT), str(fd), str(samples), str(block)],
        pass_fds=[fd],
        stdout=subprocess.PIPE,
    ) as process:
        os.close(fd)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            read, stale, seen = race(reader, stamps, samples, seconds=1.0)
        finally:
            process.kill()
    assert read > 0
    assert stale > 0
    assert len(seen) > 10


def race(
    reader: RingReader, stamps: memoryview, samples: int, *, seconds: float
) -> tuple[int, int, set[int]]:
    """Reads until time is up, each under the stamp found before; returns what came of it."""
    read = stale = 0
    seen: set[int] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.ring.zlib.crc32", lambda data: 0)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            generation = stamps[CELL // 8]
            try:
                data = reader.read(0, generation, 0, samples, 0)
            except StaleGeneration:
                stale += 1
                continue
            read += 1
            seen.add(generation)
            # Its own samples and, where it has not written yet, those of the one before: never later ones.
            mine, before = generation % 30_000, (generation - 1) % 30_000
            values = {value for (value,) in struct.iter_unpack("<h", data)}
            assert values <= {mine, before}, f"generation {generation} was handed {values}"
    return read, stale, seen
