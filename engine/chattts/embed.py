"""What stands before and after the layers: embeddings of tokens and codes, and the heads that score them.

The base of both backends. The heads are products of `ROWS` rows, padded with zeros, so that a row's logits
are the same bits whatever the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

ROWS: Final = 8
"""Rows of a product in decode; a larger batch runs in blocks of this many."""
CODEBOOKS: Final = 4


class Embed:
    """The tensors of Embed.safetensors, weight norms folded."""

    def __init__(self, tensors: Mapping[str, Tensor], *, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._device = device
        self._text = self._take(tensors["emb_text.weight"])
        self._codes = torch.stack(
            [self._take(tensors[f"emb_code.{book}.weight"]) for book in range(CODEBOOKS)]
        )
        self._head_text = self._fold(tensors, "head_text")
        self.head_codes = torch.cat([self._fold(tensors, f"head_code.{book}") for book in range(CODEBOOKS)])
        """[4 x 626, H]: the four heads as one product."""

    def embed_text(self, ids: Tensor) -> Tensor:
        """Embeddings [T, H] of token ids [T]."""
        return functional.embedding(ids.to(self._device), self._text)

    def embed_codes(self, codes: Tensor) -> Tensor:
        """Embeddings [..., H] of steps [..., 4]: the sum over their four codes."""
        codes = codes.to(self._device)
        total = functional.embedding(codes[..., 0], self._codes[0])
        for book in range(1, CODEBOOKS):
            total = total + functional.embedding(codes[..., book], self._codes[book])
        return total

    def code_logits(self, hidden: Tensor) -> Tensor:
        """Logits [B, 4, 626] of the next step, from hidden states [B, H]."""
        logits = _in_blocks(lambda rows: functional.linear(rows, self.head_codes), hidden)
        return logits.view(len(hidden), CODEBOOKS, -1)

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Logits [B, V] of the next token of a refined text, from hidden states [B, H]."""
        return _in_blocks(lambda rows: functional.linear(rows, self._head_text), hidden)

    def _take(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self._device, dtype=self._dtype)

    def _fold(self, tensors: Mapping[str, Tensor], name: str) -> Tensor:
        """A weight-normed head as one matrix: each row has its own length."""
        length = tensors[f"{name}.parametrizations.weight.original0"].double()
        direction = tensors[f"{name}.parametrizations.weight.original1"].double()
        return self._take(length * direction / direction.norm(dim=1, keepdim=True))


def padded(rows: Tensor, count: int) -> Tensor:
    """Rows [M, ...] and zeros, [count, ...]."""
    return functional.pad(rows, (0, 0, 0, count - len(rows)))


def _in_blocks(product: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """A product of rows [B, H] in blocks of `ROWS`."""
    blocks = [rows[at : at + ROWS] for at in range(0, len(rows), ROWS)]
    return torch.cat([product(padded(block, ROWS))[: len(block)] for block in blocks])
