"""Sentences: cuts streamed Chinese and English text into segments that an engine can speak, as it arrives.

Place in the flow: `utterance` feeds the client's text here and submits the segments. Pure: no asyncio, no
clock, no engine. Two machines in a row each take one character at a time, so that the result cannot depend on
how the text was cut into pieces, and no text is read twice:

    characters ─▶ `Markup` (drops what is not spoken) ─▶ units ─▶ `Splitter` (asks `Stop`) ─▶ segments

After a mark that may end a sentence, a `stops.Stop` judges each unit until it is no longer `UNDECIDED`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from gateway.language import is_combining, is_wide, speakable
from gateway.markup import DEFAULT_POLICY, Markup, MarkupPolicy
from gateway.stops import (
    CLAUSE_MARKS,
    CLOSERS,
    OPENERS,
    STOPS,
    Abbreviation,
    Stop,
    Verdict,
    abbreviation,
)

CHUNK_SIZE: Final = 150
"""Characters of a segment, unless the engine takes fewer: some ten seconds of English."""
RELEASE_MS: Final = 400
"""Without new text for so long, the owner calls `Splitter.release`."""
_RELEASE_CHARS: Final = 24
"""Pending characters from which on `release` makes do with the end of a word."""
_WORD_EDGES: Final = frozenset(" \"'([{/—") | OPENERS | CLOSERS
_ITEM: Final = re.compile(r"[0-9]{1,3}|[IVX]{1,4}|[A-Za-z]")
"""The number of a list's item, at the beginning of a sentence and before a full stop."""
_LONGEST_ABBREVIATION: Final = 12
_LONGEST_TITLE: Final = 40
"""Characters after a 《 in which no mark ends a sentence: 《你好，李焕英！》"""
_MOST_MARKS: Final = 8
"""Combining marks on one character; no language has more, and the rest is dropped."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What is to be spoken in one go. `[start, end)` is its place in the client's text, in code points."""

    index: int
    sentence: int
    start: int
    end: int
    text: str
    """Without markup and what cannot be spoken, blanks made one; never empty."""
    ends: tuple[int, ...] = ()
    """For each character of `text`, the place in the client's text after it: never falling, and within
    [start, end]. A splitter always gives it."""


class Splitter:
    """Incremental splitter of one utterance's text.

    Segments come in order and do not overlap: the first starts at 0, each other one where the one before it
    ends. Text that cannot be spoken belongs to the segment that follows it, or on `flush` to the last one
    that comes out with it; where that one is out already, such text at the end is `dropped`. Every letter,
    digit and Han character is in the `text` of exactly one segment, in order, but for what `Markup` drops.

    A sentence comes out at the unit that decides: its newline, or else one or two characters past its end,
    and after an abbreviation past the next word. `text` is at most `max_chars`, what the engine takes, and
    `chunk_size`, what is wanted: 50 to 150 where somebody waits, up to 500 where nobody does. A longer
    sentence is cut in the second half of that limit at a clause, a blank or between Han characters, else at
    the limit, not before a combining mark; punctuation that a full segment cannot hold is dropped. The first
    segment of the utterance, once longer than `first_chars`, is cut at its last clause, so that sound starts
    early.
    """

    def __init__(
        self,
        *,
        max_chars: int,
        chunk_size: int = CHUNK_SIZE,
        first_chars: int = 16,
        policy: MarkupPolicy = DEFAULT_POLICY,
    ) -> None:
        if max_chars < 1 or chunk_size < 1 or first_chars < 1:
            raise ValueError("max_chars, chunk_size and first_chars must be positive")
        self.position = 0
        """Characters fed."""
        self._limit = min(max_chars, chunk_size)
        self._first_chars = first_chars
        self._markup = Markup(policy)
        self._chars: list[str] = []
        """The pending text, a unit each; it starts with no blank and holds no two in a row."""
        self._ends: list[int] = []
        """Where each pending unit ends in the client's text."""
        self._stop: Stop | None = None
        self._word = 0
        """Where the last word of `_chars` starts."""
        self._clause = 0
        """Where the last clause of `_chars` ends; 0: there is none."""
        self._title = 0
        """Characters for which the title that is open may last."""
        self._start = self._index = self._sentence = 0
        """Of the next segment."""
        self._item = 0
        """Number of the last item of a list in the current sentence."""
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

    def release(self) -> list[Segment]:
        """What can be spoken of the sentence that is not over, once no text has come for `RELEASE_MS`.

        It is all up to the last mark that ends a sentence or a clause. A full stop that may go on to be an
        abbreviation, a number or an address is none, nor is a mark after a digit. Where there is none, from
        24 pending characters on, it is all up to the last blank or Han character. The sentence goes on.
        """
        at = self._ripe()
        if speakable("".join(self._chars[:at])):
            self._cut(at, over=False)
        return self._drain()

    @property
    def dropped(self) -> tuple[int, int] | None:
        """After `flush`: the text at the end that lies in no segment, all of it where there was none.

        Its owner may give it to the last segment, if that was not told of yet, or else report it.
        """
        return (self._start, self.position) if self._start < self.position else None

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
            elif self._stop.is_pause:
                self._clause = max(self._clause, self._stop.end)
            self._stop = None
            self._fit()
        if char == "\n":
            self._cut(len(self._chars), over=True)
            self._title = 0
            return
        self._title = _LONGEST_TITLE if char == "《" else max(self._title - 1, 0) if char != "》" else 0
        if self._ends_clause(char):
            self._clause = len(self._chars)
        self._append(char, end)
        self._fit()
        if char in STOPS and not self._title:
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
        return len(self._chars) >= self._limit and (in_tail or wide_mark)

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
            self._item = int(word) if word.isdecimal() else 0
            return Abbreviation.JOINING
        return abbreviation(word)

    def _starts_item(self, at: int, word: str) -> bool:
        """Whether `1.` is a list's item: first in its sentence, after a colon, after Han and a blank, or the
        one that follows the last item."""
        before = "".join(self._chars[max(at - 2, 0) : at])
        if not before:
            return not self._begun
        if self._item and word == str(self._item + 1):
            return True
        in_line = word.isdigit() and len(before) == 2 and is_wide(before[0]) and before[1] == " "
        return in_line or before.rstrip(" ")[-1:] in (":", "：")

    def _fit(self) -> None:
        """Cut what is pending down to the limits."""
        if self._index == 0 and self._clause and len(self._chars) > self._first_chars:
            self._cut(self._clause, over=False)
        while len(self._chars) - (self._chars[-1:] == [" "]) > self._limit:
            self._cut(self._break(), over=False)

    def _break(self) -> int:
        """Where to cut a sentence that is too long: the latest good place in the second half of the limit."""
        chars, limit = self._chars, self._limit
        if limit // 2 < self._clause <= limit:
            return self._clause
        if at := self._boundary(limit + (chars[limit] == " "), limit // 2):
            return at
        at = limit
        while at and is_combining(chars[at]):
            at -= 1
        return at or limit

    def _boundary(self, high: int, low: int) -> int:
        """The last place in (low, high] after a blank or beside a Han character; 0: there is none."""
        for at in range(high, low, -1):
            before, after = self._chars[at - 1], "".join(self._chars[at : at + 1])
            wide = is_wide(before) or bool(after and is_wide(after))
            if before == " " or (wide and before not in OPENERS and not (after and is_combining(after))):
                return at
        return 0

    def _ripe(self) -> int:
        """How much `release` lets out."""
        count = len(self._chars)
        at = self._clause
        if self._stop is not None:
            if self._stop.is_plain and not self._may_go_on(self._stop.end):
                at = max(at, self._stop.end)
        elif count > 1 and self._ends_clause(" ") and not self._chars[-2].isdigit():
            at = count
        if not at and count >= _RELEASE_CHARS:
            at = self._boundary(count, count // 2)
        return at

    def _may_go_on(self, at: int) -> bool:
        """Whether the full stop before `at` may be inside of a number or an address: 3.14, www.x.com."""
        word = "".join(self._chars[:at]).rpartition(" ")[2]
        before = word.rstrip(".")
        return word.endswith(".") and (before[-1:].isdigit() or any(char in "./@" for char in before))

    def _cut(self, at: int, *, over: bool) -> None:
        """Put out the first `at` units, if they can be spoken; `over`: their sentence ends there."""
        text = "".join(self._chars[:at]).rstrip(" ")
        if speakable(text):
            ends = tuple(self._ends[: len(text)])
            end = ends[-1]
            self._out.append(Segment(self._index, self._sentence, self._start, end, text, ends))
            self._start = end
            self._index += 1
            self._begun = True
        if self._chars[at : at + 1] == [" "]:
            at += 1
        del self._chars[:at], self._ends[:at]
        self._word = max(self._word - at, 0)
        self._clause = max(self._clause - at, 0)
        if self._stop is not None:
            self._stop.end = max(self._stop.end - at, 0)
        if over:
            self._item = 0
        if over and self._begun:
            self._sentence += 1
            self._begun = False
