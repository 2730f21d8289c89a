"""ONNX Runtime gives what torch gives, and a stream's numbers are its own, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.chattts import backend, layout, quantise, random_weights, weights
from engine.chattts.backend import Backend
from engine.chattts.gpt import Gpt
from engine.chattts.onnx_gpt import CHUNK, OnnxGpt
from engine.chattts.weights import Checkpoint
from engine.errors import ModelMissing

SLOTS = 8
POSITIONS = 200


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    random_weights.write(folder, size="tiny", seed=7)
    quantise.quantise(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(root: Path) -> Checkpoint:
    return weights.load(root)


def load(root: Path, precision: backend.Precision) -> OnnxGpt:
    chosen = Backend(kind="onnx", precision=precision).choose(root)
    checkpoint = backend.load_weights(root, chosen, unused=layout.DVAE)
    found = backend.load(chosen, checkpoint, slots=SLOTS, max_positions=POSITIONS)
    assert isinstance(found, OnnxGpt)
    return found


@pytest.fixture(scope="module", params=["fp32", "int8"])
def gpt(request: pytest.FixtureRequest, root: Path) -> OnnxGpt:
    return load(root, request.param)


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 32, generator=torch.Generator().manual_seed(seed))


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@torch.inference_mode()
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("int8", 0.05)])
def test_it_computes_what_torch_computes(
    root: Path, checkpoint: Checkpoint, precision: backend.Precision, most: float
) -> None:
    ours, reference = load(root, precision), Gpt(checkpoint, slots=1, max_positions=POSITIONS)
    expected = [reference.prefill(0, rows(70), 0)]
    found = [ours.prefill(3, rows(70), 0)]
    for seed in range(40):
        expected.append(reference.decode(torch.tensor([0]), rows(1, seed)))
        found.append(ours.decode(torch.tensor([3]), rows(1, seed)))
    assert relative(torch.cat(found), torch.cat(expected)) < most
    assert ours.lengths.tolist() == [0, 0, 0, 110, 0, 0, 0, 0]
    logits = [each.code_logits(torch.cat(expected)) for each in (ours, reference)]
    assert relative(*logits) < (0.02 if precision == "int8" else 1e-6)
    assert relative(ours.text_logits(expected[0]), reference.text_logits(expected[0])) < 1e-5
    assert torch.equal(ours.embed_text(torch.arange(9)), reference.embed_text(torch.arange(9)))


@torch.inference_mode()
def test_a_stream_alone_is_the_stream_among_others(gpt: OnnxGpt) -> None:
    """Whoever joins, leaves and pauses: the lanes between those that are stepped are left as they were."""
    steps = 12

    def prompt(slot: int) -> Tensor:
        return rows(5 + 9 * slot, seed=100 + slot)

    def step(slot: int, number: int) -> Tensor:
        return rows(1, seed=1000 * slot + number)

    alone: dict[int, list[Tensor]] = {}
    for slot in range(SLOTS):
        gpt.reset(slot)
        made = [gpt.prefill(slot, prompt(slot), 0)]
        made += [gpt.decode(torch.tensor([slot]), step(slot, number)) for number in range(steps)]
        alone[slot] = made
    for slot in range(SLOTS):
        gpt.reset(slot)
    beside = {slot: [gpt.prefill(slot, prompt(slot), 0)] for slot in (6, 1, 3)}
    late = {0, 7}
    draw = torch.Generator().manual_seed(5)
    while any(len(made) <= steps for made in beside.values()) or late:
        if late and torch.rand(1, generator=draw) < 0.3:
            slot = late.pop()
            beside[slot] = [gpt.prefill(slot, prompt(slot), 0)]
        left = [slot for slot, made in beside.items() if len(made) <= steps]
        chosen = [slot for slot in left if torch.rand(1, generator=draw) < 0.7]
        if chosen:
            inputs = torch.cat([step(slot, len(beside[slot]) - 1) for slot in chosen])
            for slot, hidden in zip(chosen, gpt.decode(torch.tensor(chosen), inputs), strict=True):
                beside[slot].append(hidden[None])
    for slot, made in beside.items():
        assert torch.equal(torch.cat(made), torch.cat(alone[slot])), f"slot {slot}"


@torch.inference_mode()
def test_a_prefix_from_the_cache_is_the_prefix_computed(gpt: OnnxGpt) -> None:
    gpt.reset(0)
    gpt.prefill(0, rows(40), 0)
    prefix = gpt.save_prefix(0, 40)
    assert prefix.length == 40
    computed = gpt.prefill(0, rows(33, seed=1), 40)
    gpt.restore_prefix(5, prefix)
    assert torch.equal(gpt.prefill(5, rows(33, seed=1), 40), computed)
    assert gpt.lengths[5] == 73


@torch.inference_mode()
def test_a_row_of_zeros_or_of_nan_is_no_neighbours_concern(gpt: OnnxGpt) -> None:
    for slot in (0, 1, 2):
        gpt.reset(slot)
        gpt.prefill(slot, rows(6), 0)
    inputs = torch.stack([rows(1)[0], torch.zeros(32), torch.full((32,), torch.nan)])
    found = gpt.decode(torch.tensor([0, 1, 2]), inputs)
    gpt.reset(0)
    gpt.prefill(0, rows(6), 0)
    assert torch.equal(found[:1], gpt.decode(torch.tensor([0]), inputs[:1]))
    assert torch.isfinite(found[1]).all()
    assert gpt.code_logits(found[:1]).shape == (1, 4, 626)


@torch.inference_mode()
def test_the_largest_values_do_not_saturate(root: Path, checkpoint: Checkpoint) -> None:
    """All weights and activations at the ends of their ranges: sums of pairs in 16 bits would be cut."""
    from engine.chattts.onnx_graph import build_head
    from engine.chattts.onnx_session import open_session

    head = torch.ones(64, 768).numpy()
    session = open_session(build_head(head).SerializeToString(), threads=1)
    for sign in (1.0, -1.0):
        (logits,) = session.run(None, {"hidden": (sign * torch.ones(3, 768)).numpy()})
        assert torch.from_numpy(logits).allclose(torch.tensor(sign * 768.0), rtol=1e-3)


@torch.inference_mode()
def test_a_full_stream_between_two_that_are_stepped_keeps_what_it_holds(gpt: OnnxGpt) -> None:
    """It takes part in attention: what that leaves must lie past the last place that a stream may have."""
    for slot, length in ((2, 9), (3, POSITIONS), (4, 2), (5, 30)):
        gpt.reset(slot)
        gpt.prefill(slot, rows(length, seed=slot), 0)
    before = [gpt.save_prefix(slot, int(gpt.lengths[slot])) for slot in (3, 4)]
    far = gpt.decode(torch.tensor([5, 2]), rows(2))
    for slot, kept in zip((3, 4), before, strict=True):
        after = gpt.save_prefix(slot, int(gpt.lengths[slot]))
        assert after.cache.tobytes() == kept.cache.tobytes(), f"slot {slot}"
    gpt.restore_prefix(6, gpt.save_prefix(2, 9))
    assert torch.equal(gpt.decode(torch.tensor([6]), rows(2)[1:]), far[1:])


@torch.inference_mode()
def test_a_prompt_shorter_than_a_chunk_is_the_start_of_one(gpt: OnnxGpt) -> None:
    gpt.reset(0)
    whole = gpt.prefill(0, rows(CHUNK), 0)
    for length in (1, 5, 17):
        gpt.reset(1)
        assert relative(gpt.prefill(1, rows(CHUNK)[:length], 0), whole[:length]) < 1e-5
        assert gpt.lengths[1] == length


def test_a_full_slot_and_a_gap_are_told(gpt: OnnxGpt) -> None:
    gpt.reset(0)
    with pytest.raises(AssertionError, match="longer"):
        gpt.prefill(0, rows(POSITIONS + 1), 0)
    with pytest.raises(AssertionError, match="go on"):
        gpt.prefill(0, rows(1), 3)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_not_here_is_refused(root: Path, provider: backend.Provider) -> None:
    chosen = Backend(kind="onnx", precision="int8", provider=provider).choose(root)
    checkpoint = backend.load_weights(root, chosen, unused=layout.DVAE)
    with pytest.raises(ModelMissing, match=provider):
        backend.load(chosen, checkpoint, slots=1, max_positions=CHUNK)


def test_what_auto_comes_to(root: Path, tmp_path: Path) -> None:
    random_weights.write(tmp_path / "bare", size="tiny", seed=7)
    assert Backend().choose(root).kind == "onnx"
    assert Backend().choose(root).precision == "int8"
    assert Backend().choose(tmp_path / "bare").kind == "torch"
    assert Backend(precision="fp32").choose(root).kind == "torch"
    with pytest.raises(ModelMissing, match="tensorrt"):
        Backend(kind="torch", provider="tensorrt").choose(root)
    for kind, precision in (("torch", "int8"), ("onnx", "bf16")):
        with pytest.raises(ModelMissing, match="no precision"):
            Backend(kind=kind, precision=precision).choose(root)  # type: ignore[arg-type]
    bare = Backend(kind="onnx").choose(tmp_path / "bare")
    checkpoint = backend.load_weights(tmp_path / "bare", bare, unused=layout.DVAE)
    with pytest.raises(ModelMissing, match="weights quantise"):
        backend.load(bare, checkpoint, slots=1, max_positions=CHUNK)
