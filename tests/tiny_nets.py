"""Small random tensors with the names of Decoder, DVAE and Vocos: depth and kernels as released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

HIDDEN: Final = 16
"""Channels of a GPT hidden state; the real one has 768."""
MELS: Final = 100


class _Draw:
    """Draws the tensors of one file. Sums of many inputs keep a size of about 1, as in a trained net."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.tensors: Tensors = {}

    def normal(self, name: str, shape: Sequence[int], scale: float, mean: float = 0.0) -> None:
        self.tensors[name] = mean + scale * torch.randn(*shape, generator=self._generator)

    def linear(self, name: str, shape: Sequence[int], *, bias: bool = True, gain: float = 1.0) -> None:
        inputs = 1
        for size in shape[1:]:
            inputs *= size
        self.normal(f"{name}.weight", shape, gain * inputs**-0.5)
        if bias:
            self.normal(f"{name}.bias", shape[:1], 0.3)

    def norm(self, name: str, width: int) -> None:
        self.normal(f"{name}.weight", (width,), 0.1, 1.0)
        self.normal(f"{name}.bias", (width,), 0.1)

    def block(self, name: str, width: int, inner: int, scale: str) -> None:
        self.linear(f"{name}.dwconv", (width, 1, 7), gain=1.3)
        self.norm(f"{name}.norm", width)
        self.linear(f"{name}.pwconv1", (inner, width), gain=2.0)
        self.linear(f"{name}.pwconv2", (width, inner), gain=2.0)
        # At their initial 1e-6 the blocks do nothing, and every test of context passes.
        uniform = torch.rand(width, generator=self._generator)
        self.tensors[f"{name}.{scale}"] = 0.3 + 0.7 * uniform

    def stack(self, name: str, inputs: int, width: int, outputs: int) -> None:
        self.linear(f"{name}.conv_in.0", (8, inputs, 3))
        self.linear(f"{name}.conv_in.2", (width, 8, 3))
        for index in range(12):
            self.block(f"{name}.decoder_block.{index}", width, 4 * width, "weight")
        self.linear(f"{name}.conv_out", (outputs, width, 1), bias=False)

    def mel(self, name: str) -> None:
        self.tensors[f"{name}.spectrogram.window"] = torch.hann_window(1024)
        # Triangles on a straight scale are filters as good as mel ones here.
        places = torch.linspace(0, MELS + 1, 513)[:, None]
        self.tensors[f"{name}.mel_scale.fb"] = (1 - (places - torch.arange(1, MELS + 1)).abs()).clamp_min(0)


def decoder(seed: int = 1) -> Tensors:
    """The tensors of Decoder."""
    draw = _Draw(seed)
    draw.normal("coef", (1, MELS, 1), 0.2, 1.0)
    draw.stack("decoder", HIDDEN // 2, 16, HIDDEN // 2)
    draw.linear("out_conv", (MELS, HIDDEN // 2, 3), bias=False)
    return draw.tensors


def dvae(seed: int = 2) -> Tensors:
    """The tensors of DVAE."""
    draw = _Draw(seed)
    width = 8
    draw.normal("coef", (1, MELS, 1), 0.2, 1.0)
    draw.linear("downsample_conv.0", (width, MELS, 3), gain=0.3)
    draw.linear("downsample_conv.2", (width, width, 4))
    draw.mel("preprocessor_mel.mel_spec")
    draw.stack("encoder", width, 16, 2 * width)
    draw.stack("decoder", width, 16, width)
    draw.linear("out_conv", (MELS, width, 3), bias=False)
    for group in range(2):
        draw.linear(f"vq_layer.quantizer.rvqs.{group}.project_in", (4, width))
        draw.linear(f"vq_layer.quantizer.rvqs.{group}.project_out", (width, 4))
    return draw.tensors


def vocos(seed: int = 3) -> Tensors:
    """The tensors of Vocos."""
    draw = _Draw(seed)
    width = 16
    draw.mel("feature_extractor.mel_spec")
    draw.linear("backbone.embed", (width, MELS, 7))
    draw.norm("backbone.norm", width)
    for index in range(8):
        draw.block(f"backbone.convnext.{index}", width, 3 * width, "gamma")
    draw.norm("backbone.final_layer_norm", width)
    draw.linear("head.out", (1026, width))
    draw.tensors["head.istft.window"] = torch.hann_window(1024)
    return draw.tensors
