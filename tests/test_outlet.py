"""The outlet: sound and ends come out in order, whatever the room; nothing unread is overwritten."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.outlet import Outlet
from engine.ring import MAX_BLOCK, RingReader, RingWriter, StaleGeneration
from engine.wire import Block, SentenceDone


def make(samples: int, *, slots: int = 1) -> tuple[RingReader, RingWriter]:
    reader, fd = RingReader.create(slots, samples)
    try:
        return reader, RingWriter.attach(fd, slots, samples)
    finally:
        os.close(fd)


def sound(start: int, count: int) -> NDArray[np.int16]:
    return (np.arange(start, start + count) % 32_749).astype(np.int16)


class Listener:
    """Takes blocks out of the ring as the gateway does, and keeps all that it heard."""

    def __init__(self, reader: RingReader, generation: int, slot: int = 0) -> None:
        self._reader, self._generation, self._slot = reader, generation, slot
        self.untaken: list[Block] = []
        self.position = 0
        self.heard = bytearray()

    def take(self, count: int) -> None:
        for block in self.untaken[:count]:
            self.heard += self._reader.read(
                self._slot, self._generation, self.position, block.write_pos, block.crc
            )
            self.position = block.write_pos
        del self.untaken[:count]


def test_what_fits_goes_out_at_once() -> None:
    _, writer = make(1000)
    outlet = Outlet(writer, slot=0, generation=7, utterance=3)
    outlet.put(sound(0, 600))
    outlet.put_end(0)
    blocks, ends = outlet.drain(0)
    assert [(block.utterance, block.generation, block.write_pos) for block in blocks] == [(3, 7, 600)]
    assert ends == [SentenceDone(3, 0, 600, truncated=False, unsaid=False)]
    assert not outlet
    assert (outlet.made, outlet.written) == (600, 600)


def test_what_does_not_fit_waits_and_its_end_with_it() -> None:
    _, writer = make(1000)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    outlet.put(sound(0, 1500))
    outlet.put_end(4, truncated=True)
    blocks, ends = outlet.drain(0)
    assert ([block.write_pos for block in blocks], ends) == ([1000], [])
    assert outlet
    assert outlet.drain(0) == ([], [])
    blocks, ends = outlet.drain(100)
    assert ([block.write_pos for block in blocks], ends) == ([1100], [])
    blocks, ends = outlet.drain(1000)
    assert [block.write_pos for block in blocks] == [1500]
    assert ends == [SentenceDone(1, 4, 1500, truncated=True, unsaid=False)]
    assert not outlet


def test_an_end_without_sound_passes_a_full_ring() -> None:
    _, writer = make(10)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    outlet.put(sound(0, 10))
    outlet.drain(0)
    outlet.put_end(1, unsaid=True)
    assert outlet.drain(0) == ([], [SentenceDone(1, 1, 10, truncated=False, unsaid=True)])


def test_no_sound_is_no_block() -> None:
    _, writer = make(10)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    outlet.put(sound(0, 0))
    assert not outlet
    assert outlet.drain(0) == ([], [])


def test_long_sound_is_cut_in_blocks() -> None:
    _, writer = make(3 * MAX_BLOCK)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    outlet.put(sound(0, 2 * MAX_BLOCK + 1))
    blocks, _ = outlet.drain(0)
    assert [block.write_pos for block in blocks] == [MAX_BLOCK, 2 * MAX_BLOCK, 2 * MAX_BLOCK + 1]


def test_making_an_outlet_takes_the_slot_from_its_last_owner() -> None:
    reader, writer = make(10)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    outlet.put(sound(0, 5))
    ((block,), _) = outlet.drain(0)
    Outlet(writer, slot=0, generation=2, utterance=2)
    with pytest.raises(StaleGeneration):
        reader.read(0, 1, 0, 5, block.crc)


def test_the_model_may_reuse_its_buffer() -> None:
    reader, writer = make(10)
    outlet = Outlet(writer, slot=0, generation=1, utterance=1)
    buffer = sound(0, 5)
    outlet.put(buffer)
    buffer[:] = -1
    ((block,), _) = outlet.drain(0)
    assert reader.read(0, 1, 0, 5, block.crc) == sound(0, 5).tobytes()


@given(
    st.integers(1, 60),
    st.lists(st.one_of(st.integers(0, 90), st.tuples(st.integers(1, 5), st.booleans())), max_size=40),
)
def test_any_order_of_making_and_taking_loses_nothing(
    samples: int, script: list[int | tuple[int, bool]]
) -> None:
    """A number makes that many samples, as the loop does: only when nothing waits; a pair takes blocks."""
    reader, writer = make(samples, slots=2)
    outlet = Outlet(writer, slot=1, generation=9, utterance=5)
    listener = Listener(reader, 9, slot=1)
    made, sentences, ends = 0, 0, list[SentenceDone]()

    def drain() -> None:
        blocks, more = outlet.drain(listener.position)
        listener.untaken += blocks
        ends.extend(more)
        assert all(end.end_pos <= outlet.written for end in more)
        assert outlet.written - listener.position <= samples

    for action in [*script, *[(100, True)] * (2 * (90 // samples + 2))]:
        if isinstance(action, tuple):
            listener.take(action[0])
        elif not outlet:
            outlet.put(sound(made, action))
            made += action
            if action % 3 == 0:
                outlet.put_end(sentences)
                sentences += 1
        drain()
    listener.take(1000)
    assert not outlet
    assert bytes(listener.heard) == sound(0, made).tobytes()
    assert [end.sentence for end in ends] == list(range(sentences))
