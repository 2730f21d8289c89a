"""The text forms of ChatTTS voices, as people pass them round: a speaker, and a spoken sample.

Strings come from strangers. A length is checked before anything is decoded, and LZMA2 writes into a bound: an
unbounded decoder makes gigabytes of a megabyte. What is returned has the exact shape and is in range, since a
code that is out of range ends a CUDA context. Knows no torch, no files and no names of voices.
"""

from __future__ import annotations

import lzma
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.chattts import base16384
from engine.chattts.layout import CODE_ROWS, CODEBOOKS
from engine.errors import EngineError

MAX_SAMPLE_STEPS: Final = 384
"""Steps of a sample: 8.2 s. It lies in the prompt of every sentence, whose positions are bounded."""
_HEAD: Final = 4
"""Bytes before the LZMA2 data of a sample: its two axes, u16 each."""
_OVERHEAD: Final = 64
"""Bytes that LZMA2 may add to data of a few KiB that do not compress (it needs fewer)."""


class BadVoice(EngineError):
    """A voice, or the text form of one, that cannot be used."""

    code = "bad_voice"


def encode_embedding(embedding: NDArray[np.floating]) -> str:
    """The text form of a speaker [H]. Raises `BadVoice` where fp16 cannot hold it."""
    with np.errstate(over="ignore"):
        half = embedding.astype("<f2")
    return base16384.encode(_compress(_checked(half).tobytes()))


def decode_embedding(text: str, hidden: int) -> NDArray[np.float32]:
    """A speaker [hidden], finite and not all zeros. Raises `BadVoice`."""
    size = 2 * hidden
    raw = _expand(_bytes(text, size + _OVERHEAD), size)
    return _checked(np.frombuffer(raw, "<f2")).astype(np.float32)


def encode_codes(codes: NDArray[np.integer]) -> str:
    """The text form of a sample's codes [4, T]. Raises `BadVoice` for codes that no sample has."""
    checked = check_codes(codes)
    shape = np.array(checked.shape, "<u2").tobytes()
    return base16384.encode(shape + _compress(checked.astype("<u2").tobytes()))


def decode_codes(text: str, max_steps: int = MAX_SAMPLE_STEPS) -> NDArray[np.int64]:
    """A sample's codes [4, T], each 0..624, T of 1..max_steps. Raises `BadVoice`."""
    data = _bytes(text, _HEAD + 2 * CODEBOOKS * max_steps + _OVERHEAD)
    if len(data) < _HEAD:
        raise BadVoice("the voice's text form is cut short")
    books, steps = (int(axis) for axis in np.frombuffer(data[:_HEAD], "<u2"))
    _check_shape((books, steps), max_steps)
    raw = _expand(data[_HEAD:], 2 * books * steps)
    return check_codes(np.frombuffer(raw, "<u2").reshape(books, steps), max_steps)


def is_sample(text: str) -> bool:
    """Whether the text form is one of codes, by its first two bytes: LZMA2 never starts with a 4."""
    try:
        start = base16384.decode(text[: base16384.GROUP_CHARS])
    except base16384.Base16384Error:
        return False
    return start[:2] == CODEBOOKS.to_bytes(2, "little")


def check_codes(codes: NDArray[np.integer], max_steps: int = MAX_SAMPLE_STEPS) -> NDArray[np.int64]:
    """The codes [4, T] as int64. Raises `BadVoice` for another shape, or a code that is none."""
    if codes.dtype.kind not in "iu":
        raise BadVoice("the voice's codes are no whole numbers")
    _check_shape(codes.shape, max_steps)
    # The last row ends a sentence; no sample holds it.
    if int(codes.min()) < 0 or int(codes.max()) >= CODE_ROWS - 1:
        raise BadVoice(f"the voice has a code outside 0 to {CODE_ROWS - 2}")
    return codes.astype(np.int64)


def check_embedding(embedding: NDArray[np.floating], hidden: int) -> NDArray[np.float32]:
    """The speaker as fp32. Raises `BadVoice` for another shape, or values that say nothing."""
    if embedding.shape != (hidden,):
        raise BadVoice(f"the voice has shape {list(embedding.shape)}; these weights want [{hidden}]")
    return _checked(embedding).astype(np.float32)


def _check_shape(shape: tuple[int, ...], max_steps: int) -> None:
    if len(shape) != 2 or shape[0] != CODEBOOKS:
        raise BadVoice(f"the voice's codes have shape {list(shape)}, expected [{CODEBOOKS}, steps]")
    if not 1 <= shape[1] <= max_steps:
        raise BadVoice(f"the voice's sample has {shape[1]} steps; 1 to {max_steps} are accepted")


def _checked(embedding: NDArray[np.floating]) -> NDArray[np.floating]:
    if not bool(np.isfinite(embedding).all()):
        raise BadVoice("the voice holds values that are no finite numbers")
    if not bool(embedding.any()):
        raise BadVoice("the voice is all zeros")
    return embedding


# --- bytes ----------------------------------------------------------------------------------------------


def _bytes(text: str, limit: int) -> bytes:
    """The bytes of a text form that has at most `limit` of them."""
    # Before anything is copied: the text may have any length.
    if len(text) > limit * 8 // base16384.BITS + 2:
        raise BadVoice(f"the voice's text form is too long ({len(text)} characters)")
    try:
        return base16384.decode(text)
    except base16384.Base16384Error as error:
        raise BadVoice(f"the voice is not in base16384: {error}") from error


def _compress(data: bytes) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    return lzma.compress(data, format=lzma.FORMAT_RAW, filters=filters)


def _expand(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes out of raw LZMA2 that ends where `data` ends."""
    # No data of ours is longer than the dictionary, so no match reaches back past it.
    dictionary = max(4096, 1 << (size - 1).bit_length())
    decoder = lzma.LZMADecompressor(
        lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": dictionary}]
    )
    try:
        found = decoder.decompress(data, max_length=size + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise BadVoice("the voice's text form does not decompress") from error
    if len(found) > size:
        raise BadVoice(f"the voice has more than the {size} bytes it should have")
    if len(found) < size or not decoder.eof:
        raise BadVoice(f"the voice is cut short: {len(found)} of {size} bytes, or no end mark")
    if decoder.unused_data:
        raise BadVoice("the voice's text form goes on after its end")
    return found
