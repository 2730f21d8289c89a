"""What early sound costs: how far estimates with a short lookahead are from the certain samples.

For `sayflow weights check --stream-error`, on whatever checkpoint is at hand. Not part of serving.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from engine.chattts.vocoder import STEP, StreamingVocoder, Vocoder

LOOKAHEADS: Final = (0, 2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 51)
"""Steps, as a table shows them."""


def peak_errors(
    vocoder: Vocoder, steps: Tensor, *, lookaheads: Sequence[int] = LOOKAHEADS, every: int = 16
) -> dict[int, float]:
    """The largest difference by lookahead, relative to the peak of the whole decode of `steps` `[N, ...]`.

    Measured on the sound of the one step that has exactly this many on its right, after each `every` steps
    once 53 were fed; so the start, whose left context is short, is left out. N > 53 + every.
    """
    whole = vocoder.decode(steps)
    peak = float(whole.abs().max())
    state = StreamingVocoder(vocoder, slots=1)
    fed = vocoder.context + 1
    state.feed([0], steps[None, :fed])
    worst = dict.fromkeys(lookaheads, 0.0)
    while fed + every <= steps.shape[0]:
        state.feed([0], steps[None, fed : fed + every])
        fed += every
        certain = STEP * (fed - vocoder.context)
        for lookahead in lookaheads:
            early = state.peek(0, lookahead)
            end = certain + early.shape[0]
            start = STEP * (fed - lookahead - 1)
            off = early[start - certain :] - whole[start:end]
            worst[lookahead] = max(worst[lookahead], float(off.abs().max()) / peak)
    return worst
