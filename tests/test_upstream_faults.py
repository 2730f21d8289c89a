"""Nine faults of upstream that our engine must not have; `test_upstream_controls` shows each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.chattts import model as chattts
from engine.chattts import prompt, sampler, weights
from engine.chattts.gpt import Gpt
from engine.chattts.model import ChatTTSModel
from engine.chattts.vocoder import StreamingVocoder, Vocoder
from engine.errors import BadAudio, EngineError
from engine.wire import Parameters, Span
from tests import upstream

SHORT = "你好"
TEXTS = ("你好", "一二三", "hello my friends", "我们说话")
PLAIN = Parameters(temperature=0.9)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return upstream.write_tiny(tmp_path_factory.mktemp("weights"))


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Random weights hardly ever end a sentence; let the limit end it, at a length of the text's own."""
    monkeypatch.setattr(chattts, "STEPS_EXTRA", 50)
    monkeypatch.setattr(chattts, "STEPS_PER_CHAR", 6)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Heard:
    """What one sentence came to."""

    pieces: list[NDArray[np.int16]] = field(default_factory=list)
    codes: list[list[int]] = field(default_factory=list)
    error: EngineError | None = None

    @property
    def pcm(self) -> NDArray[np.int16]:
        return np.concatenate(self.pieces)


def exact(root: Path) -> ChatTTSModel:
    return ChatTTSModel(root, slots=4, schedule=None)


def begin(model: ChatTTSModel, slot: int, text: str) -> None:
    model.begin(slot, [Span(text, "zh", 0, len(text))])
    while not model.prefill(slot):
        pass


def run(model: ChatTTSModel, slots: Sequence[int]) -> dict[int, Heard]:
    """Step these slots until the sentence of each has ended."""
    heard = {slot: Heard() for slot in slots}
    going = list(slots)
    while going:
        for output in model.step(going):
            heard[output.slot].pieces.append(output.pcm)
            if output.finished or output.error is not None:
                heard[output.slot].error = output.error
                heard[output.slot].codes = [list(step) for step in model.rows[output.slot].codes]
                going.remove(output.slot)
    return heard


def speak(
    model: ChatTTSModel, text: str, *, slot: int = 0, voice: str = "aspen", parameters: Parameters = PLAIN
) -> Heard:
    model.open(slot, voice, parameters, 11)
    begin(model, slot, text)
    heard = run(model, [slot])[slot]
    model.close(slot)
    return heard


def same(one: Heard, other: Heard) -> None:
    """Equal codes; sound apart by at most a rounding of int16, since batches are summed in another order."""
    assert one.codes == other.codes
    assert len(one.pcm) == len(other.pcm)
    assert np.abs(one.pcm.astype(int) - other.pcm.astype(int)).max() <= 1


def test_1_no_voice_leaks_into_the_next_call(root: Path) -> None:
    fresh = speak(exact(root), SHORT)
    used = exact(root)
    loud = Parameters(temperature=1.5, top_p=0.9, top_k=50, speed=2.0, oral=9)
    other = speak(used, TEXTS[2], voice="willow", parameters=loud)
    again = speak(used, SHORT)
    assert other.codes[:10] != fresh.codes[:10]
    assert again.codes == fresh.codes
    assert np.array_equal(again.pcm, fresh.pcm)


def test_2_ending_one_stream_ends_no_other(root: Path) -> None:
    alone = speak(exact(root), TEXTS[1], slot=1)
    model = exact(root)
    for slot, text in enumerate(TEXTS[:2]):
        model.open(slot, "aspen", PLAIN, 11)
        begin(model, slot, text)
    early = [output.pcm for _ in range(20) for output in model.step([0, 1]) if output.slot == 1]
    model.interrupt(0)
    model.close(0)
    rest = run(model, [1])[1]
    same(Heard([*early, *rest.pieces], rest.codes), alone)


def test_3_the_first_sentence_is_made_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is heard before its end is known, and before the second is given."""
    decoded: list[int] = []
    real = Gpt.decode

    def counted(self: Gpt, slots: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        decoded.extend(slots.tolist())
        return real(self, slots, embeddings)

    monkeypatch.setattr(Gpt, "decode", counted)
    model = exact(root)
    model.open(0, "aspen", PLAIN, 11)
    steps: list[int] = []
    sounding: list[int] = []
    for text in ("一二三四五六", SHORT):
        decoded.clear()
        begin(model, 0, text)
        heard = run(model, [0])[0]
        sounding.append(next(at for at, piece in enumerate(heard.pieces) if len(piece)))
        assert len(decoded) <= len(heard.codes) + 1
        steps.append(len(heard.codes))
    assert sounding[0] <= 53 < steps[0]


def test_4_no_sentence_loses_samples(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine sentences, as many as three of upstream's groups: each is, sample for sample, its whole decode."""
    fed: list[torch.Tensor] = []
    real = StreamingVocoder.feed

    def recorded(self: StreamingVocoder, slots: Sequence[int], hidden: torch.Tensor) -> list[torch.Tensor]:
        fed.append(hidden[0].clone())
        return real(self, slots, hidden)

    monkeypatch.setattr(StreamingVocoder, "feed", recorded)
    checkpoint = weights.load(root)
    vocoder = Vocoder.load(checkpoint.decoder, checkpoint.vocos)
    model = exact(root)
    model.open(0, "aspen", PLAIN, 11)
    for index in range(9):
        fed.clear()
        begin(model, 0, TEXTS[index % len(TEXTS)])
        heard = run(model, [0])[0]
        assert len(heard.pcm) == 512 * len(heard.codes) - 256
        with torch.inference_mode():
            whole = chattts.to_pcm(vocoder.decode(torch.cat(fed))).astype(int)
        assert np.abs(whole - heard.pcm).max() <= 4  # of 32768: 1e-4


def test_5_a_row_that_ends_at_once_is_tried_three_times(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it fails, alone. Upstream starts the batch anew, without end."""
    alone = speak(exact(root), TEXTS[1], slot=1)
    tries: list[int] = []
    real = sampler.draw

    def ending(
        logits: torch.Tensor,
        history: torch.Tensor,
        parameters: sampler.Parameters,
        seeds: torch.Tensor,
        steps: torch.Tensor,
    ) -> torch.Tensor:
        codes = real(logits, history, parameters, seeds, steps)
        marked = parameters.temperature.flatten() == 0.5
        tries.extend(seeds[marked].tolist())
        codes[marked, 2] = 625
        return codes

    monkeypatch.setattr(sampler, "draw", ending)
    model = exact(root)
    model.open(0, "aspen", Parameters(temperature=0.5), 7)
    model.open(1, "aspen", PLAIN, 11)
    begin(model, 0, SHORT)
    begin(model, 1, TEXTS[1])
    heard = run(model, [0, 1])
    assert isinstance(heard[0].error, BadAudio)
    assert len(tries) == 3
    assert len(set(tries)) == 3  # each with numbers of its own
    assert heard[1].error is None
    same(heard[1], alone)


def test_6_a_short_row_of_a_batch_has_its_own_end(root: Path) -> None:
    alone = [speak(exact(root), text, slot=slot) for slot, text in enumerate(TEXTS)]
    model = exact(root)
    for slot, text in enumerate(TEXTS):
        model.open(slot, "aspen", PLAIN, 11)
        begin(model, slot, text)
    batched = run(model, range(len(TEXTS)))
    assert len({len(each.codes) for each in alone}) > 2
    for slot, each in enumerate(alone):
        same(batched[slot], each)


def test_7_the_gain_is_one_and_quiet_samples_stay() -> None:
    loud = torch.tensor([0.9, 0.0, 1e-6, 0.0, -0.9])
    assert chattts.to_pcm(loud).tolist() == [29490, 0, 0, 0, -29490]
    assert chattts.to_pcm(loud / 100).tolist() == [295, 0, 0, 0, -295]
    assert chattts.to_pcm(torch.zeros(512)).tolist() == [0] * 512
    assert chattts.to_pcm(torch.tensor([3.0, -3.0])).tolist() == [32767, -32768]


def test_7_silence_inside_speech_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in mid-sentence whose sound is exactly zero last as long as any others."""
    real = StreamingVocoder.feed
    count = 0

    def hushed(self: StreamingVocoder, slots: Sequence[int], hidden: torch.Tensor) -> list[torch.Tensor]:
        nonlocal count
        count += 1
        samples = real(self, slots, hidden)
        return [torch.zeros_like(each) for each in samples] if count == 6 else samples

    plain = speak(exact(root), TEXTS[3])
    monkeypatch.setattr(StreamingVocoder, "feed", hushed)
    quiet = speak(exact(root), TEXTS[3])
    assert len(quiet.pcm) == len(plain.pcm)
    assert int((quiet.pcm == 0).sum()) >= 5 * 512
    heard = quiet.pcm != 0
    assert np.array_equal(quiet.pcm[heard], plain.pcm[heard])


@pytest.mark.parametrize("text", upstream.SAID)
def test_8_nothing_of_a_text_is_swallowed(root: Path, text: str) -> None:
    """Every piece becomes a token, if only the unknown one, and none of them a special one."""
    path = weights.load(root).tokenizer
    assert upstream.complaints(text, prompt.Tokenizer(path).encode(f"一 {text} 二"), path) == []


def test_9_positions_are_whole_numbers(root: Path) -> None:
    """bfloat16 counts in steps of 16 past 2048, and fp16 in steps of 2."""
    checkpoint = weights.load(root)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(2100, checkpoint.gpt_shape.hidden, generator=generator)
    ends: list[torch.Tensor] = []
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            gpt = Gpt(checkpoint, slots=1, max_positions=2304, dtype=dtype)
            assert gpt.lengths.dtype == torch.int64
            hidden = gpt.prefill(0, rows.to(dtype), 0)
            step = gpt.decode(torch.tensor([0]), rows[:1].to(dtype))
            assert gpt.lengths.tolist() == [2101]
            ends.append(torch.cat([hidden[2048:], step]).double())
    error = (ends[0] - ends[1]).norm(dim=1) / ends[0].norm(dim=1)
    assert float(error.max()) < 0.03  # 0.074 with positions in bfloat16
