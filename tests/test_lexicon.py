from __future__ import annotations

from typing import Any

import pytest

from gateway.lexicon import (
    EMPTY,
    LONGEST_SPOKEN,
    LONGEST_WORD,
    MOST_ENTRIES,
    Entry,
    Lexicon,
    LexiconError,
    parse,
)
from gateway.normalize import normalize


def said(text: str, table: dict[str, Any]) -> str:
    return normalize(text, lexicon=parse(table)).text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("We use nginx.", "We use engine x."),
        ("NGINX and Nginx", "engine x and engine x"),
        ("nginxes", "nginxes"),
        ("my-nginx!", "my engine x!"),
        ("用nginx吧", "用engine x吧"),
        ("ｎｇｉｎｘ", "engine x"),
    ],
)
def test_a_word_without_capitals_is_found_in_any_case_as_a_whole(text: str, spoken: str) -> None:
    assert said(text, {"nginx": "engine x"}) == spoken


def test_a_word_with_capitals_is_found_as_it_is_written() -> None:
    table = {"IT": "eye tee"}
    assert said("IT is it", table) == "eye tee is it"
    assert said("Go or go", {"Go": "golang", "go": "walk"}) == "golang or walk"


def test_the_longest_word_is_taken() -> None:
    table = {"new york": "the city", "new": "old", "New York Times": "the paper"}
    assert said("New York Times in New York, new", table) == "the paper in the city, old"


def test_han_words_are_found_anywhere() -> None:
    assert said("去重庆吧", {"重庆": "虫庆"}) == "去虫庆吧"
    assert said("行长", {"行": "航", "行长": "航掌"}) == "航掌"


def test_an_entry_of_a_language_is_for_texts_in_it() -> None:
    table = {"zh": {"AI": "人工智能"}, "en": {"AI": "A eye"}}
    assert said("我们用AI写诗", table) == "我们用人工智能写诗"
    assert said("We use AI here", table) == "We use A eye here"
    assert said("AI", {"AI": "any", "zh": {"AI": "只"}}) == "any"


def test_a_spoken_form_is_read_like_any_text() -> None:
    assert said("Room x", {"x": "42 & more"}) == "Room forty two and more"
    spoken = normalize("打开XX吧", lexicon=parse({"XX": "叉 cross"}))
    assert [(piece.spoken, piece.language) for piece in spoken.pieces] == [
        ("打开", "zh"), ("叉", "zh"), ("cross", "en"), ("吧", "zh"),
    ]  # fmt: skip


def test_signs_and_numbers_may_be_words() -> None:
    assert said("→ 404", {"→": "leads to", "404": "not found"}) == "leads to not found"
    assert said("1404", {"404": "not found"}) == "fourteen oh four"


def test_places_are_those_of_the_word() -> None:
    text = "We use nginx now"
    pieces = normalize(text, lexicon=parse({"nginx": "engine x"})).pieces
    assert [text[piece.start : piece.end] for piece in pieces if "engine" in piece.spoken] == ["nginx"]


def test_a_session_adds_to_the_settings() -> None:
    both = parse({"a b": "one", "c": "two"}).joined(parse({"c": "three"}))
    assert normalize("a b c", lexicon=both).text == "one three"
    assert parse({"c": "two"}).joined(EMPTY).entries == parse({"c": "two"}).entries


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"": "x"}, "no word"),
        ({" ": "x"}, "no word"),
        ({"...": "x"}, "no word"),
        ({"a": ""}, "says nothing"),
        ({"a": "..."}, "says nothing"),
        ({"a": 1}, "must be text"),
        ({"fr": {"a": "b"}}, "zh and en"),
        ({"zh": {"a": {"b": "c"}}}, "must be text"),
        ({"a" * (LONGEST_WORD + 1): "x"}, "at most"),
        ({"a": "x" * (LONGEST_SPOKEN + 1)}, "at most"),
        ({f"w{number}": "x" for number in range(MOST_ENTRIES + 1)}, "at most"),
    ],
)
def test_bad_tables_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(LexiconError, match=message):
        parse(table)


def test_the_limits_themselves_are_allowed() -> None:
    table = {f"w{number}": "x" for number in range(MOST_ENTRIES - 1)} | {
        "b" * LONGEST_WORD: "y" * LONGEST_SPOKEN
    }
    lexicon = parse(table)
    assert len(lexicon.entries) == MOST_ENTRIES
    with pytest.raises(LexiconError, match="at most"):
        lexicon.joined(Lexicon([Entry(word="one more", spoken="x")]))


def test_an_error_shows_no_more_than_a_word() -> None:
    with pytest.raises(LexiconError) as raised:
        parse({"x" * 10_000: 3})
    assert len(str(raised.value)) < 200
