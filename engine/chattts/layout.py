"""The released layout: files, tensor names, and the shape of each tensor in terms of a few sizes.

`weights` holds a folder against it, `random_weights` fills it, `fetch` downloads its files. The numbers of
blocks and the kernels are fixed, as they decide how far sound reaches; every width is read from the files.
Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

Shape = tuple[int, ...]

EMBED: Final = PurePosixPath("asset/Embed.safetensors")
GPT: Final = PurePosixPath("asset/gpt/model.safetensors")
DECODER: Final = PurePosixPath("asset/Decoder.safetensors")
DVAE: Final = PurePosixPath("asset/DVAE.safetensors")
VOCOS: Final = PurePosixPath("asset/Vocos.safetensors")
GPT_CONFIG: Final = PurePosixPath("asset/gpt/config.json")
TOKENIZER: Final = PurePosixPath("asset/tokenizer/tokenizer.json")
TOKENIZER_CONFIG: Final = PurePosixPath("asset/tokenizer/tokenizer_config.json")
SPECIAL_TOKENS_MAP: Final = PurePosixPath("asset/tokenizer/special_tokens_map.json")

TENSOR_FILES: Final = (EMBED, GPT, DECODER, DVAE, VOCOS)
READ_FILES: Final = (*TENSOR_FILES, GPT_CONFIG, TOKENIZER)
"""What the engine reads; the release has two more."""
FILES: Final = (*READ_FILES, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP)

CODEBOOKS: Final = 4
CODE_ROWS: Final = 626
"""Codes 0..624 and the one that ends a sentence."""
MELS: Final = 100
FFT: Final = 1024
BINS: Final = FFT // 2 + 1
DIGITS: Final = 4
"""Numbers of a quantiser, each on one of 5 levels: a code."""
GROUPS: Final = 2
DECODER_BLOCKS: Final = 12
VOCOS_BLOCKS: Final = 8
UNUSED: Final = "embed_tokens.weight"
"""In the GPT's file, and never used: text and codes have embeddings of their own."""

SPECIAL_TOKENS: Final = (
    *("[Sasr]", "[Pasr]", "[Easr]", "[Stts]", "[Ptts]", "[Etts]", "[Sbreak]", "[Pbreak]", "[Ebreak]"),
    *("[uv_break]", "[v_break]", "[lbreak]", "[llbreak]", "[undefine]", "[laugh]"),
    *("[spk_emb]", "[empty_spk]", "[music]", "[pure]"),
    *(f"[break_{level}]" for level in range(8)),
    *(f"[laugh_{level}]" for level in range(3)),
    *(f"[oral_{level}]" for level in range(10)),
    *(f"[speed_{level}]" for level in range(10)),
)
"""The 50 added tokens, in the order of their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """What `asset/gpt/config.json` says."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    eps: float
    theta: float
    vocabulary: int
    """Rows of `UNUSED`."""

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden // self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSize:
    """Widths of a stack of ConvNeXt blocks between two convolutions and one."""

    entry: int
    bottleneck: int
    hidden: int
    inner: int
    exit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """All that may differ from one checkpoint to another."""

    gpt: GptShape
    text_tokens: int
    decoder: StackSize
    dvae_decoder: StackSize
    dvae_encoder: StackSize
    vocos_hidden: int
    vocos_inner: int


RELEASED: Final = Sizes(
    gpt=GptShape(
        hidden=768,
        layers=20,
        heads=12,
        kv_heads=12,
        intermediate=3072,
        eps=1e-6,
        theta=10_000.0,
        vocabulary=32_000,
    ),
    text_tokens=21_178,
    decoder=StackSize(entry=384, bottleneck=128, hidden=512, inner=2048, exit=384),
    dvae_decoder=StackSize(entry=512, bottleneck=128, hidden=256, inner=1024, exit=512),
    dvae_encoder=StackSize(entry=512, bottleneck=128, hidden=256, inner=1024, exit=1024),
    vocos_hidden=512,
    vocos_inner=1536,
)


class MissingTensor(LookupError):
    """A tensor from which a size is read is not there, or has not that many axes."""

    def __init__(self, file: PurePosixPath, name: str, axes: int) -> None:
        super().__init__(file, name, axes)
        self.file = file
        self.name = name
        self.axes = axes


def infer(gpt: GptShape, found: Mapping[PurePosixPath, Mapping[str, Shape]]) -> Sizes:
    """The sizes of a checkpoint, each read from one tensor. Raises `MissingTensor`."""

    def size(file: PurePosixPath, name: str, axis: int, axes: int) -> int:
        shape = found[file].get(name, ())
        if len(shape) != axes:
            raise MissingTensor(file, name, axes)
        return shape[axis]

    def stack(file: PurePosixPath, prefix: str, *, entry: int) -> StackSize:
        return StackSize(
            entry=entry,
            bottleneck=size(file, f"{prefix}.conv_in.0.weight", 0, 3),
            hidden=size(file, f"{prefix}.conv_in.2.weight", 0, 3),
            inner=size(file, f"{prefix}.decoder_block.0.pwconv1.weight", 0, 2),
            exit=size(file, f"{prefix}.conv_out.weight", 0, 3),
        )

    encoder = stack(DVAE, "encoder", entry=size(DVAE, "downsample_conv.0.weight", 0, 3))
    return Sizes(
        gpt=gpt,
        text_tokens=size(EMBED, "emb_text.weight", 0, 2),
        decoder=stack(DECODER, "decoder", entry=gpt.hidden // 2),
        dvae_decoder=stack(DVAE, "decoder", entry=encoder.exit // 2),
        dvae_encoder=encoder,
        vocos_hidden=size(VOCOS, "backbone.embed.weight", 0, 3),
        vocos_inner=size(VOCOS, "backbone.convnext.0.pwconv1.weight", 0, 2),
    )


def shapes(sizes: Sizes) -> dict[PurePosixPath, dict[str, Shape]]:
    """Every tensor of every file."""
    return {
        EMBED: _embed(sizes),
        GPT: _gpt(sizes.gpt),
        DECODER: {
            "coef": (1, MELS, 1),
            **_stack("decoder", sizes.decoder),
            "out_conv.weight": (MELS, sizes.decoder.exit, 3),
        },
        DVAE: _dvae(sizes),
        VOCOS: _vocos(sizes.vocos_hidden, sizes.vocos_inner),
    }


def _embed(sizes: Sizes) -> dict[str, Shape]:
    rows = {"text": sizes.text_tokens} | {f"code.{book}": CODE_ROWS for book in range(CODEBOOKS)}
    found: dict[str, Shape] = {}
    for name, count in rows.items():
        found[f"emb_{name}.weight"] = (count, sizes.gpt.hidden)
        found[f"head_{name}.parametrizations.weight.original0"] = (count, 1)
        found[f"head_{name}.parametrizations.weight.original1"] = (count, sizes.gpt.hidden)
    return found


def _gpt(gpt: GptShape) -> dict[str, Shape]:
    kv = gpt.kv_heads * gpt.head_dim
    found: dict[str, Shape] = {UNUSED: (gpt.vocabulary, gpt.hidden), "norm.weight": (gpt.hidden,)}
    for index in range(gpt.layers):
        layer = f"layers.{index}"
        found |= {
            f"{layer}.self_attn.q_proj.weight": (gpt.hidden, gpt.hidden),
            f"{layer}.self_attn.k_proj.weight": (kv, gpt.hidden),
            f"{layer}.self_attn.v_proj.weight": (kv, gpt.hidden),
            f"{layer}.self_attn.o_proj.weight": (gpt.hidden, gpt.hidden),
            f"{layer}.mlp.gate_proj.weight": (gpt.intermediate, gpt.hidden),
            f"{layer}.mlp.up_proj.weight": (gpt.intermediate, gpt.hidden),
            f"{layer}.mlp.down_proj.weight": (gpt.hidden, gpt.intermediate),
            f"{layer}.input_layernorm.weight": (gpt.hidden,),
            f"{layer}.post_attention_layernorm.weight": (gpt.hidden,),
        }
    return found


def _with_bias(name: str, *shape: int) -> dict[str, Shape]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _block(name: str, hidden: int, inner: int, scale: str) -> dict[str, Shape]:
    return {
        **_with_bias(f"{name}.dwconv", hidden, 1, 7),
        **_with_bias(f"{name}.norm", hidden),
        **_with_bias(f"{name}.pwconv1", inner, hidden),
        **_with_bias(f"{name}.pwconv2", hidden, inner),
        f"{name}.{scale}": (hidden,),
    }


def _stack(name: str, size: StackSize) -> dict[str, Shape]:
    found = _with_bias(f"{name}.conv_in.0", size.bottleneck, size.entry, 3)
    found |= _with_bias(f"{name}.conv_in.2", size.hidden, size.bottleneck, 3)
    for index in range(DECODER_BLOCKS):
        found |= _block(f"{name}.decoder_block.{index}", size.hidden, size.inner, "weight")
    return found | {f"{name}.conv_out.weight": (size.exit, size.hidden, 1)}


def _spectrum(name: str) -> dict[str, Shape]:
    return {f"{name}.mel_spec.spectrogram.window": (FFT,), f"{name}.mel_spec.mel_scale.fb": (BINS, MELS)}


def _dvae(sizes: Sizes) -> dict[str, Shape]:
    encoder, decoder = sizes.dvae_encoder, sizes.dvae_decoder
    found: dict[str, Shape] = {
        "coef": (1, MELS, 1),
        **_with_bias("downsample_conv.0", encoder.entry, MELS, 3),
        **_with_bias("downsample_conv.2", encoder.entry, encoder.entry, 4),
        **_spectrum("preprocessor_mel"),
        **_stack("encoder", encoder),
        **_stack("decoder", decoder),
        "out_conv.weight": (MELS, decoder.exit, 3),
    }
    for group in range(GROUPS):
        name = f"vq_layer.quantizer.rvqs.{group}"
        found |= _with_bias(f"{name}.project_in", DIGITS, encoder.exit // GROUPS)
        found |= _with_bias(f"{name}.project_out", encoder.exit // GROUPS, DIGITS)
    return found


def _vocos(hidden: int, inner: int) -> dict[str, Shape]:
    found: dict[str, Shape] = {
        **_spectrum("feature_extractor"),
        **_with_bias("backbone.embed", hidden, MELS, 7),
        **_with_bias("backbone.norm", hidden),
        **_with_bias("backbone.final_layer_norm", hidden),
        **_with_bias("head.out", 2 * BINS, hidden),
        "head.istft.window": (FFT,),
    }
    for index in range(VOCOS_BLOCKS):
        found |= _block(f"backbone.convnext.{index}", hidden, inner, "gamma")
    return found
