"""What must hold of the segments of any text, however it is cut, flushed and released."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.sentences import Segment, Splitter
from tests.segments import check, said, split

MARKUP = "*_~`#>-+[]<&\\|!\x1b•‣⁃·∙"
WORDS = """. ! ? 。 ！ ？ … ... ； ， , : ： “ ” " ' ( ) （ ） 「 」 Dr. U.S. e.g. p.m. No. 1. 3.14 J. I He
    It he 5 12 好 你来吗 今天 a.b?c=1 https://x.y/z e\u0301 😀 \u200b \ud83d x"""
FRAGMENTS = [*WORDS.split(), "\n", "\r\n", " ", " ", " ", "  "]
MARKS = [
    "*",
    "**",
    "`",
    "```",
    "# ",
    "- ",
    "[",
    "](",
    ")",
    "[a](b)",
    "_",
    "~~",
    "> ",
    "<b>",
    "</b>",
    "<br>",
    "< ",
    "<a b='",
    '<a b="',
    "<think>",
    "</think>",
    "<script>",
    "</script>",
    "<!--",
    "-->",
    "<x>",
    "<https://",
    "|",
    "| a |",
    "\n|",
    "!",
    "![",
    "[^",
    "[ ]",
    "]:",
    "][",
    "&",
    "&amp;",
    "&#",
    "&fjlig;",
    "\\",
    "\\*",
    "<|",
    "|>",
    "data:",
    "`a`",
    "\x1b[",
    "《",
    "》",
    "1. ",
    "2. ",
]
unmarked = st.lists(
    st.sampled_from(FRAGMENTS) | st.characters(exclude_characters=MARKUP, codec=None), max_size=40
).map("".join)
marked = st.lists(st.sampled_from([*FRAGMENTS, *MARKS]) | st.characters(codec=None), max_size=40).map("".join)
limits = st.sampled_from([(1, 1), (3, 2), (10, 4), (80, 16)])


def play(text: str, cuts: list[int], acts: dict[int, str], limit: tuple[int, int]) -> list[Segment]:
    """Feed a text cut at `cuts`, and flush or release after so many characters, wherever it is cut."""
    splitter = Splitter(max_chars=limit[0], first_chars=limit[1])
    out: list[Segment] = []
    for low, high in pairwise(sorted({0, len(text), *cuts, *acts})):
        out += splitter.feed(text[low:high])
        match acts.get(high):
            case "flush":
                out += splitter.flush()
            case "release":
                out += splitter.release()
    return out + splitter.flush()


@given(data=st.data(), text=marked, limit=limits)
def test_pieces_do_not_matter(data: st.DataObject, text: str, limit: tuple[int, int]) -> None:
    place = st.integers(0, len(text))
    acts = data.draw(st.dictionaries(place, st.sampled_from(["flush", "release", "release"]), max_size=4))
    expected = play(text, [], acts, limit)
    check(expected, len(text), limit[0])
    assert play(text, data.draw(st.lists(place)), acts, limit) == expected
    assert play(text, list(range(len(text))), acts, limit) == expected


@given(text=marked, limit=limits)
def test_spans_partition_the_text(text: str, limit: tuple[int, int]) -> None:
    check(split(text, max_chars=limit[0], first_chars=limit[1]), len(text), limit[0])


@given(text=unmarked, limit=limits)
def test_nothing_spoken_is_lost_or_moved(text: str, limit: tuple[int, int]) -> None:
    segments = split(text, max_chars=limit[0], first_chars=limit[1])
    assert "".join(said(segment.text) for segment in segments) == said(text)
    for segment in segments:
        assert said(segment.text) == said(text[segment.start : segment.end])


@given(parts=st.lists(unmarked, max_size=5))
def test_flush_anywhere_loses_nothing(parts: list[str]) -> None:
    splitter = Splitter(max_chars=40)
    segments = [segment for part in parts for segment in splitter.feed(part) + splitter.flush()]
    check(segments, splitter.position, 40)
    assert "".join(said(segment.text) for segment in segments) == said("".join(parts))


@given(text=unmarked, limit=limits, places=st.sets(st.integers(0, 100), max_size=5))
def test_release_anywhere_loses_nothing_and_ends_no_sentence(
    text: str, limit: tuple[int, int], places: set[int]
) -> None:
    acts = {place: "release" for place in places if place <= len(text)}
    segments = play(text, [], acts, limit)
    assert "".join(said(segment.text) for segment in segments) == said(text)
    check(segments, len(text), limit[0])


@given(text=unmarked, limit=limits)
def test_each_character_has_its_own_place(text: str, limit: tuple[int, int]) -> None:
    for segment in split(text, max_chars=limit[0], first_chars=limit[1]):
        begins = (segment.start, *segment.ends)
        for char, begin, end in zip(segment.text, begins, segment.ends, strict=False):
            assert char in text[begin:end] or not char.isalnum()
