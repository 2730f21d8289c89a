"""The layers of ChatTTS's language model as an ONNX graph: rows of hidden states in, rows out, and a cache.

One graph serves prefill (one lane, many positions) and decode (many lanes, one position each). Keys and
values are inputs and outputs of the same memory, so that they stay in place. With `int8`, weights have 8 bits
and a scale an output channel, activations 8 bits and a scale a row, so that rows never touch each other;
keys and values 8 bits and a scale a channel.
Imports nothing of the engine but shapes and ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from engine.chattts.layout import GptShape

Precision = Literal["fp32", "int8"]
Floats = NDArray[np.float32]

VERSION: Final = 5
"""Of the graph and its ranges: a file that another version wrote is stale."""
POSITIONS: Final = 2048
"""That the graph can turn: the most that a lane of the cache may have."""
_LARGEST: Final = 127.0
_ZERO: Final = 128
"""Both sides are unsigned about 128: of a signed weight and an 8-bit activation AVX2 adds pairs of products
in 16 bits, where they saturate. Of two unsigned ones it does not, at a tenth more time."""
_MS: Final = "com.microsoft"
_TINY: Final = 1e-9
"""The least magnitude of a channel of the cache: one that is always zero has a scale too."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Largest magnitudes of keys and values by layer, [layers, kv heads, d]; those of keys are equal in the
    pairs that turn with the position."""

    keys: Floats
    values: Floats


class GraphBuilder:
    """Collects nodes and initialisers."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._nodes: list[onnx.NodeProto] = []
        self._values: list[onnx.TensorProto] = []
        self._quantised: dict[str, tuple[str, str]] = {}
        self.value("axis", np.array([-1], np.int64))
        if precision == "int8":
            self.value("unit", np.array(1 / _LARGEST, np.float32))
            self.value("zero", np.array(_ZERO, np.uint8))

    def value(self, name: str, array: NDArray[np.generic]) -> str:
        """A constant."""
        self._values.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """A node; returns its first output."""
        self._nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs[0]

    def linear(self, x: str, name: str, weight: Floats) -> str:
        """x [..., K] times the transpose of weight [N, K]."""
        if self._precision == "fp32":
            return self.node("MatMul", [x, self.value(f"{name}.w", _kn(weight))], [name])
        if x not in self._quantised:
            self._quantised[x] = self._quantise(x)
        rows, largest = self._quantised[x]
        scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / _LARGEST
        codes = (np.rint(weight / scale[:, None]) + _ZERO).astype(np.uint8)
        inputs = [
            rows,
            self.value(f"{name}.w", _kn(codes)),
            "unit",
            self.value(f"{name}.s", scale.astype(np.float32)),
            "zero",
            self.value(f"{name}.z", np.full(len(weight), _ZERO, np.uint8)),
        ]
        product = self.node("MatMulIntegerToFloat", inputs, [f"{name}.i"], domain=_MS)
        return self.node("Mul", [product, largest], [name])

    def _quantise(self, x: str) -> tuple[str, str]:
        """Each row over its own largest magnitude, in 8 bits; and that magnitude. Of a row of zeros the share
        is no number and its codes are any, but the product comes to zero by the magnitude."""
        size = self.node("Abs", [x], [f"{x}.abs"])
        largest = self.node("ReduceMax", [size, "axis"], [f"{x}.largest"], keepdims=1)
        share = self.node("Div", [x, largest], [f"{x}.share"])
        return self.node("QuantizeLinear", [share, "unit", "zero"], [f"{x}.q"]), largest

    def model(self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """All of it."""
        graph = helper.make_graph(self._nodes, "gpt", inputs, outputs, self._values)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def cache_names(layer: int) -> tuple[str, str, str, str]:
    """Keys and values of a layer: the two inputs, and the two outputs in the same memory."""
    return f"{layer}.keys", f"{layer}.values", f"{layer}.keys.out", f"{layer}.values.out"


def build(shape: GptShape, take: Callable[[str], Floats], ranges: Ranges | None = None) -> onnx.ModelProto:
    """`take`: a tensor of gpt/model.safetensors by name. `ranges`: for 8 bits; without them all is fp32.

    Inputs: `x` [B, T, H], of B of the L lanes; `lanes` int64 [B], the lane of each row; `rows` int64 [L], the
    row of each lane, any for a lane that has none: it takes part in attention alone, and what that leaves in
    its cache lies past its end; `past` int32 [L], positions that each lane holds, plus T - 1; `total` int32,
    the longest lane afterwards; keys and values [L, kv heads, S, d] by layer. Outputs: `hidden` [B, T, H],
    after the last norm, and the cache.
    """
    graph = GraphBuilder("fp32" if ranges is None else "int8")
    head = shape.hidden // shape.heads
    cosines, sines = rotations(POSITIONS, head, shape.theta)
    graph.value("cos", cosines)
    graph.value("sin", sines)
    cache: list[int | str] = ["L", shape.kv_heads, "S", head]
    inputs = [_tensor("x", ["B", "T", shape.hidden])]
    inputs += [_integers("lanes", ["B"], TensorProto.INT64), _integers("rows", ["L"], TensorProto.INT64)]
    inputs += [_integers("past", ["L"]), _integers("total", [])]
    outputs = [_tensor("hidden", ["B", "T", shape.hidden])]
    sum, normal = "x", _norm(graph, shape, "x", "0.n1", take("layers.0.input_layernorm.weight"))
    for index in range(shape.layers):
        last = index + 1 == shape.layers
        after = take("norm.weight" if last else f"layers.{index + 1}.input_layernorm.weight")
        made = "hidden" if last else f"{index + 1}.n1"
        sum, normal = _layer(graph, shape, take, index, (sum, normal), ranges, (made, after))
        keys, values, keys_out, values_out = cache_names(index)
        kind = TensorProto.FLOAT if ranges is None else TensorProto.INT8
        inputs += [helper.make_tensor_value_info(name, kind, cache) for name in (keys, values)]
        outputs += [helper.make_tensor_value_info(name, kind, cache) for name in (keys_out, values_out)]
    return graph.model(inputs, outputs)


def build_head(weight: Floats) -> onnx.ModelProto:
    """`hidden` [B, H] times the transpose of weight [N, H]: `logits` [B, N], in 8 bits."""
    graph = GraphBuilder("int8")
    graph.linear("hidden", "logits", weight)
    outputs, width = weight.shape
    return graph.model([_tensor("hidden", ["B", width])], [_tensor("logits", ["B", outputs])])


def _layer(
    graph: GraphBuilder,
    shape: GptShape,
    take: Callable[[str], Floats],
    index: int,
    x: tuple[str, str],
    ranges: Ranges | None,
    norm_after: tuple[str, Floats],
) -> tuple[str, str]:
    """`x`: the running sum, and it after this layer's first norm. Returns the sum, and it after the norm that
    follows, by the name and the weight of `norm_after`."""

    def weight(*names: str) -> Floats:
        return np.concatenate([take(f"layers.{index}.{name}.weight") for name in names])

    def named(name: str) -> str:
        return f"{index}.{name}"

    sum, normal = x
    qkv = graph.linear(
        normal, named("qkv"), weight("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    )
    attended = graph.linear(
        _attention(graph, shape, index, qkv, ranges), named("o"), weight("self_attn.o_proj")
    )
    sum, normal = _add_norm(graph, shape, (sum, attended), named("n2"), weight("post_attention_layernorm"))
    gate = graph.linear(normal, named("gate"), weight("mlp.gate_proj"))
    up = graph.linear(normal, named("up"), weight("mlp.up_proj"))
    silu = graph.node("QuickGelu", [gate], [named("silu")], domain=_MS, alpha=1.0)
    gated = graph.node("Mul", [silu, up], [named("gated")])
    down = graph.linear(gated, named("down"), weight("mlp.down_proj"))
    return _add_norm(graph, shape, (sum, down), *norm_after)


def _attention(graph: GraphBuilder, shape: GptShape, index: int, qkv: str, ranges: Ranges | None) -> str:
    keys, values, keys_out, values_out = cache_names(index)
    qkv = graph.node("Gather", [qkv, "rows"], [f"{index}.qkv.lanes"], axis=0)
    inputs = [qkv, "", "", keys, values, "past", "total", "cos", "sin"]
    eight: dict[str, Any] = {}
    if ranges is not None:
        scales = [
            graph.value(f"{index}.{name}.scale", np.maximum(found[index], _TINY)[None, :, None] / _LARGEST)
            for name, found in (("keys", ranges.keys), ("values", ranges.values))
        ]
        inputs += ["", "", "", *scales]
        eight = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
    mixed = graph.node(
        "GroupQueryAttention",
        inputs,
        [f"{index}.mixed.lanes", keys_out, values_out],
        domain=_MS,
        num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
        do_rotary=1,
        **eight,
    )
    return graph.node("Gather", [mixed, "lanes"], [f"{index}.mixed"], axis=0)


def _norm(graph: GraphBuilder, shape: GptShape, x: str, name: str, weight: Floats) -> str:
    scale = graph.value(f"{name}.weight", weight)
    return graph.node("SimplifiedLayerNormalization", [x, scale], [name], axis=-1, epsilon=shape.eps)


def _add_norm(
    graph: GraphBuilder, shape: GptShape, terms: tuple[str, str], name: str, weight: Floats
) -> tuple[str, str]:
    """The sum of two, and it after a norm."""
    scale = graph.value(f"{name}.weight", weight)
    outputs = [name, "", "", f"{name}.sum"]
    graph.node("SkipSimplifiedLayerNormalization", [*terms, scale], outputs, domain=_MS, epsilon=shape.eps)
    return f"{name}.sum", name


def rotations(positions: int, head: int, theta: float) -> tuple[Floats, Floats]:
    """Cosines and sines [positions, head / 2] of the rotary positions."""
    speeds = theta ** (-np.arange(0, head, 2, dtype=np.float64) / head)
    angles = np.arange(positions, dtype=np.float64)[:, None] * speeds
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _kn(weight: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(weight.T)


def _tensor(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _integers(
    name: str, shape: list[int | str], kind: TensorProto.DataType = TensorProto.INT32
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
