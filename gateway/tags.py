"""Tags: HTML, SSML and the marks of language models between `<` and `>`, told from a literal `a < b`.

Sits under `markup`, beside `constructs`. Pure; of the gateway it imports `constructs` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.constructs import Construct, Fate


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LINES: Final = _words(
    """address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol optgroup option p pre section
    select summary table tbody textarea tfoot thead title tr ul"""
)
"""Elements that begin and end a line."""
CELLS: Final = frozenset(("td", "th"))
UNSPOKEN: Final = frozenset(("script", "style", "svg", "template", "tool_call", "!--"))
"""Elements whose contents are not for the reader; the last one is a comment."""
CODE: Final = frozenset(("pre",))
THOUGHTS: Final = frozenset(("think", "thinking"))
_OTHERS: Final = _words(
    """a abbr acronym audio b base bdi bdo big button canvas cite code col colgroup data datalist del dfn em
    embed font i iframe img input ins kbd label legend link map mark menu meta meter noscript object output
    picture progress q rp rt ruby s samp search small source span strike strong sub sup time track tt u var
    video wbr
    break emphasis phoneme prosody say-as sentence speak voice
    answer response assistant reasoning reflection"""
)
_KNOWN: Final = LINES | CELLS | UNSPOKEN | THOUGHTS | _OTHERS
_BOOLEAN: Final = _words(
    """async autofocus autoplay checked controls default defer disabled download hidden loop multiple muted
    novalidate open playsinline readonly required reversed selected"""
)
"""Attributes that stand without a value; other bare words say that this is no tag."""
_SCHEMES: Final = frozenset(("http", "https", "mailto", "ftp"))
_LONGEST_NAME: Final = 40
_LONGEST_MENTION: Final = 1024
"""Characters that are held of an element in the middle of a clause, where its tag may only be mentioned."""


class Tag(Construct):
    """After `<`: `b>`, `/b>`, `a href="x">`, `br/>`, `!DOCTYPE html>`, `|end|>`; of a comment its `!--`."""

    def __init__(self) -> None:
        self.name = ""
        self.is_closing = self.is_empty = self.is_address = False
        """`</b>`; `<br/>`; `<https://x.y>`, which is text but for its brackets."""
        self._attribute = self._quote = self._value = ""
        self._attributed = False
        self._state: Callable[[str], Fate] = self._open

    def feed(self, char: str) -> Fate:
        """The next character."""
        return self._state(char)

    @property
    def is_known(self) -> bool:
        """Else it may be `List<String>` or <your name>: its name is text."""
        return (
            self.name in _KNOWN
            or self.is_closing
            or self.is_empty
            or self._attributed
            or ":" in self.name
            or not self.name[0].isalpha()
        )

    def _go(self, state: Callable[[str], Fate]) -> Fate:
        self._state = state
        return Fate.MORE

    def _open(self, char: str) -> Fate:
        if char.isascii() and char.isalpha():
            self.name = char.lower()
            return self._go(self._named)
        if self.is_closing:
            return Fate.TEXT
        if char == "/":
            self.is_closing = True
            return Fate.MORE
        if char in "!?|｜":
            self.name = char
            return self._go(self._special if char in "|｜" else self._declared)
        return Fate.TEXT

    def _named(self, char: str) -> Fate:
        if char.isascii() and (char.isalnum() or char in "-_"):
            self.name += char.lower()
            return Fate.MORE if len(self.name) <= _LONGEST_NAME else Fate.TEXT
        if char == ":" and not self.is_closing and self.name in _SCHEMES:
            self.is_address = True
            return Fate.TEXT
        if char == ":":  # a name space, but not that of C++
            self.name += char
            return Fate.TEXT if self.name.endswith("::") else Fate.MORE
        if char in ".+@":
            return self._mail(char)
        return self._gap(char) if char.isspace() or char in "/>" else Fate.TEXT

    def _mail(self, char: str) -> Fate:
        self.is_address = char == "@"
        going_on = char.isascii() and (char.isalnum() or char in "-_.+")
        return self._go(self._mail) if going_on and not self.is_closing else Fate.TEXT

    def _special(self, char: str) -> Fate:
        """`<|end|>`, `<｜end▁of▁sentence｜>`"""
        if char == ">" and self.name[-1] in "|｜" and len(self.name) > 2:
            return Fate.DONE
        self.name += char
        known = char.isalnum() or char in "_-.|｜▁/"
        return Fate.MORE if known and len(self.name) <= _LONGEST_NAME else Fate.TEXT

    def _declared(self, char: str) -> Fate:
        """`<!DOCTYPE html>`, `<?xml version="1.0"?>`, `<!--`"""
        if len(self.name) > 1 and self.name[1] != "-":
            return Fate.DONE if char == ">" else Fate.TEXT if char == "<" else Fate.MORE
        self.name += char.lower()
        if self.name == "!--":
            return Fate.DONE
        is_name = char.isascii() and char.isalpha() and len(self.name) == 2
        return Fate.MORE if is_name or self.name == "!-" else Fate.TEXT

    def _gap(self, char: str) -> Fate:
        """Between attributes."""
        if char == ">":
            return Fate.DONE
        if char.isspace():
            return self._go(self._gap)
        if self.is_closing:
            return Fate.TEXT
        if char == "/":
            self.is_empty = True
            return self._go(self._slashed)
        self._attribute = char
        return self._go(self._in_attribute) if char.isascii() and char.isalpha() else Fate.TEXT

    def _slashed(self, char: str) -> Fate:
        return Fate.DONE if char == ">" else Fate.TEXT

    def _in_attribute(self, char: str) -> Fate:
        if char == "=":
            self._attributed, self._value = True, ""
            return self._go(self._before_value)
        if char.isascii() and (char.isalnum() or char in "-_:."):
            self._attribute += char
            return Fate.MORE if len(self._attribute) <= _LONGEST_NAME else Fate.TEXT
        return self._gap(char) if self._attribute.lower() in _BOOLEAN else Fate.TEXT

    def _before_value(self, char: str) -> Fate:
        if char.isspace() or char in "<>":
            return Fate.TEXT
        self._quote = char
        return self._go(self._quoted if char in "\"'" else self._bare)

    def _bare(self, char: str) -> Fate:
        if char.isspace() or char == ">":
            return self._gap(char)
        return Fate.TEXT if char in "<\"'" else Fate.MORE

    def _quoted(self, char: str) -> Fate:
        if char == self._quote:
            return self._go(self._after_quote)
        if len(self._value) < 5:
            self._value += char
        if self._value == "data:":
            self.holds = False  # a picture itself, of any length
            return Fate.TEXT if char.isspace() else Fate.MORE
        return Fate.MORE

    def _after_quote(self, char: str) -> Fate:
        return self._gap(char) if char.isspace() or char in "/>" else Fate.TEXT


class Contents(Construct):
    """All of an element that is not spoken, up to the end of its closing tag.

    `mentioned`: its tag stood in the middle of a clause. So, in case that it is only spoken about, what
    follows is held, and is text after all if no closing tag comes soon.
    """

    limit = _LONGEST_MENTION
    literal = 0

    def __init__(self, name: str, *, mentioned: bool) -> None:
        self._close = "-->" if name == "!--" else f"</{name}>"
        self._tail = ""
        self.holds = mentioned

    def feed(self, char: str) -> Fate:
        """Anything."""
        if char.isspace():
            return Fate.MORE
        self._tail = (self._tail + char.lower())[-len(self._close) :]
        return Fate.DONE if self._tail == self._close else Fate.MORE

    def flush(self) -> Fate:
        """An element at the beginning of a line or a sentence stays open."""
        return Fate.TEXT if self.holds else Fate.MORE
