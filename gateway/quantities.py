"""Numbers that say how much: money, percent, degrees, units, ranges, products, and plain numbers.

Rules of `normalize`, after `dates` and `codes` had their say. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.money import amount, currency_at, scaled
from gateway.numbers import (
    RANGE,
    Number,
    is_short_year,
    is_year,
    number_at,
    reads_as_year_en,
    reads_as_year_zh,
    with_per,
)
from gateway.scene import Language, Reading, Scene, is_latin, one
from gateway.units import DEGREES, GLUED, LONGEST_UNIT, MEASURES_AFTER_TWO, NOT_TWO, UNITS

_EQUATION: Final = re.compile(r" ?=")
_THOUSANDS: Final = re.compile(r"[KkM](?=\+? [a-z]{3})")


def quantity(scene: Scene, at: int) -> Reading | None:
    """The rule."""
    start = at
    sign = _sign(scene, at)
    at += len(sign)
    currency, at = currency_at(scene, at)
    if currency and not sign and scene.at(at) in ("-", "+"):
        sign, at = scene.at(at), at + 1
    first = number_at(scene, at, sign)
    if first is None:
        return None
    if currency is not None:
        return amount(scene, start, first, currency)
    unit, end = unit_at(scene, first.end)
    second = _range_end(scene, end)
    if second is not None:
        later, later_end = unit_at(scene, second.end)
        if unit in ("", later) or not later:
            unit, end = later or unit, later_end if later else second.end
        else:
            second = None
    scale, end = ("", end) if unit else _bare_scale(scene, end)
    language = scene.language(start, end)
    words = _say(scene, (first, second), unit, end, language, prefix=start)
    if scale:
        words = scaled(first, scale, language)
    if unit:
        words, end = with_per(scene, words, end, language)
    return one(end, words, language)


def _sign(scene: Scene, at: int) -> str:
    """A sign that belongs to the number: nothing that it could be an operation on stands before it."""
    char, before = scene.at(at), scene.at(at - 1)
    if (
        char not in "-+±"
        or not char
        or (before and (before.isdigit() or is_latin(before) or before in ")%]-+"))
    ):
        return ""
    follows = scene.chars[at + 1 : at + 3].lstrip(".$€£¥")
    if char == "+" and before == " " and scene.chars[max(at - 2, 0) : at - 1].isalnum():
        return ""
    return char if follows[:1].isdigit() else ""


def _range_end(scene: Scene, at: int) -> Number | None:
    """The number after `-` or `~`, if the two are a range and no part of something longer."""
    dash = RANGE.match(scene.chars, at)
    if dash is None:
        return None
    at = dash.end()
    sign = scene.at(at) if scene.at(at) in ("-", "+") else ""
    second = number_at(scene, at + len(sign), sign)
    if second is None or (scene.at(second.end) == "-" and scene.at(second.end + 1).isdigit()):
        return None
    return second


def unit_at(scene: Scene, at: int) -> tuple[str, int]:
    """The sign of a unit, and the place after it."""
    if scene.at(at) in ("%", "‰"):
        return scene.at(at), at + 1
    blank = scene.at(at) == " "
    start = at + blank
    if scene.at(start) in ("%", "‰"):
        return scene.at(start), start + 1
    for length in range(LONGEST_UNIT, 0, -1):
        sign = scene.chars[start : start + length]
        if sign not in UNITS or (blank and sign in GLUED):
            continue
        end = start + len(sign)
        after = scene.at(end)
        if (after and (is_latin(after) or after.isdigit())) or (after in ("'", "^") and after):
            continue
        dotted = sign in ("ft", "lb", "lbs", "oz", "hr", "hrs", "min", "sec", "yd", "mi") and after == "."
        if dotted and not scene.at_end(end + 1) and not scene.chars[end + 1 : end + 3].strip()[:1].isupper():
            end += 1
        return sign, end
    return "", at


def _say(
    scene: Scene, numbers: tuple[Number, Number | None], unit: str, end: int, language: Language, prefix: int
) -> str:
    """One number or two, with their unit."""
    first, second = numbers
    if language == "en":
        return _say_en(scene, first, second, unit, end)
    two = _two(scene, unit, prefix, end)
    if unit in ("%", "‰"):
        parts = [_percent_zh(number, unit) for number in (first, second) if number is not None]
        return "到".join(parts)
    year = not unit and second is not None and is_year(first)
    year = year and second is not None and (is_year(second) or is_short_year(first, second))
    if unit in DEGREES and first.sign == "-":
        # 零下三摄氏度; what follows in a range says its own sign.
        words = (
            ("华氏" if unit == "°F" else "") + "零下" + Number("", first.whole, first.fraction, 0).say("zh")
        )
        unit_name = "度" if unit == "°F" else UNITS[unit].zh
    else:
        words = zh.digits(first.whole) if year else first.say("zh", two=two)
        if not unit and second is None and reads_as_year_zh(scene, first, prefix, end):
            words = zh.digits(first.whole)
        unit_name = UNITS[unit].zh if unit else ""
    if second is not None:
        ends_year = second.whole if year else ""
        joint = "到" if year or _rises(first, second) else "比"
        if _EQUATION.match(scene.chars, end):
            joint = "减"
        said = zh.digits(ends_year) if ends_year else second.say("zh", two=two if not second.sign else "二")
        words += joint + (said.replace("负", "零下") if unit in DEGREES else said)
    return words + unit_name


def _percent_zh(number: Number, unit: str) -> str:
    sign = {"-": "负", "+": "加", "±": "正负"}.get(number.sign, "")
    words = zh.number(number.whole, number.fraction)
    if unit == "%" and number.whole == "100" and not number.fraction:
        words = "百"
    return f"{sign}{'百' if unit == '%' else '千'}分之{words}"


def _say_en(scene: Scene, first: Number, second: Number | None, unit: str, end: int) -> str:
    years = not unit and second is not None and is_year(first) and is_year(second)
    if years and second is not None:
        return f"{en.year(first.whole)} to {en.year(second.whole)}"
    if second is not None and not unit and is_short_year(first, second):
        return f"{en.year(first.whole)} to {en.cardinal(second.whole)}"
    if second is None and not unit and reads_as_year_en(scene, first, end):
        return en.year(first.whole)
    words = first.say("en")
    if second is not None:
        words += (" minus " if _EQUATION.match(scene.chars, end) else " to ") + second.say("en")
    if unit in ("%", "‰"):
        return words + (" percent" if unit == "%" else " per mille")
    if not unit:
        return words
    return f"{words} {UNITS[unit].one if first.is_one and second is None else UNITS[unit].many}"


def _rises(first: Number, second: Number) -> bool:
    def value(number: Number) -> float:
        return float(
            f"{number.sign.replace('±', '')}{number.whole[:18] or '0'}.{number.fraction[:18] or '0'}"
        )

    return value(first) <= value(second)


def _two(scene: Scene, unit: str, start: int, end: int) -> str:
    """两 where things are counted, 二 in names of places and times."""
    if scene.at(start - 1) in ("第", "周", "期", "级", "楼") and start:
        return "二"
    if unit and unit not in ("%", "‰"):
        return "两"
    after = scene.chars[scene.skip_blank(end) : end + 4]
    if after.startswith(NOT_TWO):
        return "二"
    return "两" if after.startswith(MEASURES_AFTER_TWO) else "二"


def per_unit(scene: Scene, at: int) -> Reading | None:
    """元/㎡: the unit after a slash, where the amount before it is in Han characters."""
    if scene.at(at) != "/" or scene.at(at - 1) not in tuple("元块角分万亿个"):
        return None
    unit, end = unit_at(scene, at + 1)
    return one(end, f"每{UNITS[unit].zh}", "zh") if unit in UNITS and scene.at(at + 1) != " " else None


def _bare_scale(scene: Scene, at: int) -> tuple[str, int]:
    """Without a currency only `10K users` and `5M downloads`: glued, and before an English word."""
    found = _THOUSANDS.match(scene.chars, at)
    return (found.group(), found.end()) if found else ("", at)
