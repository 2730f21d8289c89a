"""The vocoder on ONNX Runtime gives torch's sound, in 8 bits nearly, however the steps come and whoever is
beside."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from engine.chattts.lookahead import CONTEXT
from engine.chattts.onnx_graph import Precision
from engine.chattts.onnx_session import open_session
from engine.chattts.onnx_vocoder import OnnxVocoder
from engine.chattts.onnx_vocoder_graph import quantise
from engine.chattts.vocoder import STEP, StreamingVocoder, Vocoder
from tests import tiny_nets

SLOTS = 8
EXACT = 1e-5
"""Of fp32 against torch: both round in their own order."""


def load(precision: Precision) -> OnnxVocoder:
    return OnnxVocoder(tiny_nets.decoder(), tiny_nets.vocos(), slots=SLOTS, threads=1, precision=precision)


@pytest.fixture(scope="module")
def single() -> Vocoder:
    torch.set_num_threads(1)
    return Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos())


@pytest.fixture(scope="module")
def exact() -> OnnxVocoder:
    return load("fp32")


@pytest.fixture(scope="module")
def eight() -> OnnxVocoder:
    return load("int8")


@pytest.fixture(params=["fp32", "int8"])
def state(request: pytest.FixtureRequest, exact: OnnxVocoder, eight: OnnxVocoder) -> OnnxVocoder:
    found = exact if request.param == "fp32" else eight
    for slot in range(SLOTS):
        found.reset(slot)
    return found


def hidden(count: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(1000 * count + seed)
    return torch.randn(count, tiny_nets.HIDDEN, generator=draw)


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    assert a.dtype == b.dtype == torch.float32
    return float((a - b).abs().max()) if a.numel() else 0.0


def snr(found: Tensor, expected: Tensor) -> float:
    """Decibels."""
    assert found.shape == expected.shape
    return 10 * float(torch.log10(expected.square().sum() / (found - expected).square().sum()))


def cuts(count: int, largest: int, draw: random.Random) -> list[int]:
    """Random chunk sizes that add up to `count`."""
    sizes: list[int] = []
    while count:
        sizes.append(min(count, draw.randint(1, largest)))
        count -= sizes[-1]
    return sizes


def stream(state: OnnxVocoder, slot: int, steps: Tensor, sizes: Sequence[int]) -> Tensor:
    """The whole sound of `steps`, fed to a fresh slot in chunks."""
    parts: list[Tensor] = []
    at = 0
    for size in sizes:
        parts += state.feed([slot], steps[None, at : at + size])
        at += size
        assert sum(part.shape[0] for part in parts) == STEP * max(0, at - CONTEXT), "certain 52 steps later"
    return torch.cat([*parts, state.flush(slot)])


@pytest.mark.parametrize("count", [1, 2, 3, 24, 53, 105, 300])
def test_it_is_the_whole_decode(single: Vocoder, exact: OnnxVocoder, count: int) -> None:
    steps = hidden(count)
    whole = single.decode(steps)
    assert float(whole.abs().max()) > 0.05, "silence would prove nothing"
    for largest in (4, 300):
        found = stream(exact, 1, steps, cuts(count, largest, random.Random(count)))
        assert difference(found, whole) < EXACT


@pytest.mark.parametrize("count", [2, 53, 200])
def test_eight_bits_are_near(single: Vocoder, eight: OnnxVocoder, count: int) -> None:
    steps = hidden(count)
    whole = single.decode(steps)
    found = stream(eight, 1, steps, [count])
    assert 20 < snr(found, whole) < 60, "above, nothing was quantised"


def test_chunks_change_no_bit(state: OnnxVocoder) -> None:
    steps = hidden(130)
    whole = stream(state, 0, steps, [130])
    for largest in (1, 5, 60):
        assert torch.equal(stream(state, 3, steps, cuts(130, largest, random.Random(largest))), whole)


def test_neighbours_change_no_bit(state: OnnxVocoder) -> None:
    """Eight streams that begin and end at different times, fed together in any order."""
    draw = random.Random(8)
    lengths = [1, 24, 53, 70, 104, 105, 130, 150]
    texts = [hidden(count, seed=7) for count in lengths]
    begins = [draw.randint(0, 6) for _ in lengths]
    at = [0] * 8
    parts: list[list[Tensor]] = [[] for _ in lengths]
    turn = 0
    while any(place < length for place, length in zip(at, lengths, strict=True)):
        live = [s for s in draw.sample(range(8), 8) if begins[s] <= turn and at[s] < lengths[s]]
        turn += 1
        if not live:
            continue
        live = sorted(live) if turn % 2 else live
        size = min(draw.randint(1, 12), *(lengths[s] - at[s] for s in live))
        made = state.feed(live, torch.stack([texts[s][at[s] : at[s] + size] for s in live]))
        for slot, samples in zip(live, made, strict=True):
            at[slot] += size
            parts[slot].append(samples)
            if at[slot] == lengths[slot]:
                parts[slot].append(state.flush(slot))
    for slot, steps in enumerate(texts):
        assert torch.equal(torch.cat(parts[slot]), stream(state, 0, steps, [lengths[slot]])), f"slot {slot}"


def reached(samples: Tensor) -> list[int]:
    """The steps in whose samples there is something that is not a number."""
    return [t for t, step in enumerate(torch.split(samples, STEP)) if bool(step.isnan().any())]


@pytest.mark.parametrize("place", [0, 30, 80, 159])
def test_a_step_reaches_52_steps_and_no_more(exact: OnnxVocoder, place: int) -> None:
    steps = hidden(160)
    steps[place] = torch.nan
    expected = list(range(max(0, place - 52), min(160, place + 53)))
    assert reached(stream(exact, 1, steps, cuts(160, 9, random.Random(place)))) == expected


def test_nothing_passes_between_slots_or_streams_of_a_slot(state: OnnxVocoder) -> None:
    steps = hidden(60)
    whole = stream(state, 0, steps, [60])
    broken = torch.full_like(steps, torch.nan)
    both = torch.stack((broken, steps))
    parts = [state.feed([2, 0], both[:, at : at + 20])[1] for at in range(0, 60, 20)]
    assert torch.equal(torch.cat([*parts, state.flush(0)]), whole)
    state.flush(2)
    for slot in (0, 2):
        assert torch.equal(stream(state, slot, steps, [60]), whole)
    state.feed([1], broken[None])
    state.reset(1)
    assert torch.equal(stream(state, 1, steps, [60]), whole)


@pytest.mark.parametrize("fed", [1, 10, 53, 90])
def test_a_peek_is_the_decode_so_far_and_changes_nothing(state: OnnxVocoder, fed: int) -> None:
    steps = hidden(120)
    so_far = stream(state, 0, steps[:fed], [fed])
    certain = state.feed([1], steps[None, :fed])[0].shape[0]
    for lookahead in (0, 1, 6, 30, 51):
        end = STEP * max(0, fed - lookahead) if lookahead else STEP * fed - 256
        assert torch.equal(state.peek(1, lookahead), so_far[certain : max(certain, end)])
    rest = torch.cat([*state.feed([1], steps[None, fed:]), state.flush(1)])
    assert torch.equal(rest, stream(state, 0, steps, [120])[certain:])


@pytest.mark.parametrize("fed", [2, 12, 53, 130])
@pytest.mark.parametrize("lookahead", [0, 6, 40])
def test_what_a_peek_skips_changes_nothing_of_the_rest(state: OnnxVocoder, fed: int, lookahead: int) -> None:
    """Every block that may be the first one wanted, and one past the last."""
    state.feed([0], hidden(fed)[None])
    whole = state.peek(0, lookahead)
    for skip in range(0, whole.shape[0] + 256, 256):
        part = state.peek(0, lookahead, skip=skip + 255)
        wanted = min(skip, max(0, whole.shape[0] - 256))
        assert torch.equal(part[wanted:], whole[wanted:]), f"{skip}"
        assert not part[:wanted].any()


def test_peeks_and_feeds_are_those_of_torch(single: Vocoder, exact: OnnxVocoder) -> None:
    """Any order of calls on two slots."""
    draw = random.Random(3)
    torch_state = StreamingVocoder(single, slots=SLOTS)
    for slot in range(SLOTS):
        exact.reset(slot)
    for turn in range(40):
        slots = draw.sample(range(SLOTS), draw.randint(1, 3))
        steps = torch.stack([hidden(5, seed=turn * 10 + slot) for slot in slots])
        for a, b in zip(exact.feed(slots, steps), torch_state.feed(slots, steps), strict=True):
            assert difference(a, b) < EXACT
        lookahead, skip = draw.randint(0, 51), draw.randint(0, 20_000)
        a, b = (each.peek(slots[0], lookahead, skip=skip) for each in (exact, torch_state))
        assert difference(a, b) < EXACT
        if draw.random() < 0.2:
            assert difference(exact.flush(slots[0]), torch_state.flush(slots[0])) < EXACT


def test_the_path_through_codes() -> None:
    single = Vocoder.load(tiny_nets.dvae(), tiny_nets.vocos(), steps="codes")
    state = OnnxVocoder(
        tiny_nets.dvae(), tiny_nets.vocos(), slots=1, threads=1, precision="fp32", steps="codes"
    )
    codes = torch.randint(0, 625, (90, 4), generator=torch.Generator().manual_seed(5))
    streamed = stream(state, 0, codes, cuts(90, 9, random.Random(5)))
    assert difference(streamed, single.decode(codes)) < EXACT
    with pytest.raises(ValueError, match="codes"):
        state.feed([0], torch.full((1, 2, 4), 625))


def test_nothing_was_fed(state: OnnxVocoder) -> None:
    assert state.peek(0, 0).shape == (0,)
    assert state.flush(0).shape == (0,)


def product(codes: np.typing.NDArray[np.int8], zero: int) -> ort.InferenceSession:
    """From activations `a` about `zero` to sums, as the graph has it."""
    values = (("w", np.ascontiguousarray(codes.T)), ("one", np.float32(1)), ("zero", np.uint8(zero)))
    node = helper.make_node(
        "MatMulIntegerToFloat", ["a", "w", "one", "one", "zero"], ["y"], domain="com.microsoft"
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, ["M", codes.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", len(codes)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return open_session(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), threads=1
    )


@pytest.mark.parametrize("zero", [32, 128])
@pytest.mark.parametrize("shape", [(64, 512), (7, 15)])
def test_sums_of_pairs_do_not_saturate(zero: int, shape: tuple[int, int]) -> None:
    """Weights and activations at the ends of their ranges, pair by pair."""
    draw = np.random.default_rng(1)
    weight = draw.standard_normal(shape).astype(np.float32)
    weight[1] = 1.0
    weight[2] = -1.0
    weight[3, ::2] = 0.0
    weight[4] = draw.choice([-1.0, -0.5, 0.5, 1.0], shape[1])
    weight[5] = 0.0
    codes, scale = quantise(weight)
    assert np.abs(weight - codes * scale[:, None]).max() <= 0.51 * scale.max()
    rows = np.stack(
        [
            np.full(shape[1], 255),
            np.zeros(shape[1]),
            *np.where(codes > 0, 255, 0),
            *np.where(codes < 0, 255, 0),
        ]
    ).astype(np.uint8)
    (found,) = product(codes, zero).run(None, {"a": rows})
    assert np.array_equal(found, (rows.astype(np.int64) - zero) @ codes.T.astype(np.int64))


def test_eight_bits_that_are_full_would_saturate() -> None:
    """Or are not added in pairs here, and the test above proves nothing."""
    processor = Path("/proc/cpuinfo").read_text()
    if "avx2" not in processor or "vnni" in processor:
        pytest.skip("this processor adds in 32 bits")
    (found,) = product(np.full((8, 64), 127, np.int8), 0).run(None, {"a": np.full((1, 64), 255, np.uint8)})
    assert float(found[0, 0]) < 64 * 127 * 255
