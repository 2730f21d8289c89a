"""Markup: its policies, what only looks like it, what is never closed. Most of its rules are in the cases."""

from __future__ import annotations

from html.entities import html5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.language import speakable, spoken
from gateway.markup import DEFAULT_POLICY, Markup, MarkupPolicy
from gateway.sentences import Splitter
from gateway.tags import Tag
from tests.segments import split, texts

READ = MarkupPolicy(code="read", thoughts="read")


def let_through(text: str, policy: MarkupPolicy = DEFAULT_POLICY) -> str:
    """The units of a text fed whole, with what is held at its end."""
    markup = Markup(policy)
    units = [unit for end, char in enumerate(text, 1) for unit in markup.feed(char, end)]
    return "".join(char for char, _ in units + markup.flush())


# --- policies -----------------------------------------------------------------------------------------------


def test_the_defaults() -> None:
    assert MarkupPolicy(code="skip", thoughts="skip") == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("text", "skipped", "read"),
    [
        ("A.\n```py\nx = f(*y)\nz_1\n```\nB.", ["A.", "B."], ["A.", "x = f(*y)", "z_1", "B."]),
        ("A.\n~~~\n# no\n- head\n~~~~\nB.", ["A.", "B."], ["A.", "# no", "- head", "B."]),
        ("````\n```\nx\n````\nB.", ["B."], ["x", "B."]),
        ("```print(1)``` B.", ["B."], ["print(1) B."]),
        ("```" + "x" * 70 + "\ny", [], ["x" * 70, "y"]),
        ("A.\n```\nopen", ["A."], ["A.", "open"]),
        ("A<pre>x</pre>B.", ["AB."], ["A", "x", "B."]),
        ("<think>\nhm\n</think>\nB.", ["B."], ["hm", "B."]),
        ("`x` B.", ["x B."], ["x B."]),
    ],
)
def test_policy(text: str, skipped: list[str], read: list[str]) -> None:
    assert texts(text, first_chars=80) == skipped
    assert texts(text, first_chars=80, policy=READ) == read


def test_a_script_is_never_read() -> None:
    assert texts("<script>x</script>B.", policy=READ) == ["B."]


# --- what stays open ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end"),
    [("```\nx", "\n```\nDone."), ("<think>x", "</think>Done."), ("<!-- x", "-->Done.")],
)
def test_what_is_skipped_outlives_a_flush(begin: str, end: str) -> None:
    splitter = Splitter(max_chars=80)
    assert splitter.feed(begin) + splitter.flush() == []
    assert splitter.dropped == (0, len(begin))
    assert splitter.feed("y. z\n") + splitter.flush() + splitter.release() == []
    (segment,) = splitter.feed(end) + splitter.flush()
    assert segment.text == "Done."


OPEN = [
    "**",
    "__",
    "~~",
    "`",
    "[",
    "![",
    "[a](",
    "[a](http",
    "[a][",
    "[^",
    "# ",
    "> ",
    "| a | ",
    "<b",
    "<a b='",
]
OPEN += [
    "<a b=",
    "&",
    "&am",
    "\\",
    "<",
    "</",
    "<|",
    "<!",
    "a <think>",
    "a <script>",
    "a <!--",
    "《",
    "“",
    "(",
]


@pytest.mark.parametrize("mark", OPEN)
def test_what_is_never_closed_hides_nothing(mark: str) -> None:
    rest = "One more sentence. And then a last one, with 12 words."
    splitter = Splitter(max_chars=200, first_chars=200)
    segments = splitter.feed(mark + rest) + splitter.flush()
    heard = " ".join(segment.text for segment in segments)
    assert heard.endswith("And then a last one, with 12 words.")
    assert "more sentence." in heard


@pytest.mark.parametrize("mark", ["[a](", "<a b='", "a <think>", "a <!--"])
def test_what_is_never_closed_holds_little(mark: str) -> None:
    splitter = Splitter(max_chars=200, first_chars=200)
    text = mark + "x" * 5_000
    read = 0
    while not splitter.feed(text[read]):
        read += 1
    assert read < 2_300


def test_a_mention_is_spoken_with_its_own_markup() -> None:
    text = "The <think> tag is **not** closed, [see](http://x.y) <script> too. Good."
    assert texts(text, first_chars=80) == ["The tag is not closed, see too.", "Good."]


# --- tags and entities --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("<b>", "</b>", "</b >", "<B>", "<br/>", "<br />", "<x/>", "</x>", "<a href='x'>", '<a href="x>y">'),
        *("<a href=x>", "<a href=x/y>", "<a  b='1' c>".replace(" c", " hidden"), "<input disabled>", "<h1>"),
        *("<a\nb='c'>", "<my-tag x='1'>", "<mstts:express-as style='x'>", "<!DOCTYPE html>", "<!-- x -->"),
        *('<?xml version="1.0"?>', "<|end|>", "<｜end▁of▁sentence｜>", "<img src='data:x,y'>"),
    ],
)
def test_a_tag(text: str) -> None:
    assert let_through(f"x{text}y").replace("\n", "") == "xy"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a < b",
            "a<b",
            "a <b and c> d",
            "x <b then",
            "a<=b",
            "<3",
            "<-",
            "<>",
            "</",
            "</ b>",
            "< b>",
            "<b c>",
        ),
        *(
            "<b =c>",
            "<b c= d>",
            "<b c=<>",
            "<b c='d'e>",
            "<b/c>",
            "<1>",
            "<é>",
            "<!>",
            "<!x",
            "<!->",
            "<|a b|>",
        ),
        *(
            "<||>",
            "<std::string>",
            "</b c>",
            "<" + "x" * 50 + ">",
            "<b " + "x" * 50 + "=1>",
            "<b c=d'e>",
            "<?>",
        ),
        *("<!-x>", "<b c='", "<b c", "<b.c", "<b/", "<|x"),
    ],
)
def test_no_tag(text: str) -> None:
    assert let_through(f"x{text}") == f"x{text}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<https://x.y/a_b_>", "https://x.y/a_b_"),
        ("<a.b+c@x.org>!", "a.b+c@x.org!"),
        ("<mailto:me@x.org>", "mailto:me@x.org"),
        ("Hi <your>.", "Hi your."),
        ("List<Int>.", "List Int."),
    ],
)
def test_brackets_around_text(text: str, expected: str) -> None:
    assert let_through(text) == expected


def test_names_have_no_case() -> None:
    tag = Tag()
    for char in "STRONG>":
        tag.feed(char)
    assert (tag.name, tag.is_known, tag.is_closing) == ("strong", True, False)


def test_every_name_of_an_entity() -> None:
    for name, value in html5.items():
        if name.endswith(";"):
            expected = "".join(map(spoken, value.replace("[", " ").replace("]", "")))
            assert let_through(f"&{name}") == expected, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&#65;&#x42;&#X43;", "ABC"),
        ("&#0;&#xD800;&#x110000;", "\ufffd\ufffd\ufffd"),
        ("&#;&#x;&#xg;&#1a;&;&amp", "&#;&#x;&#xg;&#1a;&;&amp"),
        ("&" + "a" * 40 + ";", "&" + "a" * 40 + ";"),
        ("&amp;lt;", "&lt;"),
        ("&lt;b&gt;&#42;&#42;x", "<b>**x"),
        ("& amp;", "& amp;"),
    ],
)
def test_entities(text: str, expected: str) -> None:
    assert let_through(text).replace("\ufffd", "") == expected.replace("\ufffd", "")


def test_both_characters_of_one_entity_have_places() -> None:
    segments = split("&fjlig;", max_chars=1)
    assert [(segment.text, segment.start, segment.end) for segment in segments] == [("f", 0, 6), ("j", 6, 7)]


# --- any text -----------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("a1好 .。\n*_`~#>-+[]()!<&;|\\\"'=/:^x") | st.characters(codec=None)))
def test_places_never_fall(text: str) -> None:
    markup = Markup(DEFAULT_POLICY)
    last = 0
    for end, char in enumerate(text, 1):
        for unit, place in markup.feed(char, end):
            assert last <= place <= end
            assert len(unit) == 1
            assert unit not in "[]"
            last = place
    assert all(last <= place <= len(text) for _, place in markup.flush())


@given(st.text("abc 好1,.，。?！", min_size=1))
def test_plain_text_stays(text: str) -> None:
    assert let_through(text) == text
    if speakable(text):
        assert split(text)
