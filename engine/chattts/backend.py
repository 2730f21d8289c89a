"""What the ChatTTS engine asks of whatever computes its language model: torch (`gpt`) or ONNX Runtime.

Tensors in and out are torch's, whatever computes. Under `torch.inference_mode()`, from one thread.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Prefix(Protocol):
    """Keys and values of a prompt's first positions, for any slot of the backend that saved them."""

    @property
    def length(self) -> int:
        """Positions held."""


class LanguageModel(Protocol):
    """The weights, and the keys and values of every slot. Hidden states are those after the last norm."""

    @property
    def chunk(self) -> int:
        """Positions that one product of a prefill takes."""

    def embed_text(self, ids: Tensor) -> Tensor:
        """Embeddings [T, H] of token ids [T]."""

    def embed_codes(self, codes: Tensor) -> Tensor:
        """Embeddings [..., H] of steps [..., 4]."""

    def code_logits(self, hidden: Tensor) -> Tensor:
        """Logits [B, 4, 626] of the next step, from hidden states [B, H]."""

    def text_logits(self, hidden: Tensor) -> Tensor:
        """Logits [B, V] of the next token of a refined text, from hidden states [B, H]."""

    def reset(self, slot: int) -> None:
        """Forget the slot's positions."""

    def save_prefix(self, slot: int, length: int) -> Prefix:
        """A copy of the slot's first `length` positions."""

    def restore_prefix(self, slot: int, prefix: Prefix) -> None:
        """Make the prefix all that the slot holds: the bits that a prefill of it alone gives."""

    def prefill(self, slot: int, embeddings: Tensor, start: int) -> Tensor:
        """Append embeddings [T, H] at position `start`, which is the slot's length; hidden states [T, H]."""

    def decode(self, slots: Tensor, embeddings: Tensor) -> Tensor:
        """Append one position [B, H] to each of these slots [B], all different; hidden states [B, H]."""
