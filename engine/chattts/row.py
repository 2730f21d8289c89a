"""A row: what a slot of the ChatTTS engine knows of its utterance, and the codec of its checkpoints.

Data; `model` moves it. A checkpoint is opaque to the gateway that keeps it, so that what
comes back is held against every range before it reaches a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from engine.chattts.prefill import Prefill
from engine.chattts.refine import Refine
from engine.chattts.voices import Voice as StoredVoice
from engine.errors import EngineError
from engine.wire import Parameters

MAX_STEPS: Final = 1024
RETRIES: Final = 2
"""Of a row that ends before its first step."""
EOS: Final = 625
"""The code that ends a row; those of sound are below it."""
_MAX_SEED: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What a row samples by."""

    temperature: float = 0.3
    top_p: float = 0.7
    top_k: int = 20
    penalty: float = 1.05
    min_steps: int = 0

    @classmethod
    def choose(cls, parameters: Parameters) -> Settings:
        """The request's choices over the defaults. They were range-checked where they came in."""
        base = cls()
        return cls(
            temperature=max(parameters.temperature or base.temperature, 1e-6),
            top_p=parameters.top_p or base.top_p,
            top_k=parameters.top_k or base.top_k,
        )


@dataclass(slots=True)
class Row:
    """A slot's utterance and the sentence it is at."""

    voice: StoredVoice
    parameters: Parameters
    settings: Settings
    seed: int
    sentence: int = 0
    """Its number in the utterance."""
    text: str = ""
    refine: Refine | None = None
    """Under way, before the prompt is known."""
    prefill: Prefill | None = None
    """Under way, before the first step."""
    hidden: torch.Tensor | None = None
    """[H], which predicts the codes of `step`."""
    codes: list[list[int]] = field(default_factory=list)
    limit: int = 0
    """Steps."""
    worked_s: float = 0.0
    """Spent in its steps."""
    retries: int = 0
    peak: float = 0.0

    @property
    def step(self) -> int:
        """The step whose codes come next."""
        return len(self.codes)

    def sentence_seed(self) -> int:
        """Each sentence, and each retry of it, draws its own numbers."""
        return (self.seed + 0x9E37_79B9 * (self.sentence + 1) + 0x85EB_CA6B * self.retries) & _MAX_SEED


@dataclass(frozen=True, slots=True)
class Ending:
    """How a row ended."""

    truncated: bool = False
    error: EngineError | None = None


def encode_checkpoint(codes: Sequence[Sequence[int]], retries: int = 0) -> bytes:
    """Little-endian u16: the retries, three zeros, then the codes so far [steps, 4]."""
    return np.asarray([[retries, 0, 0, 0], *codes], "<u2").tobytes()


def decode_checkpoint(data: bytes) -> tuple[list[list[int]], int]:
    """Codes and retries. Raises `EngineError` for what is none, or holds a code that the model has not."""
    if not data or len(data) % 8 or len(data) > 8 * (MAX_STEPS + 1):
        raise EngineError("the checkpoint is damaged")
    (retries, *zeros), *codes = np.frombuffer(data, "<u2").reshape(-1, 4).tolist()
    if retries > RETRIES or any(zeros):
        raise EngineError("the checkpoint is damaged")
    if any(code >= EOS for step in codes for code in step):
        raise EngineError("the checkpoint holds a code out of range")
    return codes, retries
