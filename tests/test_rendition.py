"""A segment in its spoken form: whole in its parts, and each bit at its place in the client's own text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.lexicon import parse
from gateway.normalize import normalize
from gateway.rendition import Bit, Rendition, Tags, render, spans
from gateway.sentences import Splitter
from gateway.speech import joined


def renditions(
    text: str,
    *,
    max_chars: int = 200,
    chunk_size: int = 200,
    tags: Tags = "read",
    pieces: int = 7,
    first_chars: int = 16,
) -> list[Rendition]:
    splitter = Splitter(max_chars=max_chars, chunk_size=chunk_size, first_chars=first_chars)
    found = [each for at in range(0, len(text), pieces) for each in splitter.feed(text[at : at + pieces])]
    found += splitter.flush()
    return [render(each, text[each.start : each.end], max_chars=max_chars, tags=tags) for each in found]


def one(text: str, *, max_chars: int = 200, tags: Tags = "read") -> Rendition:
    (found,) = renditions(text, max_chars=max_chars, tags=tags)
    return found


def bits_of(rendition: Rendition) -> list[Bit]:
    return [piece for part in rendition.parts for piece in part]


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def check(rendition: Rendition, max_chars: int, said: str | None = None) -> None:
    """Parts fit, nothing of what is `said` is lost, and places are in order and inside."""
    segment = rendition.segment
    for part in rendition.parts:
        text = "".join(bit.spoken for bit in part)
        assert 0 < len(text) <= max_chars
        assert text == text.strip()
        assert "".join(span.text for span in spans(part)) == text
    pieces = bits_of(rendition)
    for piece in pieces:
        assert segment.start <= piece.start < piece.end <= segment.end
    for before, after in pairwise(pieces):
        assert before.start <= after.start
        assert before.end <= after.end
        assert before.end <= after.start or (before.start, before.end) == (after.start, after.end)
    for start, end in rendition.dropped:
        assert segment.start <= start < end <= segment.end
    for (_, before_end), (after_start, _) in pairwise(rendition.dropped):
        assert before_end < after_start
    if said is None:
        said = normalize(segment.text).text
    assert letters(rendition.text) == letters(said)


def test_places_go_through_markup_and_reading() -> None:
    text = "See **Dr.** `Smith` at &lt; 3:30pm."
    found = one(text)
    assert found.text == "See Doctor Smith at less than three thirty PM."
    said = {piece.spoken.strip(): text[piece.start : piece.end] for piece in bits_of(found)}
    assert said["Doctor"] == "Dr."
    assert said["Smith"] == "Smith"
    assert said["three thirty PM"] == "3:30pm"
    assert said["less than"] == "&lt;"
    check(found, 200)


def test_a_literal_piece_stands_for_the_very_characters() -> None:
    text = "One **two** [three](https://x.y) four\u200b five 今天*天气*很好。"
    for found in renditions(text):
        for piece in bits_of(found):
            if piece.literal:
                assert piece.spoken == text[piece.start : piece.end]


def test_spans_are_runs_of_one_language() -> None:
    found = one("我有2个apple，花了$5。")
    (part,) = found.parts
    said = [(span.text, span.language, span.start, span.end) for span in spans(part)]
    assert said == [("我有两个", "zh", 0, 4), ("apple,", "en", 4, 10), ("花了五美元。", "zh", 10, 15)]


def test_languages() -> None:
    assert one("Hello there.").language == one("Hello there.").main_language == "en"
    assert one("今天很好。").language == one("今天很好。").main_language == "zh"
    both = one("我们用了 Python 语言写程序。")
    assert (both.language, both.main_language) == ("mixed", "zh")


@pytest.mark.parametrize(
    ("text", "max_chars"),
    [
        ("一共12,345,678,901元和98,765,432,109元，还有11,112,222,333元。", 20),
        ("It is 1,234,567,890,123 and 9,876,543,210,987 and 1,111,222,233,334 in all.", 80),
        ("0123456789" * 12, 150),
        ("比例是 1,234.56% 到 7,891.23%", 18),
    ],
)
def test_a_reading_that_the_engine_cannot_take_at_once_is_cut(text: str, max_chars: int) -> None:
    found = renditions(text, max_chars=max_chars, chunk_size=max_chars)
    assert max(len(each.parts) for each in found) > 1
    for each in found:
        check(each, max_chars)


def test_a_cut_is_at_a_mark_or_a_blank_rather_than_in_a_word() -> None:
    text = "It cost $1,234,567.89, then $2,345,678.91, then $3,456,789.12 in all."
    (found,) = renditions(text, max_chars=80, first_chars=100)
    assert len(found.parts) > 2
    texts = ["".join(piece.spoken for piece in part) for part in found.parts]
    whole = normalize(found.segment.text).text
    assert " ".join(texts) == whole
    assert not any(text[0] in ",." for text in texts)


def test_one_word_that_is_said_at_length_keeps_its_place_in_each_part() -> None:
    lexicon = parse({"tl;dr": "too long and so I did not read it at all"})
    (segment,) = [*(splitter := Splitter(max_chars=30)).feed("tl;dr"), *splitter.flush()]
    found = render(segment, "tl;dr", max_chars=20, lexicon=lexicon)
    assert len(found.parts) == 3
    assert {(piece.start, piece.end) for piece in bits_of(found)} == {(0, 5)}


def test_what_has_nothing_to_say_has_no_part() -> None:
    found = one("Привет мир.")
    assert found.parts == ()
    assert found.dropped == ((0, 6), (7, 10))
    assert found.text == ""


def test_what_is_left_out_is_told_where_it_means_something() -> None:
    text = "Great 🎉 see [docs](https://e.com/x), **bold** <b>too</b>."
    told = [text[start:end] for each in renditions(text) for start, end in each.dropped]
    assert "🎉" in "".join(told)
    assert any("https://e.com/x" in each for each in told)
    assert not any("**" in each or "<b>" in each for each in told)


# --- tags ---------------------------------------------------------------------------------------------------

TAGGED = "Well [uv_break] hello, he said [laugh]."


def test_tags_act_where_the_engine_knows_them() -> None:
    found = renditions(TAGGED, tags="act")
    assert " ".join(each.text for each in found).count("[uv_break]") == 1
    assert found[-1].text.endswith("[laugh].")
    for each in found:
        for piece in bits_of(each):
            if piece.spoken.startswith("["):
                assert TAGGED[piece.start : piece.end] == piece.spoken


def test_tags_are_silent_where_it_does_not_and_words_where_they_were_not_asked_for() -> None:
    silent = " ".join(each.text for each in renditions(TAGGED, tags="drop"))
    assert "laugh" not in silent
    assert "break" not in silent
    assert "hello" in silent
    assert "laugh" in " ".join(each.text for each in renditions(TAGGED))


def test_a_word_is_no_tag_without_its_brackets() -> None:
    assert "[" not in one("They laugh a lot.", tags="act").text
    assert one("They laugh a lot.", tags="drop").text == "They laugh a lot."


def test_a_tag_is_never_cut() -> None:
    text = "哈" * 13 + "[laugh]" + "哈" * 13
    for max_chars in range(8, 27):
        for each in renditions(text, max_chars=max_chars, chunk_size=50, tags="act"):
            said = "".join("".join(piece.spoken for piece in part) for part in each.parts)
            assert said.count("[") == said.count("]")


# --- any text -----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["Hello", " ", ". ", ", ", "今天", "，", "。", "3.14", "$5,000", "**", "`", "[a](b)", "&amp;", "1/2",
     "2024-03-05", "Dr. ", "①", "½", "km²", "😀", "<b>", "\n", "1234567890123", "é", "e\u0301", "мир",
     "[laugh]", "10%", "ﬁ"]
)  # fmt: skip
TEXT = st.one_of(st.lists(WORDS, max_size=30).map("".join), st.text(max_size=60))


@given(TEXT, st.integers(1, 90), st.integers(1, 9))
@example("1½/2", 3, 1)
@example("|a|b|０.５点.2.5No㎡|a|b|", 20, 1)
@example("J ㎡", 20, 1)
@example("2§№[x", 20, 1)
@example("'@user3'", 20, 1)
@example("t[lbreak]", 20, 1)
@example("|a||b", 20, 1)
@example("3>#t", 20, 1)
@example("tps:/a.b/c?d=e&f=ghttps:/a.b/c?", 20, 1)
@example("㏶仺", 20, 1)
@example("I.. …M", 20, 1)
@example("C №\ufe0f", 20, 1)
@example("①②③", 2, 1)
@example("&amp;&amp;1", 4, 1)
def test_any_text(text: str, max_chars: int, pieces: int) -> None:
    for found in renditions(text, max_chars=max_chars, chunk_size=50, pieces=pieces):
        check(found, max_chars)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda p: (p[0], p[0] + p[1]))))
def test_joined(places: list[tuple[int, int]]) -> None:
    def covered(found: list[tuple[int, int]]) -> set[int]:
        return {at for start, end in found for at in range(start, end)}

    result = joined(places)
    assert covered(list(result)) == covered(places)
    assert all(before[1] < after[0] for before, after in pairwise(result))
