"""Chinese and English: what can be said, which run of a text is in which, where a sentence may end.

Sits under `sentences`, which asks it about single characters and stops; the session turns each segment into
the spans of the `Submit` that carries it. Pure: no clock, no I/O; of the engine only `engine.wire`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import Enum, auto
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

_Kind = Literal["zh", "en", "neutral", "blank"]


@lru_cache(maxsize=8192)
def _kind(char: str) -> _Kind:
    if char.isspace():
        return "blank"
    if is_wide(char):
        return "zh"
    return "en" if char.isalpha() and "LATIN" in unicodedata.name(char, "") else "neutral"


def spans(text: str, start: int, end: int, language: Literal["auto", "zh", "en"]) -> tuple[Span, ...]:
    """Cut a segment's text into runs of one language; `[start, end)` is its place in the client's own text.

    Han, kana and CJK punctuation are `zh`, Latin letters are `en`, whatever the hint. All else joins the run
    before it, or at the beginning the one after it. A hint of one language claims the numbers and what
    touches them, and decides where there is no letter at all (`auto` decides for `en`). A run that cannot be
    spoken joins its neighbour. The texts of the spans, joined, are `text`.

    Source spans follow each other and cover `[start, end)`. They are exact where `text` is the source slice
    itself (nothing was dropped from it), which equal lengths are taken for; else they divide the slice in
    proportion to the characters, monotone but only near the truth.
    """
    runs: list[tuple[str, str]] = []
    for text_run, tag in _merged(_tagged(text, language)):
        if runs and not (speakable(text_run) and speakable(runs[-1][0])):
            # One of the two cannot be said: it goes along with the other.
            before, before_tag = runs.pop()
            runs.append((before + text_run, before_tag if speakable(before) else tag))
        else:
            runs.append((text_run, tag))
    result: list[Span] = []
    at, length = 0, max(len(text), 1)
    for text_run, tag in _merged(runs):
        low = start + at * (end - start) // length
        at += len(text_run)
        result.append(Span(text=text_run, language=tag, start=low, end=start + at * (end - start) // length))
    return tuple(result)


def _tagged(text: str, language: Literal["auto", "zh", "en"]) -> list[tuple[str, str]]:
    """Runs of one kind of character with their language; those at the beginning wait for the first known."""
    runs: list[tuple[str, str]] = []
    current: str | None = None
    waiting = ""
    for kind, group in groupby(text, _kind):
        run = "".join(group)
        if kind in ("zh", "en"):
            current = kind
        elif language != "auto" and kind == "neutral" and any(char.isnumeric() for char in run):
            current = language
        if current is None:
            waiting += run
        else:
            runs.append((waiting + run, current))
            waiting = ""
    if waiting:
        runs.append((waiting, "en" if language == "auto" else language))
    return runs


def _merged(runs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbours of one language made one."""
    return [
        ("".join(run for run, _ in group), tag) for tag, group in groupby(runs, key=lambda tagged: tagged[1])
    ]


# --- where a sentence ends ----------------------------------------------------------------------------------


_WIDE_STOPS: Final = frozenset("。｡！？；")
STOPS: Final = _WIDE_STOPS | frozenset(".．!?…")
CLOSERS: Final = frozenset("\"'”’＂)]}»）］｝」』】》〉〕〗")
OPENERS: Final = frozenset("“‘«「『【《〈〔〖（［｛")
CLAUSE_MARKS: Final = frozenset("，、：,:;")
_JOINING_MARKS: Final = CLAUSE_MARKS | frozenset("-–—")
"""Right after a stop, these say that the sentence goes on: “好！”，他说。"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES: Final = _words(
    "Mr Mrs Ms Mx Dr Prof Rev Fr Hon Gen Col Maj Capt Cmdr Lt Sgt Sen Rep Gov Pres Supt Messrs Mme"
)
_JOINING: Final = _words("e.g i.e eg ie cf viz vs approx ca esp incl mr mrs")
_NUMBERED: Final = _words("no nos nr fig figs vol vols ch sec eq p pp ver tel ext")
_SHORT: Final = _words(
    """st rd ave blvd ln hwy sq mt ft inc ltd co corp bros jr sr esq dept univ assn al ed eds ph.d v dr min hr
    hrs oz lb lbs tbsp tsp jan feb mar apr jun jul aug sep sept oct nov dec"""
)
_BEFORE_CAPITAL: Final = _words("a.m p.m etc")
_STARTERS: Final = _words(
    """a after all also although an and are as at because before both but can could did do does each every
    few first finally for he her here his how however i if in is it its later let many most my next no not now
    on once one our please she should since so some that the their then there these they this those today
    tomorrow was we were what when where which while who why would yes yesterday you your"""
)
"""Words that commonly start a sentence, and seldom a name."""
_AFTER_TIME: Final = _words(
    """monday tuesday wednesday thursday friday saturday sunday eastern central mountain pacific est edt et
    cst cdt ct mst mdt mt pst pdt pt gmt utc bst cet cest"""
)
"""Words with a capital that may follow `p.m.` in its sentence."""
_LONGEST_WORD: Final = max(map(len, _STARTERS | _AFTER_TIME))
_INITIALS: Final = re.compile(r"[A-Z]|[A-Za-z](\.[A-Za-z])+")


class Abbreviation(Enum):
    """What a word before a full stop is, which says when the sentence goes on after it."""

    NONE = auto()
    """Any other word: the stop ends the sentence."""
    JOINING = auto()
    """`Dr.`, `e.g.`, the number of a list's item: never ends one."""
    NUMBERED = auto()
    """`No.`: goes on before a digit."""
    SHORT = auto()
    """`U.S.`, `Rd.`, initials: ends only before a word that commonly starts a sentence."""
    BEFORE_CAPITAL = auto()
    """`p.m.`, `etc.`: ends before a capital, but for the name of a day or of a time zone."""


def abbreviation(word: str) -> Abbreviation:
    """What a word is, given without its last full stop."""
    lower = word.lower()
    if word in _TITLES or lower in _JOINING:
        return Abbreviation.JOINING
    if lower in _NUMBERED:
        return Abbreviation.NUMBERED
    if lower in _BEFORE_CAPITAL:
        return Abbreviation.BEFORE_CAPITAL
    return Abbreviation.SHORT if lower in _SHORT or _INITIALS.fullmatch(word) else Abbreviation.NONE


class Verdict(Enum):
    """Whether a sentence ends at a stop."""

    END = auto()
    GO_ON = auto()
    UNDECIDED = auto()


class Stop:
    """A place where a sentence may end: marks and closing quotes, perhaps a blank, then the next word."""

    def __init__(self, mark: str, before: Abbreviation, end: int) -> None:
        self.end = end
        """Index in the splitter's pending text after the marks and closing quotes."""
        self.in_tail = True
        """Nothing but marks and closing quotes was seen yet."""
        self._before = before
        self._word = ""
        """The next word, as far as it is known."""
        self._dots = 0
        self._strong = self._wide = self._closed = False
        self._add(mark)

    def judge(self, char: str) -> Verdict:
        """Decide by one more unit; a newline stands for the end of the text, too."""
        if self.in_tail:
            if char in STOPS:
                self._add(char)
                return Verdict.UNDECIDED
            if char in CLOSERS:
                self._closed = True
                return Verdict.UNDECIDED
            self.in_tail = False
            if char == "\n":
                return Verdict.END
            return self._by_blank() if char == " " else self._by_neighbour(char)
        if self._word and (is_wide(char) or not char.isalpha()):
            return self._by_word(self._word, followed_by=char)
        if char == "\n":
            return Verdict.END
        if char == " ":
            return Verdict.UNDECIDED
        self._word += char
        return self._by_word(self._word)

    def _add(self, mark: str) -> None:
        if mark in ".．…" and not self._closed:
            self._dots += 2 if mark == "…" else 1
        else:
            # A mark after a closing quote or bracket is the end of the whole: (… etc.).
            self._strong = True
        self._wide = self._wide or mark in _WIDE_STOPS
        self._closed = False

    @property
    def _plain(self) -> bool:
        """Neither an ellipsis nor the full stop of an abbreviation."""
        return self._strong or (self._dots == 1 and self._before is Abbreviation.NONE)

    def _by_blank(self) -> Verdict:
        if self._plain and not self._closed:
            return Verdict.END
        joining = self._before is Abbreviation.JOINING and self._dots == 1 and not self._strong
        return Verdict.GO_ON if joining else Verdict.UNDECIDED

    def _by_neighbour(self, char: str) -> Verdict:
        """No blank follows the marks: `3.14`, `a.b?c=1`, 你好！今天, “你来吗？”他问。"""
        if char in _JOINING_MARKS or not self._plain:
            return Verdict.GO_ON
        if char in OPENERS:
            return Verdict.END
        chinese = self._wide or is_wide(char)
        return Verdict.END if chinese and not self._closed else Verdict.GO_ON

    def _by_word(self, word: str, followed_by: str = "") -> Verdict:
        """A blank and `word` follow the marks; `followed_by` is given once the word is whole."""
        capital = word[0].isupper()
        if self._plain:  # and a closing quote or bracket: “Are you coming?” she asked.
            return Verdict.GO_ON if word[0].islower() or word[0] in _JOINING_MARKS else Verdict.END
        if self._dots > 1:
            if word == "I" and not followed_by:
                return Verdict.UNDECIDED
            return Verdict.END if capital and word != "I" else Verdict.GO_ON  # Well... I think so.
        if self._before is Abbreviation.NUMBERED:
            return Verdict.GO_ON if word[0].isnumeric() or word[0] in "#+" else Verdict.END
        if not capital:
            return Verdict.GO_ON
        if not followed_by and len(word) <= _LONGEST_WORD:
            return Verdict.UNDECIDED
        if self._before is Abbreviation.BEFORE_CAPITAL:
            return Verdict.GO_ON if word.lower() in _AFTER_TIME else Verdict.END
        initial = len(word) == 1 and followed_by == "."  # J. A. Smith
        return Verdict.END if word.lower() in _STARTERS and not initial else Verdict.GO_ON
