"""Intelligibility: a recogniser must understand what the voices say, in both languages.

`speak` is the one place that knows how text becomes sound, and `RATE` the rate of that sound.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.embedded.model import EmbeddedModel
from engine.wire import Parameters, Span
from tests.ear import Ear, Score, score, total, units

Speak = Callable[[str, str], NDArray[np.float32]]

RATE = 24000
CASES = Path(__file__).parent / "cases" / "ear.jsonl"
STYLES = Path(__file__).parent.parent / "assets" / "styles"
LIMITS = {"en": 0.08, "zh": 0.06}
LEAST_UNITS = 80


def cases(language: str) -> list[str]:
    """The sentences of a language."""
    lines = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [line["text"] for line in lines if line["language"] == language]


@pytest.fixture(scope="module")
def ear() -> Ear:
    return Ear()


@pytest.fixture(scope="module")
def speak() -> Speak:
    """Mono samples of [-1, 1] at `RATE` for a sentence and its language."""
    model = EmbeddedModel(slots=1, styles=STYLES)

    def spoken(text: str, language: str) -> NDArray[np.float32]:
        model.open(0, model.spec.default_voice, Parameters(), 0)
        model.begin(0, [Span(text, language, 0, len(text))])
        pieces: list[NDArray[np.int16]] = []
        finished = False
        while not finished:
            (made,) = model.step([0])
            assert made.error is None
            pieces.append(made.pcm)
            finished = made.finished
        model.close(0)
        return np.concatenate(pieces).astype(np.float32) / np.float32(32768)

    return spoken


@pytest.mark.parametrize("language", ["en", "zh"])
def test_speech_is_understood(ear: Ear, speak: Speak, language: str) -> None:
    if language == "zh" and not (STYLES / "zf_xiaoxiao.bin").is_file():
        pytest.skip("the Mandarin styles are not there: run the set-up on a machine with npm")
    scores: list[Score] = []
    for text in cases(language):
        heard = ear.hear(speak(text, language), RATE, language)
        scores.append(score(text, heard, language))
        if scores[-1].errors:
            print(f"{scores[-1].errors} of {scores[-1].units}: {text} | {heard}")
    found = total(scores)
    print(f"{language}: {found.errors} errors in {found.units} units, {found.rate:.1%}")
    assert found.units >= LEAST_UNITS
    assert found.rate <= LIMITS[language]


def test_the_ear_hears_nothing_in_noise(ear: Ear) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.05, 3 * RATE).astype(np.float32)
    text = cases("en")[0]
    assert score(text, ear.hear(noise, RATE, "en"), "en").rate > 0.5


@pytest.mark.parametrize(
    ("said", "heard", "language", "errors"),
    [
        ("Twenty-five apples.", "25 apples", "en", 0),
        ("3.5 liters", "three point five liters", "en", 0),
        ("The red fox", "the fox", "en", 1),
        ("Hello there", "Hello, their friend", "en", 2),
        ("一年有365天。", "一年有三百六十五天", "zh", 0),
        ("他在这里", "她再这里", "zh", 0),
        ("今天", "明天", "zh", 1),
        ("今天", "", "zh", 2),
    ],
)
def test_scores(said: str, heard: str, language: str, errors: int) -> None:
    found = score(said, heard, language)
    assert found == Score(errors, len(units(said, language)))
