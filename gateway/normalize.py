"""Normalisation: a segment's text in words that an engine can say, each with its place in the text.

Place in the flow: between `sentences`, which cuts the client's text into segments, and the `Submit` that
takes one to the engine. `fold` makes the text plain; then one pass reads it from left to right. What needs a
reading (numbers in their context, dates, money, addresses, abbreviations, signs) is taken by a rule; words
and Han characters pass through as they are, so their places stay exact; punctuation becomes one of a few
marks. Pure: no clock, no I/O, no state, so any thread may call it. Of `engine` it imports only `engine.wire`.

The output holds letters of Latin script, Han characters, apostrophes and hyphens within words, single blanks
and the marks ，。？！、；： (after Chinese) and , . ? ! ; : (after English). Quotes and brackets are silent,
and an engine's vocabulary may lack them: quotes go, brackets become commas.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway import abbreviations, addresses, codes, dates, quantities, ratios, symbols
from gateway.fold import fold
from gateway.lexicon import EMPTY, Lexicon
from gateway.scene import Language, Reading, Rule, Scene, is_han, is_latin
from gateway.speech import Piece, Speech

TAGS: Final = ("[uv_break]", "[lbreak]", "[laugh]")
"""Of ChatTTS; with `tags` they pass through."""
MOST_CHARS: Final = 10_000
"""Longer texts are refused: a segment has at most 500."""

_NUMERIC: Final[tuple[Rule, ...]] = (
    addresses.address, codes.telephone, dates.numeric, dates.year_zh, dates.time, dates.hour, dates.decade,
    dates.day_month, codes.identifier, codes.version, codes.feet, codes.glued, ratios.ordinal,
    ratios.fraction, ratios.scientific, ratios.score, ratios.product, quantities.quantity,
)  # fmt: skip
_LETTER: Final[tuple[Rule, ...]] = (
    addresses.address, abbreviations.bare, abbreviations.initials, dates.month_day, codes.version,
    abbreviations.abbreviation, abbreviations.roman, addresses.name, quantities.quantity,
)  # fmt: skip
_OTHER: Final[tuple[Rule, ...]] = (
    codes.telephone, dates.decade, abbreviations.bare, ratios.power, quantities.per_unit, addresses.path,
    addresses.mention, quantities.quantity, symbols.greek, symbols.sign,
)  # fmt: skip
_MARKS: Final = {
    "，": ",", "。": ".", "？": "?", "！": "!", "；": ";", "：": ":", "、": "、", ",": ",", ".": ".",
    "?": "?",
    "!": "!", ";": ";", ":": ":", "…": "…", "—": ",", "–": ",", "―": ",", "|": ",", "•": ",", "‽": "?",
    "․": ".",
    "(": "(", ")": "(", "（": "(", "）": "(", "﹐": ",", "؟": "?", "،": ",",
}  # fmt: skip


_AMOUNTS: Final = "元块角分万亿次人个台件度斤克吨米升里页字"
_AMOUNT_STARTS: Final = "0123456789$€£¥"
_MINUS: Final = re.compile(r"[\w)] - [\d(][^=,，。;]{0,16}=")
_CODE: Final = re.compile(r"[A-Za-z][0-9]{1,20}$")
_EACH: Final = "天日月年周次人个件斤克米秒张份台支小分时吨升公平"
"""元/天 is 元每天."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is said of a text, and what is not."""

    pieces: tuple[Piece, ...]
    dropped: tuple[tuple[int, int], ...]
    """Places of letters, digits and signs that cannot be said. Punctuation without a sound is not listed."""

    @property
    def text(self) -> str:
        """All that is said."""
        return "".join(piece.spoken for piece in self.pieces)


def normalize(
    text: str,
    *,
    language: Literal["auto", "zh", "en"] = "auto",
    lexicon: Lexicon = EMPTY,
    tags: bool = False,
    default: Language = "en",
) -> Spoken:
    """Read a segment. `language` claims what could be of either; `default` is that of a text without letters.

    Raises `ValueError` for more than `MOST_CHARS` characters.
    """
    if len(text) > MOST_CHARS:
        raise ValueError(f"at most {MOST_CHARS} characters at once")
    folded = fold(text)
    scene = Scene(folded, language, default)
    speech = Speech(folded, scene.base)
    at = 0
    while at < len(scene.chars):
        at = _step(scene, speech, at, lexicon, tags=tags)
    pieces, dropped = speech.finish()
    return Spoken(pieces, dropped)


def _step(scene: Scene, speech: Speech, at: int, lexicon: Lexicon, *, tags: bool) -> int:
    """Read what stands at a place, and say where to go on."""
    char = scene.chars[at]
    if char == " ":
        speech.blank(at)
        return at + 1
    found = lexicon.find(scene.chars, at, scene.base) if lexicon else None
    if found is not None:
        entry, end = found
        said = normalize(entry.spoken, language=entry.language or "auto", default=scene.base)
        speech.say(at, end, [(piece.spoken, piece.language) for piece in said.pieces])
        return end
    if tags and char == "[":
        tag = next((tag for tag in TAGS if scene.has(tag, at)), None)
        if tag is not None:
            speech.tag(at, tag)
            return at + len(tag)
    if is_han(char):
        speech.plain(at, at + 1, "zh", scene.chars[at - 1] if char == "々" and at else char)
        return at + 1
    reading = _read(scene, at, _rules(char))
    if reading is not None:
        said_to = reading.end if reading.said_to is None else reading.said_to
        speech.say(at, said_to, reading.parts)
        for unsaid in range(said_to, reading.end):
            speech.drop(unsaid)
        return reading.end
    return _pass(scene, speech, at, lexicon)


def _rules(char: str) -> Sequence[Rule]:
    if char.isdigit():
        return _NUMERIC
    return _LETTER if char.isascii() and char.isalpha() else _OTHER


def _read(scene: Scene, at: int, rules: Sequence[Rule]) -> Reading | None:
    for rule in rules:
        reading = rule(scene, at)
        if reading is not None:
            return reading
    return None


def _pass(scene: Scene, speech: Speech, at: int, lexicon: Lexicon) -> int:
    """A word as it is, punctuation, or what cannot be said."""
    char = scene.chars[at]
    if is_latin(char):
        end = _word_end(scene, at, lexicon)
        speech.plain(at, end, "en", scene.chars[at:end])
        return end
    if char == "/" and at > 0:
        _slash(scene, speech, at)
        return at + 1
    if char == "." and scene.at(at + 1) == ".":
        end = at
        while scene.at(end) == ".":
            end += 1
        speech.mark(at, end, "…")
        return end
    if char == "." and scene.at(at + 1).isdigit() and is_latin(scene.at(at - 1) or " "):
        speech.gap()  # A.101
    elif char in _MARKS and not (char in "—–" and _joins_numbers(scene, at)):
        speech.mark(at, at + 1, _MARKS[char])
    elif char in "-~—–" and _joins_numbers(scene, at):
        language = scene.language(at, at + 1)
        speech.say(at, at + 1, [("到" if language == "zh" else "to", language)])
    elif char == "~" and scene.at(at - 1) in ("", " ", "(") and scene.at(at + 1) in tuple(_AMOUNT_STARTS):
        language = scene.language(at, at + 1)
        speech.say(at, at + 1, [("约" if language == "zh" else "about", language)])
    elif char == "-" and at > 1 and _MINUS.match(scene.chars, at - 2):
        language = scene.language(at, at + 1)
        speech.say(at, at + 1, [("减" if language == "zh" else "minus", language)])
    elif char == "-":
        end = at + 1
        while scene.at(end) == "-":
            end += 1
        if end > at + 1 or (scene.at(at - 1) in ("", " ") and scene.at(end) in ("", " ")):
            speech.mark(at, end, "-")
        return end
    elif char in "_~*`^\\" or unicodedata.category(char)[0] in "PZ":
        if char in "_\\":
            speech.gap()
    else:
        speech.drop(at)
    return at + 1


def _word_end(scene: Scene, at: int, lexicon: Lexicon) -> int:
    """The end of a word of Latin letters, with apostrophes and hyphens, but for an entry after a hyphen."""
    end = at
    while True:
        while end < len(scene.chars) and is_latin(scene.chars[end]):
            end += 1
        after = scene.at(end + 1)
        if scene.at(end) not in ("'", "-") or not after or not is_latin(after):
            return end
        if lexicon and lexicon.find(scene.chars, end + 1, scene.base) is not None:
            return end
        end += 1


def _joins_numbers(scene: Scene, at: int) -> bool:
    """10:00-11:30: what is left of ranges once both ends were read by rules of their own."""
    left, right = scene.at(at - 1), scene.at(at + 1)
    if _CODE.search(scene.before(at, 24)):
        return False  # A20240105-001
    return (left.isdigit() or left in tuple("%mM日月年点分")) and (right.isdigit() or right in tuple("$¥€£"))


def _slash(scene: Scene, speech: Speech, at: int) -> None:
    """Between words an alternative: a pause in Chinese, "or" where it is two English words."""
    left, right = scene.at(at - 1), scene.at(at + 1)
    if left in tuple(_AMOUNTS) and right in tuple(_EACH):
        speech.say(at, at + 1, [("每", "zh")])
    elif left and right and is_han(left) and is_han(right):
        speech.mark(at, at + 1, "、")
    elif left and right and is_latin(left) and is_latin(right) and scene.base == "en":
        speech.say(at, at + 1, [("or", "en")])
    elif left.isalnum() and right.isalnum() and scene.base == "zh":
        speech.mark(at, at + 1, "、")
    else:
        speech.gap()
