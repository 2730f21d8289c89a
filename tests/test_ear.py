"""Intelligibility through the real path: a recogniser must understand what the voices say, in both languages.

`speak` is the one place that knows how text becomes sound, and `RATE` the rate of that sound.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.client import connect
from gateway.sinks import PcmDecoder
from tests.ear import Ear, Score, score, total, units
from tests.server import Server

Speak = Callable[[str, str], NDArray[np.float32]]

RATE: Final = 24000
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
def speak(server: Server) -> Speak:
    """Mono samples of [-1, 1] at `RATE`, by the real path: text, socket, Opus, decoder."""

    async def over_the_socket(text: str) -> bytes:
        async with connect(server.ws_url) as client:
            said = await client.speak(text, pace="fast", sample_rate=RATE)
        assert said.outcome == "done", said.ended
        decoder = PcmDecoder(format="opus", sample_rate=RATE)
        return b"".join(decoder.feed(message) for message in said.audio)

    def spoken(text: str, language: str) -> NDArray[np.float32]:
        pcm = np.frombuffer(asyncio.run(over_the_socket(text)), "<i2")
        return pcm.astype(np.float32) / np.float32(32768)

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
