"""Random checkpoints in the released layout, to test and measure with: `sayflow weights random`.

They babble, audibly. What makes them fit for tests: layer scales of 0.3 to 1, so that every layer's context
reaches the sound; heads spread enough that draws differ; an end code that is never among the likeliest, so
that a sentence lasts as long as it is let. Each tensor's numbers depend on the seed and its name only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from engine.chattts import layout
from engine.chattts.layout import GptShape, Shape, Sizes, StackSize
from engine.chattts.weights import WeightsError

Size = Literal["tiny", "full"]

RATE: Final = 24_000
RMS: Final = 0.12
"""Of the sound, where 1 is full scale."""
_SPREAD: Final = 0.4
"""Standard deviation of the logarithm of a bin's magnitude."""
_RMS_PER_MAGNITUDE: Final = math.sqrt(2 * layout.BINS / 1.5) / layout.FFT
"""Of the inverse transform of bins of magnitude 1 and any phase; 1.5 is the sum of squares of the window over
hops of a quarter."""
_CODE_GAIN: Final = 2.5
"""Standard deviation of the logits of the codes."""
_BASE_TOKENS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RELEASED_BASE: Final = 21_128
_CHINESE: Final = (
    "的一是不了人我在有他这中大来上个国到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后"
    "小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长"
    "知民样现分将外但身些与高意进把法此实回二理美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最"
    "间新什打便位因重被走电四第门相次东政海口使教西再平真听世气信北少关并内加化由却代军产入先山五太水万市"
    "眼体别处总才场师书比住员九笑性通目华报立马命张活难神数件安表原车白应路期叫死常提感金何更反合放做系计"
    "早晨晚午吃喝茶咖啡苹果今朋友谢您请帮助测试语音句零六七八百千"
)


def write(root: Path, *, size: Size, seed: int, progress: Callable[[int, int], None] | None = None) -> None:
    """Fill a folder. `progress` gets the bytes written and those in all.

    Raises `WeightsError` rather than replace a file.
    """
    for file in layout.FILES:
        if (root / file).exists():
            raise WeightsError(f"{root / file} is there already; nothing was written")
        (root / file).parent.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(_RELEASED_BASE if size == "full" else None)
    text_tokens: int = tokenizer.get_vocab_size(with_added_tokens=True)
    sizes = layout.RELEASED if size == "full" else _tiny(text_tokens)
    assert text_tokens == sizes.text_tokens
    _write_json(root, sizes.gpt)
    tokenizer.save(str(root / layout.TOKENIZER))
    shapes = layout.shapes(sizes)
    total = sum(4 * math.prod(shape) for names in shapes.values() for shape in names.values())
    done = 0
    for file, names in shapes.items():
        tensors: dict[str, Tensor] = {}
        for name, shape in names.items():
            tensors[name] = _draw(f"{file}/{name}", name, shape, seed).contiguous()
            done += 4 * math.prod(shape)
            if progress is not None:
                progress(done, total)
        save_file(tensors, root / file, metadata={"format": "pt"})


def _tiny(text_tokens: int) -> Sizes:
    """Under 2 MB together."""
    return Sizes(
        gpt=GptShape(
            hidden=32,
            layers=2,
            heads=2,
            kv_heads=2,
            intermediate=64,
            eps=1e-6,
            theta=10_000.0,
            vocabulary=32,
        ),
        text_tokens=text_tokens,
        decoder=StackSize(entry=16, bottleneck=8, hidden=16, inner=64, exit=16),
        dvae_decoder=StackSize(entry=16, bottleneck=8, hidden=16, inner=64, exit=16),
        dvae_encoder=StackSize(entry=16, bottleneck=8, hidden=16, inner=64, exit=32),
        vocos_hidden=16,
        vocos_inner=48,
    )


# --- values ---------------------------------------------------------------------------------------------


def _draw(key: str, name: str, shape: Shape, seed: int) -> Tensor:
    """The values of one tensor; `key` tells it from those of the same name in other files."""
    if name.endswith("spectrogram.window") or name == "head.istft.window":
        return torch.hann_window(layout.FFT)
    if name.endswith("mel_scale.fb"):
        return mel_filters()
    digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    # A block's scale is named like a weight, and has one axis.
    is_scale = ".norm." not in name and len(shape) == 1 and "block" in name and name.endswith(".weight")
    if is_scale or name == "coef" or name.endswith(".gamma"):
        return torch.rand(shape, generator=generator) * 0.7 + 0.3
    normal = torch.randn(shape, generator=generator)
    if name.startswith("head.out."):
        return _spectrum_head(name, normal)
    if name.startswith("head_"):
        return _code_head(name, normal)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * normal
    if name.endswith("bias"):
        return 0.1 * normal
    if name.startswith("emb"):
        # Four embeddings of codes are added.
        return normal * (0.5 if "code" in name else 1.0)
    return normal / math.sqrt(math.prod(shape[1:]))


def _code_head(name: str, normal: Tensor) -> Tensor:
    """Weight norm: `original0` is the length of each row of `original1`."""
    if name.endswith("original1"):
        return normal
    gains = torch.full_like(normal, _CODE_GAIN)
    if "code" in name:
        # The logit of the end code is 0: half of the codes are likelier at every step.
        gains[-1] = 0.0
    return gains


def _spectrum_head(name: str, normal: Tensor) -> Tensor:
    """First the logarithms of the magnitudes, fewer towards the top as in speech, then the phases. The input
    has unit variance, so what comes before does not change the loudness."""
    bins = layout.BINS
    if name.endswith("weight"):
        normal[:bins] *= _SPREAD
        normal[bins:] *= 2.0
        return normal / math.sqrt(normal.shape[1])
    hertz = torch.arange(bins) * (RATE / layout.FFT)
    magnitudes = 1 / (1 + hertz / 1500)
    power = float(magnitudes.square().mean()) * math.exp(2 * _SPREAD**2)
    magnitudes *= RMS / _RMS_PER_MAGNITUDE / math.sqrt(power)
    return torch.cat([magnitudes.log(), normal[bins:]])


def mel_filters() -> Tensor:
    """Triangles [513, 100] on the HTK mel scale from 0 Hz to half the rate, each of height 1."""

    def to_mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    edges = torch.linspace(0, to_mel(RATE / 2), layout.MELS + 2, dtype=torch.float64)
    corners = 700 * (10 ** (edges / 2595) - 1)
    hertz = torch.linspace(0, RATE / 2, layout.BINS, dtype=torch.float64)[:, None]
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising = (hertz - low) / (middle - low)
    falling = (high - hertz) / (high - middle)
    return torch.minimum(rising, falling).clamp_min(0).float()


# --- tokenizer and configuration --------------------------------------------------------------------------


def _tokenizer(base: int | None) -> Tokenizer:
    """As the release's: BERT's rules, the special tokens last, and, a trap, fixed padding and truncation."""
    printable = [chr(code) for code in range(33, 127) if not "A" <= chr(code) <= "Z"]
    letters = [character for character in printable if character.isalnum()]
    pieces = [*_BASE_TOKENS, *printable, *(f"##{letter}" for letter in letters)]
    pieces += ["hello", "world", "the", "and", "is", "you", "##ing", "##er", "##ed"]
    pieces += ["，", "。", "？", "！", "、", "：", "；", "“", "”", *dict.fromkeys(_CHINESE)]
    if base is not None:
        pieces += [f"[unused{index}]" for index in range(base - len(pieces))]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    assert len(vocabulary) == len(pieces)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, handle_chinese_chars=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = (*_BASE_TOKENS, *layout.SPECIAL_TOKENS)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding(length=256)
    return tokenizer


def _write_json(root: Path, gpt: GptShape) -> None:
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    names: dict[str, object] = {f"{role}_token": token for role, token in roles.items()}
    names["additional_special_tokens"] = list(layout.SPECIAL_TOKENS)
    config = {
        "architectures": ["LlamaModel"],
        "model_type": "llama",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": gpt.hidden,
        "intermediate_size": gpt.intermediate,
        "max_position_embeddings": 4096,
        "num_attention_heads": gpt.heads,
        "num_hidden_layers": gpt.layers,
        "num_key_value_heads": gpt.kv_heads,
        "rms_norm_eps": gpt.eps,
        "rope_scaling": None,
        "rope_theta": gpt.theta,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": gpt.vocabulary,
    }
    tokenizer_config = {
        **names,
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "tokenize_chinese_chars": True,
        "model_max_length": 1_000_000,
    }
    for file, content in (
        (layout.GPT_CONFIG, config),
        (layout.SPECIAL_TOKENS_MAP, names),
        (layout.TOKENIZER_CONFIG, tokenizer_config),
    ):
        (root / file).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
