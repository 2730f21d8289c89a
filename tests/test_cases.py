"""The cases: what ends a sentence, what lies inside one, what is spoken, however the text is cut.

`tests/cases/shared` holds the cases that came with the task, the files beside it our own, in the same form:
`ends` must end a sentence, `whole` must lie inside one, `count` is the number of sentences, `gone` is not
spoken, `kept` is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.segments import sentences, split

HOME = Path(__file__).parent / "cases"
FILES = ("shared/sentences.jsonl", "sentences.jsonl", "markup.jsonl")


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HOME / name).read_text(encoding="utf-8").splitlines()]


CASES = [
    pytest.param(case, id=f"{name.removesuffix('.jsonl')}-{number}")
    for name in FILES
    for number, case in enumerate(read(name), 1)
]


@pytest.mark.parametrize("pieces", [None, 1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any], pieces: int | None) -> None:
    segments = split(case["text"], pieces=pieces)
    found = sentences(case["text"], segments)
    spoken = " ".join(segment.text for segment in segments)
    if "count" in case:
        assert len(found) == case["count"], found
    for end in case.get("ends", ()):
        assert any(sentence.rstrip().endswith(end) for sentence in found), (end, found)
    for whole in case.get("whole", ()):
        assert any(whole in sentence for sentence in found), (whole, found)
    for gone in case.get("gone", ()):
        assert gone not in spoken, (gone, spoken)
    for kept in case.get("kept", ()):
        assert kept in spoken, (kept, spoken)


@pytest.mark.parametrize("pieces", [None, 1, 2, 4])
@pytest.mark.parametrize("case", read("shared/torture.jsonl"), ids=lambda case: json.dumps(case["text"])[:40])
def test_torture(case: dict[str, Any], pieces: int | None) -> None:
    segments = split(case["text"], pieces=pieces)
    if case["outcome"] != "done":
        assert bool(segments) == (case["outcome"] == "done, duration > 0")


def test_cases_are_told_apart() -> None:
    """No case is there twice, and each says something."""
    texts = [case["text"] for name in FILES for case in read(name)]
    assert len(texts) == len(set(texts))
    assert all(len(case) > 1 for name in FILES for case in read(name))
