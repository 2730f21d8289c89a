"""Numbers that name something: telephones, identifiers, versions, network addresses, models.

Rules of `normalize`, before `quantities`. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.scene import Language, Reading, Scene, is_han, is_latin, one

_MOBILE: Final = re.compile(r"(\+?86[ -]?)?(1[3-9]\d)([ -]?)(\d{4})\3(\d{4})(?!\d|[.,]\d)")
_LANDLINE: Final = re.compile(
    r"(?:\((0\d{2,3})\)|(0\d{2,3}|400|800))[- ]?(\d{3,4})[- ]?(\d{4})(?![\d-]|[.,]\d)"
)
_US_PHONE: Final = re.compile(
    r"(?:\+?(1)[-. ])?(?:\((\d{3})\) ?|(\d{3})([-. ]))(\d{3})[-. ](\d{4})(?!\d|[-.,]\d)"
)
_LOCAL_PHONE: Final = re.compile(r"(\d{3})-(\d{4})(?![\d-]|[.,]\d)")
_ABROAD: Final = re.compile(r"\+(\d{1,3})((?:[ -]?\(?\d{1,5}\)?){1,6})(?!\d|[.,:/%]\d|[A-Za-z%])")
_GROUPS: Final = re.compile(r"\d{1,20}(?:-\d{1,20}){2,8}(?![\d-])")
_RUN: Final = re.compile(r"\d+")
_CODE_ZH: Final = re.compile(
    r"(?:(电话|手机|热线|致电|拨打|拨|座机|联系方式|房间号|房号|门牌号|房间|报警|车次)"
    r"|(?:编号|单号|账号|密码|验证码|卡号|学号|工号|航班|邮编|尾号|代码|序列号|证号|号码|QQ|微信|QQ号|微信号))"
    r"(?:号码|号)?(?:是|为|：|:| |\(|（){0,3}[+0-9\- ]{0,3}$"
)
_CODE_EN: Final = re.compile(
    r"\b(?:code|pin|password|passcode|otp|ext\.?|extension|account|zip|id|serial|tracking|order|dial|call|"
    r"phone|tel\.?|number|invoice|ticket|confirmation)(?: number| code| no\.| id)?(?: is|:| #|#)? ?#?$",
    re.I,
)
_SHORT_CALL: Final = re.compile(r"\b(?:dial|call|phone|text)(?: number)? ?$", re.I)
_VERSION: Final = re.compile(
    r"[vV]\.? ?(\d{1,9}(?:\.\d{1,9}){0,5})(?![.\d])|(\d{1,9}(?:\.\d{1,9}){2,5})(?!\d)"
)
_IP: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?![.\d])")
_DECIMAL: Final = re.compile(r"(\d+)(?:\.(\d{1,9}))?(?!\.?\d)")
_FEET: Final = re.compile(r"(\d{1,2})'(?:(\d{1,2})(?:\"|''))?(?![A-Za-z0-9])")


def telephone(scene: Scene, at: int) -> Reading | None:
    """Numbers whose form says that they are dialled."""
    if scene.at(at - 1).isdigit() or is_latin(scene.at(at - 1) or " "):
        return None
    found = _MOBILE.match(scene.chars, at)
    if found is not None:
        country, *rest = found.group(1), found.group(2), found.group(4), found.group(5)
        return _dialled(
            scene, at, found.end(), [part for part in (country, *rest) if part], plus="+" in (country or "")
        )
    found = _LANDLINE.match(scene.chars, at)
    if found is not None and ("-" in found.group() or scene.at(at) in "(0"):
        return _dialled(scene, at, found.end(), [part for part in found.groups() if part])
    found = _US_PHONE.match(scene.chars, at)
    if found is not None:
        country, first, second, _, third, last = found.groups()
        parts = [part for part in (country, first or second, third, last) if part]
        return _dialled(scene, at, found.end(), parts, plus=scene.at(at) == "+")
    found = _LOCAL_PHONE.match(scene.chars, at)
    if found is not None and scene.language(at, found.end()) == "en":
        return _dialled(scene, at, found.end(), list(found.groups()))
    found = _ABROAD.match(scene.chars, at)
    if found is not None and sum(map(str.isdigit, found.group())) >= 7:
        return _dialled(scene, at, found.end(), re.findall(r"\d+", found.group()), plus=True)
    return None


def _dialled(scene: Scene, at: int, end: int, parts: list[str], *, plus: bool = False) -> Reading:
    language = scene.language(at, end)
    if language == "zh":
        return one(end, ("加" if plus else "") + "".join(zh.digits(part, one="幺") for part in parts), "zh")
    return one(end, ("plus " if plus else "") + ", ".join(en.digits(part) for part in parts), "en")


def identifier(scene: Scene, at: int) -> Reading | None:
    """Digit by digit: after words that announce a code, and groups joined by hyphens (ISBN, serials)."""
    groups = _GROUPS.match(scene.chars, at)
    if groups is not None and not is_latin(scene.at(at - 1) or " "):
        language = scene.language(at, groups.end())
        parts = groups.group().split("-")
        if language == "zh":
            return one(groups.end(), "，".join(zh.digits(part) for part in parts), "zh")
        return one(groups.end(), ", ".join(en.digits(part) for part in parts), "en")
    run = _RUN.match(scene.chars, at)
    if run is None or len(run.group()) < 3 or _goes_on(scene, run.end()):
        return None
    announced = _CODE_ZH.search(scene.before(at, 16))
    if announced is not None and not _is_counted(scene, run.end()):
        one_word = "幺" if announced.group(1) else "一"
        return one(run.end(), zh.digits(run.group(), one=one_word), "zh")
    before = scene.before(at, 32)
    short = (
        _SHORT_CALL.search(before)
        and len(run.group()) == 3
        and not scene.chars[run.end() : run.end() + 2].strip().isalpha()
    )
    if scene.language(at, run.end()) == "en" and (
        short or (len(run.group()) >= 4 and _CODE_EN.search(before))
    ):
        return one(run.end(), en.digits(run.group()), "en")
    return None


def _goes_on(scene: Scene, end: int) -> bool:
    after = scene.at(end)
    return bool(after) and after in ".,/:%-" and scene.at(end + 1).isdigit()


def _is_counted(scene: Scene, end: int) -> bool:
    return scene.at(end) in ("元", "个", "块", "次", "条", "人", "%", "万", "亿", "年") and bool(
        scene.at(end)
    )


def version(scene: Scene, at: int) -> Reading | None:
    """v2.0.1, 2.0.1, 192.168.1.1."""
    if is_latin(scene.at(at - 1) or " ") and scene.at(at) in "vV":
        return None
    address = _IP.match(scene.chars, at)
    found = address or _VERSION.match(scene.chars, at)
    if found is None:
        return None
    named = scene.at(at) in "vV"
    parts = re.findall(r"\d+", found.group())
    if named and len(parts) == 1 and scene.chars[at + 1 : at + 2] == " ":
        return None  # Henry V 2
    if named and (
        is_latin(scene.at(found.end()) or " ") or (scene.at(at + 1) == "." and scene.at(at + 2) == " ")
    ):
        return None
    language = scene.language(at, found.end())
    if not named and not address and is_latin(scene.at(at - 1) or " "):
        language = scene.hint or "en"
    if language == "zh":
        read = zh.digits if address else zh.cardinal
        return one(found.end(), ("版本" if named else "") + "点".join(read(part) for part in parts), "zh")
    joint = " dot " if address else " point "
    words = joint.join(en.digits(part) if address else _part_en(part) for part in parts)
    return one(found.end(), ("version " if named else "") + words, "en")


def _part_en(part: str) -> str:
    return en.digits(part) if len(part) > 1 and part[0] == "0" else en.cardinal(part)


def glued(scene: Scene, at: int) -> Reading | None:
    """Digits right after a letter: A101, MP3, RTX4090, GPT-4, Qwen2.5; and before one: 3D, 5G."""
    start = at - (scene.at(at - 1) in ("-", "."))
    if not (is_latin(scene.at(start - 1) or " ") and start):
        return None
    found = _DECIMAL.match(scene.chars, at)
    if found is None:
        return None
    whole, fraction = found.groups()
    after = scene.at(found.end())
    language: Language = scene.language(at, found.end())
    if after and is_han(after) and start != at:
        language = "zh"
    if language == "zh":
        words = zh.digits(whole, one="幺") if len(whole) > 2 else zh.cardinal(whole)
        return one(found.end(), words + ("点" + zh.digits(fraction) if fraction else ""), "zh")
    words = _model_en(whole)
    return one(found.end(), words + (f" point {en.digits(fraction)}" if fraction else ""), "en")


def _model_en(digits: str) -> str:
    if digits[0] == "0" and len(digits) > 1:
        return en.digits(digits)
    if len(digits) == 3 and not digits.endswith("00"):
        low = int(digits[1:])
        return f"{en.digits(digits[0])} {'oh ' if low < 10 else ''}{en.cardinal(digits[1:])}"
    if len(digits) == 4 and not digits.endswith("000"):
        return en.pairs(digits)
    return en.cardinal(digits) if len(digits) <= 3 or digits.endswith("000") else en.digits(digits)


def feet(scene: Scene, at: int) -> Reading | None:
    """6'2\" and 6'."""
    found = _FEET.match(scene.chars, at)
    if found is None or scene.base == "zh":
        return None
    foot, inch = found.groups()
    if inch is None:
        return None
    words = f"{en.cardinal(foot)} {'foot' if foot == '1' else 'feet'} {en.cardinal(inch)}"
    return one(found.end(), words, "en")
