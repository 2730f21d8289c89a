"""base16384: bytes as text, 14 bits a character. The text form of ChatTTS voices is built on it.

Seven bytes are four characters from U+4E00 on, most significant bits first. Where 1 to 6 bytes remain, their
bits are filled up with zeros, and a last character, U+3D00 plus that number, says how many they are. Pure
functions over strings of any origin; work and memory are linear in the length.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BITS: Final = 14
FIRST: Final = 0x4E00
REST: Final = 0x3D00
GROUP_BYTES: Final = 7
GROUP_CHARS: Final = 4


class Base16384Error(ValueError):
    """The text is no base16384."""


def encode(data: bytes) -> str:
    """The text form."""
    rest = len(data) % GROUP_BYTES
    padded = data + bytes((GROUP_BYTES - rest) % GROUP_BYTES)
    bits = np.unpackbits(np.frombuffer(padded, np.uint8)).reshape(-1, BITS)
    values = bits.astype(np.uint16) @ (1 << np.arange(BITS - 1, -1, -1, dtype=np.uint16)) + FIRST
    count = len(data) // GROUP_BYTES * GROUP_CHARS + _chars(rest)
    text = values[:count].astype("<u2").tobytes().decode("utf-16-le")
    return text + (chr(REST + rest) if rest else "")


def decode(text: str) -> bytes:
    """The bytes. Raises `Base16384Error`."""
    try:
        units: NDArray[np.uint16] = np.frombuffer(text.encode("utf-16-le"), "<u2")
    except UnicodeEncodeError as error:
        raise Base16384Error("a lone surrogate") from error
    rest = 0
    if len(units) and REST < units[-1] < REST + GROUP_BYTES:
        rest = int(units[-1]) - REST
        units = units[:-1]
    if len(units) % GROUP_CHARS != _chars(rest) % GROUP_CHARS or (rest and not len(units)):
        raise Base16384Error(f"{len(units)} characters with {rest} bytes over")
    if len(units) and (units.min() < FIRST or units.max() >= FIRST + (1 << BITS)):
        raise Base16384Error("a character outside the alphabet")
    values = (units - np.uint16(FIRST)).astype(">u2")
    bits = np.unpackbits(values.view(np.uint8)).reshape(-1, 16)[:, 16 - BITS :]
    size = (
        len(units) // GROUP_CHARS * GROUP_BYTES + rest - (GROUP_BYTES if _chars(rest) == GROUP_CHARS else 0)
    )
    return np.packbits(bits).tobytes()[:size]


def _chars(rest: int) -> int:
    """Characters that hold `rest` bytes."""
    return -(-rest * 8 // BITS)
