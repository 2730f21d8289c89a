"""What `sayflow weights check` measures beyond the layout: a spoken word, and the error of short lookaheads.

Imports the model and the vocoder inside the functions: the layout is checked without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from engine.chattts.weights import Checkpoint

_STEPS: Final = 240
_CHUNK: Final = 12
"""Steps fed at once."""
_SPEAK: Final = "你好 hello"
_SPEAK_STEPS: Final = 300


@dataclass(frozen=True, slots=True)
class Spoken:
    """The smoke test's sound."""

    seconds: float
    rms: float
    """1 is full scale."""
    took_s: float


def speak(root: Path, clock: Callable[[], float]) -> Spoken:
    """Say two words with the first voice. Raises `WeightsError`, or the `EngineError` of the row."""
    from engine.chattts.model import ChatTTSModel
    from engine.wire import Parameters, Span

    model = ChatTTSModel(root, slots=1)
    began = clock()
    model.open(0, model.spec.default_voice, Parameters(), 0)
    model.begin(0, [Span(_SPEAK, "zh", 0, len(_SPEAK))])
    while not model.prefill(0):
        pass
    samples = 0
    power = 0.0
    for _ in range(_SPEAK_STEPS):
        (output,) = model.step([0])
        if output.error is not None:
            raise output.error
        samples += len(output.pcm)
        power += float(np.square(output.pcm / 32768.0).sum())
        if output.finished:
            break
    model.close(0)
    rms = math.sqrt(power / samples) if samples else 0.0
    return Spoken(samples / model.spec.sample_rate, rms, clock() - began)


def random_hidden(checkpoint: Checkpoint, steps: int = _STEPS, seed: int = 0) -> torch.Tensor:
    """Hidden states [steps, H] of the size that the final norm gives them, in place of the GPT's."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(steps, checkpoint.gpt_shape.hidden, generator=generator) * checkpoint.gpt["norm.weight"]
    )


@torch.inference_mode()
def stream_errors(checkpoint: Checkpoint, hidden: torch.Tensor) -> dict[int, float]:
    """Largest error of streaming by lookahead, relative to the peak of the offline decode of `hidden` [N, H].

    0 to 51 steps are estimates; 52 is what is committed, over the whole length.
    """
    from engine.chattts.stream_error import peak_errors
    from engine.chattts.vocoder import StreamingVocoder, Vocoder

    vocoder = Vocoder.load(checkpoint.decoder, checkpoint.vocos)
    errors = peak_errors(vocoder, hidden)
    offline = vocoder.decode(hidden)
    stream = StreamingVocoder(vocoder, slots=1)
    chunks = (hidden[None, start : start + _CHUNK] for start in range(0, hidden.shape[0], _CHUNK))
    parts = [stream.feed([0], chunk)[0] for chunk in chunks]
    streamed = torch.cat([*parts, stream.flush(0)])
    assert streamed.shape == offline.shape
    errors[vocoder.context] = float((streamed - offline).abs().max() / offline.abs().max())
    return errors
