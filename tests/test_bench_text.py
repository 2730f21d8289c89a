"""The comparison's own arithmetic: where a tool's sentences end, when they came out, and who is right."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bench import text as bench

pytestmark = pytest.mark.long

TEXT = "One two. Three! Four"


def split(text: str) -> list[str]:
    """A tool that cuts after each mark, and keeps the blank with the next."""
    out = [""]
    for char in text:
        out[-1] += char
        if char in ".!":
            out.append("")
    return [part for part in out if part]


def test_ends_are_found_whatever_happened_to_the_blanks() -> None:
    assert bench.located("A  b.\n\nC", ["A b.", "C"], [6, 8]) == [(5, 6), (8, 8)]


def test_a_tool_that_does_not_stream_is_late_by_what_it_needs_to_see() -> None:
    # The blank after the mark makes no sentence yet; the letter after it does.
    assert bench.resplitting(split)(TEXT) == [(8, 10), (15, 17), (20, 20)]


def test_ours_streams() -> None:
    found, spoken = bench.ours("Hello there. *Second* one.\n")
    assert [end for end, _ in found] == [12, 26]
    assert found[0][1] <= 14
    assert "*" not in spoken


def test_right_and_wrong() -> None:
    case = {"text": TEXT, "ends": ["two."], "whole": ["Three!"], "count": 3}
    assert bench.is_cut_right(case, [(8, 9), (15, 16), (20, 20)])
    assert not bench.is_cut_right(case, [(8, 9), (20, 20)])
    assert not bench.is_cut_right(case, [(8, 9), (12, 16), (20, 20)])
    assert bench.is_spoken_right({"gone": ["*"], "kept": ["a"]}, "a")
    assert not bench.is_spoken_right({"gone": ["*"]}, "*a")
    assert bench.is_read_right({"spoken_matches": ["two|too"], "lacks": ["2"]}, "two")
    assert not bench.is_read_right({"spoken_matches": ["two"]}, "2")


def test_it_runs_without_the_others() -> None:
    notes: list[str] = []
    assert not bench.has("no-such-package-at-all", notes.append)
    assert notes == ["no-such-package-at-all is not installed: left out"]
    assert CliRunner().invoke(bench.main, ["--help"]).exit_code == 0
