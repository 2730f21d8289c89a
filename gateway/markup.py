"""Markup: drops what is written for the eye, from markdown to emoji, one character at a time.

Place in the flow: `sentences` feeds it the client's text and gets units back, a spoken character and the
place in the client's text where it ends: " " for a blank, "\\n" for a line's end. Pure: no I/O, no clock; of
the gateway it imports `language`, `stops`, and the machines of `constructs` and `tags`.

What is known by one more character is decided here: runs of a mark (emphasis, headings, bullets, quotes,
fences), the bars of tables. What must be read further is a `Construct`, held while it is under way; what is
none after all is fed again. Nothing is fed again more than a few times, and little is held, so that the work
is linear and the memory bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.constructs import (
    Address,
    Ansi,
    Bang,
    Bracket,
    Construct,
    Entity,
    Escape,
    Fate,
    Fence,
    Reference,
    Unit,
)
from gateway.language import NEWLINES, is_wide, spoken
from gateway.stops import CLAUSE_MARKS, CLOSERS, OPENERS, STOPS
from gateway.tags import CELLS, CODE, LINES, THOUGHTS, UNSPOKEN, Contents, Tag

_RUNS: Final = frozenset("*_~`]")
_LINE_RUNS: Final = frozenset("#>-+")
"""Marks only at the beginning of a line."""
_BULLETS: Final = frozenset("•‣⁃·∙")
_CONSTRUCTS: Final[dict[str, type[Construct]]] = {
    "<": Tag,
    "&": Entity,
    "\\": Escape,
    "!": Bang,
    "\x1b": Ansi,
}
_ATTENTIVE: Final = _RUNS | _CONSTRUCTS.keys() | frozenset("[|")
_FRESH: Final = STOPS | CLOSERS | CLAUSE_MARKS | frozenset("\n")
"""After these, an element that is not spoken is one, and not only mentioned."""
_BEFORE_PICTURE: Final = OPENERS | CLAUSE_MARKS | frozenset(" \n(")
"""After these, an exclamation mark ends no sentence."""
_MOST_HASHES: Final = 6
_REPLAYED: Final = 64
"""Characters of a failed construct in which markup is looked for again; a longer one is text throughout."""


@dataclass(frozen=True, slots=True)
class MarkupPolicy:
    """What of a text that is written for the eye is spoken."""

    code: Literal["skip", "read"] = "skip"
    """Blocks of code, in fences or `<pre>`. Inline code is always spoken."""
    thoughts: Literal["skip", "read"] = "skip"
    """`<think>…</think>`, the reasoning of a language model."""


DEFAULT_POLICY: Final = MarkupPolicy()


class Markup:
    """Takes a text's characters and lets through what is to be spoken.

    Dropped: the marks of emphasis, headings, bullets, quotes, inline code and footnotes; blocks of code and
    thoughts as the policy says; the addresses of links and pictures, whose texts are spoken; tags, comments,
    scripts; characters that cannot be spoken. Entities and escapes become their characters. The cells of a
    table are set apart by commas. Full-width letters and digits stay as they are.
    """

    def __init__(self, policy: MarkupPolicy) -> None:
        self._skip_code = policy.code == "skip"
        thoughts = THOUGHTS if policy.thoughts == "skip" else ()
        self._unspoken = UNSPOKEN.union(CODE if self._skip_code else (), thoughts)
        self._line_start, self._heading, self._bulleted = True, False, False
        self._last = self._solid = "\n"
        """The last unit let through, and the last that is no blank."""
        self._recent = ""
        self._in_address = False
        """In an address in plain sight: https://x.y/_z_"""
        self._angled = False
        """It began with a `<`."""
        self._mark, self._count, self._mark_end = "", 0, 0
        """The run that is held."""
        self._code = 0
        """The length of the run that opened inline code."""
        self._fence: Fence | None = None
        self._brackets = 0
        """Open ones in this line."""
        self._named = False
        """There is a letter in the last of them."""
        self._row = False
        """In a table's row; its blanks and bars wait in `_gap` for text."""
        self._gap: Unit | None = None
        self._construct: Construct | None = None
        self._held: list[Unit] = []
        self._replaying = False
        """What is fed is an element that was only mentioned."""

    def feed(self, char: str, end: int) -> list[Unit]:
        """The units that a character lets through; `end` is the place after it."""
        if self._construct is not None:
            return self._go_on(self._construct, char, end)
        if self._fence is not None:
            return self._feed_code(self._fence, char, end)
        if self._mark:
            if char == self._mark:
                self._count += 1
                self._mark_end = end
                return []
            return self._judge(char) + self.feed(char, end)
        if self._code:
            return self._hold_run(char, end) if char == "`" else self._pass(char, end)
        if char in _ATTENTIVE:
            return self._attend(char, end)
        if (self._line_start and char in _LINE_RUNS) or (self._heading and char == "#"):
            return self._hold_run(char, end)
        if self._line_start and char in _BULLETS:
            self._bulleted = True
            return []
        return self._pass(char, end)

    def flush(self) -> list[Unit]:
        """What is held; a code block and an element that is not spoken stay open."""
        units: list[Unit] = []
        while (construct := self._construct) is not None:
            fate = construct.flush()
            if fate is Fate.MORE:
                break
            held, self._held, self._construct = self._held, [], None
            text = fate is Fate.TEXT
            units += self._replay(construct, held) if text else self._finish(construct, held, 0)
        if self._mark:
            units += self._judge("")
        self._gap = None
        return units

    def _feed_code(self, fence: Fence, char: str, end: int) -> list[Unit]:
        units = [unit for code in fence.feed(char, end) for unit in self._pass(*code)]
        if fence.is_over:
            self._fence, self._line_start = None, False
        return units

    # --- a character ----------------------------------------------------------------------------------------

    def _pass(self, char: str, end: int) -> list[Unit]:
        """Let a character through."""
        unit = spoken(char)
        if not unit or unit == "]":
            return []
        if unit == ">" and self._angled:
            self._angled = False
            return []
        if unit == "\n":
            self._end_line()
        elif unit in " [":
            unit = " "  # of a bracket, too: fact.[1] is not fact.1
            self._in_address = self._angled = False
            if self._row:
                self._gap = self._gap or (" ", end)
                self._last = " "
        else:
            return self._pass_solid(unit, end)
        if self._row:
            return []
        self._last = unit
        return [(unit, end)]

    def _pass_solid(self, unit: str, end: int) -> list[Unit]:
        units = self._fill(self._gap) if self._gap is not None else []
        self._line_start = self._bulleted = False
        self._named = self._named or unit.isalpha()
        self._recent = (self._recent + unit)[-4:]
        if unit in "/." and (self._recent.endswith("://") or self._recent == "www."):
            self._in_address = True
        elif is_wide(unit) or unit in '<>"':
            self._in_address = False
        self._last = self._solid = unit
        units.append((unit, end))
        return units

    def _end_line(self) -> None:
        self._line_start = True
        self._heading = self._bulleted = self._row = self._in_address = self._angled = False
        self._gap = None
        self._brackets = self._code = 0
        self._recent, self._solid = "", "\n"

    def _fill(self, gap: Unit) -> list[Unit]:
        """What stands between two words of a row, or two cells."""
        self._gap = None
        mark, end = gap
        if self._solid == "\n":
            return []
        if mark == " " or self._solid in _FRESH:
            return [(" ", end)]
        return [("，", end)] if is_wide(self._solid) else [(",", end), (" ", end)]

    def _attend(self, char: str, end: int) -> list[Unit]:
        """A character that may begin something."""
        if char in _RUNS:
            return self._hold_run(char, end)
        if char == "|":
            if not (self._row or self._line_start):
                return self._pass(char, end)
            self._row, self._line_start, self._gap, self._last = True, False, ("|", end), " "
            return []
        if char == "!" and self._last not in _BEFORE_PICTURE:
            return self._pass(char, end)
        if char == "[":
            self._construct = Bracket(line_start=self._line_start, bulleted=self._bulleted)
        else:
            self._construct = _CONSTRUCTS[char]()
        self._held.append((char, end))
        return []

    # --- runs of a mark -------------------------------------------------------------------------------------

    def _hold_run(self, char: str, end: int) -> list[Unit]:
        self._mark, self._count, self._mark_end = char, 1, end
        return []

    def _judge(self, following: str) -> list[Unit]:
        """What the held run is, by the character after it ("": the end of the text)."""
        mark, count, self._mark = self._mark, self._count, ""
        if self._code:
            self._code = 0 if count == self._code else self._code
            return []
        if mark == "]":
            return self._close_bracket(count, following)
        if self._line_start:
            if mark in "`~" and count >= 3:
                self._fence = Fence(mark, count, skip=self._skip_code)
                return []
            if self._is_line_mark(mark, count, following):
                return []
        if mark == "`":
            self._code, self._line_start = count, False
            return []
        if not self._is_text(mark, count, following):
            self._line_start = False
            return []
        first = self._mark_end - count + 1
        return [unit for end in range(first, self._mark_end + 1) for unit in self._pass(mark, end)]

    def _is_line_mark(self, mark: str, count: int, following: str) -> bool:
        """Whether a run at the beginning of a line belongs to it: `# `, `- `, `> `."""
        blank = not following or following.isspace()
        if mark == "#" and blank and count <= _MOST_HASHES:
            self._heading = True
            return True
        if mark in "-+*" and count == 1 and blank:
            self._bulleted = True
            return True
        return mark == ">" and not following.isdigit() and following != "="

    def _is_text(self, mark: str, count: int, following: str) -> bool:
        """Whether a run is to be spoken, or told on."""
        blank = not following or following.isspace()
        match mark:
            case "*" if self._last.isdigit() and following.isdigit():
                return count <= 2  # 2*3, 2**3
            case "*":
                return count == 1 and self._last.isspace() and blank
            case "_":
                return (_is_latin(self._last) and _is_latin(following)) or (self._in_address and not blank)
            case "~":
                return count == 1 or self._in_address
            case "#":
                at_end = not following or following in NEWLINES
                return not (self._heading and self._last == " " and at_end)
            case _:
                return True

    def _close_bracket(self, count: int, following: str) -> list[Unit]:
        if self._brackets and following == "(":
            self._construct = Address()
        elif self._brackets and following == "[" and self._named:
            self._construct = Reference()
        self._brackets = max(self._brackets - count, 0)
        return []

    # --- constructs -----------------------------------------------------------------------------------------

    def _go_on(self, construct: Construct, char: str, end: int) -> list[Unit]:
        fate = construct.feed(char)
        if fate is not Fate.BEFORE and (construct.holds or fate is Fate.TEXT):
            self._held.append((char, end))
        if fate is Fate.MORE and len(self._held) <= construct.limit:
            return []
        held, self._held, self._construct = self._held, [], None
        if fate in (Fate.MORE, Fate.TEXT):
            return self._replay(construct, held)
        units = self._finish(construct, held, end)
        return units + self.feed(char, end) if fate is Fate.BEFORE else units

    def _finish(self, construct: Construct, held: Sequence[Unit], end: int) -> list[Unit]:
        if isinstance(construct, Tag):
            return self._close_tag(construct, held, end)
        self._construct = construct.successor
        first = end - len(construct.text) + 1  # of two characters of one entity, each has its own place
        return [unit for at, char in enumerate(construct.text, first) for unit in self._pass(char, at)]

    def _replay(self, construct: Construct, held: Sequence[Unit]) -> list[Unit]:
        """What was held is text."""
        units: list[Unit] = []
        literal = construct.literal
        mentioned = isinstance(construct, Contents)
        if isinstance(construct, Tag) and construct.is_address:
            held, literal, self._angled = held[1:], 0, True
        elif len(held) > _REPLAYED and not mentioned:
            literal = len(held)
        self._replaying, before = self._replaying or mentioned, self._replaying
        for at, (char, end) in enumerate(held):
            if at < literal and char == "[":
                self._brackets += 1
                self._named = False
            units += self._pass(char, end) if at < literal else self.feed(char, end)
        self._replaying = before
        return units

    def _close_tag(self, tag: Tag, held: Sequence[Unit], end: int) -> list[Unit]:
        name = tag.name
        if not tag.is_known:
            text = held[1:-1] if not _is_latin(self._last) else [(" ", held[0][1]), *held[1:-1]]
            return [unit for char, place in text for unit in self._pass(char, place)]
        if name in self._unspoken and not (tag.is_closing or tag.is_empty or self._replaying):
            self._construct = Contents(name, mentioned=self._solid not in _FRESH)
        elif name in LINES:
            row = self._row
            self._row = False
            units = self._pass("\n", end)
            self._row = row
            return units
        elif name in CELLS and not tag.is_closing:
            self._gap = ("|", end)
        return []


def _is_latin(char: str) -> bool:
    return char.isalnum() and not is_wide(char)
