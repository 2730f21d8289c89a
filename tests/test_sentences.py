"""The splitter: what comes out when, with which places, and the limits."""

from __future__ import annotations

import pytest

from gateway.language import speakable
from gateway.sentences import CHUNK_SIZE, Segment, Splitter
from tests.segments import plain, said, split, texts


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
    assert plain(split(text)) == [
        Segment(0, 0, 0, 13, "Hi you."),
        Segment(1, 1, 13, 22, "Go."),
        Segment(2, 2, 22, 28, "And"),
    ]


def test_dropped_text_at_the_end_belongs_to_the_last_segment_if_it_is_not_out() -> None:
    assert plain(split("Go 😀 ")) == [Segment(0, 0, 0, 5, "Go")]
    assert plain(split("Go!  😀 ")) == [Segment(0, 0, 0, 3, "Go!")]


def test_what_lies_in_no_segment_is_told() -> None:
    for text in ("😀 ", "```\ncode", "<think>hm"):
        splitter = Splitter(max_chars=80)
        assert splitter.feed(text) + splitter.flush() == []
        assert splitter.dropped == (0, len(text))
    splitter = Splitter(max_chars=80)
    assert len(splitter.feed("Go. Now!  😀 ") + splitter.flush()) == 2
    assert splitter.dropped == (8, 12)
    splitter = Splitter(max_chars=80)
    assert len(splitter.feed("Go 😀 ") + splitter.flush()) == 1
    assert splitter.dropped is None
    assert Splitter(max_chars=80).dropped is None


def test_places_of_characters() -> None:
    (segment,) = split("**a** &amp;  [你](x)\u200b好 <b>c</b>")
    assert segment.text == "a & 你好 c"
    assert segment.ends == (3, 6, 11, 12, 15, 21, 22, 26)
    assert (segment.start, segment.end) == (0, 30)


def test_flush_ends_the_sentence_and_more_may_follow() -> None:
    splitter = Splitter(max_chars=80)
    assert splitter.feed("I think so, Dr.") == []
    assert plain(splitter.flush()) == [Segment(0, 0, 0, 15, "I think so, Dr.")]
    assert splitter.flush() == []
    assert splitter.feed(" then *a") == []
    assert plain(splitter.flush()) == [Segment(1, 1, 15, 23, "then a")]


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


@pytest.mark.parametrize(
    ("text", "released"),
    [
        ("He left.", "He left."),
        ("**He left.**", "He left."),
        ("你好！", "你好！"),
        ("“走吧。”", "“走吧。”"),
        ("Really?!", "Really?!"),
        ("Well...", "Well..."),
        ("“Are you coming?” ", "“Are you coming?”"),
        ("你好，我", "你好，"),
        ("Hello,", "Hello,"),
        ("Hello, my", "Hello,"),
        ("价格：", "价格："),
        ("Yes, no: may", "Yes, no:"),
        ("Wait —", "Wait —"),
        ("I think that it is raining to", "I think that it is raining"),
        ("I think that it is raining ", "I think that it is raining"),
        ("我觉得今天的天气很好所以我们应该一起出去走走吧", None),
        (
            "我觉得今天的天气很好所以我们应该一起出去走走看看",
            "我觉得今天的天气很好所以我们应该一起出去走走看看",
        ),
        ("It is raining. I think so, t", "I think so,"),
        ("It costs 3.", None),
        ("It costs 1,", None),
        ("现在是14：", None),
        ("苹果、", None),
        ("I met Dr.", None),
        ("Visit www.example.", None),
        ("In the U.S. ", None),
        ("one two three", None),
        ("supercalifragilisticexpialidocious", None),
        ("...", None),
        ("", None),
    ],
)
def test_release(text: str, released: str | None) -> None:
    splitter = Splitter(max_chars=80, first_chars=80)
    splitter.feed(text)
    segments = splitter.release()
    assert [segment.text for segment in segments] == ([] if released is None else [released])
    assert splitter.release() == []


@pytest.mark.parametrize(
    ("before", "after", "numbers"),
    [
        ("I think,", " so. Yes.", [0, 0, 1]),
        ("He left.", " She did not.", [0, 1]),
        ("你好！", "今天好。", [0, 1]),
        ("“Go!”", " he said. Then", [0, 0, 1]),
        ("“Go!”", " He left. Then", [0, 1, 2]),
        ("He left.", "\nThen", [0, 1]),
        ("Well...", " I think so.", [0, 0]),
        ("He met with the whole of the U.S. Senate and the", " House. Good", [0, 0, 1]),
    ],
)
def test_a_released_sentence_goes_on(before: str, after: str, numbers: list[int]) -> None:
    splitter = Splitter(max_chars=80, first_chars=80)
    segments = splitter.feed(before)
    assert segments == []
    segments = splitter.release()
    assert len(segments) == 1
    segments += splitter.feed(after) + splitter.flush()
    assert [segment.sentence for segment in segments] == numbers
    assert said("".join(segment.text for segment in segments)) == said(before + after)


def test_a_construct_under_way_is_not_released() -> None:
    splitter = Splitter(max_chars=80)
    splitter.feed("See this, [docs](https://exa")
    assert [segment.text for segment in splitter.release()] == ["See this,"]
    assert [segment.text for segment in splitter.feed("mple.com). Then")] == ["docs."]


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


def test_the_smaller_limit_holds() -> None:
    text = "one two three four five six"
    for max_chars, chunk_size in ((10, 500), (500, 10)):
        segments = Splitter(max_chars=max_chars, chunk_size=chunk_size).feed(text + "\n")
        assert [segment.text for segment in segments] == ["one two", "three four", "five six"]
    (segment,) = Splitter(max_chars=500, chunk_size=500).feed("word " * 90 + "\n")
    assert len(segment.text) == 449
    assert max(len(segment.text) for segment in Splitter(max_chars=500).feed("word " * 90)) <= CHUNK_SIZE


def test_a_cut_sentence_keeps_its_number() -> None:
    segments = split("one two three four. five", max_chars=10, first_chars=10)
    assert [segment.sentence for segment in segments] == [0, 0, 0, 1]


def test_kept_marks_have_their_own_places() -> None:
    assert plain(split("snake__case", max_chars=7)) == [
        Segment(0, 0, 0, 7, "snake__"),
        Segment(1, 0, 7, 11, "case"),
    ]


@pytest.mark.parametrize("arguments", [{"max_chars": 0}, {"first_chars": 0}, {"chunk_size": 0}])
def test_limits_must_be_positive(arguments: dict[str, int]) -> None:
    sizes = {"max_chars": 9, "chunk_size": 9, "first_chars": 9} | arguments
    with pytest.raises(ValueError, match="positive"):
        Splitter(
            max_chars=sizes["max_chars"], chunk_size=sizes["chunk_size"], first_chars=sizes["first_chars"]
        )
