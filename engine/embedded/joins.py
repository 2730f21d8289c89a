"""What a voice made, made ready to be joined: the last stage of the embedded engine.

Voices pad their sound with silence of their own. It is trimmed, both ends are faded to exact zero, and the
pause that the punctuation asks for follows: so any two clauses join without a click. Pure; numpy only.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import BadAudio

RATE: Final = 24000
"""Samples a second, of both voices and of everything here."""
FRAME: Final = 120
"""Samples (5 ms) of a level frame."""
SILENCE: Final = 0.002
"""RMS of a frame that counts as silence whatever the voice's level."""
RELATIVE: Final = 0.02
"""RMS, relative to the loudest frame, below which a frame is not speech."""
KEEP_BEFORE: Final = RATE * 30 // 1000
"""Kept before the first speech frame: soft consonants start below the threshold."""
KEEP_AFTER: Final = RATE * 60 // 1000
FADE_IN: Final = RATE * 5 // 1000
FADE_OUT: Final = RATE * 15 // 1000


def check(audio: NDArray[np.float32]) -> None:
    """Raises `BadAudio` unless this is sound: finite, and anywhere above silence."""
    if not np.isfinite(audio).all():
        raise BadAudio("the voice made samples that are not numbers")
    if audio.size == 0 or float(_levels(audio).max(initial=0.0)) <= SILENCE:
        raise BadAudio("the voice made silence where there was text")


def join(audio: NDArray[np.float32], gain: float, pause_ms: int, speed: float) -> NDArray[np.int16]:
    """The clause as int16 from zero to zero, then its pause (shorter for faster speech)."""
    levels = _levels(audio)
    loud = np.flatnonzero(levels > max(SILENCE, RELATIVE * float(levels.max())))
    start = max(0, int(loud[0]) * FRAME - KEEP_BEFORE)
    end = min(audio.size, (int(loud[-1]) + 1) * FRAME + KEEP_AFTER)
    kept = np.clip(audio[start:end] * np.float32(gain), -1.0, 1.0)
    rise, fall = min(FADE_IN, kept.size), min(FADE_OUT, kept.size)
    kept[:rise] *= np.linspace(0.0, 1.0, rise, dtype=np.float32)
    kept[kept.size - fall :] *= np.linspace(1.0, 0.0, fall, dtype=np.float32)
    pause = round(pause_ms * RATE / 1000 / speed)
    pcm = np.zeros(kept.size + pause, np.int16)
    pcm[: kept.size] = np.rint(kept * 32767.0)
    return pcm


def _levels(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """RMS of each `FRAME`, the last one zero-padded."""
    frames = -(-audio.size // FRAME)
    padded = np.zeros(frames * FRAME, np.float32)
    padded[: audio.size] = audio
    levels: NDArray[np.float32] = np.sqrt(np.mean(padded.reshape(frames, FRAME) ** 2, axis=1))
    return levels
