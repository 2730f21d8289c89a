"""The splitter: the cases, and what must hold for any text (chunking, spans, nothing lost, linear time)."""

from __future__ import annotations

import json
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.language import speakable
from gateway.sentences import Segment, Splitter

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases" / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
]


def split(
    text: str, *, pieces: int | None = None, max_chars: int = 160, first_chars: int = 16
) -> list[Segment]:
    """All segments of a text fed in pieces of that size, or whole."""
    splitter = Splitter(max_chars=max_chars, first_chars=first_chars)
    size = pieces or max(len(text), 1)
    out = [segment for at in range(0, len(text), size) for segment in splitter.feed(text[at : at + size])]
    assert splitter.position == len(text)
    return out + splitter.flush()


def texts(text: str, *, max_chars: int = 160, first_chars: int = 16) -> list[str]:
    return [segment.text for segment in split(text, max_chars=max_chars, first_chars=first_chars)]


def sentences(text: str, segments: list[Segment]) -> list[str]:
    """The source of each sentence."""
    spans: dict[int, tuple[int, int]] = {}
    for segment in segments:
        start, _ = spans.get(segment.sentence, (segment.start, 0))
        spans[segment.sentence] = (start, segment.end)
    return [text[start:end] for start, end in spans.values()]


def said(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


# --- cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [None, 1, 2, 4])
@pytest.mark.parametrize("case", CASES, ids=[case["text"][:24] for case in CASES])
def test_case(case: dict[str, Any], pieces: int | None) -> None:
    segments = split(case["text"], pieces=pieces)
    found = sentences(case["text"], segments)
    spoken = " ".join(segment.text for segment in segments)
    if "count" in case:
        assert len(found) == case["count"], found
    for end in case.get("ends", ()):
        assert any(sentence.rstrip().endswith(end) for sentence in found), (end, found)
    for whole in case.get("whole", ()):
        assert any(whole in sentence for sentence in found), (whole, found)
    for gone in case.get("gone", ()):
        assert gone not in spoken
    for kept in case.get("kept", ()):
        assert kept in spoken


@pytest.mark.parametrize(
    "text",
    ["", " ", "\t\n", "\xa0", "\u200b", "...", "…", "——", "?!", "😀😀", "👩‍👩‍👧‍👦", "\ud83d", "\x1b", "(“”)"],
)
def test_nothing_to_say(text: str) -> None:
    assert split(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "\u200b嗯\u200b",
        "Hi 🎉",
        "好。",
        "A",
        "3.14",
        "１２３",
        "½ ① ㎏",
        "a\0b",
        "\x1b[31mred",
        "\u202eabc",
        "[laugh] ok",
    ],
)
def test_something_to_say(text: str) -> None:
    (segment,) = split(text)
    assert speakable(segment.text)
    assert (segment.start, segment.end) == (0, len(text))


# --- spans and numbers --------------------------------------------------------------------------------------


def test_dropped_text_belongs_to_the_segment_that_follows() -> None:
    text = "😀 **Hi** you.  \n\n- Go.** And\n"
    assert split(text) == [
        Segment(0, 0, 0, 13, "Hi you."),
        Segment(1, 1, 13, 22, "Go."),
        Segment(2, 2, 22, 28, "And"),
    ]


def test_dropped_text_at_the_end_belongs_to_the_last_segment_if_it_is_not_out() -> None:
    assert split("Go 😀 ") == [Segment(0, 0, 0, 5, "Go")]
    assert split("Go!  😀 ") == [Segment(0, 0, 0, 3, "Go!")]


def test_flush_ends_the_sentence_and_more_may_follow() -> None:
    splitter = Splitter(max_chars=80)
    assert splitter.feed("I think so, Dr.") == []
    assert splitter.flush() == [Segment(0, 0, 0, 15, "I think so, Dr.")]
    assert splitter.flush() == []
    assert splitter.feed(" then *a") == []
    assert splitter.flush() == [Segment(1, 1, 15, 23, "then a")]


def test_an_open_code_block_outlives_a_flush() -> None:
    splitter = Splitter(max_chars=80)
    assert splitter.feed("```py\nprint(1)\n") + splitter.flush() == []
    (segment,) = splitter.feed("x\n```\nDone.\n")
    assert segment.text == "Done."


def test_a_link_cut_by_flush_is_text() -> None:
    assert texts("[docs](https://exa") == ["docs(https://exa"]


@pytest.mark.parametrize("end", ["\n", "a b)", "x" * 3000])
def test_what_is_no_address_is_spoken(end: str) -> None:
    assert said("".join(texts("[a](b" + end))) == said("ab" + end)


# --- when it comes out --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lag"),
    [
        ("你好！今天", 1),
        ("你好。 ", 1),
        ("他说：“好。”\n", 1),
        ("“走吧。”“好。”", 1),
        ("标题\n", 1),
        ("Go home. Now", 1),
        ("Go home! now", 1),
        ("Go home.今天", 1),
        ("He said: “Go home.” Then", 2),
        ("Say no. Then", 2),
        ("Well... He", 2),
        ("Well... It", 3),
        ("**Go home.** Then", 3),
        ("At 5 p.m. He left", 4),
    ],
)
def test_lag(text: str, lag: int) -> None:
    splitter = Splitter(max_chars=80, first_chars=80)
    for at, char in enumerate(text):
        if segments := splitter.feed(char):
            assert at + 1 - segments[0].end == lag
            return
    pytest.fail("nothing came out")


def test_the_first_segment_is_short_and_the_later_ones_are_not() -> None:
    text = "Well, yes, I believe that it is so, and more. Well, yes, I believe that it is so, and more."
    first, rest, later = split(text, first_chars=12)
    assert (first.text, rest.text) == ("Well, yes,", "I believe that it is so, and more.")
    assert first.sentence == rest.sentence == 0
    assert (later.sentence, later.text) == (1, "Well, yes, I believe that it is so, and more.")


def test_the_first_clause_comes_out_as_soon_as_it_is_long_enough() -> None:
    splitter = Splitter(max_chars=80, first_chars=6)
    assert splitter.feed("你好，我想说") == []
    assert [segment.text for segment in splitter.feed("一")] == ["你好，"]


@pytest.mark.parametrize(
    "text", ["It costs 1,000,000 at 3:30 or so", "他有、我有、你有、大家有", "现在是14：30左右"]
)
def test_these_are_no_clauses(text: str) -> None:
    assert texts(text, first_chars=4) == [text]


# --- the limit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three four five", ["one two", "three four", "five"]),
        ("ab, cdefg, hij klm", ["ab, cdefg,", "hij klm"]),
        ("一二三四五六七八九十甲乙", ["一二三四五六七八九十", "甲乙"]),
        ("一二三四五六七八九“十甲乙”", ["一二三四五六七八九", "“十甲乙”"]),
        ("一二三四五六，七八九十甲乙", ["一二三四五六，", "七八九十甲乙"]),
        ("一二三四五六七八九十。甲乙", ["一二三四五六七八九十", "甲乙"]),
        ("abcdefghijklm", ["abcdefghij", "klm"]),
        ("1234567890 ok", ["1234567890", "ok"]),
        ("abcdefghie\u0301x", ["abcdefghi", "e\u0301x"]),
        ("甲乙丙丁戊己庚辛壬a\u0301b", ["甲乙丙丁戊己庚辛壬", "a\u0301b"]),
        ("好。一二三四五六，七八九十甲乙", ["好。", "一二三四五六，", "七八九十甲乙"]),
        ("ten chars. Dr. Abcdefghijk", ["ten chars.", "Dr. Abcdef", "ghijk"]),
        ("Wow" + "!" * 20 + " Ok.", ["Wow" + "!" * 7, "Ok."]),
    ],
)
def test_hard_cut(text: str, expected: list[str]) -> None:
    assert texts(text, max_chars=10, first_chars=10) == expected


def test_a_cut_sentence_keeps_its_number() -> None:
    segments = split("one two three four. five", max_chars=10, first_chars=10)
    assert [segment.sentence for segment in segments] == [0, 0, 0, 1]


def test_kept_marks_have_their_own_places() -> None:
    assert split("snake__case", max_chars=7) == [Segment(0, 0, 0, 7, "snake__"), Segment(1, 0, 7, 11, "case")]


@pytest.mark.parametrize("arguments", [{"max_chars": 0}, {"max_chars": 10, "first_chars": 0}])
def test_limits_must_be_positive(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Splitter(**arguments)


# --- any text -----------------------------------------------------------------------------------------------

MARKUP = "*_~`#>-+[]"
WORDS = """. ! ? 。 ！ ？ … ... ； ， , : ： “ ” " ' ( ) （ ） 「 」 Dr. U.S. e.g. p.m. No. 1. 3.14 J. I He
    It he 5 12 好 你来吗 今天 a.b?c=1 https://x.y/z e\u0301 😀 \u200b \ud83d x"""
FRAGMENTS = [*WORDS.split(), "\n", "\r\n", " ", " ", " ", "  "]
MARKS = ["*", "**", "`", "```", "# ", "- ", "[", "](", ")", "[a](b)", "_", "~~", "> "]
plain = st.lists(
    st.sampled_from(FRAGMENTS) | st.characters(exclude_characters=MARKUP, codec=None), max_size=40
).map("".join)
marked = st.lists(st.sampled_from([*FRAGMENTS, *MARKS]) | st.characters(codec=None), max_size=40).map("".join)
limits = st.sampled_from([(1, 1), (3, 2), (10, 4), (80, 16)])


@given(text=marked, limit=limits, cuts=st.lists(st.integers(0, 120)))
def test_pieces_do_not_matter(text: str, limit: tuple[int, int], cuts: list[int]) -> None:
    splitter = Splitter(max_chars=limit[0], first_chars=limit[1])
    places = [0, *sorted(cuts), len(text)]
    out = [segment for low, high in pairwise(places) for segment in splitter.feed(text[low:high])]
    out += splitter.feed(text[splitter.position :])
    assert out + splitter.flush() == split(text, max_chars=limit[0], first_chars=limit[1])


def check_spans(segments: list[Segment], length: int, max_chars: int) -> None:
    assert [segment.index for segment in segments] == list(range(len(segments)))
    for segment in segments:
        assert 0 <= segment.start < segment.end <= length
        assert 0 < len(segment.text) <= max_chars
        assert speakable(segment.text)
        assert segment.text == segment.text.strip()
    for before, after in pairwise(segments):
        assert after.start == before.end
        assert after.sentence - before.sentence in (0, 1)
    if segments:
        assert (segments[0].start, segments[0].sentence) == (0, 0)


@given(text=marked, limit=limits)
def test_spans_partition_the_text(text: str, limit: tuple[int, int]) -> None:
    check_spans(split(text, max_chars=limit[0], first_chars=limit[1]), len(text), limit[0])


@given(text=plain, limit=limits)
def test_nothing_spoken_is_lost_or_moved(text: str, limit: tuple[int, int]) -> None:
    segments = split(text, max_chars=limit[0], first_chars=limit[1])
    assert "".join(said(segment.text) for segment in segments) == said(text)
    for segment in segments:
        assert said(segment.text) == said(text[segment.start : segment.end])


@given(parts=st.lists(plain, max_size=5))
def test_flush_anywhere_loses_nothing(parts: list[str]) -> None:
    splitter = Splitter(max_chars=40)
    segments = [segment for part in parts for segment in splitter.feed(part) + splitter.flush()]
    check_spans(segments, splitter.position, 40)
    assert "".join(said(segment.text) for segment in segments) == said("".join(parts))


@pytest.mark.parametrize(
    "unit",
    ["1", "a.", "(", "a\u0301\u0301\u0301", "\u0301", "字", "。", "*", "`", "[a](", "J. ", "“", " ", "…"],
)
def test_work_is_linear(unit: str) -> None:
    def calls(length: int) -> int:
        """Calls made, of Python and of C functions: unlike time, the same in every run."""
        text = unit * (length // len(unit))
        count = 0

        def profile(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            split(text)
        finally:
            sys.setprofile(before)
        return count

    assert calls(2_000) > 2_000  # also warms the caches of single characters
    assert calls(20_000) < 2.1 * calls(10_000)


@pytest.mark.parametrize("unit", ["1", "a.", "\u0301", "[a]("])
def test_memory_is_bounded(unit: str) -> None:
    splitter = Splitter(max_chars=100)
    text = unit * (50_000 // len(unit))
    tracemalloc.start()
    try:
        for at in range(0, len(text), 1000):
            splitter.feed(text[at : at + 1000])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An address of a link, of at most 2048 characters, is the most that is ever held; were all of it kept,
    # 50,000 characters would take several times as much.
    assert size < 500_000
