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

from engine.chattts.lookahead import Seam
from engine.chattts.voices import Voice as StoredVoice
from engine.errors import EngineError
from engine.wire import Parameters

MAX_STEPS: Final = 1024
EOS: Final = 625
"""The code that ends a row; those of sound are below it."""


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
    sentence: int = -1
    embeddings: torch.Tensor | None = None
    """The prompt [T, H], until it is prefilled."""
    voice_prefix: int = 0
    """Positions of the prompt that depend on the voice alone."""
    prefix: int = 0
    """Positions of the whole prompt."""
    hidden: torch.Tensor | None = None
    """[H], which predicts the codes of `step`."""
    codes: list[list[int]] = field(default_factory=list)
    resumed: int = 0
    limit: int = 0
    deadline: float = 0.0
    retries: int = 0
    peak: float = 0.0
    seam: Seam = field(default_factory=Seam)
    first_sound_at: float | None = None

    @property
    def step(self) -> int:
        """The step whose codes come next."""
        return len(self.codes)

    def sentence_seed(self) -> int:
        """Each sentence, and each retry of it, draws its own numbers."""
        return (self.seed + 0x9E37_79B9 * (self.sentence + 1) + 0x85EB_CA6B * self.retries) & 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Ending:
    """How a row ended."""

    truncated: bool = False
    error: EngineError | None = None


def encode_checkpoint(codes: Sequence[Sequence[int]]) -> bytes:
    """The codes so far: little-endian u16 [steps, 4]."""
    return np.asarray(codes, "<u2").tobytes()


def decode_checkpoint(data: bytes) -> list[list[int]]:
    """The inverse. Raises `EngineError` for what is none, or holds a code that the model has not."""
    if len(data) % 8 or len(data) > 8 * MAX_STEPS:
        raise EngineError("the checkpoint is damaged")
    codes = np.frombuffer(data, "<u2").reshape(-1, 4)
    if codes.size and int(codes.max()) >= EOS:
        raise EngineError("the checkpoint holds a code out of range")
    return [[int(code) for code in step] for step in codes]
