"""Stops: whether a sentence ends at a mark that may end one, in Chinese and English.

Sits under `sentences`, which makes a `Stop` after such a mark and asks it about each unit that follows. Pure;
of the gateway it imports `language` only.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from gateway.language import is_wide

_WIDE_STOPS: Final = frozenset("。｡！？；")
STOPS: Final = _WIDE_STOPS | frozenset(".．!?…")
CLOSERS: Final = frozenset("\"'”’＂)]}»）］｝」』】》〉〕〗")
OPENERS: Final = frozenset("“‘«「『【《〈〔〖（［｛")
CLAUSE_MARKS: Final = frozenset("，、：,:;—")
_JOINING_MARKS: Final = CLAUSE_MARKS | frozenset("-–")
"""Right after a stop, these say that the sentence goes on: “好！”，他说。"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES: Final = _words(
    "Mr Mrs Ms Mx Dr Prof Rev Fr Hon Gen Col Maj Capt Cmdr Lt Sgt Sen Rep Gov Pres Supt Messrs Mme"
)
_JOINING: Final = _words("e.g i.e eg ie cf viz vs approx ca esp incl mr mrs")
_NUMBERED: Final = _words("no nos nr fig figs vol vols ch sec eq p pp ver tel ext")
_SHORT: Final = _words(
    """st rd ave blvd ln hwy sq mt ft inc ltd co corp bros jr sr esq dept univ assn al ed eds ph.d v dr
    oz lb lbs tbsp tsp jan feb mar apr jun jul aug sep sept oct nov dec max avg temp dist excl misc"""
)
_BEFORE_CAPITAL: Final = _words("a.m p.m etc min mins hr hrs")
_STARTERS: Final = _words(
    """a after all also although an and are aren as at because before both but can could couldn did
    didn do does doesn don each every few finally first for he her here his how however i if in is
    isn it its later let many most my next no not now on once one our please she should shouldn
    since so some that the their then there these they this those today tomorrow was wasn we were
    weren what when where which while who why won would wouldn yes yesterday you your"""
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
    """`p.m.`, `etc.`, `min.`: ends before a capital, but for the name of a day or of a time zone."""


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
        self._apart = False
        """A blank or Han follows the marks."""
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
            self._apart = char == " " or (is_wide(char) and char not in _JOINING_MARKS)
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
    def is_pause(self) -> bool:
        """Where the sentence goes on, there is a pause at least: Well... I think so. “好！”他说。"""
        return self._apart and (self._dots > 1 or self._closed)

    @property
    def is_plain(self) -> bool:
        """Not the full stop of an abbreviation."""
        return self._plain or self._dots > 1

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
