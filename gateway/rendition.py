"""A segment in its spoken form: what goes to the engine, and which place of the client's text each bit says.

Place in the flow: `script` has each segment rendered here, by `normalize`, before the utterance submits it.
Pure: any thread may call `render`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

from engine.wire import Span
from gateway.language import is_wide, speakable
from gateway.lexicon import EMPTY, Lexicon
from gateway.messages import Language, SpokenIn
from gateway.normalize import TAGS, normalize
from gateway.sentences import Segment
from gateway.speech import Piece, joined

Place = tuple[int, int]
Tags = Literal["read", "act", "drop"]
"""`[laugh]` and the like are words, or the engine's own tags, or nothing as the engine knows none."""

WIDE_MS: Final = 220.0
NARROW_MS: Final = 65.0
"""About the sound of a Han and of a Latin character: used while the sound's own length is not known."""
_MARKS: Final = frozenset("，。？！、；：,.?!;:")
_BARE_TAG: Final = re.compile("|".join(re.escape(tag[1:-1]) for tag in TAGS))
_ELEMENT: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
"""Of HTML: itself markup, not something left unsaid."""


@dataclass(frozen=True, slots=True)
class Bit:
    """What is said, in one language, of `[start, end)` of the client's text.

    `literal`: character by character, as it stands there. Else the whole is read for the whole, in several
    bits of that one place where it had to be cut. Neither `start` nor `end` ever decreases.
    """

    spoken: str
    language: Literal["zh", "en"]
    start: int
    end: int
    literal: bool


@dataclass(frozen=True, slots=True)
class Rendition:
    """What is said of a segment. Places are those of the client's text, in code points."""

    segment: Segment
    parts: tuple[tuple[Bit, ...], ...]
    """A `Submit` each, of at most the characters that the engine takes; none if there is nothing to say."""
    dropped: tuple[Place, ...]
    """What is not said: of markup only what has letters, digits or pictures."""

    @property
    def text(self) -> str:
        """All that is said, as it was before it was cut in parts."""
        return " ".join("".join(piece.spoken for piece in part) for part in self.parts)

    @property
    def language(self) -> SpokenIn:
        """Of what is said."""
        found = {piece.language for part in self.parts for piece in part}
        return "mixed" if len(found) > 1 else next(iter(found), "en")

    def extended(self, rest: str) -> Rendition:
        """The same with text after it that is not said."""
        start = self.segment.end
        segment = replace(self.segment, end=start + len(rest))
        left_out = [(start, segment.end)] if is_left_out(rest) else []
        return replace(self, segment=segment, dropped=joined([*self.dropped, *left_out]))

    @property
    def main_language(self) -> Literal["zh", "en"]:
        """That of the greater part of the sound."""
        pieces = [piece for part in self.parts for piece in part]
        chinese = sum(sound_ms(piece.spoken) for piece in pieces if piece.language == "zh")
        return "zh" if 2 * chinese > sum(sound_ms(piece.spoken) for piece in pieces) else "en"


def render(
    segment: Segment,
    source: str,
    *,
    max_chars: int,
    language: Language = "auto",
    lexicon: Lexicon = EMPTY,
    tags: Tags = "read",
    default: Literal["zh", "en"] = "en",
) -> Rendition:
    """Say a segment. `source` is its slice of the client's text; `default`: of a text without letters."""
    if tags != "read":
        segment = _with_tags(segment, source, act=tags == "act")
    spoken = normalize(segment.text, language=language, lexicon=lexicon, tags=tags == "act", default=default)
    starts = _starts(segment, source)
    bits = tuple(_in_order(_placed(spoken.pieces, segment, starts)))
    lost = ((starts[start], segment.ends[end - 1]) for start, end in spoken.dropped)
    dropped = joined([*_left_out(segment, starts, source), *lost])
    return Rendition(segment, tuple(_parts(bits, max_chars)), dropped)


def spans(part: Sequence[Bit]) -> tuple[Span, ...]:
    """A part as the engine gets it: runs of one language."""
    runs = [list(run) for _, run in groupby(part, key=lambda piece: piece.language)]
    return tuple(
        Span("".join(piece.spoken for piece in run), run[0].language, run[0].start, run[-1].end)
        for run in runs
    )


def sound_ms(text: str) -> float:
    """About how long a text sounds."""
    return sum(WIDE_MS if is_wide(char) else NARROW_MS for char in text)


def is_left_out(text: str) -> bool:
    """Whether text that is not said means something: it has letters, digits or pictures."""
    return bool(text) and any(map(_means_something, _ELEMENT.sub("", text)))


# --- places -------------------------------------------------------------------------------------------------


def _starts(segment: Segment, source: str) -> list[int]:
    """Where each character of the segment starts in the client's text: one before its end, except `&amp;`."""
    starts: list[int] = []
    low = 0
    for char, place in zip(segment.text, segment.ends, strict=True):
        end = place - segment.start
        entity = source.rfind("&", low, end - 1) if source[end - 1] == ";" and char != ";" else -1
        starts.append(segment.start + (end - 1 if entity < 0 else entity))
        low = end
    return starts


def _placed(pieces: Sequence[Piece], segment: Segment, starts: Sequence[int]) -> Iterator[Bit]:
    """Pieces at their places in the client's text. Where two of them lie in one place, neither is literal."""
    last_end = 0
    for number, piece in enumerate(pieces, 1):
        shared = pieces[number].start if number < len(pieces) else piece.end
        literal_to = min(shared, piece.end) if shared > piece.start >= last_end else piece.start
        if not _is_literal(piece, segment.text):
            literal_to = piece.start
        yield from _literal(piece, literal_to, starts, segment.ends)
        if literal_to < piece.end:
            said = piece.spoken[literal_to - piece.start :]
            yield Bit(said, piece.language, starts[literal_to], segment.ends[piece.end - 1], literal=False)
        last_end = piece.end


def _is_literal(piece: Piece, text: str) -> bool:
    """Whether each character of a piece is the one that stands there, up to its width; marks may differ."""
    written = text[piece.start : piece.end]
    return (
        len(piece.spoken) == len(written)
        and piece.spoken not in TAGS
        and all(
            said == char or said == unicodedata.normalize("NFKC", char)
            for said, char in zip(piece.spoken, written, strict=True)
            if said.isalnum() or char.isalnum()
        )
    )


def _literal(piece: Piece, end: int, starts: Sequence[int], ends: Sequence[int]) -> Iterator[Bit]:
    """The piece up to there, cut where markup stands in it, or one character in the place of several."""
    begun = piece.start
    for at in range(piece.start + 1, end + 1):
        is_single = ends[begun] == starts[begun] + 1 and (begun == 0 or starts[begun] >= ends[begun - 1])
        goes_on = at < end and starts[at] == ends[at - 1] and ends[at] == starts[at] + 1
        if not (is_single and goes_on):
            said = piece.spoken[begun - piece.start : at - piece.start]
            yield Bit(said, piece.language, starts[begun], ends[at - 1], literal=is_single)
            begun = at


def _in_order(bits: Iterable[Bit]) -> Iterator[Bit]:
    """None begins inside of the one before it: it shares that one's place, or the last of its characters'."""
    last: Bit | None = None
    for bit in bits:
        if last is not None and bit.start < last.end:
            if last.literal and bit.start > last.start:
                cut = bit.start - last.start
                yield replace(last, spoken=last.spoken[:cut], end=bit.start)
                last = replace(last, spoken=last.spoken[cut:], start=bit.start)
            last = replace(last, literal=False)
            start = last.start if bit.end <= last.end else last.end
            bit = replace(bit, start=start, end=max(bit.end, last.end), literal=False)
        if last is not None:
            yield last
        last = bit
    if last is not None:
        yield last


def _left_out(segment: Segment, starts: Sequence[int], source: str) -> Iterator[Place]:
    """What the splitter left out of a segment, where that means something."""
    before = segment.start
    for start, end in [*zip(starts, segment.ends, strict=True), (segment.end, segment.end)]:
        if is_left_out(source[before - segment.start : start - segment.start]):
            yield before, start
        before = end


def _means_something(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char) in ("So", "Sc", "Sm", "Cs", "Co", "Cn")


def _with_tags(segment: Segment, source: str, *, act: bool) -> Segment:
    """The segment with the engine's tags in the brackets that the splitter takes for markup, or without."""
    chars, ends = list(segment.text), list(segment.ends)
    for found in reversed(list(_BARE_TAG.finditer(segment.text))):
        first, after = found.span()
        low, high = ends[first] - 2 - segment.start, ends[after - 1] + 1 - segment.start
        if low < 0 or source[low:high] != f"[{found.group()}]":
            continue
        low, high = low + segment.start, high + segment.start
        # A blank at a bracket's place stands for it.
        after += chars[after : after + 1] == [" "] and ends[after] == high
        first -= first > 0 and chars[first - 1] == " " and ends[first - 1] == low + 1
        chars[first:after] = f"[{found.group()}]" if act else " "
        ends[first:after] = range(low + 1, high + 1) if act else [high]
    return replace(segment, text="".join(chars), ends=tuple(ends))


# --- parts --------------------------------------------------------------------------------------------------


def _parts(bits: Sequence[Bit], limit: int) -> Iterator[tuple[Bit, ...]]:
    """The bits in as few parts as the limit asks for, each with something to say."""
    text = "".join(bit.spoken for bit in bits)
    edges: set[int] = set()
    inside: set[int] = set()
    at = 0
    for bit in bits:
        edges.add(at)
        if bit.spoken in TAGS:
            inside.update(range(at + 1, at + len(bit.spoken)))
        at += len(bit.spoken)
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= limit else _cut(text, start, limit, edges, inside)
        said = text[start:end]
        if speakable(said):
            high = start + len(said.rstrip(" "))
            yield tuple(_slice(bits, start + len(said) - len(said.lstrip(" ")), high))
        start = end


def _cut(text: str, start: int, limit: int, edges: set[int], inside: set[int]) -> int:
    """Where a part ends: in the second half of the limit, at a mark, a blank, between readings, or at Han."""
    places = [at for at in range(start + limit, start + limit // 2, -1) if at not in inside]
    places = [at for at in places if text[at] not in _MARKS] or places
    for is_good in (
        lambda at: text[at - 1] in _MARKS,
        lambda at: " " in text[at - 1 : at + 1],
        lambda at: at in edges,
        lambda at: is_wide(text[at - 1]) or is_wide(text[at]),
    ):
        if (found := next(filter(is_good, places), None)) is not None:
            return found
    return places[0] if places else start + limit


def _slice(bits: Sequence[Bit], start: int, end: int) -> Iterator[Bit]:
    """Characters `[start, end)` of the bits' texts; a reading cut in two keeps its place in both."""
    at = 0
    for bit in bits:
        low, high = max(start - at, 0), min(end - at, len(bit.spoken))
        at += len(bit.spoken)
        if low >= high:
            continue
        if bit.literal:
            said = bit.spoken[low:high]
            yield replace(bit, spoken=said, start=bit.start + low, end=bit.start + high)
        else:
            yield replace(bit, spoken=bit.spoken[low:high])
