"""ChatTTS end to end, on a tiny random checkpoint: the model in its slots, and the server over the socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="the extra [torch] is not installed")

from engine.chattts import random_weights  # noqa: E402
from engine.chattts.backend import Backend, Precision  # noqa: E402
from engine.chattts.model import ChatTTSModel  # noqa: E402
from engine.chattts.row import Row, decode_checkpoint, encode_checkpoint  # noqa: E402
from engine.errors import EngineError, UnknownVoice  # noqa: E402
from engine.model import Output  # noqa: E402
from engine.wire import Parameters, Span  # noqa: E402
from gateway.client import connect  # noqa: E402
from tests.server import Server, running  # noqa: E402

STEPS = 70
EXACT = Backend(kind="torch", precision="fp64")
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


def begin(
    model: ChatTTSModel, slot: int, text: str, *, seed: int = 5, number: int = 0, resume: bytes = b""
) -> None:
    """Start and prefill a sentence of `STEPS` steps: random weights never end one."""
    if slot not in model.rows:
        model.open(slot, model.spec.default_voice, Parameters(), seed)
    assert model.begin(slot, [Span(text, "en", 0, len(text))], number=number, resume=resume)
    while not model.prefill(slot):
        pass
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


def codes(model: ChatTTSModel, slot: int) -> list[list[int]]:
    """Those of the sentence that has finished in the slot."""
    return [list(step) for step in model.rows[slot].codes]


def test_a_sentence_has_the_length_of_its_steps(model: ChatTTSModel) -> None:
    begin(model, 0, TEXTS[0])
    outputs = finish(model, [0])[0]
    assert len(sound(outputs)) == 512 * STEPS - 256
    assert outputs[-1].truncated
    assert np.abs(sound(outputs).astype(int)).max() > 1000
    for step, output in enumerate(outputs[:-1], 1):
        if len(output.pcm):
            assert output.checkpoint is not None, "what may be heard can be resumed from"
            assert len(decode_checkpoint(output.checkpoint)[0]) == step


def test_alone_is_beside_others(model: ChatTTSModel) -> None:
    begin(model, 2, TEXTS[0])
    alone = finish(model, [2])[2]
    drawn = codes(model, 2)
    for slot, text in enumerate(TEXTS):
        begin(model, slot, text, seed=5 if text == TEXTS[0] else 99 + slot)
    model.close(2)
    begin(model, 2, TEXTS[0])
    beside = finish(model, [0, 1, 2])
    assert codes(model, 2) == drawn
    assert np.abs(sound(beside[2]).astype(int) - sound(alone)).max() <= 3


def test_equal_requests_are_equal_and_seeds_differ(model: ChatTTSModel) -> None:
    runs = []
    for seed in (5, 6, 5):
        begin(model, 1, TEXTS[1], seed=seed)
        finish(model, [1])
        runs.append(codes(model, 1))
        model.close(1)
    assert runs[0] == runs[2]
    assert runs[0] != runs[1]


def test_sound_taken_early_has_the_same_length(weights: Path) -> None:
    now = iter(range(10**6))
    model = ChatTTSModel(weights, slots=1, clock=lambda: next(now) * 0.005)
    begin(model, 0, TEXTS[0])
    outputs = finish(model, [0])[0]
    first = next(index for index, output in enumerate(outputs) if len(output.pcm))
    assert first < 20, "sound comes before it is certain"
    assert len(sound(outputs)) == 512 * STEPS - 256


def every_step(row: Row) -> dict[int, bytes]:
    """The checkpoints that the row could have been resumed from."""
    return {steps: encode_checkpoint(row.codes[:steps], row.retries) for steps in range(1, len(row.codes))}


def resumed_codes(
    model: ChatTTSModel, text: str, number: int, checkpoint: bytes
) -> tuple[list[list[int]], NDArray[np.int16]]:
    begin(model, 1, text, number=number, resume=checkpoint)
    outputs = finish(model, [1])[1]
    made = [list(step) for step in model.rows[1].codes]
    model.close(1)
    return made, sound(outputs)


def test_a_sentence_goes_on_from_any_step(weights: Path) -> None:
    """As the utterance's third sentence: the number decides the draws, not what this engine has spoken."""
    model = ChatTTSModel(weights, slots=2, schedule=None, backend=EXACT)
    begin(model, 0, TEXTS[2], number=2)
    whole = sound(finish(model, [0])[0])
    row = model.rows[0]
    for steps, checkpoint in list(every_step(row).items())[::5]:
        made, again = resumed_codes(model, TEXTS[2], 2, checkpoint)
        assert made == row.codes, f"resumed at step {steps}"
        assert np.abs(again.astype(int) - whole).max() <= 1


def test_in_single_precision_resuming_may_flip_a_code_rarely(
    weights: Path, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Prefill and decode add up in different orders. Codes before the checkpoint are kept as they are."""
    model = ChatTTSModel(weights, slots=2, schedule=None)
    begin(model, 0, TEXTS[2])
    finish(model, [0])
    row = model.rows[0]
    flipped = compared = 0
    for steps, checkpoint in list(every_step(row).items())[::3]:
        made, _ = resumed_codes(model, TEXTS[2], 0, checkpoint)
        assert made[:steps] == row.codes[:steps]
        # Only up to the first flip are the two asked the same.
        same = next((at for at in range(steps, STEPS) if made[at] != row.codes[at]), STEPS)
        flipped += same < STEPS
        compared += 4 * (min(same + 1, STEPS) - steps)
    record_property("flipped_codes", f"{flipped} of {compared}")
    with capsys.disabled():
        print(f"\nresumed in fp32: {flipped} of {compared} codes flipped")
    assert compared > 2000
    assert flipped / compared < 0.01


def test_the_sentence_number_and_the_retries_decide_the_draws(model: ChatTTSModel) -> None:
    made = []
    for number in (0, 1, 0):
        begin(model, 0, TEXTS[0], number=number)
        finish(model, [0])
        made.append(codes(model, 0))
    assert made[0] == made[2]
    assert made[0] != made[1]
    again, _ = resumed_codes(model, TEXTS[0], 0, encode_checkpoint(made[0][:1], 1))
    assert again[:1] == made[0][:1]
    assert again[1:50] != made[0][1:50]


DAMAGED = {
    "no whole step": b"1234567",
    "a code of the end": encode_checkpoint([[625] * 4]),
    "too long": encode_checkpoint([[0] * 4] * 1025),
    "too many retries": encode_checkpoint([[0] * 4], 3),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_checkpoint_is_refused(model: ChatTTSModel, data: bytes) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 1)
    with pytest.raises(EngineError):
        model.begin(0, [Span("hello", "en", 0, 5)], resume=data)


def test_codes_are_spoken_by_the_dvae_too(weights: Path) -> None:
    """The same codes, other nets: as long, and other sound; resumed it is the same again."""
    model = ChatTTSModel(weights, slots=2, schedule=None, steps="codes", backend=EXACT)
    begin(model, 0, TEXTS[0])
    whole = sound(finish(model, [0])[0])
    hidden = ChatTTSModel(weights, slots=1, schedule=None, backend=EXACT)
    begin(hidden, 0, TEXTS[0])
    other = sound(finish(hidden, [0])[0])
    assert hidden.rows[0].codes == model.rows[0].codes
    assert len(whole) == len(other) == 512 * STEPS - 256
    assert np.abs(whole.astype(int) - other).max() > 1000
    _, again = resumed_codes(model, TEXTS[0], 0, every_step(model.rows[0])[20])
    assert np.abs(again.astype(int) - whole).max() <= 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_speaks(weights: Path, precision: Precision) -> None:
    """What a GPU computes the layers in; draws and sound are in fp32."""
    model = ChatTTSModel(weights, slots=1, backend=Backend(kind="torch", precision=precision))
    begin(model, 0, TEXTS[0])
    heard = sound(finish(model, [0])[0])
    assert len(heard) == 512 * STEPS - 256
    assert np.abs(heard.astype(int)).max() > 1000


def test_a_refined_text_is_spoken(weights: Path) -> None:
    """The pass writes tokens of its own into the text; equal requests are refined alike."""
    model = ChatTTSModel(weights, slots=2, schedule=None)
    made = []
    for refine in (False, True, True):
        model.open(0, model.spec.default_voice, Parameters(refine=refine), 5)
        begin(model, 0, TEXTS[2])
        finish(model, [0])
        made.append(codes(model, 0))
        model.close(0)
    assert made[1] == made[2]
    assert made[0] != made[1]


def test_a_sentence_that_takes_too_long_is_cut_and_says_so(weights: Path) -> None:
    """The time in which a listener was waited for is not the model's."""
    now = 0.0
    model = ChatTTSModel(weights, slots=1, schedule=None, clock=lambda: now)
    begin(model, 0, TEXTS[0])
    real, now = model._draw, 1000.0

    def slow(slots: Sequence[int]) -> Any:
        nonlocal now
        now += 4.0
        return real(slots)

    model._draw = slow  # type: ignore[method-assign]
    outputs = finish(model, [0])[0]
    assert len(outputs) == 9, "30 s of work"
    assert outputs[-1].truncated


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
