"""What was heard of the text: both parts make the whole, and the place only moves on with the sound."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.language import is_wide
from gateway.lines import Line, Lines
from gateway.rendition import NARROW_MS, WIDE_MS, Rendition, render
from gateway.sentences import Segment, Splitter
from gateway.transcript import Transcript


def rendition(text: str, *, start: int = 0, end: int | None = None, max_chars: int = 200) -> Rendition:
    """A segment of that text, said as it is."""
    ends = tuple(range(start + 1, start + len(text) + 1))
    segment = Segment(0, 0, start, start + len(text) if end is None else end, text, ends)
    return render(segment, text, max_chars=max_chars)


def line(text: str, *lengths: float, start: int = 0, making: float = 0.0, max_chars: int = 200) -> Line:
    """`lengths`: of its parts that are made, ms."""
    made = Line(0, rendition(text, start=start, max_chars=max_chars))
    for length in lengths:
        made.add(length)
        made.end_part()
    made.add(making)
    return made


def heard(text: str, *lengths: float, making: float = 0.0) -> Transcript:
    """A transcript of one line, all of the text."""
    transcript = Transcript()
    transcript.add(text)
    transcript.on_starts(line(text, *lengths, making=making), 0)
    return transcript


def test_nothing_heard_is_nothing_spoken() -> None:
    transcript = Transcript()
    assert transcript.split(0.0) == ("", "")
    transcript.add("Hello ")
    transcript.add("there.")
    assert transcript.split(500.0) == ("", "Hello there.")
    transcript.on_starts(line("Hello there.", 800), 0)
    assert transcript.split(0.0) == ("", "Hello there.")


def test_all_heard_is_all_spoken() -> None:
    assert heard("Hello there.", 800).split(800.0) == ("Hello there.", "")


def test_the_middle_is_in_the_middle_and_at_a_words_end() -> None:
    spoken, remaining = heard("one two three four five six", 1000).split(480.0)
    assert (spoken, remaining) == ("one two three", " four five six")


def test_han_may_be_cut_anywhere() -> None:
    assert heard("今天天气很好啊", 700).split(300.0) == ("今天天", "气很好啊")


def test_a_number_is_heard_whole_or_not_at_all() -> None:
    """It sounds from 440 to 1,760 ms: 一万二千三百 is six characters of ten."""
    text = "共有12300个人"
    cuts = {heard(text, 220.0 * 10).split(float(ms))[0] for ms in range(0, 2200, 20)}
    assert cuts == {"", "共", "共有", "共有12300", "共有12300个", "共有12300个人"}
    assert heard(text, 2200.0).split(1000.0)[0] == "共有"
    assert heard(text, 2200.0).split(1300.0)[0] == "共有12300"


def test_a_line_under_way_is_as_long_as_it_is_likely_to_be() -> None:
    """200 ms of it are made and heard; that is not all of the text."""
    spoken, _ = heard("今天天气很好啊，我们出去走走吧", making=200).split(200.0)
    assert len(spoken) <= 200 / WIDE_MS + 1
    spoken, _ = heard("see " * 30, making=200).split(200.0)
    assert len(spoken) <= 200 / NARROW_MS + 4


def test_a_line_heard_whole_reaches_where_the_next_begins() -> None:
    transcript = Transcript()
    transcript.add("One. Two.")
    transcript.on_starts(line("One.", 590), 0)
    transcript.on_starts(line(" Two.", 300, start=4), 600)
    assert transcript.split(600.0) == ("One.", " Two.")
    assert transcript.split(599.0)[0] == "One."
    assert transcript.split(300.0)[0] == "One"


def test_what_was_left_out_at_the_end_is_heard_with_the_line() -> None:
    transcript = Transcript()
    transcript.add("One**. And")
    made = Line(0, rendition("One", end=6))
    made.add(300)
    made.end_part()
    transcript.on_starts(made, 0)
    assert transcript.split(299.0)[0] == "One"
    assert transcript.split(300.0)[0] == "One**."


def test_the_parts_of_a_line_have_their_own_lengths() -> None:
    made = line("aaaa bbbb", 100.0, 900.0, max_chars=5)
    assert len(made.rendition.parts) == 2
    assert [made.place(ms) for ms in (0, 99, 100, 500, 999, 1000)] == [0, 4, 5, 7, 9, 9]


def test_text_after_the_last_line_remains() -> None:
    transcript = heard("Hello.", 900)
    transcript.add(" 😀 and mo")
    assert transcript.split(900.0) == ("Hello.", " 😀 and mo")


# --- times of characters ------------------------------------------------------------------------------------


def test_each_character_has_its_share_of_the_sound() -> None:
    made = line("今天 ok", 220.0 * 2 + 65.0 * 3)
    made.start_ms = 1000
    assert made.chars() == (
        (0, 1, 1000, 1220), (1, 2, 1220, 1440), (2, 3, 1440, 1505), (3, 4, 1505, 1570), (4, 5, 1570, 1635),
    )  # fmt: skip


def test_a_reading_has_one_time() -> None:
    made = line("共150个", 1100)
    made.start_ms = 0
    assert [each[:2] for each in made.chars()] == [(0, 1), (1, 4), (4, 5)]
    assert made.chars()[-1][3] == 1100


def test_an_event_names_the_line() -> None:
    made = line("Hello.", 390)
    made.start_ms = 40
    assert (made.as_sentence("u").start_ms, made.as_sentence("u").end) == (40, 6)
    assert made.as_alignment("u").estimated
    assert made.as_alignment("u").chars[-1] == (5, 6, 365, 430)


def test_lines_count_what_the_engine_has() -> None:
    lines = Lines(rate=1000)
    lines.put(rendition("aaaa bbbb", max_chars=5))
    lines.put(rendition("cc"))
    submitted = []
    while lines.has_unsent:
        submitted.append(lines.submit())
    assert [(number, spans[0].text) for number, spans in submitted] == [(0, "aaaa"), (1, "bbbb"), (2, "cc")]
    assert lines.in_engine == 3
    lines.add(300)
    assert lines.end_part() is None
    assert (first := lines.start(0)).number == 0
    assert lines.end_part() is first
    silent = lines.end_part()
    assert silent is not None
    assert (silent.number, silent.has_sound, lines.in_engine) == (1, False, 0)
    with pytest.raises(KeyError):
        lines.start(1)


# --- any speech ---------------------------------------------------------------------------------------------


@dataclass
class Spoken:
    """Text cut by the real splitter, each line with its parts' lengths."""

    text: str
    lines: list[tuple[Line, int]]
    sent_ms: int

    def transcript(self) -> Transcript:
        transcript = Transcript()
        for char in self.text:
            transcript.add(char)
        for each, start_ms in self.lines:
            transcript.on_starts(each, start_ms)
        return transcript


@st.composite
def speech(draw: st.DrawFn, *, whole: bool = False) -> Spoken:
    words = st.sampled_from(
        ["Hello", "there", "3.14", "it's", "naïve", "今天", "天气", "。", ". ", ", ", " ", "！", "😀", "\n",
         "e\u0301", "x", "$5", "2024年", "**", "&lt;", "1/2"]
    )  # fmt: skip
    text = "".join(draw(st.lists(words, max_size=25)))
    max_chars = draw(st.integers(5, 40))
    splitter = Splitter(max_chars=max_chars)
    found = splitter.feed(text) + splitter.flush()
    at = 0
    lines: list[tuple[Line, int]] = []
    for number, each in enumerate(found[: draw(st.integers(0, len(found)))]):
        made = Line(number, render(each, text[each.start : each.end], max_chars=max_chars))
        if not made.rendition.parts:
            continue
        if lines and not lines[-1][0].is_whole:
            break
        start = at
        count = len(made.rendition.parts)
        for _ in range(count if whole else draw(st.integers(0, count))):
            length = draw(st.integers(0, 60)) * 20
            made.add(length)
            made.end_part()
            at += length
        lines.append((made, start))
    return Spoken(text, lines, at)


@given(speech(), st.lists(st.floats(0, 10_000), max_size=20))
def test_any_playhead(spoken: Spoken, playheads: list[float]) -> None:
    transcript = spoken.transcript()
    heads = sorted([0.0, *playheads, float(spoken.sent_ms)])
    parts = [transcript.split(ms) for ms in heads]
    for before, after in parts:
        assert before + after == spoken.text
        assert not (before and after and in_word(before[-1]) and in_word(after[0]))
    lengths = [len(before) for before, _ in parts]
    assert all(earlier <= later for earlier, later in pairwise(lengths))


@given(speech(whole=True))
def test_all_that_is_made_and_heard_was_spoken(spoken: Spoken) -> None:
    before, _ = spoken.transcript().split(spoken.sent_ms + 1.0)
    assert len(before) >= (spoken.lines[-1][0].rendition.segment.end if spoken.lines else 0)


@given(speech(whole=True))
def test_times_follow_each_other_and_the_text(spoken: Spoken) -> None:
    for made, start_ms in spoken.lines:
        made.start_ms = start_ms
        chars = made.chars()
        segment = made.rendition.segment
        assert chars[0][2] == start_ms
        for start, end, begun, over in chars:
            assert segment.start <= start < end <= segment.end
            assert begun <= over
        for before, after in pairwise(chars):
            assert before[1] <= after[0]
            assert before[3] == after[2]
        assert segment.start <= made.place(1.0) <= segment.end


@given(st.lists(st.text(max_size=5), max_size=20), st.data())
def test_any_slice(pieces: list[str], data: st.DataObject) -> None:
    transcript = Transcript()
    for piece in pieces:
        transcript.add(piece)
    text = "".join(pieces)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert transcript.slice(start, end) == text[start:end]


def in_word(char: str) -> bool:
    return char.isalnum() and not is_wide(char)
