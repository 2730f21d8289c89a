"""Splitting takes work in proportion to the text, and bounded memory, whatever the text is."""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType

import pytest

from gateway.sentences import Splitter

KINDS = [
    *(
        "1",
        "a.",
        "(",
        "a\u0301\u0301\u0301",
        "\u0301",
        "字",
        "。",
        "J. ",
        "“",
        " ",
        "…",
        "1,",
        "a, b. ",
        "《",
        "1. ",
    ),
    *("*", "`", "```", "#", "[", "[a](", "[^", "![", "|", "|a ", "\\", "&a", "\x1b[", "[x]: ", "\n- ["),
    *("<", "<a", "<x>", "<a b='", "<a b='<a b=\"", "<https:", "<!--", "<think>a", "a<think>", "a<script>"),
]
MOST_CALLS = 60
"""Calls a character, of Python and of C functions: unlike time, the same in every run."""


def calls(text: str) -> int:
    """The calls that splitting it takes, in pieces of 64 characters."""
    splitter = Splitter(max_chars=80)
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        for at in range(0, len(text), 64):
            splitter.feed(text[at : at + 64])
        splitter.flush()
    finally:
        sys.setprofile(before)
    return count


def repeated(unit: str, length: int) -> str:
    return (unit * (length // len(unit) + 1))[:length]


@pytest.mark.parametrize("unit", KINDS)
def test_work_is_linear(unit: str) -> None:
    assert calls(repeated(unit, 1_000)) > 1_000  # also warms the caches of single characters
    one, two = calls(repeated(unit, 4_000)), calls(repeated(unit, 8_000))
    assert two < 2.2 * one
    assert two < MOST_CALLS * 8_000


@pytest.mark.parametrize("unit", ["a.", "[a]("])
def test_a_hundred_thousand_characters(unit: str) -> None:
    assert 100_000 < calls(repeated(unit, 100_000)) < MOST_CALLS * 100_000


@pytest.mark.parametrize(
    "unit", ["1", "a.", "\u0301", "[a](", "a<think>", "<a b='", "&a", "![x](data:image/png", "| "]
)
def test_memory_is_bounded(unit: str) -> None:
    splitter = Splitter(max_chars=100)
    text = repeated(unit, 20_000)
    tracemalloc.start()
    try:
        for at in range(0, len(text), 1000):
            splitter.feed(text[at : at + 1000])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An address of a link, of at most 2048 characters, is the most that is ever held; were all of it kept,
    # 20,000 characters would take several times as much.
    assert size < 500_000
