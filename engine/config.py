"""What an engine process is told at its start. Read once from standard input, never written after."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["embedded", "synthetic", "chattts", "chattts-upstream"]


class EngineConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine. Paths come from the operator, never from a client."""

    kind: Kind = "embedded"
    slots: int = 8
    threads: int = 2
    styles: str | None = None
    """Folder of the Mandarin styles, for the embedded engine; None: where set-up put them."""
    weights: str | None = None
    """Folder of ChatTTS weights in the released layout, for the ChatTTS engines."""
    backend: Literal["auto", "torch", "onnx"] = "auto"
    """What computes ChatTTS's language model; auto: ONNX Runtime where the weights have an 8-bit form."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    provider: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    """Where ChatTTS computes: ONNX Runtime's execution provider, or torch's device."""
    decoder: Literal["hidden", "codes"] = "hidden"
    """What ChatTTS's sound is made of: hidden states (the Decoder), or codes alone (the DVAE)."""
    batch_window_ms: int = 0
    """A sentence that comes while others are being made waits so long for more to begin with it."""
    voices: str | None = None
    """Folder of the operator's own ChatTTS voices."""
    synthetic_rtf: float = 0.02
    """Seconds of work a second of sound, for the synthetic engine."""
