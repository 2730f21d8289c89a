"""ChatTTS end to end, on a tiny random checkpoint: the model in its slots, and the server over the socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="the extra [torch] is not installed")

from engine.chattts import random_weights  # noqa: E402
from engine.chattts.model import ChatTTSModel  # noqa: E402
from engine.chattts.row import decode_checkpoint  # noqa: E402
from engine.errors import EngineError, UnknownVoice  # noqa: E402
from engine.model import Output  # noqa: E402
from engine.wire import Parameters, Span  # noqa: E402
from gateway.client import connect  # noqa: E402
from tests.server import Server, running  # noqa: E402

STEPS = 70
TEXTS = ("hello there", "你好", "a longer one, to begin with")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint."""
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    random_weights.write(folder, size="tiny", seed=7)
    return folder


@pytest.fixture
def model(weights: Path) -> ChatTTSModel:
    torch.set_num_threads(1)
    return ChatTTSModel(weights, slots=4, schedule=None)


def begin(model: ChatTTSModel, slot: int, text: str, *, seed: int = 5, resume: bytes = b"") -> None:
    """Start a sentence of `STEPS` steps: random weights never end one."""
    if slot not in model.rows:
        model.open(slot, model.spec.default_voice, Parameters(), seed)
    model.begin(slot, [Span(text, "en", 0, len(text))], resume)
    model.rows[slot].limit = STEPS


def finish(model: ChatTTSModel, slots: Sequence[int]) -> dict[int, list[Output]]:
    """Step these slots until each has finished."""
    outputs: dict[int, list[Output]] = {slot: [] for slot in slots}
    left = list(slots)
    while left:
        for output in model.step(left):
            assert output.error is None
            outputs[output.slot].append(output)
        left = [slot for slot in left if not outputs[slot][-1].finished]
    return outputs


def sound(outputs: Sequence[Output]) -> NDArray[np.int16]:
    return np.concatenate([output.pcm for output in outputs])


def codes(outputs: Sequence[Output]) -> list[list[int]]:
    """Those of the last checkpoint."""
    return decode_checkpoint([o.checkpoint for o in outputs if o.checkpoint][-1])


def test_a_sentence_has_the_length_of_its_steps(model: ChatTTSModel) -> None:
    begin(model, 0, TEXTS[0])
    outputs = finish(model, [0])[0]
    assert len(sound(outputs)) == 512 * STEPS - 256
    assert outputs[-1].truncated
    assert np.abs(sound(outputs).astype(int)).max() > 1000


def test_alone_is_beside_others(model: ChatTTSModel) -> None:
    begin(model, 2, TEXTS[0])
    alone = finish(model, [2])[2]
    for slot, text in enumerate(TEXTS):
        begin(model, slot, text, seed=5 if text == TEXTS[0] else 99 + slot)
    model.close(2)
    begin(model, 2, TEXTS[0])
    beside = finish(model, [0, 1, 2])
    assert codes(beside[2]) == codes(alone)
    assert np.abs(sound(beside[2]).astype(int) - sound(alone)).max() <= 3


def test_equal_requests_are_equal_and_seeds_differ(model: ChatTTSModel) -> None:
    runs = []
    for seed in (5, 6, 5):
        begin(model, 1, TEXTS[1], seed=seed)
        runs.append(codes(finish(model, [1])[1]))
        model.close(1)
    assert runs[0] == runs[2]
    assert runs[0] != runs[1]


def test_sound_taken_early_has_the_same_length(weights: Path) -> None:
    now = iter(range(10**6))
    model = ChatTTSModel(weights, slots=1, clock=lambda: next(now) * 0.005)
    begin(model, 0, TEXTS[0])
    model.rows[0].deadline = float("inf")
    outputs = finish(model, [0])[0]
    first = next(index for index, output in enumerate(outputs) if len(output.pcm))
    assert first < 20, "sound comes before it is certain"
    assert len(sound(outputs)) == 512 * STEPS - 256


@pytest.mark.parametrize("steps", [12, 36, 48])
def test_a_sentence_goes_on_from_its_checkpoint(weights: Path, steps: int) -> None:
    model = ChatTTSModel(weights, slots=2, schedule=None, dtype=torch.float64)
    begin(model, 0, TEXTS[2])
    whole = finish(model, [0])[0]
    checkpoint = next(o.checkpoint for o in whole if o.checkpoint and len(o.checkpoint) == 8 * steps)
    begin(model, 1, TEXTS[2], resume=checkpoint)
    resumed = finish(model, [1])[1]
    assert codes(resumed) == codes(whole)
    assert np.abs(sound(resumed).astype(int) - sound(whole)).max() <= 1


@pytest.mark.parametrize("data", [b"1234567", np.full(4, 625, "<u2").tobytes(), b"\0" * 8 * 1025])
def test_a_damaged_checkpoint_is_refused(model: ChatTTSModel, data: bytes) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 1)
    with pytest.raises(EngineError):
        model.begin(0, [Span("hello", "en", 0, 5)], data)


def test_an_unknown_voice(model: ChatTTSModel) -> None:
    with pytest.raises(UnknownVoice):
        model.open(0, "../../etc/passwd", Parameters(), 1)


def test_a_row_that_is_no_number_fails_alone(model: ChatTTSModel) -> None:
    begin(model, 0, TEXTS[0])
    begin(model, 1, TEXTS[0])
    model.step([0, 1])
    model.rows[0].hidden = torch.full_like(model.rows[0].hidden, torch.nan)
    broken, whole = model.step([0, 1])
    assert broken.error is not None
    assert broken.error.code == "bad_audio"
    assert whole.error is None


@pytest.fixture(scope="module")
def chattts(weights: Path) -> Iterator[Server]:
    with running("--engine", "chattts", "--weights", str(weights), "--slots", "2") as server:
        yield server


async def test_the_server_speaks_with_chattts(chattts: Server) -> None:
    async with connect(chattts.ws_url) as client:
        assert len(client.hello.voices) >= 2
        said = await client.speak("Hi. 你好。", pace="fast")
        unknown = await client.speak("Hi.", voice="nobody")
        again = await client.speak("Hi.", pace="fast", speed=1.3, temperature=0.2)
    assert said.outcome == "done"
    assert said.audio_ms > 1000
    assert unknown.outcome == "unknown_voice"
    assert again.outcome == "done"
