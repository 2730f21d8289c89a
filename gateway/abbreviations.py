"""English abbreviations, titles, initials, and roman numerals where they are safe. Rules of `normalize`."""

from __future__ import annotations

import re
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.scene import Reading, Scene, is_han, is_latin, one

_TITLES: Final = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Ms", "Mx": "Mx", "Prof": "Professor", "Rev": "Reverend",
    "Gen": "General", "Col": "Colonel", "Maj": "Major", "Capt": "Captain", "Lt": "Lieutenant",
    "Sgt": "Sergeant", "Sen": "Senator", "Rep": "Representative", "Gov": "Governor", "Pres": "President",
    "Hon": "Honorable", "Fr": "Father", "Messrs": "Messieurs",
}  # fmt: skip
_ROADS: Final = {
    "St": "Street", "Dr": "Drive", "Rd": "Road", "Ave": "Avenue", "Blvd": "Boulevard", "Ln": "Lane",
    "Hwy": "Highway", "Sq": "Square", "Ct": "Court", "Pl": "Place", "Pkwy": "Parkway",
}  # fmt: skip
_WORDS: Final = {
    "jr": "junior", "sr": "senior", "inc": "incorporated", "ltd": "limited", "corp": "corporation",
    "bros": "brothers", "vs": "versus", "etc": "et cetera", "approx": "approximately", "dept": "department",
    "univ": "university", "assn": "association", "esp": "especially", "incl": "including",
    "govt": "government",
    "ca": "circa", "cf": "compare", "viz": "namely", "hrs": "hours", "hr": "hour", "mins": "minutes",
    "min": "minutes", "secs": "seconds", "tbsp": "tablespoons", "tsp": "teaspoons", "lbs": "pounds",
    "lb": "pounds", "oz": "ounces", "ft": "feet", "yrs": "years", "est": "established", "ext": "extension",
    "tel": "telephone", "mt": "Mount", "avg": "average", "max": "maximum",
    "temp": "temperature",
}  # fmt: skip
_DAYS: Final = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_BEFORE_NUMBER: Final = {
    "no": "number", "nos": "numbers", "fig": "figure", "figs": "figures", "vol": "volume", "vols": "volumes",
    "ch": "chapter", "sec": "section", "eq": "equation", "p": "page", "pp": "pages", "ver": "version",
    "art": "article", "pt": "part",
}  # fmt: skip
_DOTTED: Final = {
    "e.g": "for example", "i.e": "that is", "a.k.a": "also known as", "ph.d": "Ph D", "p.s": "P S",
    "a.m": "AM", "p.m": "PM", "et al": "et al",
}  # fmt: skip
_BARE: Final = {"w/o": "without", "w/": "with", "b/c": "because", "n/a": "not applicable", "and/or": "and or",
    "c++": "C plus plus", "c#": "C sharp", "f#": "F sharp", ".net": "dot net", "vs": "versus",
    "tcp/ip": "TCP IP", "i/o": "I O", "r&d": "R and D", "q&a": "Q and A", "at&t": "A T and T",
}  # fmt: skip
_BARE_AT: Final = re.compile("|".join(re.escape(word) for word in sorted(_BARE, key=len, reverse=True)), re.I)
_WORD: Final = re.compile(r"([A-Za-z]{1,8})\.")
_INITIALS: Final = re.compile(r"(?:[A-Za-z]\.){2,6}|[Pp]h\.[Dd]\.|[A-Z]\.(?= [A-Z])")
_STREET_BEFORE: Final = re.compile(r"(?:[A-Z][a-z]+|\d(?:st|nd|rd|th)) $")
_ROMAN: Final = re.compile(r"(?=[IVXLC])(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?![A-Za-z0-9])")
_BEFORE_ROMAN: Final = re.compile(
    r"\b(?:([Vv]ol\.|[Cc]h\.|Chapter|Part|Section|Volume|Vol\.|Act|Book|Phase|Type|War|Title|Article|Level|Appendix|Stage|Class|"
    r"Scene|Episode|Season|Fantasy|Rocky|Tier|Grade|Category)"
    r"|(Henry|Louis|Elizabeth|George|Edward|Charles|William|James|Richard|Philip|Napoleon|Leo|Pius|Benedict|"
    r"John|Paul|Nicholas|Alexander|Peter|Frederick|Ramesses|Gregory|Innocent|Mary|Catherine))(?: and)? $"
)
_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def bare(scene: Scene, at: int) -> Reading | None:
    """C++, w/o, Q&A: written with signs that mean something else elsewhere."""
    found = _BARE_AT.match(scene.chars, at)
    if found is None or (at and (is_latin(scene.at(at - 1)) or scene.at(at - 1).isdigit())):
        return None
    word, after = found.group().lower(), scene.at(found.end())
    if word[-1].isalpha() and after and is_latin(after):
        return None
    if word == "w/" and after not in (" ",) and not is_latin(after or " "):
        return None
    if word in ("c#", "f#") and after and after.isdigit():
        return None
    end = found.end() + (word == "vs" and after == "." and not scene.at_end(found.end() + 1))
    return one(end, _BARE[word], "en")


def initials(scene: Scene, at: int) -> Reading | None:
    """U.S., e.g., J. K. Rowling: the full stop at the end of a sentence stays."""
    if at and scene.at(at - 1).isascii() and (scene.at(at - 1).isalnum() or scene.at(at - 1) in ".'"):
        return None
    found = _INITIALS.match(scene.chars, at)
    if found is None or is_latin(scene.at(found.end()) or " "):
        return None
    text = found.group()
    end = found.end() - scene.at_end(found.end())
    known = _DOTTED.get(text[:-1].lower())
    if known is not None:
        return one(end, known, "en")
    letters = text.replace(".", " ").strip()
    if len(letters) == 1 and scene.at_end(found.end()):
        return None
    return one(end, letters.upper() if len(letters) > 1 else letters, "en")


def abbreviation(scene: Scene, at: int) -> Reading | None:
    """Words with a full stop that is not the sentence's, or not only."""
    if at and (is_latin(scene.at(at - 1)) or scene.at(at - 1).isdigit() or scene.at(at - 1) in "'-."):
        return None
    found = _WORD.match(scene.chars, at)
    if found is None:
        return None
    word, end = found.group(1), found.end()
    following = scene.chars[end : end + 3].lstrip()
    if is_latin(scene.at(end) or " "):
        return None
    spoken = _expand(scene, word, at, following)
    if spoken is None:
        return None
    return one(end - scene.at_end(end), spoken, "en")


def _expand(scene: Scene, word: str, at: int, following: str) -> str | None:
    capital = following[:1].isupper() or (bool(following[:1]) and is_han(following[0]))
    after_name = bool(_STREET_BEFORE.search(scene.before(at, 24)))
    if word in ("St", "Dr"):
        if after_name and not (word == "Dr" and capital and not scene.before(at, 24)[:1].isdigit()):
            return _ROADS[word]
        return "Saint" if word == "St" and capital else "Doctor" if word == "Dr" else "Street"
    if word in _TITLES and (capital or following[:1] in "'\"(" or not following):
        return _TITLES[word]
    if word in _ROADS and after_name:
        return _ROADS[word]
    if word in _DAYS and (following[:1] == "," or following[:1].isupper() or following[:1].isdigit()):
        return _DAYS[word]
    lower = word.lower()
    if lower in _BEFORE_NUMBER:
        numbered = "0123456789#" if lower in ("no", "nos") else "0123456789#IVX"
        return _BEFORE_NUMBER[lower] if following[:1] and following[0] in numbered else None
    if lower == "co" and (after_name or scene.at(at - 2) == "&"):
        return "company"
    if lower in ("mt",):
        return "Mount" if capital else None
    if lower in ("max", "temp", "min", "est", "ft", "tel", "ext", "ca", "cf", "sr", "jr") and not following:
        return _WORDS[lower] if lower in ("jr", "sr", "ft", "min") else None
    return _WORDS.get(lower)


def roman(scene: Scene, at: int) -> Reading | None:
    """Chapter IV, World War II, Henry VIII; 第IV章."""
    found = _ROMAN.match(scene.chars, at)
    if found is None or not found.group() or is_latin(scene.at(at - 1) or " "):
        return None
    value = _value(found.group())
    if scene.at(at - 1) == "第":
        return one(found.end(), zh.cardinal(value), "zh")
    before = _BEFORE_ROMAN.search(scene.before(at, 16))
    if before is None:
        return None
    if before.group(2):
        single_letter = len(found.group()) == 1
        if single_letter and found.group() not in ("V", "X"):
            return None  # "Charles I …" is more often a slip for "Charles, I"
        return one(found.end(), f"the {en.ordinal(value)}", "en")
    return one(found.end(), en.cardinal(value), "en")


def _value(numeral: str) -> str:
    values = [_VALUES[char] for char in numeral]
    total = sum(
        -value if any(later > value for later in values[at + 1 : at + 2]) else value
        for at, value in enumerate(values)
    )
    return str(total)
