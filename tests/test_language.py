"""Languages of runs, and what can be spoken."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.wire import Span
from gateway.language import is_combining, is_wide, spans, speakable, spoken
from gateway.stops import Abbreviation, abbreviation

Hint = Literal["auto", "zh", "en"]
hints = st.sampled_from(["auto", "zh", "en"])


def tagged(text: str, language: Hint = "auto") -> list[tuple[str, str]]:
    return [(span.language, span.text) for span in spans(text, 0, len(text), language)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world.", [("en", "Hello, world.")]),
        ("你好，世界。", [("zh", "你好，世界。")]),
        ("请打开 Settings 页面。", [("zh", "请打开 "), ("en", "Settings "), ("zh", "页面。")]),
        ("然后点 OK。", [("zh", "然后点 "), ("en", "OK。")]),
        ("99元", [("zh", "99元")]),
        ("The price is 99元.", [("en", "The price is "), ("zh", "99元.")]),
        ("他身高1.78m，体重65 kg。", [("zh", "他身高1.78m，体重65 kg。")]),
        ("He runs 5km, or 10 km.", [("en", "He runs 5km, or 10 km.")]),
        ("5km is far", [("en", "5km is far")]),
        ("5km很远", [("zh", "5km很远")]),
        ("速度100Mbps，用了 5 GB 流量", [("zh", "速度100Mbps，用了 5 GB 流量")]),
        ("气温25°C，湿度60%。", [("zh", "气温25°C，湿度60%。")]),
        ("iPhone 15的价格", [("en", "iPhone "), ("zh", "15的价格")]),
        ("我在 2024 年用 Python 3.12 写", [("zh", "我在 2024 年用 "), ("en", "Python 3.12 "), ("zh", "写")]),
        ("第5A栋", [("zh", "第5"), ("en", "A"), ("zh", "栋")]),
        ("COVID-19疫情", [("en", "COVID-19"), ("zh", "疫情")]),
        ("联系138@qq.com吧", [("zh", "联系"), ("en", "138@qq.com"), ("zh", "吧")]),
        ("访问https://x.y/1?z=2。好", [("zh", "访问"), ("en", "https://x.y/1?z=2"), ("zh", "。好")]),
        ("Use (中文) now", [("en", "Use "), ("zh", "(中文) "), ("en", "now")]),
        ("从北京-上海 by train", [("zh", "从北京-上海 "), ("en", "by train")]),
        ("It rose 5% in 2024.", [("en", "It rose 5% in 2024.")]),
        ("２０２４年 ＡＢＣ", [("zh", "２０２４年 "), ("en", "ＡＢＣ")]),
        ("At 3:30pm我们走", [("en", "At 3:30pm"), ("zh", "我们走")]),
        (
            "我买了2台iPhone 15 Pro，花了$999。",
            [("zh", "我买了2台"), ("en", "iPhone 15 Pro"), ("zh", "，花了$999。")],
        ),
        ("“你好”", [("zh", "“你好”")]),
        ("¥5 tea", [("en", "¥5 tea")]),
        ("naïve fac\u0327ade Ωmega", [("en", "naïve fac\u0327ade Ωmega")]),
        ("カラオケ bar", [("zh", "カラオケ "), ("en", "bar")]),
        ("Yes。No", [("en", "Yes。No")]),
        ("3.14", [("en", "3.14")]),
        ("½ ①", [("en", "½ ①")]),
    ],
)
def test_runs(text: str, expected: list[tuple[str, str]]) -> None:
    assert tagged(text) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("3.14", "zh", [("zh", "3.14")]),
        ("3.14", "en", [("en", "3.14")]),
        ("OK, 15!", "zh", [("en", "OK, "), ("zh", "15!")]),
        ("买 $5 的", "en", [("zh", "买 "), ("en", "$5 "), ("zh", "的")]),
        ("Hello 你好", "zh", [("en", "Hello "), ("zh", "你好")]),
        ("Hello 你好", "en", [("en", "Hello "), ("zh", "你好")]),
        ("OK?!", "zh", [("en", "OK?!")]),
        ("--", "zh", [("zh", "--")]),
        ("99元", "en", [("zh", "99元")]),
        ("weighs 65kg", "zh", [("en", "weighs "), ("zh", "65kg")]),
    ],
)
def test_a_hint_decides_for_numbers_only(text: str, language: Hint, expected: list[tuple[str, str]]) -> None:
    assert tagged(text, language) == expected


def test_source_spans_are_exact_where_nothing_was_dropped() -> None:
    assert spans("点 OK 吧", 7, 13, "auto") == (
        Span(text="点 ", language="zh", start=7, end=9),
        Span(text="OK ", language="en", start=9, end=12),
        Span(text="吧", language="zh", start=12, end=13),
    )


def test_source_spans_are_in_proportion_otherwise() -> None:
    assert [(span.start, span.end) for span in spans("点OK", 10, 16, "auto")] == [(10, 12), (12, 16)]


def test_source_spans_are_exact_with_the_places_of_the_characters() -> None:
    """“**点** OK”, from 10 on."""
    assert spans("点 OK", 10, 18, "auto", (13, 16, 17, 18)) == (
        Span(text="点 ", language="zh", start=10, end=16),
        Span(text="OK", language="en", start=16, end=18),
    )


def test_no_text_has_no_spans() -> None:
    assert spans("", 3, 9, "auto") == ()


@given(
    text=st.text(st.sampled_from("a 好1。.“,$-é字Ωkm/\u0301😀") | st.characters()),
    language=hints,
    data=st.data(),
    exact=st.booleans(),
)
def test_spans_cover_the_text(text: str, language: Hint, data: st.DataObject, exact: bool) -> None:
    steps = data.draw(st.lists(st.integers(0, 3), min_size=len(text), max_size=len(text)))
    ends = tuple(5 + place for place in accumulate(steps))
    end = (ends[-1] if ends else 5) + data.draw(st.integers(0, 9))
    result = spans(text, 5, end, language, ends if exact else ())
    assert "".join(span.text for span in result) == text
    at = 5
    done = 0
    for span in result:
        assert span.start == at
        assert span.end >= span.start
        assert span.language in ("zh", "en")
        assert span.text
        at = span.end
        done += len(span.text)
        assert not exact or done == len(text) or at == ends[done - 1]
    if result:
        assert at == end
    if speakable(text):
        assert all(speakable(span.text) for span in result)
    assert all(a.language != b.language for a, b in pairwise(result))


@pytest.mark.parametrize("text", ["a", "é", "5", "１", "½", "①", "好", "か", "℃", "㎏", "?a", "Ω"])
def test_speakable(text: str) -> None:
    assert speakable(text)


@pytest.mark.parametrize(
    "text", ["", " ", "\n", ".", "。", "…", "——", "😀", "\u200b", "\x00", "\u0301", "“”", "*", "\ud83d", "→"]
)
def test_not_speakable(text: str) -> None:
    assert not speakable(text)


@pytest.mark.parametrize(
    ("char", "expected"),
    [
        ("a", "a"),
        ("。", "。"),
        ("℃", "℃"),
        ("\u0301", "\u0301"),
        ("\u2028", "\n"),
        ("\r", "\n"),
        ("\u3000", " "),
        ("\xa0", " "),
        ("😀", " "),
        ("\u200d", ""),
        ("\ufe0f", ""),
        ("\u20e3", ""),
        ("\x1b", ""),
        ("\ud83d", ""),
        ("\ue000", ""),
    ],
)
def test_spoken(char: str, expected: str) -> None:
    assert spoken(char) == expected


def test_wide_and_combining() -> None:
    assert [char for char in "a1字か。，（＃１Ａ“…" if is_wide(char)] == list("字か。，（＃")
    assert [char for char in "ae\u0301字" if is_combining(char)] == ["\u0301"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Dr", Abbreviation.JOINING),
        ("e.g", Abbreviation.JOINING),
        ("Approx", Abbreviation.JOINING),
        ("No", Abbreviation.NUMBERED),
        ("U.S", Abbreviation.SHORT),
        ("Ph.D", Abbreviation.SHORT),
        ("K", Abbreviation.SHORT),
        ("St", Abbreviation.SHORT),
        ("P.M", Abbreviation.BEFORE_CAPITAL),
        ("rep", Abbreviation.NONE),
        ("home", Abbreviation.NONE),
        ("1980", Abbreviation.NONE),
        ("x", Abbreviation.NONE),
        ("max", Abbreviation.SHORT),
    ],
)
def test_abbreviation(word: str, expected: Abbreviation) -> None:
    assert abbreviation(word) is expected
