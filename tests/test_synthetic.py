"""The synthetic model: marks go round, tones are where they should be, blocks number without a gap."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import UnknownVoice
from engine.synthetic.model import (
    BLOCK,
    BLOCKS_A_CHAR,
    BLOCKS_A_STEP,
    MARK_BITS,
    RATE,
    TONES,
    SyntheticModel,
    make_blocks,
    read_mark,
    tone_hz,
)
from engine.wire import Parameters, Span


def span(text: str) -> Span:
    return Span(text, "en", 0, len(text))


def speak(model: SyntheticModel, slot: int, text: str) -> NDArray[np.int16]:
    model.begin(slot, [span(text)])
    pieces: list[NDArray[np.int16]] = []
    while True:
        (output,) = model.step([slot])
        assert output.slot == slot
        assert output.pcm.dtype == np.int16
        pieces.append(output.pcm)
        if output.finished:
            return np.concatenate(pieces)


@given(st.integers(0, 2**64), st.integers(0, 2**32 - 20), st.integers(1, 20))
def test_marks_go_round(seed: int, first: int, count: int) -> None:
    blocks = make_blocks(seed, first, count)
    assert blocks.dtype == np.int16
    assert len(blocks) == count * BLOCK
    found = [read_mark(blocks[at : at + BLOCK]) for at in range(0, len(blocks), BLOCK)]
    assert found == [(seed & 0xFFFF_FFFF, number) for number in range(first, first + count)]


@given(st.integers(0, 2**32 - 1), st.integers(0, 1000), st.integers(1, 30), st.integers(0, 30))
def test_blocks_do_not_depend_on_how_they_are_asked_for(seed: int, first: int, count: int, at: int) -> None:
    at = min(at, count)
    parts = (make_blocks(seed, first, at), make_blocks(seed, first + at, count - at))
    assert np.array_equal(np.concatenate(parts), make_blocks(seed, first, count))


@pytest.mark.parametrize("seed", range(TONES))
def test_the_pitch_tells_the_seed(seed: int) -> None:
    sound = make_blocks(seed, 0, 100).astype(np.float64)
    loudest = np.argmax(np.abs(np.fft.rfft(sound)))
    assert loudest * RATE / len(sound) == pytest.approx(tone_hz(seed), abs=1.5)
    assert tone_hz(seed) == tone_hz(seed + TONES)
    assert tone_hz(seed) * BLOCK / RATE == int(tone_hz(seed) * BLOCK / RATE)


def test_marks_change_a_tone_by_its_last_bit_only() -> None:
    marked, other = make_blocks(5, 0, 1), make_blocks(5, 2**31 - 1, 1)
    assert np.max(np.abs(marked.astype(int) - other.astype(int))) == 1
    assert np.array_equal(marked[MARK_BITS:], other[MARK_BITS:])


def test_text_decides_the_length_and_numbers_run_on_over_sentences() -> None:
    model = SyntheticModel(slots=4, rtf=0.0)
    model.open(3, "tone", Parameters(), 77)
    sound = np.concatenate([speak(model, 3, "abc"), speak(model, 3, "d"), speak(model, 3, "efghij")])
    assert len(sound) == 10 * BLOCKS_A_CHAR * BLOCK
    assert np.array_equal(sound, make_blocks(77, 0, 10 * BLOCKS_A_CHAR))


def test_slots_do_not_mix() -> None:
    model = SyntheticModel(slots=2, rtf=0.0)
    for slot in (0, 1):
        model.open(slot, "tone", Parameters(), 100 + slot)
        model.begin(slot, [span("a" * 10), span("b")])
    sounds: dict[int, list[NDArray[np.int16]]] = {0: [], 1: []}
    for slots in ([0, 1], [1], [0], [1, 0]):
        outputs = model.step(slots)
        assert [output.slot for output in outputs] == slots
        for output in outputs:
            assert len(output.pcm) == BLOCKS_A_STEP * BLOCK
            sounds[output.slot].append(output.pcm)
    for slot, pieces in sounds.items():
        assert np.array_equal(np.concatenate(pieces), make_blocks(100 + slot, 0, 3 * BLOCKS_A_STEP))


def test_a_closed_slot_starts_anew() -> None:
    model = SyntheticModel(slots=1, rtf=0.0)
    model.close(0)  # also one that nobody opened
    model.open(0, "tone", Parameters(), 1)
    speak(model, 0, "abc")
    model.close(0)
    model.open(0, "tone", Parameters(), 2)
    assert read_mark(speak(model, 0, "a")[:BLOCK]) == (2, 0)


def test_nothing_to_say_is_over_at_once() -> None:
    model = SyntheticModel(slots=1, rtf=0.0)
    model.open(0, "tone", Parameters(), 1)
    assert len(speak(model, 0, "")) == 0


def test_an_unknown_voice_is_refused() -> None:
    with pytest.raises(UnknownVoice):
        SyntheticModel(slots=1, rtf=0.0).open(0, "nobody", Parameters(), 1)


def test_it_takes_the_time_that_it_was_told_to() -> None:
    model = SyntheticModel(slots=1, rtf=0.5)
    model.open(0, "tone", Parameters(), 1)
    model.begin(0, [span("abcd")])
    start = time.monotonic()
    model.step([0])
    assert 0.04 <= time.monotonic() - start < model.step_limit_s([0])
    model.interrupt(0)


def test_it_describes_itself() -> None:
    model = SyntheticModel(slots=5, rtf=0.0)
    assert (model.spec.slots, model.spec.max_batch, model.spec.sample_rate) == (5, 5, RATE)
    assert model.spec.default_voice in {voice.id for voice in model.spec.voices}
    assert all(seconds > 0 for seconds in model.warm_up())
