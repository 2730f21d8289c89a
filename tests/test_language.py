"""What can be spoken, and of which script a character is."""

from __future__ import annotations

import pytest

from gateway.language import is_combining, is_wide, speakable, spoken
from gateway.stops import Abbreviation, abbreviation


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
