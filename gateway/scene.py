"""A segment's plain text as the rules of `normalize` see it: what stands around a place, in which language.

Pure; of the gateway it imports `fold` and `units` only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from gateway.fold import Folded
from gateway.units import UNITS

Language = Literal["zh", "en"]

_HAN_PER_WORD: Final = 1.5
_LATIN_WORD: Final = re.compile(r"(?<![0-9°μA-Za-z])[A-Za-z\u00c0-\u024f]+(?!:)")
_MARKS_ZH: Final = frozenset("，。！？；：、《》（）")
_FARTHEST_BLANKS: Final = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """How the text up to `end` is said: parts of one language each."""

    end: int
    parts: tuple[tuple[str, Language], ...]
    said_to: int | None = None
    """Where what is said ends; from there to `end` it cannot be."""


Rule = Callable[["Scene", int], Reading | None]
"""Reads what starts at a place, or leaves it to the next rule."""


@lru_cache(maxsize=8192)
def is_han(char: str) -> bool:
    """Whether a character is one that Chinese is written with, without its punctuation."""
    return char >= "\u3007" and (
        "\u4e00" <= char <= "\u9fff"
        or char in "〇々"
        or "\u3400" <= char <= "\u4dbf"
        or "\uf900" <= char <= "\ufaff"
        or "\U00020000" <= char <= "\U0003ffff"
    )


@lru_cache(maxsize=8192)
def is_latin(char: str) -> bool:
    """Whether a character is a Latin letter, with or without marks."""
    if char.isascii():
        return char.isalpha()
    return char.isalpha() and "LATIN" in unicodedata.name(char, "")


def one(end: int, spoken: str, language: Language) -> Reading:
    """A reading in one language."""
    return Reading(end, ((spoken, language),))


class Scene:
    """Plain text with a language for each place in it."""

    def __init__(self, folded: Folded, hint: Literal["auto", "zh", "en"], default: Language) -> None:
        self.chars = folded.chars
        self.hint: Language | None = None if hint == "auto" else hint
        self.base: Language = self.hint or self._most(default)
        """The language of the whole: the hint, else that of the greater part, else `default`."""

    def _most(self, default: Language) -> Language:
        han = sum(map(is_han, self.chars))
        words = sum(self._is_word(found) for found in _LATIN_WORD.finditer(self.chars))
        if not han and not words:
            return "zh" if any(char in _MARKS_ZH for char in self.chars) else default
        return "zh" if han / _HAN_PER_WORD >= words else "en"

    def _is_word(self, found: re.Match[str]) -> bool:
        """Whether letters are a word of English, and not a unit, which is written alike in both languages."""
        return found.group() not in UNITS or not self.chars[: found.start()].rstrip(" ")[-1:].isdigit()

    def at(self, index: int) -> str:
        """The character there; "" outside the text."""
        return self.chars[index] if 0 <= index < len(self.chars) else ""

    def has(self, text: str, at: int) -> bool:
        """Whether `text` stands there."""
        return self.chars.startswith(text, at)

    def before(self, at: int, count: int) -> str:
        """Up to `count` characters before a place."""
        return self.chars[max(at - count, 0) : at]

    def skip_blank(self, at: int) -> int:
        """The place after one blank, if there is one."""
        return at + (self.at(at) == " ")

    def at_end(self, at: int) -> bool:
        """Whether nothing but closing marks and blanks follows."""
        return not self.chars[at : at + 8].strip(" \"'”’)]}）】」』》")

    def language(self, start: int, end: int) -> Language:
        """The language in which to read `[start, end)`, which has no letters that tell.

        What touches a Han character is Chinese: 3个apple. Between two words of one language, with blanks
        only, it is that one: iPhone 15 Pro. Else the whole decides: iPhone 15 很贵, MP3.
        """
        left, right = self.at(start - 1), self.at(end)
        if (left and is_han(left)) or (right and is_han(right)):
            return self.base if (left and is_latin(left)) or (right and is_latin(right)) else "zh"
        joined = start - 1 if left in ("-", "_", ".") and left else start
        before, after = self._neighbour(joined - 1, -1), self._neighbour(end, 1)
        return before if before and before == after else self.base

    def _neighbour(self, at: int, step: int) -> Language | None:
        for index in range(at, at + step * _FARTHEST_BLANKS, step):
            char = self.at(index)
            if char != " ":
                return ("zh" if is_han(char) else "en" if is_latin(char) else None) if char else None
        return None
