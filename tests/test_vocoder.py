"""The streaming vocoder gives what the whole decode gives, however the steps come and whoever is beside."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.chattts.lookahead import CONTEXT
from engine.chattts.stream_error import peak_errors
from engine.chattts.vocoder import STEP, StreamingVocoder, Vocoder
from tests import tiny_nets

LENGTHS = (1, 2, 3, 24, 53, 105, 400)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["fp32", "float64"])
def vocoder(request: pytest.FixtureRequest) -> Vocoder:
    return Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos(), dtype=request.param)


@pytest.fixture(scope="module")
def single() -> Vocoder:
    return Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos())


def hidden(count: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * count + seed)
    return torch.randn(count, tiny_nets.HIDDEN, generator=draw, dtype=torch.float64).to(dtype)


def tolerance(vocoder: Vocoder) -> float:
    return 1e-10 if vocoder.dtype == torch.float64 else 1e-4


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).abs().max()) if a.numel() else 0.0


def cuts(count: int, largest: int, draw: random.Random) -> list[int]:
    """Random chunk sizes that add up to `count`."""
    sizes: list[int] = []
    while count:
        sizes.append(min(count, draw.randint(1, largest)))
        count -= sizes[-1]
    return sizes


def stream(state: StreamingVocoder, slot: int, steps: Tensor, sizes: Sequence[int]) -> Tensor:
    """The whole sound of `steps`, fed to a fresh slot in chunks."""
    parts: list[Tensor] = []
    at = 0
    for size in sizes:
        parts += state.feed([slot], steps[None, at : at + size])
        at += size
        assert sum(part.shape[0] for part in parts) == STEP * max(0, at - CONTEXT), "certain 52 steps later"
    return torch.cat([*parts, state.flush(slot)])


def reached(samples: Tensor) -> list[int]:
    """The steps in whose samples there is something that is not a number."""
    return [t for t, step in enumerate(torch.split(samples, STEP)) if bool(step.isnan().any())]


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("largest", [4, 30, 400])
def test_streaming_is_the_whole_decode(vocoder: Vocoder, count: int, largest: int) -> None:
    steps = hidden(count, vocoder.dtype)
    whole = vocoder.decode(steps)
    assert whole.shape == (STEP * count - 256,)
    assert float(whole.abs().max()) > 0.05, "silence would prove nothing"
    state = StreamingVocoder(vocoder, slots=3)
    sizes = cuts(count, largest, random.Random(count + largest))
    assert difference(stream(state, 1, steps, sizes), whole) < tolerance(vocoder)


def test_step_by_step(vocoder: Vocoder) -> None:
    steps = hidden(110, vocoder.dtype)
    streamed = stream(StreamingVocoder(vocoder, slots=1), 0, steps, [1] * 110)
    assert difference(streamed, vocoder.decode(steps)) < tolerance(vocoder)


@pytest.mark.parametrize("place", [0, 30, 52, 80, 159])
def test_a_step_reaches_52_steps_and_no_more(single: Vocoder, place: int) -> None:
    steps = hidden(160, torch.float32)
    steps[place] = torch.nan
    expected = list(range(max(0, place - 52), min(160, place + 53)))
    assert reached(single.decode(steps)) == expected
    sizes = cuts(160, 9, random.Random(place))
    assert reached(stream(StreamingVocoder(single, slots=1), 0, steps, sizes)) == expected


def test_alone_is_batched_with_other_lengths(vocoder: Vocoder) -> None:
    """Eight streams that begin and end at different times, fed together."""
    draw = random.Random(8)
    lengths = [1, 24, 53, 70, 104, 105, 130, 150]
    texts = [hidden(count, vocoder.dtype, seed=7) for count in lengths]
    begins = [draw.randint(0, 6) for _ in lengths]
    state = StreamingVocoder(vocoder, slots=8)
    at = [0] * 8
    parts: list[list[Tensor]] = [[] for _ in lengths]
    for turn in range(10_000):
        live = [s for s in draw.sample(range(8), 8) if begins[s] <= turn and at[s] < lengths[s]]
        if not live and turn > max(begins):
            break
        if not live:
            continue
        size = min(draw.randint(1, 12), *(lengths[s] - at[s] for s in live))
        made = state.feed(live, torch.stack([texts[s][at[s] : at[s] + size] for s in live]))
        for slot, samples in zip(live, made, strict=True):
            at[slot] += size
            parts[slot].append(samples)
            if at[slot] == lengths[slot]:
                parts[slot].append(state.flush(slot))
    alone = StreamingVocoder(vocoder, slots=1)
    for slot, steps in enumerate(texts):
        together = torch.cat(parts[slot])
        assert difference(together, vocoder.decode(steps)) < tolerance(vocoder)
        assert difference(together, stream(alone, 0, steps, [lengths[slot]])) < tolerance(vocoder)


def test_nothing_passes_between_slots_or_streams_of_a_slot(single: Vocoder) -> None:
    state = StreamingVocoder(single, slots=3)
    steps = hidden(60, torch.float32)
    broken = torch.full_like(steps, torch.nan)
    both = torch.stack((broken, steps))
    parts = [state.feed([2, 0], both[:, at : at + 20])[1] for at in range(0, 60, 20)]
    whole = single.decode(steps)
    assert difference(torch.cat([*parts, state.flush(0)]), whole) < 1e-4
    assert bool(state.flush(2).isnan().any())
    for slot in (0, 2):
        assert difference(stream(state, slot, steps, [60]), whole) < 1e-4
    state.feed([1], broken[None])
    state.reset(1)
    assert difference(stream(state, 1, steps, [60]), whole) < 1e-4


@pytest.mark.parametrize("fed", [1, 10, 52, 53, 90])
def test_a_peek_is_the_decode_so_far_and_changes_nothing(vocoder: Vocoder, fed: int) -> None:
    steps = hidden(120, vocoder.dtype)
    state = StreamingVocoder(vocoder, slots=2)
    certain = state.feed([1], steps[None, :fed])[0].shape[0]
    so_far = vocoder.decode(steps[:fed])
    for lookahead in range(52):
        end = STEP * max(0, fed - lookahead) if lookahead else STEP * fed - 256
        expected = so_far[certain : max(certain, end)]
        assert difference(state.peek(1, lookahead), expected) < tolerance(vocoder)
    rest = torch.cat([*state.feed([1], steps[None, fed:]), state.flush(1)])
    assert difference(rest, vocoder.decode(steps)[certain:]) < tolerance(vocoder)


def test_a_longer_lookahead_is_nearer_to_the_truth(single: Vocoder) -> None:
    steps = hidden(200, torch.float32)
    whole = single.decode(steps)
    state = StreamingVocoder(single, slots=1)
    errors: list[float] = []
    for lookahead in (0, 6, 24, 51):
        state.reset(0)
        certain = state.feed([0], steps[None, :120])[0].shape[0]
        early = state.peek(0, lookahead)
        last = slice(certain + early.shape[0] - 256, certain + early.shape[0])
        errors.append(difference(early[-256:], whole[last]))
    assert errors[0] > 0.03, "with nets that do not look ahead these tests prove nothing"
    assert errors[-1] < 1e-5
    assert errors == sorted(errors, reverse=True)


def test_the_path_through_codes_streams_too() -> None:
    vocoder = Vocoder.load(tiny_nets.dvae(), tiny_nets.vocos(), steps="codes", dtype=torch.float64)
    codes = torch.randint(0, 625, (90, 4), generator=torch.Generator().manual_seed(5))
    streamed = stream(StreamingVocoder(vocoder, slots=1), 0, codes, cuts(90, 9, random.Random(5)))
    assert difference(streamed, vocoder.decode(codes)) < 1e-10


def test_nothing_was_fed(single: Vocoder) -> None:
    state = StreamingVocoder(single, slots=1)
    assert state.peek(0, 0).shape == (0,)
    assert state.flush(0).shape == (0,)


def test_the_error_by_lookahead(single: Vocoder) -> None:
    errors = peak_errors(single, hidden(120, torch.float32), lookaheads=(0, 12, 51))
    assert list(errors) == [0, 12, 51]
    assert errors[0] > errors[12] > errors[51]
    assert errors[0] > 0.05
    assert errors[51] < 1e-4


@pytest.mark.parametrize("fed", [2, 12, 53, 60, 130])
@pytest.mark.parametrize("lookahead", [0, 1, 6, 40])
def test_what_a_peek_skips_changes_nothing_of_the_rest(single: Vocoder, fed: int, lookahead: int) -> None:
    """Every block that may be the first one wanted, and one past the last."""
    state = StreamingVocoder(single, slots=1)
    certain = state.feed([0], hidden(fed, torch.float32)[None])[0].shape[0]
    whole = state.peek(0, lookahead)
    for skip in range(0, whole.shape[0] + 256, 256):
        part = state.peek(0, lookahead, skip=skip + 255)
        assert part.shape == whole.shape
        wanted = min(skip, max(0, whole.shape[0] - 256))
        assert difference(part[wanted:], whole[wanted:]) < 1e-5, f"{skip} after {certain}"
        assert not part[:wanted].any()
