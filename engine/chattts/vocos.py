"""Mel frames to sound: the Vocos backbone, its spectrum, and the inverse short-time Fourier transform.

The backbone's layers go into the vocoder's stack after the mel decoder's. The inverse transform exists
twice: for a whole clip (torch's own), and for a run of frames with those before it, as streaming needs it.
A frame of 1,024 samples starts 512 before the place of its 256-sample block, so block q is the sum of frames
q - 1 to q + 2. Knows torch and `convnext` only.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.chattts.convnext import Block, Convolution, Layer, Norm, Weights

FFT: Final = 1024
HOP: Final = 256
PARTS: Final = FFT // HOP
"""Blocks that a frame reaches over."""
_MAX_MAGNITUDE: Final = 1e2


class Vocos:
    """The backbone (`layers`), the head and the inverse transform."""

    def __init__(self, weights: Weights) -> None:
        backbone = weights.under("backbone")
        self.layers: tuple[Layer, ...] = (
            Convolution(backbone.under("embed"), Norm(backbone.under("norm"))),
            *(Block(w, dilation=1, scale="gamma") for w in backbone.under("convnext").children()),
        )
        self._norm = Norm(backbone.under("final_layer_norm"))
        self._out, self._out_bias = weights["head.out.weight"], weights["head.out.bias"]
        self._window = weights["head.istft.window"]
        self._squares = self._window.square().view(PARTS, HOP)

    def spectrum(self, x: Tensor) -> Tensor:
        """The last layer's frames `[B, T, C]` to complex ones `[B, T, 513]`."""
        magnitude, phase = F.linear(self._norm(x), self._out, self._out_bias).chunk(2, -1)
        return torch.polar(magnitude.exp().clamp_max(_MAX_MAGNITUDE), phase)

    def sound(self, spectrum: Tensor) -> Tensor:
        """A whole clip: `[B, T, 513]` to samples `[B, 256 (T - 1)]`."""
        return torch.istft(spectrum.transpose(1, 2), FFT, HOP, window=self._window, center=True)

    def windowed(self, spectrum: Tensor) -> Tensor:
        """`[B, T, 513]` to frames of samples `[B, T, 1024]` that are ready to be added up."""
        frames: Tensor = torch.fft.irfft(spectrum, FFT)
        return frames * self._window

    def overlap_add(self, frames: Tensor, real: Tensor) -> Tensor:
        """Blocks `[B, T, 256]` of windowed frames `[B, T + 3, 1024]`, of which those that are
        not `real` (`[B, T + 3]`; they are zero) lie beyond the ends of the clip. A block without any real one
        is zero."""
        count = frames.shape[1] - PARTS + 1
        parts = frames.view(frames.shape[0], frames.shape[1], PARTS, HOP)
        weights = real[:, :, None, None] * self._squares
        # The newest frame of a block gives its first part.
        sound = sum(parts[:, PARTS - 1 - i : PARTS - 1 - i + count, i] for i in range(PARTS))
        envelope = sum(weights[:, PARTS - 1 - i : PARTS - 1 - i + count, i] for i in range(PARTS))
        assert isinstance(sound, Tensor)
        assert isinstance(envelope, Tensor)
        return sound / envelope.clamp_min(torch.finfo(envelope.dtype).tiny)
