"""Dates, years, decades and times of day. Rules of `normalize`. Pure."""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.scene import Language, Reading, Scene, is_latin, one

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_SHORT_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sept", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = re.compile(rf"({'|'.join([*MONTHS, *_SHORT_MONTHS])})(\.?)(?![A-Za-z])")
_AFTER_MONTH: Final = re.compile(
    r" (?:(\d{1,2})(?:st|nd|rd|th)?(?:(?: ?[-–—] ?| to )(\d{1,2})(?:st|nd|rd|th)?)?"
    r"(?![\d:/%-]|[.,]\d)(?:(,?) (\d{4})(?!\d|[.,:/]\d))?|(\d{4})(?!\d|[.,:/]\d))"
)
_DAY_FIRST: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?(?: of)? (?=[A-Z])")
_YEAR_AFTER: Final = re.compile(r",? (\d{4})(?!\d|[.,:/]\d)")
_ISO: Final = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\d-])(?:T(?=\d{1,2}:))?")
_US: Final = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\d/]|[.-]\d)")
_YEAR_MONTH: Final = re.compile(r"(\d{4})[-/](0[1-9]|1[0-2])(?![\d/.-])")
_YEAR_ZH: Final = re.compile(r"(\d{2,4})(?:( ?[-–—~] ?)(\d{2,4}))?(?: ?年)")
_AFTER_YEAR: Final = re.compile(r"\d{1,2}月|代|级|春|夏|秋|冬|初|底|末|款|版|度")
_DECADE: Final = re.compile(r"'?(\d{2})?(\d)0'?s(?![A-Za-z])")
_DECADE_ZH: Final = re.compile(r"(\d{2})年代")
_TIME: Final = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])(?! ?=)")
_HALF: Final = re.compile(r" ?([aApP])(?:\.[mM]\.|[mM])(?![A-Za-z])")
_HOUR_HALF: Final = re.compile(r"(1[0-2]|0?[1-9])(?: ?[-–—] ?(1[0-2]|0?[1-9]))? ?([aApP])(?:\.[mM]\.|[mM]\b)")
_SCORE_BEFORE: Final = re.compile(
    r"(?:比分|大胜|战胜|击败|领先|落后|取胜|获胜|惜败|战平|won|lost|score|beat)[^,，。.]{0,6}$"
)


def month_day(scene: Scene, at: int) -> Reading | None:
    """Jan. 5, 2024; October 5th; Dec. 2024; a month's abbreviation alone only with its full stop."""
    found = _MONTH.match(scene.chars, at)
    if found is None or is_latin(scene.at(at - 1) or " "):
        return None
    name, end = _month_name(found.group(1)), found.end()
    after = _AFTER_MONTH.match(scene.chars, end)
    if after is None:
        whole = found.group(1) in MONTHS
        if whole or not found.group(2):
            return None
        return one(end - scene.at_end(end), name, "en")
    day, last, _, year, only_year = after.groups()
    if only_year:
        plausible = "1000" <= only_year <= "2999"
        return one(after.end(), f"{name} {en.year(only_year)}", "en") if plausible else None
    if not 1 <= int(day) <= 31:
        return None
    words = f"{name} {en.ordinal(day)}" + (f" to {en.ordinal(last)}" if last else "")
    if year:
        words += f", {en.year(year)}"
    return one(after.end(), words, "en")


def day_month(scene: Scene, at: int) -> Reading | None:
    """5 October 2024; the 5th of October."""
    day = _DAY_FIRST.match(scene.chars, at)
    if day is None or not 1 <= int(day.group(1)) <= 31:
        return None
    month = _MONTH.match(scene.chars, day.end())
    if month is None:
        return None
    article = "" if re.search(r"\bthe $", scene.before(at, 5), re.I) else "the "
    words = f"{article}{en.ordinal(day.group(1))} of {_month_name(month.group(1))}"
    end = month.end()
    year = _YEAR_AFTER.match(scene.chars, end)
    if year is not None:
        return one(year.end(), f"{words} {en.year(year.group(1))}", "en")
    return one(end - (bool(month.group(2)) and scene.at_end(end)), words, "en")


def _month_name(name: str) -> str:
    return next(full for full in MONTHS if full.startswith(name[:3]))


def numeric(scene: Scene, at: int) -> Reading | None:
    """2024-10-05, 10/05/2024 (the month first, where it can be), 2024/10."""
    iso = _ISO.match(scene.chars, at)
    if iso is not None:
        year, _, month, day = iso.groups()
        return _date(scene, at, iso.end(), (year, month, day))
    found = _US.match(scene.chars, at)
    if found is not None:
        month, mark, day, year = found.groups()
        if mark != "/" and len(year) != 4:
            return None
        if int(month) > 12 or mark == ".":  # 05.10.2024 is German, Russian, …
            month, day = day, month
        return _date(scene, at, found.end(), (year if len(year) == 4 else f"20{year}", month, day))
    found = _YEAR_MONTH.match(scene.chars, at)
    if found is None or not "1900" <= found.group(1) <= "2099":
        return None
    year, month = found.groups()
    language = scene.language(at, found.end())
    if language == "zh":
        return one(found.end(), f"{zh.digits(year)}年{zh.cardinal(month)}月", "zh")
    return one(found.end(), f"{MONTHS[int(month) - 1]} {en.year(year)}", "en")


def _date(scene: Scene, at: int, end: int, date: tuple[str, str, str]) -> Reading | None:
    year, month, day = date
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    if scene.language(at, end) == "zh":
        return one(end, f"{zh.digits(year)}年{zh.cardinal(month)}月{zh.cardinal(day)}日", "zh")
    return one(end, f"{MONTHS[int(month) - 1]} {en.ordinal(day)}, {en.year(year)}", "en")


def year_zh(scene: Scene, at: int) -> Reading | None:
    """2024年, 98年5月, 1990-2000年: digit by digit; 3年 and 5000年 are spans of time."""
    decade = _DECADE_ZH.match(scene.chars, at)
    if decade is not None:
        return one(decade.end(), zh.cardinal(decade.group(1)) + "年代", "zh")
    found = _YEAR_ZH.match(scene.chars, at)
    if found is None:
        return None
    year, dash, last = found.groups()
    named = len(year) == 4 and "1000" < year < "3000" and year != "2000"
    named = named or bool(_AFTER_YEAR.match(scene.chars, found.end())) or year == "2000"
    if len(year) == 2 and not dash:
        named = named or year >= "50"
    if not named or (last and len(last) not in (2, 4)):
        return None
    words = zh.digits(year) + (f"{'到' if dash else ''}{zh.digits(last)}" if last else "")
    return one(found.end(), words + "年", "zh")


def decade(scene: Scene, at: int) -> Reading | None:
    """1990s, '90s."""
    found = _DECADE.match(scene.chars, at)
    if found is None or (scene.at(at - 1) or " ").isalnum() or scene.at(at - 1) in "$.,":
        return None
    century, tens = found.groups()
    short = found.group().startswith("'")
    if century is None and (not short and tens < "2"):
        return None
    if century is None:
        return one(found.end(), en.plural(en.cardinal(f"{tens}0")), "en")
    if not "11" <= century <= "20":
        return None
    return one(found.end(), en.plural(en.year(f"{century}{tens}0")), "en")


def time(scene: Scene, at: int) -> Reading | None:
    """14:30, 3:30pm, 10:05:30."""
    found = _TIME.match(scene.chars, at)
    if found is None or scene.at(at - 1) == ":" or _SCORE_BEFORE.search(scene.before(at, 14)):
        return None
    hour, minute, second = found.groups()
    end = found.end()
    half = _HALF.match(scene.chars, end)
    if half is not None:
        end = _end_of_half(scene, half.end())
    which = half.group(1).lower() if half else ""
    language = scene.language(at, end)
    say = _time_zh if language == "zh" else _time_en
    return one(end, say(hour, minute, second, which), language)


def hour(scene: Scene, at: int) -> Reading | None:
    """5 p.m., 9-11am."""
    found = _HOUR_HALF.match(scene.chars, at)
    if found is None or is_latin(scene.at(found.end()) or " "):
        return None
    first, last, half = found.groups()
    end = _end_of_half(scene, found.end())
    language: Language = scene.language(at, end)
    if language == "zh":
        hours = zh.cardinal(first, two="两") + "点" + (f"到{zh.cardinal(last, two='两')}点" if last else "")
        return one(end, _half_zh(half.lower(), first) + hours, "zh")
    hours = en.cardinal(first) + (f" to {en.cardinal(last)}" if last else "")
    return one(end, f"{hours} {half.upper()}M", "en")


def _end_of_half(scene: Scene, end: int) -> int:
    """The full stop of `p.m.` is the sentence's, too, at its end."""
    return end - (scene.at(end - 1) == "." and scene.at_end(end))


def _time_en(hour: str, minute: str, second: str | None, half: str) -> str:
    words = en.cardinal(hour)
    if minute == "00" and second is None:
        if half:
            return f"{words} {half.upper()}M"
        return (
            "midnight"
            if int(hour) in (0, 24)
            else f"{words} o'clock"
            if int(hour) <= 12
            else f"{words} hundred"
        )
    words += f" oh {en.cardinal(minute)}" if minute < "10" else f" {en.cardinal(minute)}"
    if minute == "00":
        words = en.cardinal(hour) + " hours"
    if second is not None:
        words += f" and {en.cardinal(second)} second{'' if second == '01' else 's'}"
    return words + (f" {half.upper()}M" if half else "")


def _time_zh(hour: str, minute: str, second: str | None, half: str) -> str:
    words = _half_zh(half, hour) + zh.cardinal(hour, two="两") + "点"
    if minute == "00" and second is None:
        return words + ("" if half else "整")
    words += ("零" if "00" < minute < "10" else "") + zh.cardinal(minute) + "分"
    if second is not None:
        words += ("零" if "00" < second < "10" else "") + zh.cardinal(second) + "秒"
    return words


def _half_zh(half: str, hour: str) -> str:
    if not half:
        return ""
    at = int(hour) % 12
    if half == "a":
        return "凌晨" if at < 6 else "上午"
    return "晚上" if at >= 6 else "下午" if at else "中午"
