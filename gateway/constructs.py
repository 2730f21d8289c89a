"""Constructs: what in a text must be seen whole before it is known to be markup, each a small machine.

Sits under `markup`, which opens one at its first character, holds what it reads, and asks what comes of it.
HTML's tags are in `tags`. Pure; of the gateway it imports `language` only.
"""

from __future__ import annotations

import html
from enum import Enum, auto
from html.entities import html5
from typing import Final

from gateway.language import NEWLINES

Unit = tuple[str, int]
"""A character, and the place in the client's text after it."""

LONGEST: Final = 2048
"""Characters held of one construct; what is longer is none, but text."""
_LONGEST_INFO: Final = 64
"""Characters of a code block's first line that may be the name of its language."""
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_TARGETS: Final = ("http://", "https://", "www.", "mailto:", "/", "./", "../", "<")
"""What the address of a link's definition begins with."""


class Fate(Enum):
    """What one more character makes of a construct."""

    MORE = auto()
    """Not known yet; it is held."""
    DONE = auto()
    """It is one, and this is its last character."""
    BEFORE = auto()
    """It is one, and ended before this character."""
    TEXT = auto()
    """It is none: what is held is text."""


class Construct:
    """One construct under way."""

    limit = LONGEST
    """The most characters that are held."""
    holds = True
    """What is read is kept, in case that it is text after all."""
    literal = 1
    """Characters at its beginning that are text themselves if it is none."""
    text = ""
    """What is to be spoken in its place."""
    successor: Construct | None = None
    """What is open after it."""

    def feed(self, char: str) -> Fate:
        """One more character."""
        raise NotImplementedError

    def flush(self) -> Fate:
        """The end of the text. MORE: it stays open."""
        return Fate.TEXT


class Escape(Construct):
    """A backslash: before a mark it makes it text, at the end of a line it is nothing."""

    def feed(self, char: str) -> Fate:
        """The marked character."""
        if char in NEWLINES:
            return Fate.BEFORE
        self.text = char
        return Fate.DONE if char in _PUNCTUATION else Fate.TEXT


class Entity(Construct):
    """`&amp;`, `&#39;`, `&#x4f60;`: after the `&`."""

    limit = 34

    def __init__(self) -> None:
        self._name = ""

    def feed(self, char: str) -> Fate:
        """A character of the name, or the semicolon."""
        if char == ";":
            return self._decode()
        if not char.isascii() or not (char.isalnum() or (char == "#" and not self._name)):
            return Fate.TEXT
        self._name += char
        return Fate.MORE

    def _decode(self) -> Fate:
        number = self._name[1:]
        if self._name.startswith("#"):
            known = number.isdigit() if number[:1] not in ("x", "X") else _is_hex(number[1:])
        else:
            known = f"{self._name};" in html5
        if not known:
            return Fate.TEXT
        self.text = html.unescape(f"&{self._name};")
        return Fate.DONE


def _is_hex(digits: str) -> bool:
    return bool(digits) and all(digit in "0123456789abcdefABCDEF" for digit in digits)


class Bang(Construct):
    """An exclamation mark that ends no sentence: before `[` it makes an image."""

    def feed(self, char: str) -> Fate:
        """The character after it."""
        return Fate.BEFORE if char == "[" else Fate.TEXT


class Ansi(Construct):
    """A terminal's escape sequence, as `ESC [ 3 1 m`."""

    limit = 24

    def __init__(self) -> None:
        self._open = False

    def feed(self, char: str) -> Fate:
        """After the `ESC`."""
        if not self._open:
            self._open = char == "["
            return Fate.MORE if self._open else Fate.TEXT
        if char in "0123456789;?":
            return Fate.MORE
        return Fate.DONE if "@" <= char <= "~" else Fate.TEXT


class Bracket(Construct):
    """After `[`: a footnote's mark, a task's box, or a link's definition. Else it is text or a link."""

    limit = 60

    def __init__(self, *, line_start: bool, bulleted: bool) -> None:
        self._line_start = line_start
        self._bulleted = bulleted
        self._state = self._first
        self._word = ""

    def feed(self, char: str) -> Fate:
        """The next character."""
        return self._state(char)

    def flush(self) -> Fate:
        """A footnote is complete without what follows."""
        return Fate.DONE if self._state == self._noted else Fate.TEXT

    def _first(self, char: str) -> Fate:
        if char == "^":
            self._state = self._footnote
        elif self._bulleted and char in " xX":
            self._state = self._box
        elif self._line_start and char not in NEWLINES and char not in "[]":
            self._state = self._label
        else:
            return Fate.TEXT
        return Fate.MORE

    def _footnote(self, char: str) -> Fate:
        if char == "]" and self._word:
            self._state = self._noted
            return Fate.MORE if self._line_start else Fate.DONE
        self._word += char
        return Fate.TEXT if char.isspace() or char in "[]" else Fate.MORE

    def _noted(self, char: str) -> Fate:
        return Fate.DONE if char == ":" else Fate.BEFORE

    def _box(self, char: str) -> Fate:
        if char != "]":
            return Fate.TEXT
        self._state = self._boxed
        return Fate.MORE

    def _boxed(self, char: str) -> Fate:
        return Fate.BEFORE if char.isspace() else Fate.TEXT

    def _label(self, char: str) -> Fate:
        if char == "]":
            self._state = self._labelled
        return Fate.TEXT if char in NEWLINES or char == "[" else Fate.MORE

    def _labelled(self, char: str) -> Fate:
        self._state = self._target
        return Fate.MORE if char == ":" else Fate.TEXT

    def _target(self, char: str) -> Fate:
        if char in " \t" and not self._word:
            return Fate.MORE
        self._word += char
        if self._word.startswith(_TARGETS):
            self.successor = RestOfLine()
            return Fate.DONE
        return Fate.MORE if any(target.startswith(self._word) for target in _TARGETS) else Fate.TEXT


class RestOfLine(Construct):
    """All up to the end of the line, which is not spoken."""

    holds = False

    def feed(self, char: str) -> Fate:
        """Ends before the newline."""
        return Fate.BEFORE if char in NEWLINES else Fate.MORE

    def flush(self) -> Fate:
        """The end of the text is the end of the line."""
        return Fate.DONE


class Address(Construct):
    """`(address "title")` after a link's text. What has a blank inside is no address."""

    def __init__(self) -> None:
        self._start = ""
        """Its first characters, with the bracket."""
        self._depth = 0
        self._quote = ""
        self._titled = self._blank = False

    def feed(self, char: str) -> Fate:
        """From the opening bracket on."""
        blank, self._blank = self._blank, char == " "
        if len(self._start) < 6:
            self._start += char
        if self._quote:
            self._quote = "" if char == self._quote else self._quote
        else:
            self._depth += (char == "(") - (char == ")")
        if self._depth == 0:
            return Fate.DONE
        if char in NEWLINES:
            return Fate.TEXT
        if self._start == "(data:":
            self.holds = False  # a picture itself, of any length
            return Fate.TEXT if char == " " else Fate.MORE
        if blank and char in "\"'" and not self._titled:
            self._titled, self._quote = True, char
        return Fate.TEXT if blank and not self._titled and self._start[1] != "<" else Fate.MORE


class Reference(Construct):
    """`[name]` after a link's text, or `[]`."""

    limit = 64

    def __init__(self) -> None:
        self._open = False

    def feed(self, char: str) -> Fate:
        """From the opening bracket on."""
        if not self._open:
            self._open = True
            return Fate.MORE
        if char == "]":
            return Fate.DONE
        return Fate.MORE if char.isascii() and (char.isalnum() or char in " -.") else Fate.TEXT


class Fence:
    """A block of code: it ends at a run of its mark at the start of a line, or in its own first line."""

    def __init__(self, mark: str, length: int, *, skip: bool) -> None:
        self.is_over = False
        self._mark = mark
        self._length = length
        self._skip = skip
        self._count = 0
        self._line_start = False
        self._info: list[Unit] | None = []
        """The first line, until it is known for one: no code, but the name of its language."""

    def feed(self, char: str, end: int) -> list[Unit]:
        """The code that is to be read."""
        if char == self._mark and (self._info is not None or self._line_start):
            self._count += 1
            self.is_over = self._count == self._length
            return self._release() if self.is_over else []
        self._count = 0
        newline = char in NEWLINES
        self._line_start = newline or (self._line_start and char.isspace())
        if self._info is None:
            return [] if self._skip else [(char, end)]
        if newline:
            self._info = None
        elif not self._skip:
            self._info.append((char, end))
            return self._release() if len(self._info) > _LONGEST_INFO else []
        return []

    def _release(self) -> list[Unit]:
        units, self._info = self._info or [], None
        return units
