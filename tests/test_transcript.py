"""What was heard of the text: both parts make the whole, and the place only moves on with the sound."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.language import is_wide
from gateway.sentences import Segment, Splitter
from gateway.transcript import NARROW_MS, WIDE_MS, Transcript


def segment(index: int, start: int, end: int, text: str) -> Segment:
    return Segment(index, index, start, end, text)


def one(text: str, start_ms: int = 0) -> Transcript:
    """A transcript of one segment, all of the text."""
    transcript = Transcript()
    transcript.add(text)
    transcript.on_starts(segment(0, 0, len(text), text), start_ms)
    return transcript


def test_nothing_heard_is_nothing_spoken() -> None:
    transcript = Transcript()
    assert transcript.split(0.0, sent_ms=0, segment_over=False) == ("", "")
    transcript.add("Hello ")
    transcript.add("there.")
    assert transcript.split(500.0, sent_ms=0, segment_over=False) == ("", "Hello there.")
    transcript.on_starts(segment(0, 0, 12, "Hello there."), 0)
    assert transcript.split(0.0, sent_ms=500, segment_over=False) == ("", "Hello there.")


def test_all_heard_is_all_spoken() -> None:
    assert one("Hello there.").split(800.0, sent_ms=800, segment_over=True) == ("Hello there.", "")


def test_the_middle_is_in_the_middle_and_at_a_words_end() -> None:
    spoken, remaining = one("one two three four five six").split(480.0, sent_ms=1000, segment_over=True)
    assert (spoken, remaining) == ("one two three", " four five six")


def test_han_may_be_cut_anywhere() -> None:
    assert one("今天天气很好啊").split(300.0, sent_ms=700, segment_over=True) == ("今天天", "气很好啊")


def test_a_segment_under_way_is_as_long_as_it_is_likely_to_be() -> None:
    """200 ms of it are made and heard; that is not all of the text."""
    text = "今天天气很好啊，我们出去走走吧"
    spoken, _ = one(text).split(200.0, sent_ms=200, segment_over=False)
    assert len(spoken) <= 200 / WIDE_MS + 1
    latin = "a " * 30
    spoken, _ = one(latin).split(200.0, sent_ms=200, segment_over=False)
    assert len(spoken) <= 200 / NARROW_MS + 1


def test_a_segment_heard_whole_reaches_where_the_next_begins() -> None:
    transcript = Transcript()
    transcript.add("One. Two.")
    transcript.on_starts(segment(0, 0, 4, "One."), 0)
    transcript.on_starts(segment(1, 4, 9, "Two."), 600)
    assert transcript.split(600.0, sent_ms=900, segment_over=False) == ("One.", " Two.")
    assert transcript.split(599.0, sent_ms=900, segment_over=False)[0] == "One."
    assert transcript.split(300.0, sent_ms=900, segment_over=False)[0] == "One"


def test_a_segment_without_sound_is_passed() -> None:
    transcript = Transcript()
    transcript.add("AB")
    transcript.on_starts(segment(0, 0, 1, "A"), 100)
    transcript.on_starts(segment(1, 1, 2, "B"), 100)
    assert transcript.split(101.0, sent_ms=200, segment_over=True) == ("AB", "")


def test_text_after_the_last_segment_remains() -> None:
    transcript = one("Hello.")
    transcript.add(" 😀 and mo")
    assert transcript.split(900.0, sent_ms=900, segment_over=True) == ("Hello.", " 😀 and mo")


@dataclass
class Spoken:
    """Text cut by the real splitter, each segment with its sound's length."""

    text: str
    segments: list[tuple[Segment, int]]
    sent_ms: int

    def transcript(self) -> Transcript:
        transcript = Transcript()
        for char in self.text:
            transcript.add(char)
        for each, start_ms in self.segments:
            transcript.on_starts(each, start_ms)
        return transcript


@st.composite
def speech(draw: st.DrawFn) -> Spoken:
    words = st.sampled_from(
        [
            "Hello",
            "there",
            "3.14",
            "it's",
            "naïve",
            "今天",
            "天气",
            "。",
            ". ",
            ", ",
            " ",
            "！",
            "😀",
            "\n",
            "e\u0301",
            "x",
        ]
    )
    text = "".join(draw(st.lists(words, max_size=25)))
    splitter = Splitter(max_chars=40)
    found = splitter.feed(text) + splitter.flush()
    at, segments = 0, []
    for each in found[: draw(st.integers(0, len(found)))]:
        segments.append((each, at))
        at += draw(st.integers(0, 60)) * 20
    return Spoken(text, segments, at)


@given(speech(), st.lists(st.floats(0, 10_000), max_size=20), st.booleans())
def test_any_playhead(spoken: Spoken, playheads: list[float], over: bool) -> None:
    transcript = spoken.transcript()
    heads = sorted([0.0, *playheads, float(spoken.sent_ms)])
    parts = [transcript.split(ms, sent_ms=spoken.sent_ms, segment_over=over) for ms in heads]
    for before, after in parts:
        assert before + after == spoken.text
        assert not (before and after and in_word(before[-1]) and in_word(after[0]))
    lengths = [len(before) for before, _ in parts]
    assert all(earlier <= later for earlier, later in pairwise(lengths))


@given(speech())
def test_all_that_was_sent_and_is_over_was_spoken(spoken: Spoken) -> None:
    transcript = spoken.transcript()
    before, _ = transcript.split(spoken.sent_ms + 1.0, sent_ms=spoken.sent_ms, segment_over=True)
    assert len(before) >= (spoken.segments[-1][0].end if spoken.segments else 0)


def in_word(char: str) -> bool:
    return char.isalnum() and not is_wide(char)
