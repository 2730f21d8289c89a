"""What the tests of the splitter share: splitting a text in pieces, and what must hold of any segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gateway.language import speakable
from gateway.markup import DEFAULT_POLICY, MarkupPolicy
from gateway.sentences import Segment, Splitter


def split(
    text: str,
    *,
    pieces: int | None = None,
    max_chars: int = 160,
    first_chars: int = 16,
    policy: MarkupPolicy = DEFAULT_POLICY,
) -> list[Segment]:
    """All segments of a text fed in pieces of that size, or whole."""
    splitter = Splitter(max_chars=max_chars, chunk_size=max_chars, first_chars=first_chars, policy=policy)
    size = pieces or max(len(text), 1)
    out = [segment for at in range(0, len(text), size) for segment in splitter.feed(text[at : at + size])]
    assert splitter.position == len(text)
    out += splitter.flush()
    check(out, len(text), max_chars)
    assert splitter.dropped == ((out[-1].end if out else 0, len(text)) if covered(out) < len(text) else None)
    return out


def texts(
    text: str, *, max_chars: int = 160, first_chars: int = 16, policy: MarkupPolicy = DEFAULT_POLICY
) -> list[str]:
    return [
        segment.text for segment in split(text, max_chars=max_chars, first_chars=first_chars, policy=policy)
    ]


def plain(segments: Sequence[Segment]) -> list[Segment]:
    """Without the places of the characters."""
    return [replace(segment, ends=()) for segment in segments]


def sentences(text: str, segments: Sequence[Segment]) -> list[str]:
    """The source of each sentence."""
    spans: dict[int, tuple[int, int]] = {}
    for segment in segments:
        start, _ = spans.get(segment.sentence, (segment.start, 0))
        spans[segment.sentence] = (start, segment.end)
    return [text[start:end] for start, end in spans.values()]


def said(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def covered(segments: Sequence[Segment]) -> int:
    """Where the last one ends."""
    return segments[-1].end if segments else 0


def check(segments: Sequence[Segment], length: int, max_chars: int) -> None:
    """Numbered in order, partitioning the text from its beginning, each with something to say."""
    assert [segment.index for segment in segments] == list(range(len(segments)))
    for segment in segments:
        assert 0 <= segment.start < segment.end <= length
        assert 0 < len(segment.text) <= max_chars
        assert speakable(segment.text)
        assert segment.text == segment.text.strip()
        assert len(segment.ends) == len(segment.text)
        assert list(segment.ends) == sorted(segment.ends)
        assert segment.start <= segment.ends[0]
        assert segment.ends[-1] <= segment.end
    for before, after in pairwise(segments):
        assert after.start == before.end
        assert after.sentence - before.sentence in (0, 1)
    if segments:
        assert (segments[0].start, segments[0].sentence) == (0, 0)
