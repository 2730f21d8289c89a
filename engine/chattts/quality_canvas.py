"""Pixels of a plot, and the PNG that they become: what `quality_plots` draws on, without a plotting library.

Knows numpy and nothing of speech.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Anchor = Literal["left", "middle", "right"]

BLACK: Final[Colour] = (32, 32, 32)
GREY: Final[Colour] = (222, 222, 222)
WHITE: Final[Colour] = (255, 255, 255)
_GLYPHS: Final = (
    "Aehhvhhh Buhhuhhu Cehggghe Duhhhhhu Evgguggv Fvgguggg Gehgnhhe Hhhhvhhh Ie44444e J72222ic Khikokih"
    " Lggggggv Mhrllhhh Nhhpljhh Oehhhhhe Puhhuggg Qehhhlid Ruhhukih Sfgge11u Tv444444 Uhhhhhhe Vhhhhha4"
    " Whhhllla Xhha4ahh Yhhha444 Zv1248gv 0ehjlphe 14c4444e 2eh1248v 3v2421he 426aiv22 5vgu11he 668guhhe"
    " 7v124888 8ehhehhe 9ehhf12c .00000cc ,0000c48 :0cc0cc0 -000v000 +044v440 /01248g0 (2488842 )8422248"
    " %op248j3 =00v0v00 |4444444 >8421248"
)
"""A sign, then its seven rows of five pixels, each a digit to base 32 whose highest bit is the leftmost."""
_FONT: Final = {entry[0]: [int(digit, 32) for digit in entry[1:]] for entry in _GLYPHS.split(" ")}
_ADVANCE: Final = 6
HEIGHT: Final = 7
"""Pixels of a letter at scale 1."""


class Canvas:
    """An image, white at first. x to the right, y down, in pixels."""

    def __init__(self, width: int, height: int) -> None:
        self._pixels: NDArray[np.uint8] = np.full((height, width, 3), 255, np.uint8)

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """[height, width, 3]."""
        return self._pixels

    def box(self, left: int, top: int, right: int, bottom: int, colour: Colour) -> None:
        """Fill; `right` and `bottom` are outside. What is beyond the image is cut off."""
        self._pixels[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = colour

    def frame(self, left: int, top: int, right: int, bottom: int, colour: Colour = BLACK) -> None:
        """The outline of a box."""
        self.box(left, top, right, top + 1, colour)
        self.box(left, bottom - 1, right, bottom, colour)
        self.box(left, top, left + 1, bottom, colour)
        self.box(right - 1, top, right, bottom, colour)

    def line(self, points: Sequence[tuple[float, float]], colour: Colour, *, width: int = 2) -> None:
        """Through the points, one after the other."""
        for (x, y), (to_x, to_y) in pairwise(points):
            count = int(max(abs(to_x - x), abs(to_y - y))) + 2
            for place in range(width):
                across = np.rint(np.linspace(x, to_x, count)).astype(int) + place
                down = np.rint(np.linspace(y, to_y, count)).astype(int)
                for shift in range(width):
                    self._dots(across, down + shift, colour)

    def text(
        self,
        x: int,
        y: int,
        words: str,
        colour: Colour = BLACK,
        *,
        scale: int = 2,
        anchor: Anchor = "left",
    ) -> None:
        """Capitals, digits and a few marks, `y` at their top; another sign leaves a gap."""
        if anchor != "left":
            x -= measure(words, scale) // (2 if anchor == "middle" else 1)
        for place, sign in enumerate(words.upper()):
            for row, bits in enumerate(_FONT.get(sign, ())):
                for column in range(5):
                    if bits >> (4 - column) & 1:
                        left, top = x + (place * _ADVANCE + column) * scale, y + row * scale
                        self.box(left, top, left + scale, top + scale, colour)

    def image(self, left: int, top: int, pixels: NDArray[np.uint8]) -> None:
        """Lay [height, width, 3] over it; it has to fit."""
        height, width, _ = pixels.shape
        self._pixels[top : top + height, left : left + width] = pixels

    def png(self) -> bytes:
        """The file's content."""
        height, width, _ = self._pixels.shape
        # Before each row stands its filter: 0, none.
        rows = np.pad(self._pixels.reshape(height, -1), ((0, 0), (1, 0)))
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, no interlace
        parts = (
            _chunk(b"IHDR", head),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

    def save(self, path: Path) -> None:
        """As PNG."""
        path.write_bytes(self.png())

    def _dots(self, across: NDArray[np.int_], down: NDArray[np.int_], colour: Colour) -> None:
        height, width, _ = self._pixels.shape
        inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
        self._pixels[down[inside], across[inside]] = colour


def measure(words: str, scale: int = 2) -> int:
    """Pixels that words are wide."""
    return len(words) * _ADVANCE * scale


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
