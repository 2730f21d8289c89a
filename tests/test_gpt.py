"""The GPT alone: cache, batches, prefixes and resumption, on a tiny random checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.chattts import sampler, weights
from engine.chattts.embed import ROWS
from engine.chattts.gpt import CHUNK, Gpt, slots_that_fit
from engine.chattts.layout import RELEASED
from engine.chattts.weights import Checkpoint
from tests.upstream import write_tiny

SLOTS = 10
POSITIONS = 160


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    root: Path = tmp_path_factory.mktemp("weights")
    return weights.load(write_tiny(root))


def make(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> Gpt:
    return Gpt(checkpoint, slots=SLOTS, max_positions=POSITIONS, dtype=dtype)


def random_codes(steps: int, seed: int) -> Tensor:
    return torch.randint(0, 625, (steps, 4), generator=torch.Generator().manual_seed(seed))


def settings(rows: int) -> sampler.Parameters:
    return sampler.Parameters(
        temperature=torch.full((rows,), 0.9),
        top_p=torch.full((rows,), 0.9),
        top_k=torch.full((rows,), 40),
        penalty=torch.full((rows,), 1.05),
        min_steps=torch.full((rows,), 1000),
    )


def speak(gpt: Gpt, slots: list[int], prompts: list[Tensor], seeds: list[int], steps: int) -> list[Tensor]:
    """Codes [steps, 4] of each stream, all decoded together."""
    hidden = torch.stack(
        [gpt.prefill(slot, prompt, 0)[-1] for slot, prompt in zip(slots, prompts, strict=True)]
    )
    codes = torch.full((len(slots), sampler.HISTORY, 4), sampler.PAD)
    for step in range(steps):
        drawn = sampler.draw(
            gpt.code_logits(hidden),
            codes[:, -sampler.HISTORY :],
            settings(len(slots)),
            torch.tensor(seeds),
            torch.full((len(slots),), step),
        )
        codes = torch.cat([codes, drawn[:, None]], 1)
        hidden = gpt.decode(torch.tensor(slots), gpt.embed_codes(drawn))
    return list(codes[:, sampler.HISTORY :])


def plain(checkpoint: Checkpoint, rows: Tensor) -> Tensor:
    """The whole net over [T, H] in one go, in float64 and without a cache, from the definition."""
    shape, head = checkpoint.gpt_shape, checkpoint.gpt_shape.head_dim
    tensors = {name: tensor.double() for name, tensor in checkpoint.gpt.items()}
    count = len(rows)
    angles = torch.arange(count)[:, None] * shape.theta ** (
        -torch.arange(0, head, 2, dtype=torch.float64) / head
    )
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def norm(value: Tensor, name: str) -> Tensor:
        return value / (value.pow(2).mean(-1, keepdim=True) + shape.eps).sqrt() * tensors[name]

    def rotate(value: Tensor) -> Tensor:
        pairs = torch.complex(value[..., : head // 2], value[..., head // 2 :]) * turn
        return torch.cat([pairs.real, pairs.imag], -1)

    for layer in (f"layers.{index}" for index in range(shape.layers)):
        entered = norm(rows, f"{layer}.input_layernorm.weight")
        query, key, value = (
            (entered @ tensors[f"{layer}.self_attn.{name}_proj.weight"].T).view(count, -1, head)
            for name in "qkv"
        )
        query, key = rotate(query), rotate(key)
        scores = torch.einsum("qhd,khd->hqk", query, key) / head**0.5
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(count, -1)
        rows = rows + mixed @ tensors[f"{layer}.self_attn.o_proj.weight"].T
        entered = norm(rows, f"{layer}.post_attention_layernorm.weight")
        gate = entered @ tensors[f"{layer}.mlp.gate_proj.weight"].T
        up = entered @ tensors[f"{layer}.mlp.up_proj.weight"].T
        rows = rows + (gate * gate.sigmoid() * up) @ tensors[f"{layer}.mlp.down_proj.weight"].T
    return norm(rows, "norm.weight")


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1, 100])
def test_prefill_is_the_whole_net(checkpoint: Checkpoint, count: int) -> None:
    gpt = make(checkpoint, torch.float64)
    rows = gpt.embed_codes(random_codes(count, 1))
    torch.testing.assert_close(gpt.prefill(3, rows, 0), plain(checkpoint, rows), atol=1e-10, rtol=1e-10)
    assert gpt.lengths.tolist() == [0, 0, 0, count, 0, 0, 0, 0, 0, 0]


def test_fp32_is_close_to_float64(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint)
    rows = gpt.embed_codes(random_codes(100, 1))
    exact = plain(checkpoint, rows.double())
    error = (gpt.prefill(0, rows, 0).double() - exact).abs().max() / exact.abs().max()
    assert float(error) < 1e-4


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_prefill_of_what_was_decoded_gives_its_hidden_states(
    checkpoint: Checkpoint, dtype: torch.dtype, bound: float
) -> None:
    gpt = make(checkpoint, dtype)
    rows = gpt.embed_codes(random_codes(90, 2))
    stepped = [gpt.prefill(0, rows[:20], 0)]
    stepped += [gpt.decode(torch.tensor([0]), rows[at : at + 1]) for at in range(20, 90)]
    whole = gpt.prefill(1, rows, 0)
    assert float((torch.cat(stepped) - whole).abs().max() / whole.abs().max()) < bound


@pytest.mark.parametrize("at", [1, 7, 40])
def test_resumed_codes_are_equal_in_float64(checkpoint: Checkpoint, at: int) -> None:
    gpt = make(checkpoint, torch.float64)
    prompt = gpt.embed_text(torch.arange(10))
    (codes,) = speak(gpt, [0], [prompt], [5], 60)
    gpt.reset(0)
    hidden = gpt.prefill(0, torch.cat([prompt, gpt.embed_codes(codes[:at])]), 0)[-1:]
    history = torch.cat([torch.full((sampler.HISTORY, 4), sampler.PAD), codes[:at]])
    for step in range(at, 60):
        drawn = sampler.draw(
            gpt.code_logits(hidden),
            history[None, -sampler.HISTORY :],
            settings(1),
            torch.tensor([5]),
            torch.tensor([step]),
        )
        assert torch.equal(drawn[0], codes[step])
        history = torch.cat([history, drawn])
        hidden = gpt.decode(torch.tensor([0]), gpt.embed_codes(drawn))


def test_a_row_has_the_same_bits_alone_and_in_any_batch(checkpoint: Checkpoint) -> None:
    """Batches of 1 to `SLOTS`, which is more than a block, and any place in them; lengths all differ."""
    assert SLOTS > ROWS
    gpt = make(checkpoint)
    rows = [gpt.embed_codes(random_codes(3 + 11 * slot, slot)) for slot in range(SLOTS)]
    step = gpt.embed_codes(random_codes(SLOTS, 50))

    def decoded(order: list[int]) -> dict[int, Tensor]:
        for slot in range(SLOTS):
            gpt.reset(slot)
            gpt.prefill(slot, rows[slot], 0)
        hidden = gpt.decode(torch.tensor(order), step[order])
        return dict(zip(order, torch.cat([hidden, gpt.code_logits(hidden).flatten(1)], 1), strict=True))

    alone = {slot: decoded([slot])[slot] for slot in range(SLOTS)}
    for order in (list(range(SLOTS)), list(range(SLOTS))[::-1], [4, 9, 0], [1, 8, 7, 6, 5, 4, 3, 2]):
        for slot, found in decoded(order).items():
            assert torch.equal(found, alone[slot])


def test_codes_depend_on_nothing_but_the_request(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint)
    prompts = [gpt.embed_text(torch.arange(5 + 9 * index)) for index in range(5)]
    together = speak(gpt, [7, 2, 0, 9, 4], prompts, [1, 2, 3, 4, 5], 40)
    for index, prompt in enumerate(prompts):
        gpt.reset(2)
        (alone,) = speak(gpt, [2], [prompt], [index + 1], 40)
        assert torch.equal(alone, together[index])
    gpt.reset(2)
    (other,) = speak(gpt, [2], [prompts[0]], [99], 40)
    assert not torch.equal(other, together[0])


@pytest.mark.parametrize("length", [2, CHUNK, CHUNK + 5])
def test_a_cached_prefix_gives_the_same_bits(checkpoint: Checkpoint, length: int) -> None:
    gpt = make(checkpoint)
    rows = gpt.embed_codes(random_codes(80, 3))
    gpt.prefill(0, rows[:length], 0)
    prefix = gpt.save_prefix(0, length)
    fresh = gpt.prefill(0, rows[length:], length)
    # What the slot held before must not matter, nor what the first slot did since.
    gpt.prefill(1, gpt.embed_codes(random_codes(120, 4)), 0)
    gpt.decode(torch.tensor([0, 1]), rows[:2])
    gpt.restore_prefix(1, prefix)
    assert torch.equal(gpt.prefill(1, rows[length:], length), fresh)
    gpt.restore_prefix(2, prefix)
    assert not torch.equal(gpt.prefill(2, rows[length - 1 : -1], length), fresh)


def test_nan_stays_in_its_row(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint)
    rows = gpt.embed_codes(random_codes(3, 6))
    healthy = gpt.decode(torch.tensor([0, 1, 2]), rows)
    for slot in range(3):
        gpt.reset(slot)
    rows[1] = torch.nan
    found = gpt.decode(torch.tensor([0, 1, 2]), rows)
    assert bool(found[1].isnan().all())
    assert torch.equal(found[[0, 2]], healthy[[0, 2]])
    # Nor does it stay in the slot for the next stream.
    gpt.reset(1)
    assert bool(gpt.prefill(1, rows[:1], 0).isfinite().all())
    assert bool(gpt.decode(torch.tensor([1]), rows[2:]).isfinite().all())


def test_heads_are_the_weight_normed_ones(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint, torch.float64)
    hidden = torch.randn(11, checkpoint.gpt_shape.hidden, dtype=torch.float64)

    def head(name: str) -> Tensor:
        length = checkpoint.embed[f"head_{name}.parametrizations.weight.original0"].double()
        direction = checkpoint.embed[f"head_{name}.parametrizations.weight.original1"].double()
        return hidden @ (direction / direction.pow(2).sum(1, keepdim=True).sqrt() * length).T

    logits = gpt.code_logits(hidden)
    assert logits.shape == (11, 4, 626)
    for book in range(4):
        torch.testing.assert_close(logits[:, book], head(f"code.{book}"))
    torch.testing.assert_close(gpt.text_logits(hidden), head("text"))


def test_positions_have_a_bound(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint)
    rows = gpt.embed_codes(random_codes(POSITIONS + 1, 7))
    with pytest.raises(AssertionError, match="longer than its slot"):
        gpt.prefill(0, rows, 0)
    gpt.prefill(0, rows[:POSITIONS], 0)
    with pytest.raises(AssertionError, match="full"):
        gpt.decode(torch.tensor([0]), rows[:1])
    with pytest.raises(AssertionError, match="go on where"):
        gpt.prefill(1, rows[:3], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_fill_what_is_free_beside_the_reserve(checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    gpt = make(checkpoint, dtype)
    cache = gpt._keys.nbytes + gpt._values.nbytes

    def fit(free: int, reserve: int) -> int:
        return slots_that_fit(free, checkpoint.gpt_shape, POSITIONS, dtype, reserve)

    assert fit(cache, 0) == SLOTS
    assert fit(cache - 1, 0) == SLOTS - 1
    assert fit(cache + 1000, 1000) == SLOTS
    assert fit(cache + 1000, 1001) == SLOTS - 1
    assert fit(0, 0) == fit(1000, 2000) == 0


def test_slots_of_the_released_shape() -> None:
    """61,440 bytes a position in bf16; 8 GB of 24 are for all else."""
    slots = slots_that_fit(24 * 10**9, RELEASED.gpt, 640 + 1024, torch.bfloat16, 8 * 10**9)
    assert slots == 16 * 10**9 // (61_440 * (640 + 1024 + CHUNK)) == 153
