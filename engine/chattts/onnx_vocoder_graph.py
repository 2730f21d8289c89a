"""The vocoder's layers as one ONNX graph: frames in, spectra out, and the frames that layers will see again.

A layer's window is three parts in a row: its state, what the layer before made (with zeros where a stream had
not begun), and a tail of zeros. Which of the three there is decides the caller: in mid-stream there is no
tail; at a stream's end the tail makes a layer give its radius more; where only late frames are wanted there
is no state. So one graph, and one copy of the weights, serves all. Tensors are [B, 1, T, C]: pictures one row
high.

With `int8` the products of the blocks have 8 bits, a scale a row and a scale an output channel, so that rows
never touch each other. Unlike those of `onnx_graph` their weights are signed: AVX2 then takes 0.75 of the
time, and adds pairs of products in 16 bits, which `quantise` keeps from saturating. The eighth of the work
that is not in blocks stays fp32: it would cost 3 dB.
Imports nothing of the engine but `onnx_graph` and a constant of the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from engine.chattts.convnext import EPS
from engine.chattts.onnx_graph import Floats, GraphBuilder, Precision

_MS: Final = "com.microsoft"
_MEL_DILATION: Final = 2
_TIME: Final = 2
_CHANNELS: Final = 3
"""Axes."""
_LARGEST: Final = 127
_ZERO: Final = 128
_TINY: Final = 1e-9
"""The least magnitude of a row: one of zeros has a scale too."""
_GELU_LEAST: Final = 0.1701
"""Magnitude of the lowest value of a GELU."""
_GELU_ZERO: Final = 32
"""Of the 8 bits of a GELU's values: 5 dB better than a zero in the middle."""
_GELU_LARGEST: Final = 255 - _GELU_ZERO


@dataclass(frozen=True, slots=True)
class Window:
    """What one layer looks at."""

    radius: int
    """Frames on either side."""
    width: int
    """Channels."""


def inputs(layer: int) -> tuple[str, str, str]:
    """Of a layer with a radius: `state` and `tail` [B, 1, any, width], and `real` [B, 1, T, 1] (or a single
    1): 0 for frames of the layer before that are to be zero."""
    return f"{layer}.state", f"{layer}.tail", f"{layer}.real"


def kept(layer: int) -> str:
    """The output with the last 2 radius frames of a layer's window [B, 1, 2 radius, width]."""
    return f"{layer}.kept"


def build(
    mel: Mapping[str, Floats], vocos: Mapping[str, Floats], precision: Precision
) -> tuple[onnx.ModelProto, tuple[Window, ...]]:
    """`mel`: the tensors of Decoder or DVAE. From `x` [B, 1, T, C] to `spectrum` [B, 1, T', 1026], which is
    log magnitudes, then phases; and the windows of the layers that have a radius."""
    chain = _Chain(mel, vocos, precision)
    return chain.model(), tuple(chain.windows)


class _Chain:
    """The graph as it grows, layer by layer."""

    def __init__(self, mel: Mapping[str, Floats], vocos: Mapping[str, Floats], precision: Precision) -> None:
        self._graph = GraphBuilder("fp32")
        self._precision = precision
        self.windows: list[Window] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        for name, value in (("time", _TIME), ("begin", 0), ("end", np.iinfo(np.int64).max)):
            self._graph.value(name, np.array([value], np.int64))
        for kind, most, zero, least in (
            ("row", _LARGEST, _ZERO, _TINY),
            ("gelu", _GELU_LARGEST, _GELU_ZERO, _GELU_LEAST * _GELU_LARGEST / _GELU_ZERO),
        ):
            self._graph.value(f"{kind}.unit", np.array(1 / most, np.float32))
            self._graph.value(f"{kind}.zero", np.array(zero, np.uint8))
            self._graph.value(f"{kind}.least", np.array(least, np.float32))
        self._inputs.append(_frames("x", mel["decoder.conv_in.0.weight"].shape[1]))
        x = self._mel(mel, "x")
        x = self._vocos(vocos, x)
        self._outputs.append(_frames(x, vocos["head.out.weight"].shape[0]))

    def model(self) -> onnx.ModelProto:
        """All of it."""
        return self._graph.model(self._inputs, self._outputs)

    def _mel(self, tensors: Mapping[str, Floats], x: str) -> str:
        def convolution(x: str, name: str, key: str) -> str:
            return self._convolution(x, name, tensors[f"{key}.weight"], tensors.get(f"{key}.bias"))

        x = convolution(x, "in.0", "decoder.conv_in.0")
        x = self._graph.node("Gelu", [x], ["in.1"], domain=_MS)
        x = convolution(x, "in.2", "decoder.conv_in.2")
        for block in _numbered(tensors, "decoder.decoder_block"):
            x = self._block(x, block, block["weight"], _MEL_DILATION)
        x = convolution(x, "last", "decoder.conv_out")
        return self._convolution(x, "mel", tensors["coef"].reshape(-1, 1, 1) * tensors["out_conv.weight"])

    def _vocos(self, tensors: Mapping[str, Floats], x: str) -> str:
        def norm(x: str, key: str) -> str:
            return self._norm(x, tensors[f"{key}.weight"], tensors[f"{key}.bias"])

        weight, bias = (tensors[f"backbone.embed.{part}"] for part in ("weight", "bias"))
        x = norm(self._convolution(x, "embed", weight, bias), "backbone.norm")
        for block in _numbered(tensors, "backbone.convnext"):
            x = self._block(x, block, block["gamma"], 1)
        product = self._graph.linear(norm(x, "backbone.final_layer_norm"), "head", tensors["head.out.weight"])
        bias_name = self._graph.value("head.bias", tensors["head.out.bias"])
        return self._graph.node("Add", [product, bias_name], ["spectrum"])

    def _seen(self, x: str, radius: int, width: int) -> str:
        """The next layer's window."""
        index = len(self.windows)
        self.windows.append(Window(radius, width))
        state, tail, real = inputs(index)
        self._inputs += [_frames(state, width), _frames(tail, width), _frames(real, 1)]
        # What is not a number in a masked frame stays so. It comes from frames of the stream itself, and
        # reaches no further by way of one before its start than by another.
        x = self._graph.node("Mul", [x, real], [f"{index}.x"])
        seen = self._graph.node("Concat", [state, x, tail], [f"{index}.seen"], axis=_TIME)
        self._slice(seen, -2 * radius, None, kept(index))
        self._outputs.append(_frames(kept(index), width))
        return seen

    def _slice(self, x: str, begin: int, end: int | None, name: str) -> str:
        """Frames of x."""
        first = self._graph.value(f"{name}.begin", np.array([begin], np.int64))
        last = "end" if end is None else self._graph.value(f"{name}.end", np.array([end], np.int64))
        return self._graph.node("Slice", [x, first, last, "time"], [name])

    def _convolution(self, x: str, name: str, weight: Floats, bias: Floats | None = None) -> str:
        """A dense one: the frames under the kernel side by side, times the weight [N, C, K]."""
        outputs, width, kernel = weight.shape
        if kernel > 1:
            seen = self._seen(x, kernel // 2, width)
            parts = [
                self._slice(seen, at, at + 1 - kernel if at + 1 < kernel else None, f"{name}.{at}")
                for at in range(kernel)
            ]
            x = self._graph.node("Concat", parts, [f"{name}.wide"], axis=_CHANNELS)
        flat = weight.transpose(0, 2, 1).reshape(outputs, kernel * width)
        product = self._graph.linear(x, f"{name}.product", flat)
        if bias is None:
            return product
        return self._graph.node("Add", [product, self._graph.value(f"{name}.bias", bias)], [f"{name}.out"])

    def _product(self, x: str, name: str, weight: Floats, *, is_gelu: bool = False) -> str:
        """x times the transpose of weight [N, K], in 8 bits where that is asked for. `is_gelu`: x comes from
        one."""
        graph = self._graph
        if self._precision == "fp32":
            return graph.linear(x, name, weight)
        rows, largest = self._quantise_gelu(x) if is_gelu else self._quantise(x)
        codes, scale = quantise(weight)
        kind = "gelu" if is_gelu else "row"
        inputs = [
            rows,
            graph.value(f"{name}.w", np.ascontiguousarray(codes.T)),
            f"{kind}.unit",
            graph.value(f"{name}.s", scale),
            f"{kind}.zero",
        ]
        product = graph.node("MatMulIntegerToFloat", inputs, [f"{name}.i"], domain=_MS)
        return graph.node("Mul", [product, largest], [name])

    def _quantise(self, x: str) -> tuple[str, str]:
        """Each row over its own largest magnitude, in 8 bits; and that magnitude."""
        graph = self._graph
        size = graph.node("Abs", [x], [f"{x}.abs"])
        most = graph.node("ReduceMax", [size, "axis"], [f"{x}.most"], keepdims=1)
        return self._codes(x, graph.node("Max", [most, "row.least"], [f"{x}.largest"]), "row")

    def _quantise_gelu(self, x: str) -> tuple[str, str]:
        """The same for what is hardly negative: most of the 8 bits are for what is positive."""
        graph = self._graph
        most = graph.node("ReduceMax", [x, "axis"], [f"{x}.most"], keepdims=1)
        return self._codes(x, graph.node("Max", [most, "gelu.least"], [f"{x}.largest"]), "gelu")

    def _codes(self, x: str, largest: str, kind: str) -> tuple[str, str]:
        graph = self._graph
        inverse = graph.node("Reciprocal", [largest], [f"{x}.inverse"])
        share = graph.node("Mul", [x, inverse], [f"{x}.share"])
        return graph.node("QuantizeLinear", [share, f"{kind}.unit", f"{kind}.zero"], [f"{x}.q"]), largest

    def _norm(self, x: str, weight: Floats, bias: Floats) -> str:
        name = f"{x}.normal"
        affine = [self._graph.value(f"{name}.w", weight), self._graph.value(f"{name}.b", bias)]
        return self._graph.node("LayerNormalization", [x, *affine], [name], axis=-1, epsilon=EPS)

    def _block(self, x: str, tensors: Mapping[str, Floats], scale: Floats, dilation: int) -> str:
        """ConvNeXt: see `convnext.Block`."""
        graph = self._graph
        kernel = tensors["dwconv.weight"]
        width = kernel.shape[0]
        radius = dilation * (kernel.shape[2] // 2)
        index = len(self.windows)
        seen = self._seen(x, radius, width)
        y = self._depthwise(seen, f"{index}.mixed", kernel, tensors["dwconv.bias"], dilation)
        y = self._norm(y, tensors["norm.weight"], tensors["norm.bias"])
        y = self._product(y, f"{index}.up", tensors["pwconv1.weight"])
        up_bias = graph.value(f"{index}.up.bias", tensors["pwconv1.bias"])
        # That of a tanh is off by 5e-4 at most, a tenth of what 8 bits are, and takes 0.6 of the time.
        gelu = "BiasGelu" if self._precision == "fp32" else "FastGelu"
        y = graph.node(gelu, [y, up_bias], [f"{index}.inner"], domain=_MS)
        y = self._product(y, f"{index}.down", scale[:, None] * tensors["pwconv2.weight"], is_gelu=True)
        bias = graph.value(f"{index}.down.bias", scale * tensors["pwconv2.bias"])
        y = graph.node("Add", [y, bias], [f"{index}.change"])
        middle = self._slice(seen, radius, -radius, f"{index}.middle")
        return graph.node("Add", [y, middle], [f"{index}.out"])

    def _depthwise(self, x: str, name: str, kernel: Floats, bias: Floats, dilation: int) -> str:
        """As a picture one row high: so ONNX Runtime takes its blocked kernels, at a fifth of the time."""
        graph = self._graph
        weight = graph.value(f"{name}.w", kernel[:, :, None])
        added = graph.value(f"{name}.b", bias)
        turned = graph.node("Transpose", [x], [f"{name}.turned"], perm=[0, 3, 1, 2])
        made = graph.node(
            "Conv",
            [turned, weight, added],
            [f"{name}.made"],
            group=kernel.shape[0],
            kernel_shape=[1, kernel.shape[2]],
            dilations=[1, dilation],
        )
        return graph.node("Transpose", [made], [name], perm=[0, 2, 3, 1])


def quantise(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Weight [N, K] in 8 bits, and a scale an output channel. The product adds two neighbours along K, times
    activations of up to 255, in 16 bits: two of one sign that come to more than 128 would saturate."""
    size = np.abs(weight)
    most = size.max(axis=1)
    pairs = weight[:, : weight.shape[1] // 2 * 2].reshape(len(weight), -1, 2)
    together = np.maximum(np.abs(pairs.sum(axis=2)).max(axis=1), most)
    scale = np.maximum(together, 1e-12) / _LARGEST
    return np.rint(weight / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def _numbered(tensors: Mapping[str, Floats], name: str) -> list[dict[str, Floats]]:
    """The parts `name.0`, `name.1`, ..., each with its tensors by the rest of their names."""
    found: list[dict[str, Floats]] = []
    while True:
        prefix = f"{name}.{len(found)}."
        part = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if not part:
            return found
        found.append(part)


def _frames(name: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", 1, f"{name}.frames", width])
