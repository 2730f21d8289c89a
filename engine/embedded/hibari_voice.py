"""Phonemes to samples, English: hibari's network and its own signal processing, in a call that can be ended.

hibari's public call cannot be interrupted, so its two parts are called here one after the other.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

GAIN: Final = 1.6
"""Brings the voice to the loudness of the Mandarin ones (RMS of speech about -19 dBFS)."""


class HibariVoice:
    """The packaged American English voice."""

    def __init__(self) -> None:
        import hibari  # type: ignore[import-untyped]
        from hibari import dsp

        self.hibari: Any = hibari.Hibari(threads=1)
        self._synthesize: Any = dsp.synth

    def run(
        self, phonemes: str, speed: float, generator: np.random.Generator, options: ort.RunOptions
    ) -> NDArray[np.float32]:
        """24 kHz samples. Raises what ONNX Runtime raises, also where `options.terminate` ends the call."""
        ids = np.asarray([self.hibari.ids(phonemes)], np.int64)
        feeds = {"ids": ids, "speed": np.asarray([speed], np.float32)}
        frames = self.hibari.sess.run(None, feeds, options)
        audio: NDArray[np.float32] = self._synthesize(*(frame[0] for frame in frames), generator)
        return audio
