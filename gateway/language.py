"""Chinese and English: what can be said, and which run of a text is in which.

Sits under `sentences` and `markup`, which ask it about single characters; the utterance turns each segment
into the spans of the `Submit` that carries it. Pure: no clock, no I/O; of the engine only `engine.wire`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, Literal

from engine.wire import Span

NEWLINES: Final = frozenset("\n\r\v\f\x85\u2028\u2029")

_WIDE: Final = (
    (0x2E80, 0x303F),  # radicals, CJK symbols and punctuation
    (0x3040, 0x312F),  # kana, bopomofo
    (0x3190, 0x9FFF),  # kanbun, enclosed and squared forms, ideographs
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF01, 0xFF0F),  # full-width punctuation; full-width digits and Latin letters lie between
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF9F),
    (0x20000, 0x3FFFF),
)
_PICTURES: Final = ((0x2300, 0x23FF), (0x25A0, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF))
_SQUARED: Final = ((0x2100, 0x214F), (0x3200, 0x33FF))
"""Symbols that are read as words: letterlike (℃ №) and squared (㎏) ones."""


def _within(char: str, ranges: Iterable[tuple[int, int]]) -> bool:
    code = ord(char)
    return any(low <= code <= high for low, high in ranges)


@lru_cache(maxsize=8192)
def is_wide(char: str) -> bool:
    """Whether a character is of Chinese script: Han, kana, or punctuation of its own."""
    return char > "\u2e7f" and _within(char, _WIDE)


@lru_cache(maxsize=8192)
def is_combining(char: str) -> bool:
    """Whether a character belongs to the one before it, so that no text may be cut between the two."""
    return char > "\u02ff" and unicodedata.category(char)[0] == "M"


@lru_cache(maxsize=8192)
def spoken(char: str) -> str:
    """What stands for one character in the text to be spoken: itself, a blank, a newline or nothing.

    Pictures are blanks, since they stand between words. Zero-width, control, private and unassigned
    characters, lone surrogates and the variation and keycap signs of emoji are nothing.
    """
    if char in NEWLINES:
        return "\n"
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category[0] == "C" or category == "Me" or _within(char, ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))):
        return ""
    return " " if category[0] == "S" and _within(char, _PICTURES) else char


@lru_cache(maxsize=8192)
def _is_word(char: str) -> bool:
    return char.isalnum() or _within(char, _SQUARED)


def speakable(text: str) -> bool:
    """Whether there is anything to say: a letter, a digit, a Han character, or a sign read as a word."""
    return any(_is_word(char) for char in text)


# --- runs of one language -----------------------------------------------------------------------------------

Language = Literal["auto", "zh", "en"]

_NUMBER: Final = re.compile(r"[-+±~≈<>=($￥¥€£]*[0-9０-９][0-9０-９.,:/%-]*")
_UNITS: Final = frozenset(
    """mm cm dm m km mm² cm² m² km² mm³ cm³ m³ ml cl dl l µl μl mg g kg t µg μg lb oz ms s h min km/h m/s hz
    khz mhz ghz w kw mw kwh v mv kv ma mah b kb mb gb tb kbps mbps gbps db pa kpa hpa mpa °c °f px dpi rpm
    kcal kj nm µm μm""".split()  # noqa: SIM905, one a word
)
"""Units of measure, which are read in the language of their number."""


@lru_cache(maxsize=8192)
def _is_latin(char: str) -> bool:
    return char.isalpha() and "LATIN" in unicodedata.name(char, "")


def spans(text: str, start: int, end: int, language: Language, ends: Sequence[int] = ()) -> tuple[Span, ...]:
    """Cut a segment's text into runs of one language; `[start, end)` is its place in the client's own text.

    Han, kana and CJK punctuation are `zh`, words of Latin letters are `en`, whatever the hint. Numbers, with
    their signs, and other signs are in the language of what touches them, if that is Han, else in that of the
    run before them, or at the beginning of the one after them; a unit of measure after a number goes with it.
    A hint of one language claims the numbers that no Han touches, and decides where there is no letter at all
    (`auto` decides for `en`). A run that cannot be spoken joins its neighbour. The texts of the spans,
    joined, are `text`.

    Source spans follow each other and cover `[start, end)`. They are exact with `Segment.ends`; without it
    they divide the slice in proportion to the characters, which is exact where nothing was dropped.
    """
    runs: list[tuple[str, str]] = []
    for text_run, tag in _merged(_tagged(text, language)):
        if runs and not (speakable(text_run) and speakable(runs[-1][0])):
            # One of the two cannot be said: it goes along with the other.
            before, before_tag = runs.pop()
            runs.append((before + text_run, before_tag if speakable(before) else tag))
        else:
            runs.append((text_run, tag))
    merged = _merged(runs)
    result: list[Span] = []
    at, low, length = 0, start, max(len(text), 1)
    for index, (text_run, tag) in enumerate(merged, 1):
        at += len(text_run)
        high = ends[at - 1] if ends else start + at * (end - start) // length
        high = end if index == len(merged) else high
        result.append(Span(text=text_run, language=tag, start=low, end=high))
        low = high
    return tuple(result)


def _kind(char: str) -> str:
    return "blank" if char.isspace() else "wide" if is_wide(char) else "other"


def _tagged(text: str, language: Language) -> list[tuple[str, str]]:
    """Words and signs with their language; those at the beginning wait for the first that is known."""
    runs: list[tuple[str, str]] = []
    current: str | None = None
    waiting = ""
    at = 0
    numeric = False
    for kind, group in groupby(text, _kind):
        token = "".join(group)
        at += len(token)
        parts: list[tuple[str, str | None]] = [(token, "zh" if kind == "wide" else None)]
        if kind == "other":
            left, right = _is_han(text[at - len(token) - 1 : at - len(token)]), _is_han(text[at : at + 1])
            parts = _parts(token, left, right, language, measured=numeric)
        if kind != "blank":
            numeric = kind == "other" and any(map(str.isnumeric, token))
        for part, tag in parts:
            current = tag or current
            if current is None:
                waiting += part
            else:
                runs.append((waiting + part, current))
                waiting = ""
    if waiting:
        runs.append((waiting, "en" if language == "auto" else language))
    return runs


def _parts(
    token: str, left: bool, right: bool, language: Language, *, measured: bool
) -> list[tuple[str, str | None]]:
    """A token of other than Chinese script, with its language if that is its own.

    `left`, `right`: Han touches it there; `measured`: a number stands before it.
    """
    match = _NUMBER.match(token)
    number = match[0] if match else ""
    rest = token[len(number) :]
    is_unit = rest.rstrip(".,;:!?)\"'…”’").lower() in _UNITS and (measured or bool(number))
    if not is_unit and any(map(_is_latin, rest)):
        return [(number, "zh"), (rest, "en")] if number and left and rest.isalpha() else [(token, "en")]
    if left or right:
        return [(token, "zh")]
    claimed = language != "auto" and any(map(str.isnumeric, token))
    return [(token, language if claimed else None)]


def _is_han(char: str) -> bool:
    """Whether it is a wide letter; of no character, not."""
    return char.isalnum() and is_wide(char)


def _merged(runs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbours of one language made one."""
    return [
        ("".join(run for run, _ in group), tag) for tag, group in groupby(runs, key=lambda tagged: tagged[1])
    ]
