"""Compatibility forms to plain ones, each character with its place: the first step of `normalize`.

Full-width and styled letters and digits, ① ½ ㎏ ℃ № and superscripts become what a rule can read; control and
zero-width characters vanish. Pure; imports the standard library only.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_DIRECT: Final = {
    "\u2018": "'", "\u2019": "'", "\u201b": "'", "\u2032": "'", "\u02bc": "'", "\uff07": "'", "\uff40": "'",
    "\u201c": '"', "\u201d": '"', "\u2033": '"', "\uff02": '"',
    "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2212": "-", "\uff0d": "-", "\ufe63": "-", "\u207b": "-",
    "\u301c": "~", "\uff5e": "~", "\u223c": "~",
    "\u2103": "°C", "\u2109": "°F", "\u2116": "No.", "\u00b5": "\u03bc", "\u2126": "\u03a9",
    "\u212b": "\u00c5",
    "\uff61": "。", "\uff64": "、", "\u2025": "…", "\u22ef": "…", "\ufe0c": "，",
    "\u2044": "/", "\u2215": "/", "\u2236": ":", "\u22c5": "·", "\u30fb": "·", "\uff65": "·",
    "\u2264": "≤", "\u2265": "≥", "\u2266": "≤", "\u2267": "≥", "\u2a7d": "≤", "\u2a7e": "≥",
    "\u2122": "™", "\u2120": "℠",
}  # fmt: skip
_FOLDED_MARKS: Final = frozenset("＆＠＃％＊／＼＿＋＝＜＞｜＾～＄￥￡￠")
"""Full-width signs that are read as words; full-width punctuation keeps its form, that of Chinese."""
_SUPERSCRIPTS: Final = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
_LONGEST_FOLD: Final = 12
"""Characters that one may become; the few that would be longer are whole phrases in Arabic."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Plain text; character `i` of it stands for `[starts[i], ends[i])` of the original."""

    chars: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    lost: tuple[tuple[int, int], ...]
    """Places of what became nothing though it is no control: unassigned, private, lone surrogates."""


def fold(text: str) -> Folded:
    """A combining mark is composed with its letter or goes; what stands for several characters says so."""
    chars: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    lost: list[tuple[int, int]] = []
    raised = False
    """The character before was a superscript."""
    alone = False
    """The character before was a number of its own, ① or Ⅳ: what follows must not run into it."""
    at = 0
    while at < len(text):
        end = at + 1
        while end < len(text) and text[end] > "\u02ff" and unicodedata.category(text[end])[0] == "M":
            end += 1
        char = text[at]
        plain = _plain(char)
        if end > at + 1 and len(plain) == 1:
            plain = unicodedata.normalize("NFC", plain + text[at + 1 : at + 3])[0]
        before = chars[-1] if chars else ""
        if char in _SUPERSCRIPTS:
            plain = _SUPERSCRIPTS[char] if raised else "^" + _SUPERSCRIPTS[char]
        elif (_is_own_number(char) and _joins(before)) or (alone and plain and _joins(plain[0])):
            plain = " " + plain
        if (
            not plain
            and (category := unicodedata.category(char))[0] not in "ZM"
            and category not in ("Cc", "Cf")
        ):
            lost.append((at, end))
        raised, alone = char in _SUPERSCRIPTS, _is_own_number(char) and "/" not in plain
        chars += plain
        starts += [at] * len(plain)
        ends += [end] * len(plain)
        at = end
    _fold_between_digits(chars)
    return Folded("".join(chars), tuple(starts), tuple(ends), tuple(lost))


def _joins(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _fold_between_digits(chars: list[str]) -> None:
    """１４：３０ and ３．５: a full-width mark between digits belongs to the number."""
    for at in range(1, len(chars) - 1):
        if chars[at] in "：．" and chars[at - 1].isdigit() and chars[at + 1].isdigit():
            chars[at] = ":" if chars[at] == "：" else "."
        elif chars[at] == "．":
            chars[at] = "."


@lru_cache(maxsize=8192)
def _is_own_number(char: str) -> bool:
    """① ⑵ Ⅳ ½: a number in one character. 〇 is a Han digit, and superscripts are read as powers."""
    if char.isascii() or char == "〇" or char in _SUPERSCRIPTS:
        return False
    return unicodedata.category(char) in ("No", "Nl") and not 0x2080 <= ord(char) <= 0x2089


@lru_cache(maxsize=8192)
def _plain(char: str) -> str:
    if char.isspace():
        return " "
    if char in _DIRECT:
        return _DIRECT[char]
    if char.isascii():
        return "" if char < " " or char == "\x7f" else char
    category = unicodedata.category(char)
    if category[0] == "C" or category[0] == "M":
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if _is_own_number(char):
        return _own_number(char)
    if category[0] == "P" and char not in _FOLDED_MARKS:
        return char
    folded = unicodedata.normalize("NFKC", char).replace("\u2044", "/")
    if 0x3371 <= ord(char) <= 0x33DF and folded[-1:] in "23":
        folded = f"{folded[:-1]}^{folded[-1]}"  # ㎡
    return folded if len(folded) <= _LONGEST_FOLD and " " not in folded else ""


def _own_number(char: str) -> str:
    folded = unicodedata.normalize("NFKC", char).replace("\u2044", "/")
    if "/" in folded:
        return folded
    value = unicodedata.numeric(char, -1.0)
    return str(int(value)) if value >= 0 and value == int(value) else folded
