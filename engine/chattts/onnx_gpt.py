"""The language model on ONNX Runtime: the backend for CPUs, with 8-bit weights where they were made.

The same work as `gpt`, by the graph of `onnx_graph`. A slot is a lane of the cache. The attention of a decode
runs over the lanes from the first that is asked for to the last; a lane in between that is not asked for is
attended with beside them, and what that leaves in the cache lies past its end, where its next step overwrites
it. All else runs over the rows that are asked for.
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
from engine.chattts.onnx_graph import POSITIONS, Floats, build_head, cache_names
from engine.chattts.onnx_session import open_session

if TYPE_CHECKING:
    from engine.chattts.backend import Provider

Cache = NDArray[np.generic]
"""Keys and values, in fp32 or in 8 bits as the graph has them."""
CHUNK: Final = 32
"""Most positions of a product in prefill."""


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
        assert max_positions + 1 <= POSITIONS
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
        # A lane that is not asked for writes one past its end. Pages not reached are never committed.
        kind: type[np.generic] = np.int8 if self._is_int8 else np.float32
        self._cache = zeros(kind, (shape.layers, 2, slots, shape.kv_heads, max_positions + 1, head))
        self._lengths = [0] * slots
        self._calls: dict[tuple[int, int], _Call] = {}

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
        for begin in range(0, len(embeddings), CHUNK):
            rows = embeddings[begin : begin + CHUNK]
            hidden = self._call(slot, 1).run(rows[None].numpy(), [self._lengths[slot]], [0])
            found[begin : begin + CHUNK] = torch.from_numpy(hidden[0])
            self._lengths[slot] += len(rows)
        return found

    def decode(self, slots: Tensor, embeddings: Tensor) -> Tensor:
        """Append one position [B, H] to each of these slots [B], all different; hidden states [B, H]."""
        chosen: list[int] = slots.tolist()
        assert len(set(chosen)) == len(chosen) == len(embeddings)
        assert all(self._lengths[slot] < self._max_positions for slot in chosen), "a slot is full"
        first, last = min(chosen), max(chosen)
        lengths = self._lengths[first : last + 1]
        lanes = [slot - first for slot in chosen]
        hidden = self._call(first, last - first + 1).run(embeddings[:, None].numpy(), lengths, lanes)
        for slot in chosen:
            self._lengths[slot] += 1
        return torch.from_numpy(hidden[:, 0])

    def _call(self, first: int, lanes: int) -> _Call:
        """The bindings of these lanes: as many as there are pairs of slots, made once each."""
        if (first, lanes) not in self._calls:
            cache = self._cache[:, :, first : first + lanes]
            self._calls[first, lanes] = _Call(self._session, cache, self._shape)
        return self._calls[first, lanes]


class _Call:
    """Runs of the graph over these lanes of the cache."""

    def __init__(self, session: ort.InferenceSession, cache: Cache, shape: GptShape) -> None:
        lanes = cache.shape[2]
        self._session = session
        self._past: NDArray[np.int32] = np.zeros(lanes, np.int32)
        self._total: NDArray[np.int32] = np.zeros((), np.int32)
        self._rows: NDArray[np.int64] = np.zeros(lanes, np.int64)
        self._binding = session.io_binding()
        for name, array in (("past", self._past), ("total", self._total), ("rows", self._rows)):
            self._bind_input(name, array)
        for layer in range(shape.layers):
            keys, values, keys_out, values_out = cache_names(layer)
            for name, out, part in ((keys, keys_out, cache[layer, 0]), (values, values_out, cache[layer, 1])):
                self._bind_input(name, part)
                self._bind_output(out, part)

    def _bind_input(self, name: str, array: Cache) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype, list(array.shape), array.ctypes.data)

    def _bind_output(self, name: str, array: Cache) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype, list(array.shape), array.ctypes.data)

    def run(self, x: Floats, lengths: Sequence[int], lanes: Sequence[int]) -> Floats:
        """Hidden states [B, T, H] of rows `x`, each in one of the lanes, which have these lengths."""
        x = np.ascontiguousarray(x)
        hidden = np.empty_like(x)
        places = np.array(lanes, np.int64)
        self._rows[:] = 0  # A lane without a row takes any.
        self._rows[places] = np.arange(len(places))
        self._past[:] = lengths
        self._past += x.shape[1] - 1
        self._total[...] = self._past.max() + 1
        self._bind_input("x", x)
        self._bind_input("lanes", places)
        self._bind_output("hidden", hidden)
        self._session.run_with_iobinding(self._binding)
        return hidden


def zeros(kind: type[np.generic], shape: Sequence[int]) -> Cache:
    """Memory that is committed page by page as it is written: huge pages would commit the unused end of every
    head's positions too."""
    memory = mmap.mmap(-1, np.dtype(kind).itemsize * math.prod(shape))
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind).reshape(shape)
