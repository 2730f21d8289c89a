"""Web and e-mail addresses, domains, file names, mentions and hashtags. Rules of `normalize`. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from gateway import numerals_en as en
from gateway import numerals_zh as zh
from gateway.scene import Language, Reading, Scene, is_latin

_URL: Final = re.compile(
    r"(?:(?:https?|ftp|wss?)://(?:www\.)?|www\.)([A-Za-z0-9][!#-;=?-Z\\\]_a-z|~]{0,2047})", re.I
)
_EMAIL: Final = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,100}[A-Za-z0-9])?", re.A)
_TOP: Final = (
    "com|org|net|edu|gov|io|ai|cn|dev|app|co|uk|de|fr|jp|me|tv|info|xyz|us|eu|ru|in|tech|cloud|site|online"
)
_DOMAIN: Final = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9-]{{0,62}}(?:\.[A-Za-z0-9-]{{1,63}}){{0,4}}\.(?:{_TOP})(?::\d{{1,5}})?(?![A-Za-z0-9-])"
    r"(?!\.[A-Za-z0-9])(/[!#-;=?-Z_a-z~]{0,200})?"
)
_DOTTED: Final = re.compile(
    r"[A-Za-z_][A-Za-z0-9_-]{0,40}(?:\.[A-Za-z][A-Za-z0-9_-]{0,40}){1,6}(?![A-Za-z0-9])"
)
_MENTION: Final = re.compile(r"([@#])([A-Za-z][A-Za-z0-9_-]{0,63})")
_PATH: Final = re.compile(r"(?:~|\.{1,2})?(?:/[A-Za-z0-9._-]{1,64}){2,12}/?")
_CLOSING: Final = ".,!?;:'\")]|~"
_SAID: Final[dict[str, tuple[str, str]]] = {
    ".": ("dot", "点"), "/": ("slash", "斜杠"), "@": ("at", "艾特"), "-": ("dash", "杠"),
    "_": ("underscore", "下划线"), ":": ("colon", "冒号"), "?": ("question mark", "问号"),
    "=": ("equals", "等于"), "&": ("and", "和"), "#": ("hash", "井号"), "%": ("percent", "百分号"),
    "+": ("plus", "加"), "~": ("tilde", "波浪号"),
}  # fmt: skip
_LONGEST_READ: Final = 80
"""Characters of an address that are said; of a longer one its host is, and the rest counts as dropped."""
_PIECES: Final = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]")


def address(scene: Scene, at: int) -> Reading | None:
    """URL, e-mail address, or a domain by itself."""
    if at and (scene.at(at - 1).isascii() and (scene.at(at - 1).isalnum() or scene.at(at - 1) in "@.")):
        return None
    found = _URL.match(scene.chars, at)
    if found is not None:
        end = found.start(1) + len(_trimmed(found.group(1)))
        return spell(scene, at, end, scene.chars[found.start(1) : end].rstrip("/"))
    found = _EMAIL.match(scene.chars, at)
    if found is not None:
        return spell(scene, at, found.end(), found.group())
    found = _DOMAIN.match(scene.chars, at)
    if found is None:
        return None
    text = _trimmed(found.group())
    return spell(scene, at, at + len(text), text.rstrip("/"))


def _trimmed(text: str) -> str:
    """Without the punctuation that ends the sentence about it."""
    bare = text.rstrip(_CLOSING)
    if text[len(bare) :].startswith(")") and bare.count("(") > bare.count(")"):
        return bare + ")"
    return bare


def name(scene: Scene, at: int) -> Reading | None:
    """Node.js, config.json; no two sentences without a blank between them."""
    if at and (scene.at(at - 1).isalnum() and scene.at(at - 1).isascii()):
        return None
    found = _DOTTED.match(scene.chars, at)
    if found is None:
        return None
    parts = found.group().split(".")
    if any(len(part) == 1 for part in parts[:-1]) and all(len(part) <= 1 for part in parts):
        return None
    if any(left[1:].islower() and right[:1].isupper() for left, right in pairwise(parts)):
        return None
    return spell(scene, at, found.end(), found.group())


def path(scene: Scene, at: int) -> Reading | None:
    """/usr/local/bin."""
    if at and (scene.at(at - 1).isalnum()):
        return None
    found = _PATH.match(scene.chars, at)
    if found is None:
        return None
    text = found.group().rstrip(".,-")
    return spell(scene, at, at + len(text), text)


def mention(scene: Scene, at: int) -> Reading | None:
    """@user, #topic."""
    if at and scene.at(at - 1).isalnum() and scene.at(at - 1).isascii():
        return None
    found = _MENTION.match(scene.chars, at)
    if found is None:
        return None
    sign, text = found.groups()
    language = scene.language(at, found.end()) if scene.base == "en" else scene.base
    word: tuple[str, Language] = ("at", "en") if sign == "@" else ("hashtag", "en")
    if language == "zh":
        word = ("艾特" if sign == "@" else "话题", "zh")
    rest = spell(scene, at, found.end(), text)
    return Reading(found.end(), (word, *rest.parts), rest.said_to)


def spell(scene: Scene, at: int, end: int, text: str) -> Reading:
    """Words as they are, marks by their names, digits one by one; an address too long ends at its host."""
    said_to = None
    if len(text) > _LONGEST_READ:
        text = re.split(r"[/?#]", text, maxsplit=1)[0][:_LONGEST_READ]
        said_to = scene.chars.find(text, at) + len(text)
    zh_context = _context(scene, at, end) == "zh"
    parts: list[tuple[str, Language]] = []
    for piece in _PIECES.findall(text):
        if piece.isdigit():
            parts.append((zh.digits(piece), "zh") if zh_context else (_digits_en(piece), "en"))
        elif piece.isascii() and piece.isalpha():
            parts.append((piece, "en"))
        elif piece in _SAID:
            parts.append((_SAID[piece][zh_context], "zh" if zh_context else "en"))
    return Reading(end, tuple(parts), said_to)


def _digits_en(digits: str) -> str:
    return en.cardinal(digits) if len(digits) <= 2 and digits[0] != "0" else en.digits(digits)


def _context(scene: Scene, at: int, end: int) -> Language:
    """An address has letters of its own; what stands around it tells, as for a number."""
    left, right = scene.at(at - 1), scene.at(end)
    if (left and is_latin(left)) or (right and is_latin(right)):
        return scene.base
    return scene.language(at, end)
