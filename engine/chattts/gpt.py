"""The language model of ChatTTS: a LLaMA with a static cache of keys and values, one lane a slot.

Between `prompt` (ids in) and `sampler` and the vocoder (hidden states out: those after the last norm, each of
which predicts the next step's codes). Imports of the engine the checkpoint's type alone.

A stream's numbers are its own, bit for bit: the matrix products always see `ROWS` rows (decode) or `CHUNK`
rows (prefill), padded with zeros, so that the same kernel runs whatever the batch; attention runs row by row
over exactly the row's own positions. `decode_rows`, for a GPU, gives that up: see `cuda_step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import functional

from engine.chattts.embed import ROWS, Embed, padded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.chattts import backend
    from engine.chattts.layout import GptShape
    from engine.chattts.weights import Checkpoint

CHUNK: Final = 32
"""Positions of a product in prefill."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer. `qkv` and `gate_up` are products that share their input, joined."""

    norm_1: Tensor
    qkv: Tensor
    out: Tensor
    norm_2: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of a prompt's first positions, for any slot: [layers, kv heads, T, d] each."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        """Positions held."""
        return int(self.keys.shape[2])


class Gpt(Embed):
    """Weights, and the state of `slots` streams of at most `max_positions` positions each.

    Call it under `torch.inference_mode()`, from one thread.
    """

    chunk: Final = CHUNK

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        slots: int,
        max_positions: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(checkpoint.embed, dtype=dtype, device=torch.device(device))
        self._shape = shape = checkpoint.gpt_shape
        self._max_positions = max_positions
        self._layers = [self._layer(checkpoint.gpt, index) for index in range(shape.layers)]
        self._norm = self._take(checkpoint.gpt["norm.weight"])
        self._cos, self._sin = self._rotations(max_positions + CHUNK)
        # A last chunk writes its padding past the end. Pages that no stream reaches are never committed.
        size = (shape.layers, slots, shape.kv_heads, max_positions + CHUNK, shape.hidden // shape.heads)
        self._keys = torch.zeros(size, dtype=dtype, device=self._device)
        self._values = torch.zeros(size, dtype=dtype, device=self._device)
        self._lengths = [0] * slots

    @property
    def lengths(self) -> Tensor:
        """Positions that each slot holds, int64 [slots]."""
        return torch.tensor(self._lengths)

    @property
    def shape(self) -> GptShape:
        """Of the checkpoint."""
        return self._shape

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, keys, values and hidden states."""
        return self._dtype

    @property
    def slots(self) -> int:
        """Streams that have a place."""
        return len(self._lengths)

    @property
    def full_reach(self) -> int:
        """A `reach` that takes in every place of a stream, and not the one where idle rows write."""
        return self._max_positions + CHUNK // 2

    # --- state ----------------------------------------------------------------------------------------------

    def reset(self, slot: int) -> None:
        """Forget the slot's positions."""
        self._lengths[slot] = 0

    def save_prefix(self, slot: int, length: int) -> Prefix:
        """A copy of the slot's first `length` positions."""
        assert 0 <= length <= self._lengths[slot]
        return Prefix(
            self._keys[:, slot, :, :length].clone(),
            self._values[:, slot, :, :length].clone(),
        )

    def restore_prefix(self, slot: int, prefix: backend.Prefix) -> None:
        """Make the prefix all that the slot holds: the bits that a prefill of it alone gives."""
        assert isinstance(prefix, Prefix)
        assert prefix.length <= self._max_positions
        self._keys[:, slot, :, : prefix.length] = prefix.keys
        self._values[:, slot, :, : prefix.length] = prefix.values
        self._lengths[slot] = prefix.length

    def prefill(self, slot: int, embeddings: Tensor, start: int) -> Tensor:
        """Append embeddings [T, H] at position `start`; hidden states [T, H].

        `start` must be the slot's length. Chunks are counted from `start`: equal calls give equal bits.
        """
        assert start == self._lengths[slot], "prefill must go on where the slot ends"
        assert start + len(embeddings) <= self._max_positions, "the sentence is longer than its slot"
        found = torch.empty_like(embeddings)
        for begin in range(0, len(embeddings), CHUNK):
            rows = embeddings[begin : begin + CHUNK]
            found[begin : begin + CHUNK] = self._prefill_chunk(slot, padded(rows, CHUNK), start + begin)[
                : len(rows)
            ]
            self._lengths[slot] += len(rows)
        return found

    def decode(self, slots: Tensor, embeddings: Tensor) -> Tensor:
        """Append one position [B, H] to each of these slots [B], all different; hidden states [B, H]."""
        chosen: list[int] = slots.tolist()
        assert len(set(chosen)) == len(chosen) == len(embeddings)
        assert all(self._lengths[slot] < self._max_positions for slot in chosen), "a slot is full"
        found = [
            self._decode_block(chosen[at : at + ROWS], embeddings[at : at + ROWS])
            for at in range(0, len(chosen), ROWS)
        ]
        for slot in chosen:
            self._lengths[slot] += 1
        return torch.cat(found)

    # --- the batch as one, for a GPU ------------------------------------------------------------------------

    def decode_rows(self, embeddings: Tensor, places: Tensor, reach: int) -> Tensor:
        """One position [B, H] into slots 0 to B - 1, each at its place [B], below `reach`; -1: an idle row,
        which leaves its slot as it is. Hidden states [B, H], of idle rows without meaning.

        What is launched depends on B and `reach` alone, and nothing waits for the device: a CUDA graph can
        hold it. The slots' lengths stay until `grow`, and what lies past them must be numbers: `clear_rest`.
        """
        rows = torch.arange(len(places), device=self._device)
        places = torch.where(places < 0, self._keys.shape[3] - 1, places)
        unseen = torch.arange(reach, device=self._device) > places[:, None]
        mask = torch.zeros(unseen.shape, dtype=self._dtype, device=self._device)
        mask = mask.masked_fill(unseen, -torch.inf)[:, None, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self._keys[layer, : len(rows)], self._values[layer, : len(rows)]
            keys[rows, :, places] = key
            values[rows, :, places] = value
            return self._attend(query[:, :, None], keys[:, :, :reach], values[:, :, :reach], mask)[:, :, 0]

        return self._run(embeddings, places, attend)

    def length(self, slot: int) -> int:
        """Positions that the slot holds."""
        return self._lengths[slot]

    def grow(self, slots: Sequence[int]) -> None:
        """What `decode_rows` wrote for these slots counts."""
        for slot in slots:
            # One more than a stream may hold: a step goes on before the stream is found to be at its limit.
            assert self._lengths[slot] <= self._max_positions, "a slot is full"
            self._lengths[slot] += 1

    def clear_rest(self, slot: int) -> None:
        """Zero what an earlier stream left past the slot's end: masked, a NaN would still be one."""
        self._keys[:, slot, :, self._lengths[slot] :] = 0
        self._values[:, slot, :, self._lengths[slot] :] = 0

    # --- layers ---------------------------------------------------------------------------------------------

    def _prefill_chunk(self, slot: int, rows: Tensor, start: int) -> Tensor:
        end = start + CHUNK
        positions = torch.arange(start, end, device=self._device)
        # Padding follows what is real, so that the causal mask hides it.
        mask = torch.arange(end, device=self._device) <= positions[:, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self._keys[layer, slot], self._values[layer, slot]
            keys[:, start:end] = key.transpose(0, 1)
            values[:, start:end] = value.transpose(0, 1)
            queries = query.transpose(0, 1)[None]
            return self._attend(queries, keys[None, :, :end], values[None, :, :end], mask)[0].transpose(0, 1)

        return self._run(rows, positions, attend)

    def _decode_block(self, slots: list[int], embeddings: Tensor) -> Tensor:
        lengths = [self._lengths[slot] for slot in slots]
        positions = torch.tensor(lengths + [0] * (ROWS - len(slots)), device=self._device)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            found = torch.zeros_like(query)
            for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
                keys, values = self._keys[layer, slot], self._values[layer, slot]
                keys[:, length] = key[row]
                values[:, length] = value[row]
                past = slice(0, length + 1)
                one = query[row, None, :, None]
                found[row] = self._attend(one, keys[None, :, past], values[None, :, past], None)[0, :, 0]
            return found

        return self._run(padded(embeddings, ROWS), positions, attend)[: len(slots)]

    def _run(
        self, rows: Tensor, positions: Tensor, attend: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """All layers over rows [M, H]; `attend` keeps the keys and values, and is all that mixes rows."""
        shape = self._shape
        head = shape.hidden // shape.heads
        cos, sin = self._cos[positions, None], self._sin[positions, None]
        for index, layer in enumerate(self._layers):
            joined = functional.linear(self._normal(rows, layer.norm_1), layer.qkv).view(len(rows), -1, head)
            query, key, value = joined.tensor_split([shape.heads, shape.heads + shape.kv_heads], dim=1)
            mixed = attend(index, _rotate(query, cos, sin), _rotate(key, cos, sin), value)
            rows = rows + functional.linear(mixed.reshape(len(rows), shape.hidden), layer.out)
            gate, up = functional.linear(self._normal(rows, layer.norm_2), layer.gate_up).chunk(2, dim=-1)
            rows = rows + functional.linear(functional.silu(gate) * up, layer.down)
        return self._normal(rows, self._norm)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of queries [B, heads, M, d] over keys and values [B, kv heads, T, d]."""
        shared = self._shape.heads // self._shape.kv_heads
        if shared > 1:
            keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
        return functional.scaled_dot_product_attention(query, keys, values, mask)

    def _normal(self, rows: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm, never in less than fp32."""
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._shape.eps)
        return weight * (wide * scale).to(rows.dtype)

    # --- load -----------------------------------------------------------------------------------------------

    def _layer(self, tensors: dict[str, Tensor], index: int) -> _Layer:
        def join(*names: str) -> Tensor:
            return self._take(torch.cat([tensors[f"layers.{index}.{name}.weight"] for name in names]))

        return _Layer(
            norm_1=join("input_layernorm"),
            qkv=join("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=join("self_attn.o_proj"),
            norm_2=join("post_attention_layernorm"),
            gate_up=join("mlp.gate_proj", "mlp.up_proj"),
            down=join("mlp.down_proj"),
        )

    def _rotations(self, positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, d / 2] of the rotary positions."""
        head = self._shape.hidden // self._shape.heads
        speeds = self._shape.theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
        # In fp32 the angles of large positions lose their last digits, in fp16 all of them.
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * speeds
        return self._take(angles.cos()), self._take(angles.sin())


def slots_that_fit(free_bytes: int, shape: GptShape, positions: int, dtype: torch.dtype, reserve: int) -> int:
    """Slots of `positions` positions whose keys and values fit into what is free beside `reserve` bytes."""
    position = 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize
    return max(0, free_bytes - reserve) // (position * (positions + CHUNK))


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + d / 2) of each head's channels by their position's angles."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
