"""English number words, without hyphens. Under the rules of `normalize`. Pure; standard library only."""

from __future__ import annotations

from typing import Final

_SMALL: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GROUPS: Final = ("", " thousand", " million", " billion", " trillion")
_ORDINALS: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
LONGEST: Final = 15
"""Digits that have a reading as one number."""


def digits(text: str, *, zero: str = "zero") -> str:
    """Each digit by itself."""
    return " ".join(zero if char == "0" else _SMALL[int(char)] for char in text if char.isdigit())


def cardinal(text: str) -> str:
    """An integer of ASCII digits; longer than `LONGEST`: digit by digit."""
    text = text.lstrip("0")
    if not text:
        return "zero"
    if len(text) > LONGEST:
        return digits(text)
    parts: list[str] = []
    for group in range((len(text) + 2) // 3 - 1, -1, -1):
        chunk = int(text[max(len(text) - 3 * (group + 1), 0) : len(text) - 3 * group])
        if chunk:
            parts.append(_below_thousand(chunk) + _GROUPS[group])
    return " ".join(parts)


def _below_thousand(value: int) -> str:
    words = [f"{_SMALL[value // 100]} hundred"] if value >= 100 else []
    rest = value % 100
    if rest:
        words.append(_below_hundred(rest))
    return " ".join(words)


def _below_hundred(value: int) -> str:
    if value < 20:
        return _SMALL[value]
    return _TENS[value // 10] + (f" {_SMALL[value % 10]}" if value % 10 else "")


def number(whole: str, fraction: str = "") -> str:
    """A decimal number; the digits after the point one by one."""
    if not fraction:
        return cardinal(whole)
    return f"{cardinal(whole)} point {digits(fraction)}" if whole else f"point {digits(fraction)}"


def ordinal(text: str) -> str:
    """Twenty first."""
    head, _, last = cardinal(text).rpartition(" ")
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return f"{head} {_ORDINALS.get(last, regular)}".strip()


def plural(words: str) -> str:
    """Of a number word: twenties, hundreds, sixths."""
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def pairs(text: str) -> str:
    """Four digits as years and model numbers are read: nineteen eighty, twenty oh five, forty ninety."""
    high, low = int(text[:-2]), int(text[-2:])
    if high % 10 == 0 and low < 10 and high:
        return cardinal(text)  # two thousand five
    head = _below_hundred(high)
    if low == 0:
        return f"{head} hundred"
    return f"{head} oh {_SMALL[low]}" if low < 10 else f"{head} {_below_hundred(low)}"


def year(text: str) -> str:
    """1905 nineteen oh five, 2005 two thousand five, 2024 twenty twenty four."""
    return pairs(text) if len(text) == 4 else cardinal(text)


def fraction(numerator: str, denominator: str) -> str:
    """Three quarters; one half; five twenty thirds."""
    one = numerator.lstrip("0") == "1"
    below = denominator.lstrip("0")
    if below in ("", "1"):
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    if below == "2":
        name = "half" if one else "halves"
    elif below == "4":
        name = "quarter" if one else "quarters"
    else:
        name = ordinal(below) if one else plural(ordinal(below))
    return f"{cardinal(numerator)} {name}"
