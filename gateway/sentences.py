"""Sentences: cuts streamed Chinese and English text into segments that an engine can speak, as it arrives.

Place in the flow: `session` feeds the client's text here and submits the segments. Pure: no asyncio, no
clock, no engine. Two machines in a row each take one character at a time, so that the result cannot depend on
how the text was cut into pieces, and no text is read twice:

    characters ─▶ `_Markup` (drops what is not spoken) ─▶ units ─▶ `Splitter` (asks `Stop`) ─▶ segments

A unit is a spoken character and the place in the client's text where it ends: " " for a blank, "\\n" for a
line's end.
After a mark that may end a sentence, a `language.Stop` judges each unit until it is no longer `UNDECIDED`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from gateway.language import (
    CLAUSE_MARKS,
    CLOSERS,
    NEWLINES,
    OPENERS,
    STOPS,
    Abbreviation,
    Stop,
    Verdict,
    abbreviation,
    is_combining,
    is_wide,
    speakable,
    spoken,
)

Unit = tuple[str, int]

_WORD_EDGES: Final = frozenset(" \"'([{/—") | OPENERS | CLOSERS
_ITEM: Final = re.compile(r"[0-9]{1,3}|[IVX]{1,4}|[A-Za-z]")
"""The number of a list's item, at the beginning of a sentence and before a full stop."""
_LONGEST_ABBREVIATION: Final = 12
_MOST_MARKS: Final = 8
"""Combining marks on one character; no language has more, and the rest is dropped."""
_LONGEST_ADDRESS: Final = 2048
"""Characters; what is longer is no address of a link, but text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What is to be spoken in one go. `[start, end)` is its place in the client's text, in code points."""

    index: int
    sentence: int
    start: int
    end: int
    text: str
    """Without markup and what cannot be spoken, blanks made one; never empty."""


class Splitter:
    """Incremental splitter of one utterance's text.

    Segments come in order and do not overlap: the first starts at 0, each other one where the one before it
    ends. Text that cannot be spoken belongs to the segment that follows it, or on `flush` to the last one
    that comes out with it; where that one is out already, such text at the end lies in no segment. Every
    letter, digit and Han character is in the `text` of exactly one segment, in order, but for code blocks and
    the addresses of links, which are skipped.

    A sentence comes out at the unit that decides: its newline, or else one or two characters past its end,
    and after an abbreviation past the next word. `max_chars` bounds `text`: a longer sentence is cut in the
    second half of that limit at a clause, a blank or between Han characters, else at the limit, not before a
    combining mark; punctuation that a full segment cannot hold is dropped. The first segment of the
    utterance, once it is longer than `first_chars`, is cut at its last clause, so that sound starts early.
    """

    def __init__(self, *, max_chars: int, first_chars: int = 16) -> None:
        if max_chars < 1 or first_chars < 1:
            raise ValueError("max_chars and first_chars must be positive")
        self.position = 0
        """Characters fed."""
        self._max_chars = max_chars
        self._first_chars = first_chars
        self._markup = _Markup()
        self._chars: list[str] = []
        """The pending text, a unit each; it starts with no blank and holds no two in a row."""
        self._ends: list[int] = []
        """Where each pending unit ends in the client's text."""
        self._stop: Stop | None = None
        self._word = 0
        """Where the last word of `_chars` starts."""
        self._clause = 0
        """Where the last clause of `_chars` ends; 0: there is none."""
        self._start = self._index = self._sentence = 0
        """Of the next segment."""
        self._begun = False
        """A segment of the current sentence is out."""
        self._out: list[Segment] = []

    def feed(self, text: str) -> list[Segment]:
        """The segments that `text` completes."""
        for char in text:
            self.position += 1
            for unit in self._markup.feed(char, self.position):
                self._take(*unit)
        return self._drain()

    def flush(self) -> list[Segment]:
        """All that is held, as the end of its sentence. More text may follow."""
        for unit in self._markup.flush():
            self._take(*unit)
        self._take("\n", self.position)
        if self._out:
            self._out[-1] = replace(self._out[-1], end=self.position)
            self._start = self.position
        return self._drain()

    def _drain(self) -> list[Segment]:
        out, self._out = self._out, []
        return out

    def _take(self, char: str, end: int) -> None:
        if self._stop is not None:
            verdict = self._stop.judge(char)
            if verdict is Verdict.UNDECIDED:
                self._append(char, end)
                if self._stop.in_tail:
                    self._stop.end = len(self._chars)
                return
            if verdict is Verdict.END:
                self._cut(self._stop.end, over=True)
            self._stop = None
            self._fit()
        if char == "\n":
            self._cut(len(self._chars), over=True)
            return
        if self._ends_clause(char):
            self._clause = len(self._chars)
        self._append(char, end)
        self._fit()
        if char in STOPS:
            self._stop = Stop(char, self._abbreviation(), len(self._chars))

    def _append(self, char: str, end: int) -> None:
        if char == " " and (not self._chars or self._chars[-1] == " "):
            return
        if self._is_surplus(char):
            self._ends[-1] = end
            return
        self._chars.append(char)
        self._ends.append(end)
        if char in _WORD_EDGES or is_wide(char):
            self._word = len(self._chars)

    def _is_surplus(self, char: str) -> bool:
        """Whether to drop a mark: it does not fit, and would make no sense at the beginning of a segment."""
        if is_combining(char):
            return len(self._chars) >= _MOST_MARKS and all(map(is_combining, self._chars[-_MOST_MARKS:]))
        wide_mark = is_wide(char) and (char in STOPS or char in CLOSERS or char in CLAUSE_MARKS)
        in_tail = self._stop is not None and self._stop.in_tail
        return len(self._chars) >= self._max_chars and (in_tail or wide_mark)

    def _ends_clause(self, following: str) -> bool:
        """Whether a clause ends at the last pending character, as the next one tells."""
        if not self._chars or following in CLOSERS:
            return False
        last = self._chars[-1]
        if last in CLOSERS and len(self._chars) > 1:
            last = self._chars[-2]
        if last == "、" or following.isdigit():  # 14：30
            return False
        return last in CLAUSE_MARKS and (following == " " or is_wide(last) or is_wide(following))

    def _abbreviation(self) -> Abbreviation:
        """What the word before the full stop just taken is."""
        start, end = self._word, len(self._chars) - 1
        if not 0 < end - start <= _LONGEST_ABBREVIATION:
            return Abbreviation.NONE
        word = "".join(self._chars[start:end])
        if _ITEM.fullmatch(word) and self._starts_item(start, word):
            return Abbreviation.JOINING
        return abbreviation(word)

    def _starts_item(self, at: int, word: str) -> bool:
        """Whether `1.` is a list's item: first in its sentence, after a colon, or after Han and a blank."""
        before = "".join(self._chars[max(at - 2, 0) : at])
        if not before:
            return not self._begun
        in_line = word.isdigit() and len(before) == 2 and is_wide(before[0]) and before[1] == " "
        return in_line or before.rstrip(" ")[-1:] in (":", "：")

    def _fit(self) -> None:
        """Cut what is pending down to the limits."""
        if self._index == 0 and self._clause and len(self._chars) > self._first_chars:
            self._cut(self._clause, over=False)
        while len(self._chars) - (self._chars[-1:] == [" "]) > self._max_chars:
            self._cut(self._break(), over=False)

    def _break(self) -> int:
        """Where to cut a sentence that is too long: the latest good place in the second half of the limit."""
        chars, limit = self._chars, self._max_chars
        if limit // 2 < self._clause <= limit:
            return self._clause
        for at in range(limit + (chars[limit] == " "), limit // 2, -1):
            before, after = chars[at - 1], chars[at]
            wide = is_wide(before) or is_wide(after)
            if before == " " or (wide and before not in OPENERS and not is_combining(after)):
                return at
        at = limit
        while at and is_combining(chars[at]):
            at -= 1
        return at or limit

    def _cut(self, at: int, *, over: bool) -> None:
        """Put out the first `at` units, if they can be spoken; `over`: their sentence ends there."""
        text = "".join(self._chars[:at]).rstrip(" ")
        if speakable(text):
            end = self._ends[len(text) - 1]
            self._out.append(Segment(self._index, self._sentence, self._start, end, text))
            self._start = end
            self._index += 1
            self._begun = True
        if self._chars[at : at + 1] == [" "]:
            at += 1
        del self._chars[:at], self._ends[:at]
        self._word = max(self._word - at, 0)
        self._clause = max(self._clause - at, 0)
        if over and self._begun:
            self._sentence += 1
            self._begun = False


def _is_latin(char: str) -> bool:
    return char.isalnum() and not is_wide(char)


class _Markup:
    """Drops simple markdown and what cannot be spoken, one character at a time.

    Dropped: emphasis, headings' and bullets' marks, code blocks whole, the marks of inline code, the brackets
    and addresses of links. A run of one mark is held until the next character tells what it is.
    """

    def __init__(self) -> None:
        self._line_start = True
        self._last = "\n"
        """The last unit let through."""
        self._mark, self._count, self._mark_end = "", 0, 0
        """The run that is held."""
        self._fence, self._fence_length, self._info = "", 0, False
        """The mark of the code block that is open; its first line is not over."""
        self._bracket = False
        """A `[` was seen in this line."""
        self._address: list[Unit] | None = None
        self._depth, self._titled = 0, False

    def feed(self, char: str, end: int) -> list[Unit]:
        """The units that a character lets through; `end` is the place after it."""
        if self._fence:
            self._skip_code(char)
            return []
        if self._address is not None:
            return self._read_address(self._address, char, end)
        units: list[Unit] = []
        if self._mark:
            if char == self._mark:
                self._count += 1
                self._mark_end = end
                return []
            units = self._judge(char)
            if self._fence or self._address is not None:
                return self.feed(char, end)  # such a run itself lets nothing through
        if char in "*_~`]" or (self._line_start and char in "#>-+"):
            self._mark, self._count, self._mark_end = char, 1, end
            return units
        return units + self._pass(char, end)

    def flush(self) -> list[Unit]:
        """What is held; a code block stays open."""
        if self._address is not None:
            return self._release(self._address)
        return self._judge("") if self._mark else []

    def _pass(self, char: str, end: int) -> list[Unit]:
        self._bracket = self._bracket or char == "["
        unit = " " if char == "[" else spoken(char)  # a blank: fact.[1] is not fact.1
        if unit == "\n":
            self._line_start, self._bracket = True, False
        elif unit.strip():
            self._line_start = False
        if not unit:
            return []
        self._last = unit
        return [(unit, end)]

    def _judge(self, following: str) -> list[Unit]:
        """What the held run is, by the character after it ("": the end of the text)."""
        mark, count, self._mark = self._mark, self._count, ""
        blank = not following or following.isspace()
        if mark == "]":
            if self._bracket and following == "(":
                self._address, self._depth, self._titled = [], 0, False
            return []
        if self._line_start:
            if mark in "`~" and count >= 3:
                self._fence, self._fence_length, self._info, self._count = mark, count, True, 0
                return []
            if blank and (mark in "#>" or (mark in "-+*" and count == 1)):
                return []
        last_blank = self._last.isspace()
        kept = {
            "*": count == 1 and ((last_blank and blank) or (self._last.isdigit() and following.isdigit())),
            "_": _is_latin(self._last) and _is_latin(following),
            "~": count == 1,
            "`": False,
        }.get(mark, True)
        if not kept:
            self._line_start = False
            return []
        first = self._mark_end - count + 1
        return [unit for end in range(first, self._mark_end + 1) for unit in self._pass(mark, end)]

    def _skip_code(self, char: str) -> None:
        """In a code block: its end is a run of its mark at the start of a line, or in its own first line."""
        if char == self._fence and (self._info or self._line_start):
            self._count += 1
            if self._count == self._fence_length:
                self._fence, self._line_start = "", False
            return
        self._count = 0
        if char in NEWLINES:
            self._info, self._line_start = False, True
        elif not char.isspace():
            self._line_start = False

    def _read_address(self, held: list[Unit], char: str, end: int) -> list[Unit]:
        """After `](`: dropped at its closing bracket; what cannot be an address is text after all."""
        blank_before = bool(held) and held[-1][0] == " "
        held.append((char, end))
        self._depth += (char == "(") - (char == ")")
        if self._depth == 0:
            self._address, self._bracket = None, False
            return []
        if blank_before and char in "\"'":
            self._titled = True
        text = char in NEWLINES or (blank_before and not self._titled) or len(held) > _LONGEST_ADDRESS
        return self._release(held) if text else []

    def _release(self, held: list[Unit]) -> list[Unit]:
        self._address = None
        return [unit for char, end in held for unit in self._pass(char, end)]
