"""The reference engine: the ChatTTS package behind `SpeechModel`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import Busy, CannotSpeak, ModelMissing, UnknownVoice
from engine.upstream import model as reference
from engine.upstream import package
from engine.upstream.model import UpstreamModel
from engine.wire import Parameters, Span
from tests import upstream


def test_a_missing_package_is_named() -> None:
    with pytest.raises(ModelMissing, match=r"requirements-upstream\.txt"):
        package.module("ChatTTS_of_another_name")


def test_text_cannot_spell_upstream_tokens() -> None:
    assert reference.harmless("a [Ptts] b [laugh]", tags=False) == "a  Ptts  b  laugh "
    assert reference.harmless("a [Ptts] [laugh] [", tags=True) == "a  Ptts  [laugh]  "


def test_style() -> None:
    assert reference.style(Parameters()) == "[speed_5]"
    given = Parameters(speed=2.0, oral=1, laugh=2, pause=3)
    assert reference.style(given) == "[speed_9][oral_1][laugh_2][break_3]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> UpstreamModel:
    if not upstream.PRESENT:
        pytest.skip("the ChatTTS package is not installed (requirements-upstream.txt)")
    return UpstreamModel(upstream.write_tiny(tmp_path_factory.mktemp("weights")))


def speak(model: UpstreamModel, voice: str, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    model.open(0, voice, Parameters(), seed)
    model.begin(0, [Span("你好 hello", "zh", 0, 8)])
    pieces = []
    while True:
        [output] = model.step([0])
        assert output.error is None
        pieces.append(output.pcm)
        if output.finished:
            model.close(0)
            return np.concatenate(pieces)


def test_it_speaks(model: UpstreamModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_STEPS", 100)
    first = speak(model, "aspen", 5)
    assert 30 * 512 < len(first) <= 100 * 512
    assert int(np.abs(first).max()) > 500
    assert np.array_equal(speak(model, "aspen", 5), first)
    assert not np.array_equal(speak(model, "willow", 5)[:10_000], first[:10_000])


def test_what_it_refuses(model: UpstreamModel, tmp_path: Path) -> None:
    with pytest.raises(UnknownVoice):
        model.open(0, "../aspen", Parameters(), 0)
    with pytest.raises(Busy):
        model.open(1, "aspen", Parameters(), 0)
    model.open(0, "aspen", Parameters(), 0)
    with pytest.raises(CannotSpeak):
        model.begin(0, [Span("??", "en", 0, 2)])
    with pytest.raises(ModelMissing):
        UpstreamModel(tmp_path)
