"""Pieces of speech with their places, as `normalize` finds them: blanks, marks and joints are put right here.

Pure; of the gateway it imports `fold` and `scene`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from gateway.fold import Folded
from gateway.scene import Language

_WIDE: Final = {",": "，", ".": "。", "?": "？", "!": "！", ";": "；", ":": "："}
_STRENGTH: Final = {"、": 0, ",": 1, ":": 2, ";": 3, ".": 4, "!": 5, "?": 6}


@dataclass(frozen=True, slots=True)
class Piece:
    """What is said of `[start, end)` of the text, in one language.

    Of equal lengths, each character stands for its own; else the whole for the whole. Pieces follow each
    other: neither `start` nor `end` ever decreases, and two overlap only where one thing in the text is said
    in both languages, when they have the same place.
    """

    spoken: str
    language: Language
    start: int
    end: int


@dataclass(slots=True)
class _Part:
    spoken: str
    language: Language
    start: int
    end: int
    kind: str
    """plain, said, mark, tag or blank."""


class Speech:
    """Collects what is said; `finish` returns it. Places are those of the plain text, as `fold` left it."""

    def __init__(self, folded: Folded, base: Language) -> None:
        self._folded = folded
        self._base = base
        self._parts: list[_Part] = []
        self._blank: tuple[int, int] | None = None
        """A blank that is said if a word follows."""
        self._gap = False
        """Something that has no sound stood between two words."""
        self._soft: tuple[int, int, str] | None = None
        """A bracket, dash or ellipsis: a comma if a word follows, and nothing or a full stop at the end."""
        self._dropped: list[tuple[int, int]] = list(folded.lost)

    def plain(self, start: int, end: int, language: Language, spoken: str) -> None:
        """Text that is said as it is."""
        low, high = self._place(start, end)
        kind = "plain" if len(spoken) == high - low else "said"
        self._word(_Part(spoken, language, low, high, kind))

    def say(self, start: int, end: int, parts: Sequence[tuple[str, Language]]) -> None:
        """Words in the place of text."""
        low, high = self._place(start, end)
        for spoken, language in parts:
            if spoken.strip():
                self._word(_Part(spoken.strip(), language, low, high, "said"))

    def tag(self, start: int, tag: str) -> None:
        """A tag of the engine's, said as nothing else."""
        low, high = self._place(start, start + len(tag))
        language = self._parts[-1].language if self._parts else self._base
        self._word(_Part(tag, language, low, high, "tag"))

    def blank(self, at: int) -> None:
        """A blank of the text, or one that a number in one character brought along: 2½."""
        low, high = self._place(at, at + 1)
        if self._folded.starts[at + 1 : at + 2] == (low,):
            self._gap = True
            return
        self._blank = (self._blank[0], high) if self._blank else (low, high)

    def gap(self) -> None:
        """Words on both sides are two."""
        self._gap = True

    def mark(self, start: int, end: int, mark: str) -> None:
        """Punctuation: one of `_STRENGTH`, or a soft one: `(`, `-` or `…`."""
        low, high = self._place(start, end)
        if not any(part.kind in ("plain", "said") for part in self._parts):
            return  # There is nothing that it could close.
        if mark in "(-…":
            if self._soft is None or mark == "…":
                self._soft = (self._soft[0] if self._soft else low, high, mark)
            return
        if self._soft is not None:
            low = self._soft[0]
            self._soft = None
        self._put_mark(mark, low, high)

    def drop(self, at: int) -> None:
        """Something that cannot be said."""
        self._dropped.append(self._place(at, at + 1))
        self._gap = True

    def finish(self) -> tuple[tuple[Piece, ...], tuple[tuple[int, int], ...]]:
        """The pieces, neighbours of plain text joined, and the places of what was dropped."""
        if self._soft is not None and self._soft[2] == "…":
            self._put_mark(".", self._soft[0], self._soft[1])
        pieces: list[Piece] = []
        joinable = False
        for part, following in zip_longest(self._parts, self._parts[1:]):
            last = pieces[-1] if pieces else None
            if part.kind == "blank" and last and part.start < last.end:
                # The mark before it reaches over it: … took in the dots and the blank.
                part.start, part.end = last.end, max(last.end, part.end)
            plain = part.kind in ("plain", "blank", "mark") and len(part.spoken) == part.end - part.start
            # One thing said in two words has one place: it stays apart from what is joined.
            plain = plain and (following is None or part.end <= following.start or following.kind == "blank")
            if joinable and plain and last and last.language == part.language and last.end == part.start:
                pieces[-1] = Piece(last.spoken + part.spoken, part.language, last.start, part.end)
            else:
                pieces.append(Piece(part.spoken, part.language, part.start, part.end))
            joinable = plain
        return tuple(pieces), joined(self._dropped)

    def _place(self, start: int, end: int) -> tuple[int, int]:
        """In the text: never before the end of the last piece, unless it is that piece's own.

        Characters that became several may be read in parts by two rules, and then both have the same place.
        """
        low, high = self._folded.starts[start], self._folded.ends[end - 1]
        if self._parts and low < self._parts[-1].end:
            last = self._parts[-1]
            return (last.start, last.end) if high <= last.end else (last.end, high)
        return low, high

    def _word(self, part: _Part) -> None:
        self._settle()
        last = self._parts[-1] if self._parts else None
        if last is not None:
            self._join(last, part)
        self._blank, self._gap = None, False
        self._parts.append(part)

    def _join(self, last: _Part, part: _Part) -> None:
        """The blank between two: the text's own, or one that its words need."""
        if last.kind == "mark" and last.spoken in _WIDE.values():
            return
        contiguous = last.kind == part.kind == "plain" and last.end == part.start and not self._gap
        if self._blank is not None:
            self._parts.append(_Part(" ", last.language, *self._blank, "blank"))
        elif "tag" in (last.kind, part.kind):
            return
        elif last.kind == "mark":
            if part.language == "en" and part.kind == "said":
                part.spoken, part.kind = " " + part.spoken, "said"
        elif not contiguous and last.language == part.language == "en":
            part.spoken, part.kind = " " + part.spoken, "said"

    def _settle(self) -> None:
        """A word follows: what was soft is a comma."""
        if self._soft is None:
            return
        low, high, _ = self._soft
        self._soft = None
        self._put_mark(",", low, high, weak=True)

    def _put_mark(self, mark: str, low: int, high: int, *, weak: bool = False) -> None:
        last = self._parts[-1]
        if last.kind == "mark":
            if weak or _STRENGTH[mark] <= _STRENGTH[_plain_mark(last.spoken)]:
                return
            last.spoken, last.end = _of(mark, last.language), max(last.end, high)
            self._blank = None
            return
        blank = self._blank
        if not weak:
            self._blank = None  # A blank before a mark is not said.
        elif blank is not None and blank[0] < low:
            # A comma for a bracket takes the place of the blank before it, which comes after it instead.
            self._blank = (low, max(high, blank[1]))
            low, high = blank[0], low
        self._parts.append(_Part(_of(mark, last.language), last.language, low, high, "mark"))


def _of(mark: str, language: Language) -> str:
    if language == "zh":
        return _WIDE.get(mark, mark)
    return "," if mark == "、" else mark


def _plain_mark(mark: str) -> str:
    return next((plain for plain, wide in _WIDE.items() if wide == mark), mark)


def joined(places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """In order, those that touch made one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)
