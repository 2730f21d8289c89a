"""Chinese number words. Under the rules of `normalize`. Pure; imports the standard library only."""

from __future__ import annotations

from typing import Final

DIGITS: Final = "零一二三四五六七八九"
_PLACES: Final = ("", "十", "百", "千")
_GROUPS: Final = ("", "万", "亿", "万亿")
LONGEST: Final = 16
"""Digits that have a reading as one number."""


def digits(text: str, *, one: str = "一") -> str:
    """Each digit by itself; `one` may be 幺, as in telephone numbers."""
    return "".join(one if char == "1" else DIGITS[int(char)] for char in text if char.isdigit())


def cardinal(text: str, *, two: str = "二") -> str:
    """An integer of ASCII digits. `two` is how a leading 2 is read: 两 where things are counted.

    A 2 that is followed by 十 is always 二. Longer than `LONGEST`: digit by digit.
    """
    text = text.lstrip("0")
    if not text:
        return "零"
    if len(text) > LONGEST:
        return digits(text)
    if text == "2":
        return two
    parts: list[str] = []
    gap = False
    """Zeros were passed over that the next digit must be told of."""
    groups = (len(text) + 3) // 4
    for group in range(groups - 1, -1, -1):
        chunk = text[max(len(text) - 4 * (group + 1), 0) : len(text) - 4 * group]
        said = ""
        for at, char in enumerate(chunk):
            place = len(chunk) - at - 1
            if char == "0":
                gap = gap or bool(parts or said)
                continue
            if gap:
                said += "零"
                gap = False
            said += DIGITS[int(char)] + _PLACES[place]
        if said:
            parts.append(said + _GROUPS[group])
            gap = False
    result = "".join(parts)
    if result.startswith("一十"):
        return result[1:]
    if result.startswith("二") and result[1:2] in ("百", "千", "万", "亿"):
        return two + result[1:]
    return result


def number(whole: str, fraction: str = "", *, two: str = "二") -> str:
    """A decimal number; the digits after the point one by one."""
    return cardinal(whole, two="二" if fraction else two) + ("点" + digits(fraction) if fraction else "")


def fraction(numerator: str, denominator: str) -> str:
    """四分之三."""
    return f"{cardinal(denominator)}分之{cardinal(numerator)}"
