"""Spans to runs of one language: the first stage of the embedded engine.

A span says its language, but an English word in a Chinese span is still read by the English voice, and the
other way round: each voice drops what it cannot read. Letters decide; digits and punctuation go with what
stands beside them. Pure; imports the standard library only.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Language = Literal["zh", "en"]

KEPT: Final = frozenset("，。！？：；、（）“”‘’《》「」【】…—～")
"""Marks of Chinese text that mean something to the Mandarin reader, so compatibility forms stay."""

_SEPARATORS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})


class SpanLike(Protocol):
    """What this stage reads of `engine.wire.Span`."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def language(self) -> str:
        """`zh`, `en`, or anything else, which leaves it to the script."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text that one voice reads."""

    text: str
    language: Language


def runs(spans: Iterable[SpanLike]) -> list[Run]:
    """The runs of a sentence, neighbours of one language joined, without what no voice could say."""
    found: list[Run] = []
    for span in spans:
        text = clean(span.text)
        for run in _runs_of_span(text, _known(span.language)):
            if found and found[-1].language == run.language:
                found[-1] = Run(found[-1].text + run.text, run.language)
            else:
                found.append(run)
    return found


def clean(text: str) -> str:
    """Compatibility forms to plain ones (１２３, ㎏, ½); control, format and unassigned characters to spaces.

    Zero-width characters vanish, since they stand inside words.
    """
    parts: list[str] = []
    for char in text:
        category = unicodedata.category(char)
        if char in KEPT or (category[0] in "LNPSM" and char.isascii()):
            parts.append(char)
        elif category == "Cf":
            continue
        elif category in _SEPARATORS:
            parts.append(" ")
        else:
            parts.append(unicodedata.normalize("NFKC", char).replace("\u2044", "/"))
    return unicodedata.normalize("NFC", "".join(parts))


def is_han(char: str) -> bool:
    """Whether a Mandarin reader may know the character."""
    return "\u4e00" <= char <= "\u9fff" or char == "〇"


def _is_latin(char: str) -> bool:
    return char.isalpha() and (char.isascii() or "\u00c0" <= char <= "\u03ff" or "\u1e00" <= char <= "\u1fff")


def _known(language: str) -> Language | None:
    if language == "zh":
        return "zh"
    return "en" if language == "en" else None


def _runs_of_span(text: str, default: Language | None) -> list[Run]:
    languages = _languages(text, default)
    found: list[Run] = []
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or languages[at] != languages[start]:
            found.append(Run(text[start:at], languages[start]))
            start = at
    return found


def _languages(text: str, default: Language | None) -> list[Language]:
    """The language of each character: letters first, then what is neutral by its neighbours."""
    strong: list[Language | None] = [
        "zh" if is_han(char) else "en" if _is_latin(char) else None for char in text
    ]
    before = _fill(strong)
    after = _fill(strong[::-1])[::-1]
    result: list[Language] = []
    for at, char in enumerate(text):
        own = strong[at]
        left, right = before[at], after[at]
        if own is not None:
            result.append(own)
        elif char.isdigit():
            result.append(_digit_language(text, at, left, right, default))
        else:
            # Punctuation belongs to what it closes; at the start of a span to what follows.
            result.append(result[-1] if result else right or default or "en")
    return result


def _digit_language(
    text: str, at: int, left: Language | None, right: Language | None, default: Language | None
) -> Language:
    """`iPhone 15 Pro` and `A101` are English wherever they stand; else the span's language reads numbers."""
    start = at
    while start and (text[start - 1].isdigit() or text[start - 1] in ".,"):
        start -= 1
    if start and _is_latin(text[start - 1]):
        return "en"
    if left == right and left is not None:
        return left
    return default or left or right or "en"


def _fill(strong: Sequence[Language | None]) -> list[Language | None]:
    """Each place's nearest decided language at or before it."""
    filled: list[Language | None] = []
    last: Language | None = None
    for language in strong:
        last = language or last
        filled.append(last)
    return filled
