"""Between codes, hidden states and mel frames: the two mel decoders, the encoder of voice samples, and GFSQ.

`HiddenDecoder` makes mel frames of the GPT's hidden states (the usual path), `DvaeDecoder` of codes;
`DvaeEncoder` makes codes of a clip. `vocos` makes sound of mel frames. A step is 4 codes and 2 mel frames.
Knows torch and `convnext` only.
"""

from __future__ import annotations

from typing import Final, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.chattts.convnext import Block, Convolution, Layer, Weights, run

FFT: Final = 1024
HOP: Final = 256
MEL_FLOOR: Final = 1e-5
CODES: Final = 4
"""Codes of a step: group 0 residual 0, group 0 residual 1, then group 1."""
GROUPS: Final = 2
RESIDUALS: Final = 2
LEVELS: Final = 5
"""Values of one digit; a code is 4 digits, the first one the least significant."""
CODEBOOK: Final = LEVELS**4
_DILATION: Final = 2
_BOUND: Final = 1.001
"""Before it is rounded, a digit may leave its range by this factor."""


class MelDecoder(Protocol):
    """What the vocoder needs of a mel decoder."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """From `frames` to log mel frames."""

    def frames(self, steps: Tensor) -> Tensor:
        """The input of the layers `[B, 2N, C]` for N steps `[B, N, ...]`."""


def _halves(steps: Tensor) -> Tensor:
    """`[B, N, 2C]` to `[B, 2N, C]`: the first half of a step's channels is its first frame."""
    batch, count, channels = steps.shape
    return steps.reshape(batch, 2 * count, channels // 2)


def _stack(weights: Weights) -> tuple[Layer, ...]:
    """The layers that both decoders and the encoder share."""
    return (
        Convolution(weights.under("conv_in.0"), F.gelu),
        Convolution(weights.under("conv_in.2")),
        *(Block(w, dilation=_DILATION, scale="weight") for w in weights.under("decoder_block").children()),
        Convolution(weights.under("conv_out")),
    )


def _decoder(weights: Weights) -> tuple[Layer, ...]:
    coef = weights["coef"].flatten()
    return (*_stack(weights.under("decoder")), Convolution(weights.under("out_conv"), coef.mul))


class HiddenDecoder:
    """The GPT's hidden states to mel frames."""

    def __init__(self, weights: Weights) -> None:
        self.layers = _decoder(weights)

    def frames(self, steps: Tensor) -> Tensor:
        """Of hidden states `[B, N, H]`."""
        return _halves(steps)

    def decode(self, hidden: Tensor) -> Tensor:
        """Hidden states `[N, H]` to log mel frames `[2N, 100]`."""
        return run(self.layers, self.frames(hidden[None]))[0]


class Quantizer:
    """GFSQ: each half of a frame's channels becomes 4 numbers, and these two codes of 4 digits.

    A digit d of 0..4 stands for (d - 2) / 2 in the first code of a group and for a quarter of it in the
    second, which quantises what the first one left over.
    """

    def __init__(self, weights: Weights) -> None:
        groups = weights.under("quantizer.rvqs").children()
        assert len(groups) == GROUPS, "the codes of a step are two groups of two"
        self._in = [(w["project_in.weight"], w["project_in.bias"]) for w in groups]
        self._out = [(w["project_out.weight"], w["project_out.bias"]) for w in groups]
        self._places = torch.tensor([LEVELS**i for i in range(4)], device=weights.device)
        self._dtype = weights.dtype

    def embed(self, codes: Tensor) -> Tensor:
        """Codes `[..., 4]`, each in 0..624, to features `[..., channels]`."""
        # Past the end, an index of a look-up kills a CUDA context; here it would be a wrong sound in silence.
        if not bool(((codes >= 0) & (codes < CODEBOOK)).all()):
            raise ValueError(f"codes are 0 to {CODEBOOK - 1}")
        digits = codes.long().unsqueeze(-1) // self._places % LEVELS
        values = (digits - 2).to(self._dtype) / 2
        parts: list[Tensor] = []
        for group, (weight, bias) in enumerate(self._out):
            first, second = (values[..., group * RESIDUALS + i, :] for i in range(RESIDUALS))
            parts.append(F.linear(first + second / (LEVELS - 1), weight, bias))
        return torch.cat(parts, -1)

    def encode(self, features: Tensor) -> Tensor:
        """Features `[..., channels]` to codes `[..., 4]` (int64)."""
        codes: list[Tensor] = []
        for half, (weight, bias) in zip(features.chunk(GROUPS, -1), self._in, strict=True):
            rest = F.linear(half, weight, bias)
            for residual in range(RESIDUALS):
                scale = float(LEVELS - 1) ** -residual
                digits = torch.round(torch.tanh(rest / scale) * (2 * _BOUND))
                rest = rest - digits / 2 * scale
                codes.append(((digits.long() + 2) * self._places).sum(-1))
        return torch.stack(codes, -1)


class DvaeDecoder:
    """Codes to mel frames."""

    def __init__(self, weights: Weights) -> None:
        self.layers = _decoder(weights)
        self._quantizer = Quantizer(weights.under("vq_layer"))

    def frames(self, steps: Tensor) -> Tensor:
        """Of codes `[B, N, 4]`; raises `ValueError` for one out of range."""
        return _halves(self._quantizer.embed(steps))

    def decode(self, codes: Tensor) -> Tensor:
        """Codes `[N, 4]` to log mel frames `[2N, 100]`; raises `ValueError` for one out of range."""
        return run(self.layers, self.frames(codes[None]))[0]


class DvaeEncoder:
    """A clip of a voice to codes."""

    def __init__(self, weights: Weights) -> None:
        mel = weights.under("preprocessor_mel.mel_spec")
        self._window = mel["spectrogram.window"]
        self._filters = mel["mel_scale.fb"]
        self._coef = weights["coef"].flatten()
        self._first = Convolution(weights.under("downsample_conv.0"), F.gelu)
        self._halve, self._halve_bias = (weights[f"downsample_conv.2.{name}"] for name in ("weight", "bias"))
        self._layers = _stack(weights.under("encoder"))
        self._quantizer = Quantizer(weights.under("vq_layer"))

    def mel(self, samples: Tensor) -> Tensor:
        """Log mel frames `[1 + L // 256, 100]` of L samples at 24 kHz, L > 512 (the ends are reflected)."""
        spectrum = torch.stft(
            samples, FFT, HOP, window=self._window, center=True, pad_mode="reflect", return_complex=True
        )
        return (spectrum.abs().T @ self._filters).clamp_min(MEL_FLOOR).log()

    def encode(self, samples: Tensor) -> Tensor:
        """Codes `[N, 4]` of L samples at 24 kHz in -1..1, N = (1 + L // 256) // 2. Raises `ValueError`
        for a clip too short to have a spectrum."""
        if samples.ndim != 1 or samples.shape[0] <= FFT // 2:
            raise ValueError(f"a clip is one channel of more than {FFT // 2} samples")
        mel = self.mel(samples.to(self._window)) / self._coef
        x = run((self._first,), mel[None])
        halved = F.conv1d(x.transpose(1, 2), self._halve, self._halve_bias, stride=2, padding=1)
        return self._quantizer.encode(run(self._layers, F.gelu(halved).transpose(1, 2)))[0]
