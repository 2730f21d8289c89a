"""The text forms of voices: what is encoded comes back, and strangers' strings cost nothing."""

from __future__ import annotations

import lzma
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.chattts import base16384, speaker
from engine.chattts.speaker import BadVoice
from tests import upstream

HIDDEN = 768
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def text_form(raw: bytes) -> str:
    return base16384.encode(lzma.compress(raw, format=lzma.FORMAT_RAW, filters=FILTERS))


def codes_form(shape: tuple[int, int], raw: bytes) -> str:
    packed = lzma.compress(raw, format=lzma.FORMAT_RAW, filters=FILTERS)
    return base16384.encode(np.array(shape, "<u2").tobytes() + packed)


def embedding(seed: int = 0, hidden: int = HIDDEN) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal(hidden) * 4
    return drawn.astype(np.float16).astype(np.float32)


def codes(steps: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 625, (4, steps))


# --- base16384 ------------------------------------------------------------------------------------------


@given(st.binary(max_size=64))
def test_bytes_come_back(data: bytes) -> None:
    text = base16384.encode(data)
    assert base16384.decode(text) == data
    assert len(text) == -(-len(data) * 8 // 14) + bool(len(data) % 7)


def test_known_values() -> None:
    # 14 bits of ones are the last character; one byte over is its 8 bits, 6 zeros, and the mark for 1.
    assert base16384.encode(b"\xff" * 7) == "\u8dff" * 4
    assert base16384.encode(b"\x01") == chr(0x4E00 + (1 << 6)) + "\u3d01"


@pytest.mark.parametrize(
    "text", ["A", "\u4e00", "\u4e00" * 5, "\u4e00\u3d02", "\u3d01", "\ud800", "\u8e00" * 4]
)
def test_what_is_no_base16384(text: str) -> None:
    with pytest.raises(base16384.Base16384Error):
        base16384.decode(text)


# --- speakers -------------------------------------------------------------------------------------------


def test_a_speaker_comes_back() -> None:
    text = speaker.encode_embedding(embedding())
    assert 800 < len(text) < 900
    assert np.array_equal(speaker.decode_embedding(text, HIDDEN), embedding())
    assert not speaker.is_sample(text)


def test_values_that_fp16_cannot_hold() -> None:
    with pytest.raises(BadVoice, match="finite"):
        speaker.encode_embedding(np.full(HIDDEN, 1e6, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_speaker_with_no_number(value: float) -> None:
    half = embedding().astype(np.float16)
    half[500] = value
    with pytest.raises(BadVoice, match="finite"):
        speaker.decode_embedding(text_form(half.tobytes()), HIDDEN)


def test_a_speaker_of_zeros() -> None:
    with pytest.raises(BadVoice, match="zeros"):
        speaker.decode_embedding(text_form(bytes(2 * HIDDEN)), HIDDEN)


@pytest.mark.parametrize("size", [0, 1, 2 * HIDDEN - 1, 2 * HIDDEN + 1, 4 * HIDDEN])
def test_a_speaker_of_another_size(size: int) -> None:
    raw = embedding(hidden=2 * HIDDEN).astype(np.float16).tobytes()[:size]
    with pytest.raises(BadVoice):
        speaker.decode_embedding(text_form(raw), HIDDEN)


def test_every_truncation_is_refused() -> None:
    whole = lzma.compress(embedding().astype("<f2").tobytes(), format=lzma.FORMAT_RAW, filters=FILTERS)
    for size in (*range(0, len(whole), 97), len(whole) - 2, len(whole) - 1):
        with pytest.raises(BadVoice):
            speaker.decode_embedding(base16384.encode(whole[:size]), HIDDEN)


def test_more_after_the_end_is_refused() -> None:
    whole = lzma.compress(embedding().astype("<f2").tobytes(), format=lzma.FORMAT_RAW, filters=FILTERS)
    with pytest.raises(BadVoice, match="after its end"):
        speaker.decode_embedding(base16384.encode(whole + b"\x00"), HIDDEN)


@given(
    st.text(max_size=200) | st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x8DFF), max_size=200)
)
def test_any_string_is_a_voice_or_a_typed_error(text: str) -> None:
    speaker.is_sample(text)
    for decode in (lambda: speaker.decode_embedding(text, HIDDEN), lambda: speaker.decode_codes(text)):
        with pytest.raises(BadVoice):
            decode()


# --- bombs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """1 MiB of raw LZMA2 that a plain decoder makes over 2 GiB of; built without writing these."""
    packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    zeros = bytes(1 << 24)
    head = packer.compress(zeros) + packer.compress(zeros) + packer.flush()
    # A chunk that resets nothing goes on with the zeros of those before it; the last byte is the end mark.
    at = 0
    chunks: list[bytes] = []
    while head[at]:
        header = 6 if head[at] >= 0xC0 else 5
        size = header + int.from_bytes(head[at + 3 : at + 5]) + 1
        chunks.append(head[at : at + size])
        at += size
    again = next(chunk for chunk in chunks[1:] if chunk[0] < 0xE0)
    first = chunks[0]
    return first + again * (((1 << 20) - len(first) - 1) // len(again)) + b"\x00"


def expanded(data: bytes, most: int) -> int:
    decoder = lzma.LZMADecompressor(
        lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    )
    total = len(decoder.decompress(data, max_length=1 << 20))
    while total < most and not decoder.eof:
        made = decoder.decompress(b"", max_length=1 << 20)
        if not made:
            break
        total += len(made)
    return total


def rss() -> int:
    """Peak resident memory of this process, bytes."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def peak_reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


DECODERS: list[Callable[[str], object]] = [
    lambda text: speaker.decode_embedding(text, HIDDEN),
    speaker.decode_codes,
]


def refused(decode: Callable[[str], object], text: str) -> None:
    """In under 10 ms and 2 MiB (the best of three: other processes run beside this one)."""
    times: list[float] = []
    growths: list[int] = []
    for _ in range(3):
        peak_reset()
        before = rss()
        began = time.perf_counter()
        with pytest.raises(BadVoice):
            decode(text)
        times.append(time.perf_counter() - began)
        growths.append(rss() - before)
    assert min(times) < 0.010
    assert min(growths) < 2 << 20


def test_the_bomb_is_one(bomb: bytes) -> None:
    assert len(bomb) <= 1 << 20
    # Not all of it: that takes seconds. It goes on evenly.
    assert expanded(bomb[: len(bomb) // 32], 1 << 40) > 64 << 20


@pytest.mark.parametrize("decode", DECODERS, ids=["speaker", "sample"])
def test_a_long_bomb_is_refused_by_its_length(bomb: bytes, decode: Callable[[str], object]) -> None:
    refused(decode, base16384.encode(bomb))


@pytest.mark.parametrize("decode", DECODERS, ids=["speaker", "sample"])
def test_a_short_bomb_is_refused_by_the_bound(decode: Callable[[str], object]) -> None:
    raw = bytes(8 << 20)
    text = text_form(raw) if decode is DECODERS[0] else codes_form((4, 100), raw)
    assert len(text) < 900
    refused(decode, text)


def test_the_decoder_itself_is_bounded(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the length not looked at, the whole bomb would still not expand."""
    monkeypatch.setattr(speaker, "_bytes", lambda text, limit: bomb)
    refused(DECODERS[0], "")


# --- samples --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 100, speaker.MAX_SAMPLE_STEPS])
def test_a_sample_comes_back(steps: int) -> None:
    text = speaker.encode_codes(codes(steps))
    assert speaker.is_sample(text)
    assert np.array_equal(speaker.decode_codes(text), codes(steps))


@pytest.mark.parametrize("value", [625, 626, 65535])
def test_a_code_out_of_range(value: int) -> None:
    wrong = codes(10)
    wrong[3, 9] = value
    with pytest.raises(BadVoice, match="outside 0 to 624"):
        speaker.decode_codes(codes_form((4, 10), wrong.astype("<u2").tobytes()))
    with pytest.raises(BadVoice, match="outside 0 to 624"):
        speaker.encode_codes(wrong)


def test_the_last_code_that_is_one() -> None:
    assert speaker.check_codes(np.full((4, 1), 624)).max() == 624


@pytest.mark.parametrize(
    "shape", [(3, 10), (5, 10), (4, 0), (0, 0), (4, 385), (4, 65535), (65535, 65535), (4, 9), (4, 11)]
)
def test_a_shape_that_is_none(shape: tuple[int, int]) -> None:
    with pytest.raises(BadVoice):
        speaker.decode_codes(codes_form(shape, codes(10).astype("<u2").tobytes()))


@pytest.mark.parametrize("wrong", [np.zeros((4, 2), np.float32), np.zeros(8, np.int64), np.full((4, 2), -1)])
def test_codes_that_are_none(wrong: NDArray[np.int64]) -> None:
    with pytest.raises(BadVoice):
        speaker.check_codes(wrong)


# --- upstream reads what we write -----------------------------------------------------------------------


@upstream.needed
def test_upstream_agrees() -> None:
    import torch

    from engine.upstream import package

    theirs = package.module("ChatTTS.model.speaker").Speaker
    assert np.array_equal(theirs._decode(speaker.encode_embedding(embedding())), embedding())
    assert np.array_equal(
        speaker.decode_embedding(theirs._encode(torch.from_numpy(embedding(1))), HIDDEN), embedding(1)
    )
    assert np.array_equal(theirs.decode_prompt(speaker.encode_codes(codes(50))).numpy(), codes(50))
    assert np.array_equal(
        speaker.decode_codes(theirs.encode_prompt(torch.from_numpy(codes(51, 1)))), codes(51, 1)
    )
