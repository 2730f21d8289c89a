from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.text import MOST_TEXT, text

MIXED = "今天花了$5。See **Dr. Smith** 🎉 at 3:30pm. OK\n"


def run(*arguments: str, stdin: str | bytes | None = None) -> list[dict[str, Any]]:
    result = CliRunner().invoke(text, [*arguments, "--json"], input=stdin)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def without_lag(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "lag"} for line in lines]


def test_a_line_has_the_fields_of_a_segment() -> None:
    (line,) = run("我有2个apple。")
    assert line == {
        "index": 0, "sentence": 0, "start": 0, "end": 10, "source": "我有2个apple。",
        "spoken": "我有两个apple.",
        "language": "mixed", "dropped": [], "lag": 0,
        "spans": [
            {"text": "我有两个", "language": "zh", "start": 0, "end": 4},
            {"text": "apple.", "language": "en", "start": 4, "end": 10},
        ],
    }  # fmt: skip


def test_spans_lie_in_the_input_through_markup_and_normalisation() -> None:
    lines = run(MIXED)
    assert lines[0]["spoken"] == "今天花了五美元。"
    spoken = " ".join(line["spoken"] for line in lines)
    assert "See Doctor Smith at three thirty PM." in spoken
    for line in lines:
        assert line["source"] == MIXED[line["start"] : line["end"]]
        at = line["start"]
        for span in line["spans"]:
            assert at <= span["start"] < span["end"] <= line["end"]
            at = span["end"]
    doctor = next(line for line in lines if "Doctor" in line["spoken"])
    first = doctor["spans"][0]
    assert MIXED[first["start"]] == "S"


def test_what_is_dropped_is_told_with_its_place() -> None:
    lines = run("Great 🎉 see [docs](https://e.com/x). Привет мир. Ok")
    dropped = [(place["start"], place["text"]) for line in lines for place in line["dropped"]]
    assert any("🎉" in text for _, text in dropped)
    assert any("https://e.com/x" in text for _, text in dropped)


@pytest.mark.parametrize("pieces", [2, 3, 4, 1000])
def test_pieces_change_nothing_but_the_lag(pieces: int) -> None:
    alone = run(MIXED)
    assert without_lag(run(MIXED, "--pieces", str(pieces))) == without_lag(alone)


def test_the_lag_counts_what_was_read_past_the_end() -> None:
    first, second = run("One is here. Two is there.")
    assert first["source"] == "One is here."
    assert 1 <= first["lag"] <= 2
    assert second["lag"] == 0


def test_standard_input_and_argument_are_alike() -> None:
    assert run(stdin=MIXED) == run(MIXED)
    assert run(stdin=b"ok \xff fine.")[0]["spoken"].startswith("ok")


def test_the_options_reach_their_place(tmp_path: Path) -> None:
    assert run("3.14", "--language", "zh")[0]["spoken"] == "三点一四"
    assert len(run("word " * 20, "--max-chars", "30")) > 2
    settings = tmp_path / "sayflow.toml"
    settings.write_text('[lexicon]\nnginx = "engine x"\n', "utf-8")
    assert run("Use nginx.", "--lexicon", str(settings))[0]["spoken"] == "Use engine x."


@pytest.mark.parametrize(
    "content", ["[lexicon]\na = 1\n", "lexicon = 3\n", "[lexicon\n", '[lexicon.fr]\na = "b"\n']
)
def test_a_bad_lexicon_is_told(tmp_path: Path, content: str) -> None:
    settings = tmp_path / "sayflow.toml"
    settings.write_text(content, "utf-8")
    result = CliRunner().invoke(text, ["hi", "--lexicon", str(settings)])
    assert result.exit_code == 1
    assert "sayflow.toml" in result.output


def test_nothing_to_say_is_no_line() -> None:
    assert run("") == run("...") == run(" \n") == []


def test_too_much_is_refused() -> None:
    result = CliRunner().invoke(text, [], input="a" * (MOST_TEXT + 1))
    assert result.exit_code == 1
    assert "at most" in result.output


def test_the_table_is_safe_to_print() -> None:
    result = CliRunner().invoke(text, ["Take [bold]2[/bold] of \x1b[31mthese.\n"])
    assert result.exit_code == 0
    assert "two" in result.stdout
    assert "\x1b" not in result.stdout
