"""The products of the vocoder's blocks on ONNX Runtime, in 8 bits: nearly all of its work.

A frame's result depends on that frame alone, bit for bit, so that sound is the same however its steps came.
The rest of the vocoder, little work on little memory, stays in torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.chattts.convnext import EPS, Weights
from engine.chattts.onnx_graph import build_pointwise
from engine.chattts.onnx_session import open_session


class OnnxPointwise:
    """`convnext.Pointwise`; raises `ModelMissing` as `open_session` does."""

    def __init__(self, weights: Weights, scale: str) -> None:
        model = build_pointwise(
            norm=(weights["norm.weight"].numpy(), weights["norm.bias"].numpy()),
            up=(weights["pwconv1.weight"].numpy(), weights["pwconv1.bias"].numpy()),
            down=(weights["pwconv2.weight"].numpy(), weights["pwconv2.bias"].numpy()),
            scale=weights[scale].numpy(),
            eps=EPS,
        )
        self._session = open_session(model.SerializeToString())

    def __call__(self, y: Tensor) -> Tensor:
        """As in `Pointwise`."""
        (found,) = self._session.run(None, {"y": y.contiguous().numpy()})
        return torch.from_numpy(found)
