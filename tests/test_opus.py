"""Packets: how the samples were cut changes nothing, nothing is lost, and sentences splice."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
import opuslib_next
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.messages import FRAME_MS, Format
from gateway.opus import PacketEncoder

ENGINE_RATE: Final = 24_000
RATES: Final = (8000, 16_000, 24_000, 48_000)
FORMATS: Final[tuple[Format, ...]] = ("opus", "pcm")
LOOKAHEAD_S: Final = 0.0065
"""What libopus delays sound by, mode `audio`: 312 samples at 48 kHz."""


def encoder(format: Format, rate: int, *, engine_rate: int = ENGINE_RATE) -> PacketEncoder:
    return PacketEncoder(format=format, engine_rate=engine_rate, sample_rate=rate)


@cache
def sound(count: int, seed: int = 0) -> bytes:
    """Two tones and some noise, so that every sample counts."""
    at = np.arange(count) / ENGINE_RATE
    wave = 6000 * np.sin(2 * math.pi * (440 + seed) * at) + 3000 * np.sin(2 * math.pi * 1234 * at)
    wave += np.random.default_rng(seed).normal(0, 300, count)
    return bytes(wave.astype("<i2").tobytes())


def cut(samples: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(2 * (place % (len(samples) // 2 + 1)) for place in places), len(samples)]
    return [samples[start:stop] for start, stop in pairwise(edges)]


def encode(packets: PacketEncoder, samples: bytes) -> list[bytes]:
    return packets.feed(samples) + packets.flush()


def decode(packets: list[bytes], rate: int) -> NDArray[np.int16]:
    frame = rate * FRAME_MS // 1000
    decoder = opuslib_next.Decoder(rate, 1)
    return np.frombuffer(b"".join(decoder.decode(packet, frame) for packet in packets), "<i2")


def resampled(count: int, rate: int) -> int:
    """Samples that `count` of the engine's become, to the nearest."""
    return math.floor(count * rate / ENGINE_RATE + 0.5)


def frames(count: int, format: Format, rate: int) -> int:
    """Packets of a sentence: all its sound, and what the codec holds back."""
    made = resampled(count, rate)
    if made == 0:
        return 0
    tail = round(LOOKAHEAD_S * rate) if format == "opus" else 0
    return math.ceil((made + tail) * 1000 / (rate * FRAME_MS))


# --- cutting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("format", FORMATS)
@given(count=st.integers(0, 4000), places=st.lists(st.integers(0, 4000), max_size=12))
@settings(max_examples=25, deadline=None)
def test_how_samples_are_cut_changes_nothing(
    format: Format, rate: int, count: int, places: list[int]
) -> None:
    samples = sound(4000)[: 2 * count]
    pieces = encoder(format, rate)
    packets = [packet for piece in cut(samples, places) for packet in pieces.feed(piece)]
    packets += pieces.flush()
    assert packets == encode(encoder(format, rate), samples)


@pytest.mark.parametrize("rate", RATES)
def test_sample_by_sample_is_as_good_as_whole(rate: int) -> None:
    samples = sound(1500)
    single = encoder("pcm", rate)
    packets = [packet for at in range(0, len(samples), 2) for packet in single.feed(samples[at : at + 2])]
    assert packets + single.flush() == encode(encoder("pcm", rate), samples)


def test_a_packet_comes_out_as_soon_as_it_is_full() -> None:
    packets = encoder("opus", 24_000)
    assert packets.feed(sound(479)) == []
    assert len(packets.feed(sound(1))) == 1
    assert len(packets.feed(sound(961))) == 2


# --- length -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [1, 2, 323, 324, 325, 479, 480, 481, 804, 805, 960, 4800, 4801])
def test_a_sentence_has_room_for_all_its_sound(format: Format, rate: int, count: int) -> None:
    assert len(encode(encoder(format, rate), sound(count))) == frames(count, format, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("format", FORMATS)
def test_flushing_nothing_gives_nothing(format: Format, rate: int) -> None:
    packets = encoder(format, rate)
    assert packets.flush() == []
    assert packets.feed(b"") == []
    assert packets.flush() == []
    assert encode(packets, sound(960)) != []
    assert packets.flush() == []
    assert packets.flush() == []


@pytest.mark.parametrize("rate", RATES)
def test_pcm_packets_are_whole_frames_padded_with_silence(rate: int) -> None:
    packets = encode(encoder("pcm", rate), sound(700))
    assert {len(packet) for packet in packets} == {rate * FRAME_MS // 1000 * 2}
    made = resampled(700, rate)
    padding = np.frombuffer(b"".join(packets), "<i2")[made:]
    assert not padding.any()


def test_pcm_at_the_engines_rate_is_untouched() -> None:
    assert b"".join(encode(encoder("pcm", 24_000), sound(960))) == sound(960)


# --- what is heard ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4800, 4801, 4799, 5000])
@pytest.mark.parametrize("rate", RATES)
def test_the_sound_comes_back_later_by_the_lookahead(rate: int, count: int) -> None:
    source = np.frombuffer(b"".join(encode(encoder("pcm", rate), sound(count))), "<i2").astype(float)
    source = source[: resampled(count, rate)]
    heard = decode(encode(encoder("opus", rate), sound(count)), rate).astype(float)
    delay = round(LOOKAHEAD_S * rate)
    assert len(heard) >= len(source) + delay
    # The best fit is at the lookahead, to a sample, and it is a good one.
    fits = [
        float(np.dot(source, heard[at : at + len(source)]))
        for at in range(delay * 2)[: len(heard) - len(source) + 1]
    ]
    assert abs(int(np.argmax(fits)) - delay) <= 1
    there = heard[delay : delay + len(source)]
    assert np.corrcoef(source, there)[0, 1] > 0.95
    # Not only on the whole: the last 5 ms are there too.
    last = rate // 200
    assert np.corrcoef(source[-last:], there[-last:])[0, 1] > 0.8


@pytest.mark.parametrize("rate", [8000, 16_000, 48_000])
def test_resampling_keeps_the_pitch_and_the_level(rate: int) -> None:
    wave = (8000 * np.sin(2 * math.pi * 1000 * np.arange(ENGINE_RATE) / ENGINE_RATE)).astype("<i2")
    out = np.frombuffer(b"".join(encode(encoder("pcm", rate), wave.tobytes())), "<i2").astype(float)[:rate]
    spectrum = np.abs(np.fft.rfft(out))
    assert np.argmax(spectrum) == 1000
    assert np.max(out[rate // 10 : -rate // 10]) == pytest.approx(8000, rel=0.02)


def test_loud_sound_is_clipped_and_does_not_wrap() -> None:
    square = np.where(np.arange(4800) // 24 % 2, 32_767, -32_768).astype("<i2")
    out = np.frombuffer(b"".join(encode(encoder("pcm", 48_000), square.tobytes())), "<i2")[:9600]
    # Ringing overshoots the range; wrapped round it would have the other sign amid a half wave.
    halves = out.reshape(-1, 48)[1:-1, 6:-6].astype(int)
    assert (np.abs(np.sign(halves).sum(axis=1)) == halves.shape[1]).all()


# --- splicing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("format", FORMATS)
@given(lengths=st.lists(st.integers(0, 3000), min_size=2, max_size=4))
@settings(max_examples=15, deadline=None)
def test_sentences_splice(format: Format, rate: int, lengths: list[int]) -> None:
    """Encoded one after the other they are, byte for byte, what each is alone."""
    together = encoder(format, rate)
    for number, length in enumerate(lengths):
        samples = sound(length, seed=number)
        assert encode(together, samples) == encode(encoder(format, rate), samples)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rate", RATES)
def test_equal_sound_gives_equal_packets(format: Format, rate: int) -> None:
    assert encode(encoder(format, rate), sound(5000)) == encode(encoder(format, rate), sound(5000))


@pytest.mark.parametrize("rate", RATES)
def test_two_encoders_do_not_mix(rate: int) -> None:
    one, other = encoder("opus", rate), encoder("opus", rate)
    packets: list[list[bytes]] = [[], []]
    for at in range(0, 4000, 400):
        packets[0] += one.feed(sound(2000)[at : at + 400])
        packets[1] += other.feed(sound(2000, seed=9)[at : at + 400])
    assert packets[0] + one.flush() == encode(encoder("opus", rate), sound(2000))
    assert packets[1] + other.flush() == encode(encoder("opus", rate), sound(2000, seed=9))


@pytest.mark.parametrize("engine_rate", [16_000, 22_050, 24_000, 44_100])
def test_any_engine_rate_will_do(engine_rate: int) -> None:
    samples = sound(engine_rate // 10)
    packets = encode(encoder("pcm", 24_000, engine_rate=engine_rate), samples)
    assert len(packets) == math.ceil(math.floor(engine_rate // 10 * 24_000 / engine_rate + 0.5) / 480)
