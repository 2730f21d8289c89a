from __future__ import annotations

import json
import re
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import numerals_en, numerals_zh
from gateway.normalize import MOST_CHARS, Spoken, normalize
from gateway.scene import is_han, is_latin

CASES = Path(__file__).parent / "cases"
MARKS = set("，。？！、；：,.?!;:")
SILENT = set("~^`|_*")
"""Signs that are not letters or digits, and that may stand for nothing but a pause or a join."""


def read(name: str) -> list[dict[str, Any]]:
    path = CASES / name
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def hints(case: dict[str, Any]) -> list[Literal["auto", "zh", "en"]]:
    """A text of one language is read alike with its hint and without one."""
    if case["lang"] == "mixed":
        return ["auto"]
    hint: Literal["zh", "en"] = "zh" if case["lang"] == "zh" else "en"
    return [hint] if case.get("hint") else [hint, "auto"]


def check(case: dict[str, Any], spoken: str) -> None:
    for pattern in case.get("spoken_matches", []):
        assert re.search(pattern, spoken), f"{pattern} is not in {spoken!r}"
    for absent in case.get("lacks", []):
        assert absent not in spoken


@pytest.mark.parametrize("case", read("normalisation.jsonl"), ids=lambda case: case["text"][:40])
def test_case(case: dict[str, Any]) -> None:
    for hint in hints(case):
        check(case, normalize(case["text"], language=hint).text)


@pytest.mark.parametrize("case", read("shared/normalisation.jsonl"), ids=lambda case: case["text"][:40])
def test_shared_case(case: dict[str, Any]) -> None:
    for hint in hints(case):
        check(case, normalize(case["text"], language=hint).text)


# --- what holds for any text --------------------------------------------------------------------------------

PARTS = st.sampled_from(
    [*"0123456789.,:/-~%$¥€°+=<>^&@#()[]\"'“”，。！？：；、…— \n零二年月日元个第",
     "km", "kg", "℃", "pm", "a.m.", "Dr.", "St.", "No.", "https://a.com/b", "x@y.org", "v2.0", "½", "①", "Ⅳ",
     "²", "㎏", "１", "Ω", "naïve",
     "don't", "我们", "apple", "😀", "é", "ß", "を", "한", "ж", "\u0301", "\u200b", "\ud83d", "20", "2024",
     "13812345678", "3x", "IV", "Chapter ", "[laugh]", "1e5", "w/o"]
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=30).map("".join) | st.text(max_size=60)
HINTS: st.SearchStrategy[Literal["auto", "zh", "en"]] = st.sampled_from(["auto", "zh", "en"])


def unspeakable(spoken: str) -> list[str]:
    """Characters that no engine is asked to say."""
    wrong = []
    for at, char in enumerate(spoken):
        before, after = spoken[at - 1 : at] if at else "", spoken[at + 1 : at + 2]
        inside = bool(before) and bool(after) and is_latin(before) and is_latin(after)
        if not (is_han(char) or is_latin(char) or char == " " or char in MARKS or (char in "'-" and inside)):
            wrong.append(char)
    return wrong


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, hint=HINTS)
def test_only_what_can_be_spoken_is_left(text: str, hint: Literal["auto", "zh", "en"]) -> None:
    spoken = normalize(text, language=hint).text
    assert unspeakable(spoken) == []
    assert spoken == spoken.strip()
    assert "  " not in spoken


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, hint=HINTS)
def test_pieces_are_in_order_and_inside_the_text(text: str, hint: Literal["auto", "zh", "en"]) -> None:
    spoken = normalize(text, language=hint)
    for piece in spoken.pieces:
        assert 0 <= piece.start < piece.end <= len(text)
        assert piece.spoken
        assert piece.language in ("zh", "en")
    for before, after in pairwise(spoken.pieces):
        same = (before.start, before.end) == (after.start, after.end)
        assert same or before.end <= after.start
    for start, end in spoken.dropped:
        assert 0 <= start < end <= len(text)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, hint=HINTS)
def test_nothing_is_dropped_in_silence(text: str, hint: Literal["auto", "zh", "en"]) -> None:
    assert unaccounted(text, normalize(text, language=hint)) == []


def unaccounted(text: str, spoken: Spoken) -> list[str]:
    """Letters, digits and signs that are neither said nor reported."""
    covered = set[int]()
    for start, end in [*((piece.start, piece.end) for piece in spoken.pieces), *spoken.dropped]:
        covered |= set(range(start, end))
    return [char for at, char in enumerate(text) if at not in covered and means_something(char)]


def means_something(char: str) -> bool:
    plain = unicodedata.normalize("NFKC", char)
    return char.isalnum() or (unicodedata.category(char)[0] == "S" and not set(plain) & SILENT)


@settings(max_examples=200, deadline=None)
@given(number=st.integers(0, 10**15 - 1))
def test_numbers_mean_what_they_say(number: int) -> None:
    assert value_zh(numerals_zh.cardinal(str(number))) == number
    assert value_zh(numerals_zh.cardinal(str(number), two="两").replace("两", "二")) == number
    assert value_en(numerals_en.cardinal(str(number))) == number


def value_zh(words: str) -> int:
    for name, size in (("万亿", 10**12), ("亿", 10**8), ("万", 10**4)):
        high, found, low = words.partition(name)
        if found:
            return value_zh(high) * size + value_zh(low)
    total, digit = 0, 0
    for char in words:
        if char in "十百千":
            total += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[char]
            digit = 0
        else:
            digit = numerals_zh.DIGITS.index(char)
    return total + digit


def value_en(words: str) -> int:
    total, group = 0, 0
    for word in words.split():
        if word in ("thousand", "million", "billion", "trillion"):
            total += group * {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}[word]
            group = 0
        elif word == "hundred":
            group *= 100
        else:
            group += next(value for value in range(100) if word == numerals_en.cardinal(str(value)))
    return total + group


# --- single rules -------------------------------------------------------------------------------------------


def test_words_keep_their_places() -> None:
    text = "I have 3 apples, 我有2个."
    spoken = normalize(text)
    assert spoken.text == "I have three apples, 我有两个。"
    assert [(piece.spoken, text[piece.start : piece.end]) for piece in spoken.pieces] == [
        ("I have ", "I have "), ("three", "3"), (" apples, ", " apples, "), ("我有", "我有"), ("两", "2"),
        ("个。", "个."),
    ]  # fmt: skip


def test_each_piece_has_its_language() -> None:
    pieces = normalize("请打开 Settings 页面").pieces
    assert [(piece.language, piece.start, piece.end) for piece in pieces] == [
        ("zh", 0, 4),
        ("en", 4, 13),
        ("zh", 13, 15),
    ]


def test_what_cannot_be_said_is_reported() -> None:
    spoken = normalize("Hi 🎉 мир")
    assert spoken.text == "Hi"
    assert spoken.dropped == ((3, 4), (5, 8))


def test_a_long_address_ends_at_its_host_and_the_rest_is_reported() -> None:
    text = "See https://example.com/" + "a" * 100 + " now"
    spoken = normalize(text)
    assert spoken.text == "See example dot com now"
    assert spoken.dropped == ((23, 124),)


def test_tags_pass_only_where_they_are_asked_for() -> None:
    text = "[laugh] ok [uv_break][Stts]"
    assert normalize(text, tags=True).text == "[laugh] ok [uv_break]Stts"
    assert normalize(text).text == "laugh ok uv break Stts"
    pieces = normalize(text, tags=True).pieces
    assert ("[laugh]", 0, 7) in [(piece.spoken, piece.start, piece.end) for piece in pieces]


def test_the_default_decides_where_no_letter_does() -> None:
    assert normalize("3.14", default="zh").text == "三点一四"
    assert normalize("3.14").text == "three point one four"
    assert normalize("3 km", default="zh").text == "三公里"


def test_a_number_is_read_in_the_language_around_it() -> None:
    assert normalize("我有3个apple").text == "我有三个apple"
    assert normalize("我用iPhone 15 Pro拍照").text == "我用iPhone fifteen Pro拍照"
    assert normalize("iPhone 15 很贵").text == "iPhone 十五 很贵"
    assert normalize("The price is 99元.").text == "The price is 九十九元。"


def test_too_much_is_refused() -> None:
    normalize("a" * MOST_CHARS)
    with pytest.raises(ValueError, match="characters"):
        normalize("a" * (MOST_CHARS + 1))


@pytest.mark.parametrize(
    "unit",
    ["1", "1,", "1.", "1-", "1:", "1/", "a.", "a@", "a-", "http://a", "$", "(", "\u0301", "１", "½", "第1",
     "é", "/a", "1 ", "Dr. ", "IV", "x1", "α", "我1", "😀", "+1 ", "1%-", "v1.", "C+", "# ", "0 1/2 "],
)  # fmt: skip
def test_time_does_not_explode(unit: str) -> None:
    """4,000 characters of anything take a bounded time: eight times as much as 500, not sixty-four."""
    texts = [(unit * length)[:length] for length in (500, 4000)]
    normalize(texts[0])
    short, long = (min(timed(text) for _ in range(3)) for text in texts)
    assert long < 40 * short + 0.02


def timed(text: str) -> float:
    start = time.perf_counter()
    normalize(text)
    return time.perf_counter() - start


def test_threads_do_not_disturb_each_other() -> None:
    texts = ["It costs $1,234.50.", "2024年10月5日，气温-3℃。", "Dr. Smith lives at 123 Main St."] * 20
    alone = [normalize(text).text for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: normalize(text).text, texts)) == alone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("J ㎡", [("J ", 0, 2), ("m", 2, 3), (" squared", 2, 3)]),
        ("I.. …M", [("I", 0, 1), (",", 1, 5), (" ", 5, 5), ("M", 5, 6)]),
    ],
)
def test_places_overlap_only_where_one_thing_is_said_in_two_words(
    text: str, expected: list[tuple[str, int, int]]
) -> None:
    """What fuzzing found: a unit joined to the word before it, and a blank inside the mark before it."""
    assert [(piece.spoken, piece.start, piece.end) for piece in normalize(text).pieces] == expected
