"""The one interface between the step loop and a model; every model folder implements it.

A model owns `slots` independent streams of state. It decides nothing about order or fairness: the scheduler
names the slots of each step. All methods run on the step thread, but for `interrupt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.wire import Parameters, Span, Voice


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a model is and what it can hold."""

    name: str
    sample_rate: int
    slots: int
    """Utterances that may have state at once."""
    max_batch: int
    """Slots that one step may advance."""
    max_steps: int
    """Steps of one sentence, after which it is cut."""
    max_chars: int
    """Characters of one sentence that the gateway may submit."""
    voices: tuple[Voice, ...]
    default_voice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step made for one slot.

    `pcm`: mono int16 at the model's rate, any length, also none. `finished`: the sentence is at its end, and
    the slot waits for the next `begin`. `error`: the row failed; the loop closes the slot, the others go on.
    """

    slot: int
    pcm: NDArray[np.int16]
    finished: bool = False
    truncated: bool = False
    checkpoint: bytes | None = None
    error: EngineError | None = None


class SpeechModel(Protocol):
    """A text-to-speech model with streaming state per slot."""

    @property
    def spec(self) -> ModelSpec:
        """Constant from construction on."""

    def warm_up(self) -> tuple[float, ...]:
        """Run what serving will run, allocate all that it needs; seconds a step at batch 1, 2, ..."""

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Give the slot to an utterance. Raises `UnknownVoice`, or another `EngineError`."""

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        """Start the utterance's sentence `number` in an open slot, or go on with it from a checkpoint of an
        output of its own: its sound then comes anew, from its beginning. Returns whether it wants `prefill`.
        Raises `CannotSpeak`, or another `EngineError`."""

    def prefill(self, slot: int) -> bool:
        """A bounded piece of what a begun sentence needs before its first step; whether it was the last.
        Raises `EngineError`."""

    def step(self, slots: Sequence[int]) -> list[Output]:
        """Advance each of these slots, whose sentences are begun and prefilled; one output a slot."""

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """Seconds within which that step, and a prefill after it, will surely be over; past it the engine
        counts as hung."""

    def close(self, slot: int) -> None:
        """Forget the slot's utterance, whatever state it is in."""

    def interrupt(self, slot: int) -> None:
        """Any thread, any time: end a running call that works for this slot alone, if the model can.

        The interrupted step returns an output for the slot, whose content is ignored.
        """

    def figures(self) -> dict[str, float]:
        """What an operator may want to know of the model's own caches, by names that never change."""
