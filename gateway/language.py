"""Chinese and English: of which script a character is, and what can be said.

Sits under `sentences` and `markup`, which ask it about single characters; which words are in which language
is for `scene` to say. Pure: no clock, no I/O.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

NEWLINES: Final = frozenset("\n\r\v\f\x85\u2028\u2029")

_WIDE: Final = (
    (0x2E80, 0x303F),  # radicals, CJK symbols and punctuation
    (0x3040, 0x312F),  # kana, bopomofo
    (0x3190, 0x9FFF),  # kanbun, enclosed and squared forms, ideographs
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF01, 0xFF0F),  # full-width punctuation; full-width digits and Latin letters lie between
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF9F),
    (0x20000, 0x3FFFF),
)
_PICTURES: Final = ((0x2300, 0x23FF), (0x25A0, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF))
_SQUARED: Final = ((0x2100, 0x214F), (0x3200, 0x33FF))
"""Symbols that are read as words: letterlike (℃ №) and squared (㎏) ones."""


def _within(char: str, ranges: Iterable[tuple[int, int]]) -> bool:
    code = ord(char)
    return any(low <= code <= high for low, high in ranges)


@lru_cache(maxsize=8192)
def is_wide(char: str) -> bool:
    """Whether a character is of Chinese script: Han, kana, or punctuation of its own."""
    return char > "\u2e7f" and _within(char, _WIDE)


@lru_cache(maxsize=8192)
def is_combining(char: str) -> bool:
    """Whether a character belongs to the one before it, so that no text may be cut between the two."""
    return char > "\u02ff" and unicodedata.category(char)[0] == "M"


@lru_cache(maxsize=8192)
def spoken(char: str) -> str:
    """What stands for one character in the text to be spoken: itself, a blank, a newline or nothing.

    Pictures are blanks, since they stand between words. Zero-width, control, private and unassigned
    characters, lone surrogates and the variation and keycap signs of emoji are nothing.
    """
    if char in NEWLINES:
        return "\n"
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category[0] == "C" or category == "Me" or _within(char, ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))):
        return ""
    return " " if category[0] == "S" and _within(char, _PICTURES) else char


@lru_cache(maxsize=8192)
def _is_word(char: str) -> bool:
    return char.isalnum() or _within(char, _SQUARED)


def speakable(text: str) -> bool:
    """Whether there is anything to say: a letter, a digit, a Han character, or a sign read as a word."""
    return any(_is_word(char) for char in text)
