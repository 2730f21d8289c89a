"""The language model on ONNX Runtime: the backend for CPUs, with 8-bit weights where they were made.

The same work as `gpt`, by the graph of `onnx_graph`. A slot is a lane of the cache. A decode runs over the
lanes from the first that is asked for to the last; a lane in between that is not asked for is computed beside
them, and what it leaves in the cache lies past its end, where its next step overwrites it.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chattts.embed import CODEBOOKS, Embed
from engine.chattts.layout import GptShape
from engine.chattts.onnx_graph import POSITIONS, build_head, cache_names
from engine.chattts.onnx_session import open_session

if TYPE_CHECKING:
    from engine.chattts.backend import Provider

Cache = NDArray[np.generic]
"""Keys and values, in fp32 or in 8 bits as the graph has them."""
CHUNK: Final = 32
"""Positions of a product in prefill."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of a prompt's first positions: [layers, 2, kv heads, T, d]."""

    cache: Cache

    @property
    def length(self) -> int:
        """Positions held."""
        return int(self.cache.shape[3])


class OnnxGpt(Embed):
    """State of `slots` streams of at most `max_positions` positions each. One thread calls it."""

    chunk: Final = CHUNK

    def __init__(
        self,
        model: Path | bytes,
        embed: dict[str, Tensor],
        shape: GptShape,
        *,
        slots: int,
        max_positions: int,
        threads: int,
        provider: Provider = "cpu",
    ) -> None:
        """`model`: the graph of `onnx_graph`, as a file or in memory."""
        assert max_positions + CHUNK <= POSITIONS
        super().__init__(embed, dtype=torch.float32, device=torch.device("cpu"))
        self._shape = shape
        self._max_positions = max_positions
        self._session = open_session(model, threads=threads, spinning=True, provider=provider)
        head = shape.hidden // shape.heads
        kinds = {each.name: each.type for each in self._session.get_inputs()}
        self._is_int8 = kinds[cache_names(0)[0]] == "tensor(int8)"
        self._code_head: ort.InferenceSession | None = None
        if self._is_int8:
            # In torch this small product takes a tenth of a step: it runs on one thread, over padded rows.
            code_head = build_head(self.head_codes.numpy()).SerializeToString()
            self._code_head = open_session(code_head, threads=threads, provider=provider)
        # A last chunk writes its padding past the end. Pages that no stream reaches are never committed.
        kind: type[np.generic] = np.int8 if self._is_int8 else np.float32
        self._cache = zeros(kind, (shape.layers, 2, slots, shape.kv_heads, max_positions + CHUNK, head))
        self._lengths = [0] * slots
        self._calls: dict[tuple[int, int, int], _Call] = {}

    @property
    def lengths(self) -> Tensor:
        """Positions that each slot holds, int64 [slots]."""
        return torch.tensor(self._lengths)

    def code_logits(self, hidden: Tensor) -> Tensor:
        """Logits [B, 4, 626] of the next step, from hidden states [B, H]."""
        if self._code_head is None:
            return super().code_logits(hidden)
        (logits,) = self._code_head.run(None, {"hidden": hidden.numpy()})
        return torch.from_numpy(logits).view(len(hidden), CODEBOOKS, -1)

    # --- state ----------------------------------------------------------------------------------------------

    def reset(self, slot: int) -> None:
        """Forget the slot's positions."""
        self._lengths[slot] = 0

    def save_prefix(self, slot: int, length: int) -> Prefix:
        """A copy of the slot's first `length` positions."""
        assert 0 <= length <= self._lengths[slot]
        return Prefix(self._cache[:, :, slot, :, :length].copy())

    def restore_prefix(self, slot: int, prefix: object) -> None:
        """Make the prefix all that the slot holds: the bits that a prefill of it alone gives."""
        assert isinstance(prefix, Prefix)
        assert prefix.length <= self._max_positions
        self._cache[:, :, slot, :, : prefix.length] = prefix.cache
        self._lengths[slot] = prefix.length

    def prefill(self, slot: int, embeddings: Tensor, start: int) -> Tensor:
        """Append embeddings [T, H] at position `start`; hidden states [T, H].

        `start` must be the slot's length. Chunks are counted from `start`: equal calls give equal bits.
        """
        assert start == self._lengths[slot], "prefill must go on where the slot ends"
        assert start + len(embeddings) <= self._max_positions, "the sentence is longer than its slot"
        found = torch.empty_like(embeddings)
        call = self._call(slot, 1, CHUNK)
        for begin in range(0, len(embeddings), CHUNK):
            rows = embeddings[begin : begin + CHUNK]
            call.x[0, : len(rows)] = rows.numpy()
            call.x[0, len(rows) :] = 0.0
            call.run([self._lengths[slot]])
            found[begin : begin + CHUNK] = torch.from_numpy(call.hidden[0, : len(rows)])
            self._lengths[slot] += len(rows)
        return found

    def decode(self, slots: Tensor, embeddings: Tensor) -> Tensor:
        """Append one position [B, H] to each of these slots [B], all different; hidden states [B, H]."""
        chosen: list[int] = slots.tolist()
        assert len(set(chosen)) == len(chosen) == len(embeddings)
        assert all(self._lengths[slot] < self._max_positions for slot in chosen), "a slot is full"
        first, last = min(chosen), max(chosen)
        call = self._call(first, last - first + 1, 1)
        places = [slot - first for slot in chosen]
        call.x[places, 0] = embeddings.numpy()
        call.run(self._lengths[first : last + 1])
        for slot in chosen:
            self._lengths[slot] += 1
        return torch.from_numpy(call.hidden[places, 0])

    def _call(self, first: int, lanes: int, positions: int) -> _Call:
        """The buffers and bindings of these lanes: as many as there are pairs of slots, made once each."""
        key = (first, lanes, positions)
        if key not in self._calls:
            self._calls[key] = _Call(
                self._session, self._cache[:, :, first : first + lanes], positions, self._shape
            )
        return self._calls[key]


class _Call:
    """A run of the graph over fixed memory."""

    def __init__(self, session: ort.InferenceSession, cache: Cache, positions: int, shape: GptShape) -> None:
        lanes = cache.shape[2]
        self._session = session
        self._positions = positions
        self.x: NDArray[np.float32] = np.zeros((lanes, positions, shape.hidden), np.float32)
        self.hidden: NDArray[np.float32] = np.zeros_like(self.x)
        self._past: NDArray[np.int32] = np.zeros(lanes, np.int32)
        self._total: NDArray[np.int32] = np.zeros((), np.int32)
        self._binding = session.io_binding()
        for name, array in (("x", self.x), ("past", self._past), ("total", self._total)):
            self._binding.bind_input(name, "cpu", 0, array.dtype, list(array.shape), array.ctypes.data)
        self._bind_output("hidden", self.hidden)
        for layer in range(shape.layers):
            keys, values, keys_out, values_out = cache_names(layer)
            for name, out, part in ((keys, keys_out, cache[layer, 0]), (values, values_out, cache[layer, 1])):
                self._binding.bind_input(name, "cpu", 0, part.dtype, list(part.shape), part.ctypes.data)
                self._bind_output(out, part)

    def _bind_output(self, name: str, array: Cache) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype, list(array.shape), array.ctypes.data)

    def run(self, lengths: Sequence[int]) -> None:
        """From `x` to `hidden`, for lanes of these lengths."""
        self._past[:] = lengths
        self._past += self._positions - 1
        self._total[...] = self._past.max() + 1
        self._session.run_with_iobinding(self._binding)


def zeros(kind: type[np.generic], shape: Sequence[int]) -> Cache:
    """Memory that is committed page by page as it is written: huge pages would commit the unused end of every
    head's positions too."""
    memory = mmap.mmap(-1, np.dtype(kind).itemsize * math.prod(shape))
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind).reshape(shape)
