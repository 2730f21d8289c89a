"""Amounts of money. Under `quantities`, one of the rules of `normalize`. Pure."""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway.numbers import RANGE, Number, number_at, with_per
from gateway.scene import Language, Reading, Scene, is_latin, one
from gateway.units import CURRENCIES, CURRENCY_NAMES_ZH, CURRENCY_SIGNS, Currency

_SCALES: Final = {
    "k": ("thousand", 3), "K": ("thousand", 3), "M": ("million", 6), "m": ("million", 6),
    "mn": ("million", 6),
    "B": ("billion", 9), "b": ("billion", 9), "bn": ("billion", 9), "T": ("trillion", 12),
    "thousand": ("thousand", 3), "million": ("million", 6), "billion": ("billion", 9),
    "trillion": ("trillion", 12),
}  # fmt: skip
_SCALE: Final = re.compile(r"( ?(?:thousand|million|billion|trillion)|bn|mn|[kKmMbBT])(?![A-Za-z0-9])")


def currency_at(scene: Scene, at: int) -> tuple[Currency | None, int]:
    """The currency whose sign stands there, and the place after it and a blank."""
    for sign in CURRENCY_SIGNS:
        if scene.has(sign, at) and not (sign[0].isalpha() and is_latin(scene.at(at - 1) or " ")):
            return CURRENCIES[sign], scene.skip_blank(at + len(sign))
    return None, at


def amount(scene: Scene, start: int, first: Number, currency: Currency) -> Reading:
    """A number after a currency's sign, or two; `start` is where all of it begins."""
    scale, end = _scale(scene, first.end)
    dash = RANGE.match(scene.chars, end)
    second = None
    if dash is not None:
        _, at = currency_at(scene, dash.end())
        second = number_at(scene, at)
        if second is not None:
            later, end = _scale(scene, second.end)
            scale = scale or later
    language = scene.language(start, end)
    numbers = [number for number in (first, second) if number is not None]
    if language == "zh":
        words = "到".join(
            scaled(number, scale, "zh") if scale else Number(
                number.sign, number.whole, number.fraction.rstrip("0"), 0, True
            ).say("zh", two="两")
            for number in numbers
        )  # fmt: skip
        return _money_zh(scene, words, end, currency)
    if scale or second is not None:
        said = [scaled(number, scale, "en") for number in numbers]
        words = f"{' to '.join(said)} {currency.many}"
    else:
        words = _amount_en(first, currency)
    words, end = with_per(scene, words, end, "en")
    return one(end, words, "en")


def _money_zh(scene: Scene, words: str, end: int, currency: Currency) -> Reading:
    """The currency's name after the amount, and after 万 or 亿, unless the text has it there itself."""
    while scene.at(end) in ("万", "亿", "千", "百") and scene.at(end):
        words += scene.at(end)
        end += 1
    if not scene.chars.startswith(CURRENCY_NAMES_ZH, scene.skip_blank(end)):
        words += currency.zh
    words, end = with_per(scene, words, end, "zh")
    return one(end, words, "zh")


def _amount_en(amount: Number, currency: Currency) -> str:
    sign = "minus " if amount.sign == "-" else "plus " if amount.sign == "+" else ""
    cents = amount.fraction
    if not currency.cent or len(cents) not in (0, 2):
        words = Number("", amount.whole, cents, 0, True).say("en")
        return f"{sign}{words} {currency.one if amount.is_one else currency.many}"
    parts: list[str] = []
    whole = amount.whole.lstrip("0")
    if whole or cents in ("", "00"):
        parts.append(f"{en.cardinal(whole)} {currency.one if whole == '1' else currency.many}")
    if cents not in ("", "00"):
        parts.append(f"{en.cardinal(cents)} {currency.cent if cents == '01' else currency.cents}")
    return sign + " and ".join(parts)


def _scale(scene: Scene, at: int) -> tuple[str, int]:
    found = _SCALE.match(scene.chars, at)
    return (found.group(1).strip(), found.end()) if found else ("", at)


def scaled(number: Number, scale: str, language: Language) -> str:
    """A number of thousands or more: five million, 五百万."""
    if not scale:
        return Number(number.sign, number.whole, number.fraction, 0, True).say(language)
    word, zeros = _SCALES[scale]
    if language == "en":
        return f"{Number(number.sign, number.whole, number.fraction, 0, True).say('en')} {word}"
    whole = number.whole + number.fraction[:zeros].ljust(zeros, "0")
    return Number(number.sign, whole, number.fraction[zeros:], 0, True).say("zh", two="两")
