"""Numbers as they stand in text, and when four digits are a year. Under the rules of `normalize`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.scene import Language, Scene
from gateway.units import UNITS

_NUMBER: Final = re.compile(r"(?:(\d{1,3}(?:,\d{3})+)(?!\d)|(\d+))(?:\.(\d+))?|\.(\d+)")
_PER: Final = re.compile(r"/([A-Za-z]{1,12})(?![A-Za-z/])")
_PERIODS: Final = {"mo": "month", "yr": "year", "wk": "week", "d": "day", "y": "year", "w": "week"}
_PER_ZH: Final = re.compile(r"/(?=[天日月年周次人个件斤克米秒张份台支小分时])")
RANGE: Final = re.compile(r" ?(?:[–—~]{1,2}) ?|-|(?<=[%‰CFms]) - ")
_LONGEST_AS_NUMBER: Final = 8
"""Digits without commas: what is longer and not round is an identifier, read digit by digit."""


@dataclass(frozen=True, slots=True)
class Number:
    """`end` is the place after it."""

    sign: str
    whole: str
    fraction: str
    end: int
    grouped: bool = False

    @property
    def is_one(self) -> bool:
        """Takes the singular."""
        return self.whole.lstrip("0") == "1" and not self.fraction

    def say(self, language: Language, *, two: str = "二") -> str:
        """In words, with its sign."""
        coded = not self.grouped and self._is_code
        if language == "zh":
            words = zh.digits(self.whole) if coded else zh.number(self.whole, self.fraction, two=two)
            if coded and self.fraction:
                words += "点" + zh.digits(self.fraction)
            return {"-": "负", "+": "加", "±": "正负"}.get(self.sign, "") + words
        words = en.digits(self.whole) if coded else en.number(self.whole, self.fraction)
        if coded and self.fraction:
            words += " point " + en.digits(self.fraction)
        return {"-": "minus ", "+": "plus ", "±": "plus or minus "}.get(self.sign, "") + words

    @property
    def _is_code(self) -> bool:
        if self.whole[:1] == "0" and len(self.whole) > 1 and not self.fraction:
            return True  # 007
        return len(self.whole) > _LONGEST_AS_NUMBER and not self.whole.endswith("000")


def number_at(scene: Scene, at: int, sign: str = "") -> Number | None:
    """The number that starts there, without a sign of its own."""
    found = _NUMBER.match(scene.chars, at)
    if found is None:
        return None
    grouped, plain, fraction, bare = found.groups()
    if bare and scene.at(at - 1).isalnum():
        return None  # A.101
    if fraction and scene.at(found.end()) == "." and scene.at(found.end() + 1).isdigit():
        return None  # a version or an address: `codes`
    return Number(
        sign, (grouped or plain or "").replace(",", ""), fraction or bare or "", found.end(), bool(grouped)
    )


def with_per(scene: Scene, words: str, end: int, language: Language) -> tuple[str, int]:
    """$5/month, 20元/天, 3 GB/s."""
    if language == "zh":
        found = _PER_ZH.match(scene.chars, end)
        if found is not None:
            return words + "每", found.end()
    found = _PER.match(scene.chars, end)
    if found is None:
        return words, end
    sign = found.group(1)
    unit = UNITS.get(sign)
    if language == "zh":
        return (f"{words}每{unit.zh}", found.end()) if unit else (words, end)
    return f"{words} per {unit.one if unit else _PERIODS.get(sign, sign)}", found.end()


# --- years --------------------------------------------------------------------------------------------------

_AFTER_YEAR_ZH: Final = frozenset("奥世版款春秋夏冬财赛届—-– ，。、；：！？,.;:!?)）》”")
_COUNTED: Final = re.compile(r" ([a-z]+)")
_NOT_COUNTED: Final = frozenset(
    ("was", "is", "has", "this", "as", "always", "its", "plus", "versus", "us", "yes", "perhaps", "towards")
)
_BEFORE_COUNT: Final = re.compile(
    r"(?:about|around|over|nearly|almost|least|most|than|exactly|only|room|page|number|no\.|#) ?$", re.I
)


def is_year(number: Number) -> bool:
    """Whether four digits could be a year."""
    plain = len(number.whole) == 4 and not (number.fraction or number.sign or number.grouped)
    return plain and "1100" <= number.whole <= "2099"


def is_short_year(first: Number, second: Number) -> bool:
    """1990-95."""
    short = len(second.whole) == 2 and not (second.fraction or second.sign)
    return is_year(first) and short and second.whole > first.whole[2:]


def reads_as_year_zh(scene: Scene, number: Number, start: int, end: int) -> bool:
    """Whether they are one in Chinese without 年 after them."""
    if not is_year(number) or number.whole < "1900":
        return False
    return (not scene.at(end) or scene.at(end) in _AFTER_YEAR_ZH) and scene.at(start - 1) not in (
        "共",
        "约",
        "有",
    )


def reads_as_year_en(scene: Scene, number: Number, end: int) -> bool:
    """Four digits alone; not where things are counted: 1500 people, 2000 steps, about 1200."""
    if not is_year(number):
        return False
    start = end - 4
    if _BEFORE_COUNT.search(scene.before(start, 10)):
        return False
    counted = _COUNTED.match(scene.chars, end)
    if counted is None:
        return True
    word = counted.group(1)
    return not (word in ("people", "men", "women", "children") or word.endswith("s")) or word in _NOT_COUNTED
