"""What the ChatTTS engine asks of whatever computes its language model: torch (`gpt`) or ONNX Runtime.

Tensors in and out are torch's, whatever computes. Under `torch.inference_mode()`, from one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, Protocol

import torch
from torch import Tensor

from engine.chattts import layout, weights
from engine.chattts.weights import Checkpoint
from engine.errors import ModelMissing


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


class SlotVocoder(Protocol):
    """Steps to samples, a stream a slot; see `vocoder.StreamingVocoder`."""

    def reset(self, slot: int) -> None:
        """Forget the slot's stream; the next `feed` starts one."""

    def feed(self, slots: Sequence[int], steps: Tensor) -> list[Tensor]:
        """The next steps `[B, n, ...]` of B slots; for each the samples that are now certain."""

    def peek(self, slot: int, lookahead: int, *, skip: int = 0) -> Tensor:
        """An estimate of the samples after those; the first `skip` of them are not wanted."""

    def flush(self, slot: int) -> Tensor:
        """The stream ends: its remaining samples."""


Kind = Literal["auto", "torch", "onnx"]
Precision = Literal["auto", "fp64", "fp32", "bf16", "fp16", "int8"]
Provider = Literal["cpu", "cuda", "tensorrt"]
_DTYPES: Final = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What computes, and how. `auto`: 8 bits on ONNX Runtime where the folder has them, else torch."""

    kind: Kind = "auto"
    precision: Precision = "auto"
    provider: Provider = "cpu"
    """Where it computes: ONNX Runtime's execution provider, or torch's device."""
    threads: int = 2

    def choose(self, root: Path) -> Backend:
        """Every `auto` decided, for this folder of weights. Raises `ModelMissing` for what cannot be."""
        from engine.chattts import quantise

        kind, precision = self.kind, self.precision
        if kind == "auto":
            wanted = precision in ("auto", "int8") and quantise.exists(root)
            kind = "onnx" if wanted or precision == "int8" else "torch"
        if precision == "auto":
            plain: Precision = "bf16" if self.provider == "cuda" else "fp32"
            precision = plain if kind == "torch" else "int8"
        if (kind == "onnx") != (precision == "int8") and (kind, precision) != ("onnx", "fp32"):
            raise ModelMissing(f"the backend {kind} has no precision {precision}")
        found = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        if kind == "torch" and self.provider not in found:
            raise ModelMissing(f"torch cannot compute on '{self.provider}' here")
        return Backend(kind=kind, precision=precision, provider=self.provider, threads=self.threads)

    @property
    def sound_dtype(self) -> torch.dtype:
        """What draws and sound are computed in: never in less than fp32."""
        return torch.float64 if self.precision == "fp64" else torch.float32


def load_weights(root: Path, backend: Backend, *, unused: PurePosixPath) -> Checkpoint:
    """What the backend, once chosen, needs of the folder: ONNX Runtime reads the layers itself. `unused`: the
    mel decoder that is not wanted."""
    return weights.load(root, without=(layout.GPT, unused) if backend.kind == "onnx" else (unused,))


def load(backend: Backend, checkpoint: Checkpoint, *, slots: int, max_positions: int) -> LanguageModel:
    """The chosen one. Raises `ModelMissing`."""
    if backend.kind == "torch":
        from engine.chattts.gpt import Gpt

        dtype = _DTYPES[backend.precision]
        return Gpt(checkpoint, slots=slots, max_positions=max_positions, dtype=dtype, device=backend.provider)
    from engine.chattts import quantise
    from engine.chattts.onnx_gpt import OnnxGpt

    if backend.precision == "fp32":
        model: Path | bytes | None = quantise.graph(checkpoint.root).SerializeToString()
    else:
        model = quantise.find(checkpoint.root)
    if model is None:
        raise ModelMissing(
            f"{checkpoint.root}: no 8-bit weights here: run `sayflow weights quantise {checkpoint.root}`"
        )
    return OnnxGpt(
        model,
        checkpoint.embed,
        checkpoint.gpt_shape,
        slots=slots,
        max_positions=max_positions,
        threads=backend.threads,
        provider=backend.provider,
    )


def load_vocoder(
    backend: Backend, checkpoint: Checkpoint, *, slots: int, steps: Literal["hidden", "codes"]
) -> SlotVocoder:
    """With `int8` ONNX Runtime makes the sound too."""
    mel = checkpoint.decoder if steps == "hidden" else checkpoint.dvae
    if backend.precision == "int8":
        from engine.chattts.onnx_vocoder import OnnxVocoder

        return OnnxVocoder(
            mel, checkpoint.vocos, slots=slots, threads=backend.threads, precision="int8", steps=steps
        )
    from engine.chattts.vocoder import StreamingVocoder, Vocoder

    device = backend.provider if backend.kind == "torch" else "cpu"
    vocoder = Vocoder.load(mel, checkpoint.vocos, steps=steps, dtype=backend.sound_dtype, device=device)
    return StreamingVocoder(vocoder, slots=slots)
