"""Two numbers and a mark: fractions, scores, products, powers; and ordinals. Rules of `normalize`. Pure."""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.numbers import Number, number_at
from gateway.quantities import unit_at
from gateway.scene import Reading, Scene, is_latin, one
from gateway.units import UNITS

_FRACTION: Final = re.compile(r"(?:(\d{1,4}) )?(\d{1,4})/(\d{1,4})(?![\d/]|[.,]\d)")
_RATING: Final = re.compile(r"(\d{1,4}\.\d{1,4})/(\d{1,4})(?![\d/]|[.,]\d)")
_SCORE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)((?: ?: ?\d{1,9}(?:\.\d{1,9})?){1,3})(?![\d:])")
_ORDINAL: Final = re.compile(r"(\d{1,12}|\d{1,3}(?:,\d{3}){1,3})(?:st|nd|rd|th)(?![A-Za-z0-9])", re.I)
_ORDINAL_ZH: Final = re.compile(r"\d{1,16}")
_HEX: Final = re.compile(r"0[xX][0-9A-Fa-f]{1,16}(?![A-Za-z0-9])")
_EXPONENT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)[eE]([-+]?)(\d{1,3})(?![A-Za-z0-9.])")
_TIMES: Final = re.compile(r"( ?)[x×X*✕✖]( ?)(?=\d)")
_TIMES_ALONE: Final = re.compile(r"[x×X](?![A-Za-z0-9+*/=^)]| ?[-+=*] )")
_POWER: Final = re.compile(r"\^([-+]?)(\d{1,9})(?![.\d])|\^\(([-+]?)(\d{1,9})\)")
_SPECIAL: Final = {
    ("24", "7"): ("twenty four seven", "二十四小时"), ("9", "11"): ("nine eleven", "九一一"),
}  # fmt: skip
_LARGEST_PRODUCT: Final = 4
"""Factors read as one."""


def fraction(scene: Scene, at: int) -> Reading | None:
    """3/4 and 2 1/2."""
    rating = _RATING.match(scene.chars, at)
    if rating is not None:
        language = scene.language(at, rating.end())
        first, second = (Number("", *_halves(part), 0).say(language) for part in rating.groups())
        return one(rating.end(), first + ("比" if language == "zh" else " out of ") + second, language)
    found = _FRACTION.match(scene.chars, at)
    if found is None or scene.at(at - 1) == "/" or is_latin(scene.at(found.end()) or " "):
        return None
    whole, upper, lower = found.groups()
    if whole is not None and (int(upper) >= int(lower) or len(whole) > 3):
        return None
    language = scene.language(at, found.end())
    if whole is None and (upper, lower) in _SPECIAL:
        return one(found.end(), _SPECIAL[upper, lower][language == "zh"], language)
    if language == "zh":
        if not int(lower):
            return one(found.end(), f"{zh.cardinal(upper)}除以零", "zh")
        words = zh.fraction(upper, lower)
        return one(found.end(), f"{zh.cardinal(whole)}又{words}" if whole else words, "zh")
    rated = lower in ("10", "100") and upper != "1" and not whole
    if upper == lower or rated or (int(upper) > int(lower) and not whole):
        words = f"{en.cardinal(upper)} {'over' if int(upper) > int(lower) else 'out of'} {en.cardinal(lower)}"
        return one(found.end(), words, "en")
    words = en.fraction(upper, lower)
    if whole:
        half = "a half" if (upper, lower) == ("1", "2") else words
        words = f"{en.cardinal(whole)} and {half}"
    return one(found.end(), words, "en")


def score(scene: Scene, at: int) -> Reading | None:
    """3:2, 16:9, 1:1000, 1:2:3: what `dates.time` did not take."""
    found = _SCORE.match(scene.chars, at)
    if found is None:
        return None
    numbers = [part.strip() for part in found.group().split(":")]
    language = scene.language(at, found.end())
    said = [Number("", *_halves(part), 0).say(language) for part in numbers]
    return one(found.end(), ("比" if language == "zh" else " to ").join(said), language)


def _halves(number: str) -> tuple[str, str]:
    whole, _, fraction = number.partition(".")
    return whole, fraction


def ordinal(scene: Scene, at: int) -> Reading | None:
    """21st; 第2."""
    found = _ORDINAL.match(scene.chars, at)
    if found is not None:
        return one(found.end(), en.ordinal(found.group(1).replace(",", "")[:15]), "en")
    if scene.at(at - 1) != "第":
        return None
    plain = _ORDINAL_ZH.match(scene.chars, at)
    if plain is None or (
        scene.at(plain.end()) in (".", ",", "/", ":") and scene.at(plain.end() + 1).isdigit()
    ):
        return None
    if scene.at(plain.end()) in ("-", "~") and scene.at(plain.end() + 1).isdigit():
        last = _ORDINAL_ZH.match(scene.chars, plain.end() + 1)
        if last is not None:
            return one(last.end(), f"{zh.cardinal(plain.group())}到{zh.cardinal(last.group())}", "zh")
    return one(plain.end(), zh.cardinal(plain.group()), "zh")


def scientific(scene: Scene, at: int) -> Reading | None:
    """1.5e-3 and 0x1F."""
    code = _HEX.match(scene.chars, at)
    if code is not None:
        language = scene.language(at, code.end())
        spell = zh.digits if language == "zh" else en.digits
        said = [spell(char) if char.isdigit() else char for char in code.group()]
        return Reading(
            code.end(), tuple((part, language if part not in code.group() else "en") for part in said)
        )
    found = _EXPONENT.match(scene.chars, at)
    if found is None:
        return None
    language = scene.language(at, found.end())
    base = Number("", *_halves(found.group(1)), 0).say(language)
    power = found.group(3).lstrip("0") or "0"
    minus = found.group(2) == "-"
    if language == "zh":
        return one(found.end(), f"{base}乘十的{'负' if minus else ''}{zh.cardinal(power)}次方", "zh")
    words = f"{base} times ten to the power of {'minus ' if minus else ''}{en.cardinal(power)}"
    return one(found.end(), words, "en")


def product(scene: Scene, at: int) -> Reading | None:
    """1920x1080, 3 × 4, 3x faster."""
    first = number_at(scene, at)
    if first is None:
        return None
    numbers, end, spaced = [first], first.end, False
    while len(numbers) < _LARGEST_PRODUCT:
        mark = _TIMES.match(scene.chars, end)
        following = number_at(scene, mark.end()) if mark else None
        if mark is None or following is None:
            break
        spaced = spaced or mark.group().strip() != "x" or bool(mark.group(1))
        numbers.append(following)
        end = following.end
    if scene.at(end) == "^":  # 3.2×10^8: the power is of the last factor alone.
        end = numbers[-2].end if len(numbers) > 1 else end
        numbers = numbers[:-1]
        if len(numbers) < 2:
            return None
    language = scene.language(at, end)
    if len(numbers) > 1:
        joint = "乘" if language == "zh" else " times " if spaced else " by "
        sizes = language == "en" and not spaced and all(_is_size(number) for number in numbers)
        said = [en.pairs(number.whole) if sizes else number.say(language) for number in numbers]
        return one(end, joint.join(said), language)
    alone = _TIMES_ALONE.match(scene.chars, end)
    if alone is None or (scene.at(at - 1) and scene.at(at - 1) in "+-*/=^("):
        return None
    words = numbers[0].say(language, two="两")
    return one(alone.end(), words + ("倍" if language == "zh" else " times"), language)


def _is_size(number: Number) -> bool:
    return len(number.whole) == 4 and not number.fraction and not number.grouped


def power(scene: Scene, at: int) -> Reading | None:
    """^2 after a letter, a number or a bracket."""
    found = _POWER.match(scene.chars, at)
    if found is None or not at:
        return None
    sign, digits = (found.group(1) or found.group(3) or ""), found.group(2) or found.group(4)
    language = scene.language(at, found.end())
    left = scene.at(at - 1)
    if left.isdigit():
        language = scene.language(_number_start(scene, at), found.end())
    end = found.end()
    unit, unit_end = unit_at(scene, end) if left.isdigit() else ("", end)
    named = ""
    if unit in UNITS:
        end, named = unit_end, UNITS[unit].zh if language == "zh" else f" {UNITS[unit].many}"
    if language == "zh":
        words = {"2": "的平方", "3": "的立方"}.get(digits, f"的{zh.cardinal(digits)}次方")
        words = words if sign != "-" else f"的负{zh.cardinal(digits)}次方"
        return one(end, words + named, "zh")
    words = {"2": "squared", "3": "cubed"}.get(digits, f"to the power of {en.cardinal(digits)}")
    words = words if sign != "-" else f"to the power of minus {en.cardinal(digits)}"
    return one(end, words + named, "en")


def _number_start(scene: Scene, at: int) -> int:
    start = at
    while start and at - start < 20 and (scene.at(start - 1).isdigit() or scene.at(start - 1) in ".,"):
        start -= 1
    return start
