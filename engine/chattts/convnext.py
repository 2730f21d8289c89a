"""Convolutional layers over time, as the mel decoders, the DVAE encoder and Vocos are made of them.

A layer is given the frames it looks at and no more: `x[B, T + 2 radius, width]` makes `[B, T, ...]`. Its
caller decides what lies beyond the ends: `run` pads a whole clip with zeros, the streaming vocoder puts the
frames before it in front. So both run the same arithmetic. Knows torch and nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

EPS: Final = 1e-6
"""Of every LayerNorm."""


class Weights:
    """The tensors of one file under a prefix, in the dtype and on the device that a net computes with."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        prefix: str = "",
    ) -> None:
        self._tensors = tensors
        self._prefix = prefix
        self.dtype = dtype
        self.device = torch.device(device)

    def under(self, name: str) -> Weights:
        """The tensors whose names go on with `name.`."""
        return Weights(self._tensors, dtype=self.dtype, device=self.device, prefix=f"{self._prefix}{name}.")

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._prefix + name].to(device=self.device, dtype=self.dtype)

    def find(self, name: str) -> Tensor | None:
        """The tensor, if there is one of this name."""
        return self[name] if self._prefix + name in self._tensors else None

    def children(self) -> list[Weights]:
        """The parts that are numbered from 0."""
        count = 0
        while any(name.startswith(f"{self._prefix}{count}.") for name in self._tensors):
            count += 1
        return [self.under(str(index)) for index in range(count)]


class Layer(Protocol):
    """One step of a stack. An output frame depends on `radius` input frames on either side of it."""

    @property
    def radius(self) -> int:
        """Frames on each side."""

    @property
    def width(self) -> int:
        """Channels of the input."""

    def __call__(self, x: Tensor) -> Tensor:
        """`[B, T + 2 radius, width]` to `[B, T, channels]`."""


class Norm:
    """LayerNorm over the channels of a frame."""

    def __init__(self, weights: Weights) -> None:
        self._weight = weights["weight"]
        self._bias = weights["bias"]

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape that ends in the channels."""
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, EPS)


class Convolution:
    """A dense convolution, then `after` on each frame."""

    def __init__(self, weights: Weights, after: Callable[[Tensor], Tensor] | None = None) -> None:
        weight = weights["weight"]
        self._kernel = weight.shape[2]
        assert self._kernel % 2 == 1, "an even kernel has no middle"
        self._weight = weight.flatten(1)
        self._bias = weights.find("bias")
        self._after = after
        self.radius = self._kernel // 2
        self.width = weight.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        """As in `Layer`: one product over the frames under the kernel."""
        y = F.linear(x.unfold(1, self._kernel, 1).flatten(2), self._weight, self._bias)
        return y if self._after is None else self._after(y)


class Block:
    """ConvNeXt: a depthwise convolution over time, two products in a frame, a scale, and the input added."""

    def __init__(self, weights: Weights, *, dilation: int, scale: str) -> None:
        # As a picture one row high: torch's one-dimensional depthwise convolution takes 3 times as long on a
        # CPU for a batch of 8.
        self._depthwise = weights["dwconv.weight"].unsqueeze(2)
        self._bias = weights["dwconv.bias"]
        self._dilation = dilation
        self._norm = Norm(weights.under("norm"))
        self._up, self._up_bias = weights["pwconv1.weight"], weights["pwconv1.bias"]
        self._down, self._down_bias = weights["pwconv2.weight"], weights["pwconv2.bias"]
        self._scale = weights[scale]
        self.radius = dilation * (self._depthwise.shape[3] // 2)
        self.width = self._depthwise.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        """As in `Layer`."""
        y = F.conv2d(
            x.transpose(1, 2).unsqueeze(2),
            self._depthwise,
            self._bias,
            dilation=(1, self._dilation),
            groups=self.width,
        )
        y = self._norm(y.squeeze(2).transpose(1, 2))
        y = F.linear(F.gelu(F.linear(y, self._up, self._up_bias)), self._down, self._down_bias)
        return x[:, self.radius : x.shape[1] - self.radius] + self._scale * y


def run(layers: Sequence[Layer], x: Tensor) -> Tensor:
    """A whole clip `[B, T, width]` through the layers, with zeros beyond both ends of every layer's input."""
    for layer in layers:
        x = layer(F.pad(x, (0, 0, layer.radius, layer.radius)))
    return x
