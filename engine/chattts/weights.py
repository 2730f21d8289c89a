"""A folder of weights in the released layout, read strictly into memory.

Every fault is a `WeightsError` that names the file and the tensor. Only safetensors and JSON are read:
nothing is unpickled, changed, deleted or downloaded. The nets (`gpt`, `vocoder`) take their tensors from the
`Checkpoint`. Imports nothing else of the engine but `layout`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from engine.chattts import layout
from engine.chattts.layout import GptShape, Shape
from engine.errors import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Checkpoint", "GptShape", "Header", "WeightsError", "digests", "fingerprint", "load", "survey"]

_DTYPE: Final = "F32"
_MAX_JSON: Final = 64 << 20
"""Bytes; the released tokenizer.json has under 1 MiB."""


class WeightsError(ModelMissing):
    """The weights cannot be used; the message names the file, and the tensor where there is one."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors, named exactly as in the files, fp32, in memory of their own (no file is mapped).

    `gpt` lacks `embed_tokens.weight`, which nothing uses.
    """

    root: Path
    gpt_shape: GptShape
    embed: dict[str, torch.Tensor]
    gpt: dict[str, torch.Tensor]
    decoder: dict[str, torch.Tensor]
    dvae: dict[str, torch.Tensor]
    vocos: dict[str, torch.Tensor]
    tokenizer: Path
    fingerprint: str
    """SHA-256 over every file that is read: equal for equal weights, wherever they lie."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a folder holds, without its values."""

    gpt_shape: GptShape
    tensors: dict[PurePosixPath, dict[str, Shape]]


def load(root: Path, *, without: Collection[PurePosixPath] = ()) -> Checkpoint:
    """Read the folder, its tensors but for those of the files named. Raises `WeightsError` at the first
    fault."""
    header = survey(root)
    tensors = {
        file: {} if file in without else _values(root, file, names) for file, names in header.tensors.items()
    }
    return Checkpoint(
        root=root,
        gpt_shape=header.gpt_shape,
        embed=tensors[layout.EMBED],
        gpt=tensors[layout.GPT],
        decoder=tensors[layout.DECODER],
        dvae=tensors[layout.DVAE],
        vocos=tensors[layout.VOCOS],
        tokenizer=root / layout.TOKENIZER,
        fingerprint=fingerprint(digests(root)),
    )


def survey(root: Path) -> Header:
    """Names, shapes, dtypes and tokens of a folder, held against the layout. Raises `WeightsError`."""
    if not root.is_dir():
        raise WeightsError(f"{root}: no such folder of weights")
    for file in layout.READ_FILES:
        _present(root, file)
    gpt_shape = _gpt_shape(root)
    found = {file: _shapes(root, file) for file in layout.TENSOR_FILES}
    try:
        sizes = layout.infer(gpt_shape, found)
    except layout.MissingTensor as error:
        shape = found[error.file].get(error.name)
        was = "it is missing" if shape is None else f"it has shape {_text(shape)}"
        raise WeightsError(f"{error.file}: {error.name}: expected {error.axes} axes; {was}") from None
    for file, expected in layout.shapes(sizes).items():
        _compare(file, expected, found[file])
    _check_tokens(root, sizes.text_tokens)
    return Header(gpt_shape, found)


def digests(root: Path) -> dict[PurePosixPath, str]:
    """SHA-256 of every file that is read."""
    found: dict[PurePosixPath, str] = {}
    for file in layout.READ_FILES:
        with _faults(file), (root / file).open("rb") as source:
            found[file] = hashlib.file_digest(source, "sha256").hexdigest()
    return found


def fingerprint(found: Mapping[PurePosixPath, str]) -> str:
    """One digest of all digests."""
    return hashlib.sha256("".join(f"{file} {found[file]}\n" for file in sorted(found)).encode()).hexdigest()


# --- files ----------------------------------------------------------------------------------------------


@contextmanager
def _faults(file: PurePosixPath) -> Iterator[None]:
    """What goes wrong inside, as a `WeightsError` that names the file."""
    try:
        yield
    except (OSError, SafetensorError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WeightsError(f"{file}: {error}") from error


def _present(root: Path, file: PurePosixPath) -> None:
    path = root / file
    if path.is_file():
        return
    others = (path.with_suffix(suffix) for suffix in (".pt", ".pth", ".bin"))
    pickled = [other.name for other in others if other.exists()]
    hint = f"; {pickled[0]} is pickled, which is never read" if pickled else ""
    raise WeightsError(f"{file}: the file is missing from {root}{hint}")


def _refuse_pickle(path: Path, file: PurePosixPath) -> None:
    """A pickle under another name. A safetensors file starts with the length of its header, 8 bytes."""
    with path.open("rb") as source:
        start = source.read(8)
    # 0x80 and a protocol number is a bare pickle; as a length, that header would have to end in NULs.
    if start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[2:8] != bytes(6)):
        raise WeightsError(f"{file}: this is a pickle (a PyTorch .pt file), which is never read")


def _shapes(root: Path, file: PurePosixPath) -> dict[str, Shape]:
    """Every tensor's shape, from the header alone. The library also holds the header against the file's size,
    so a truncated file ends here."""
    path = root / file
    with _faults(file):
        _refuse_pickle(path, file)
        with safe_open(path, framework="pt") as source:
            found: dict[str, Shape] = {}
            for name in source.keys():  # noqa: SIM118  (it is no mapping)
                part = source.get_slice(name)
                if part.get_dtype() != _DTYPE:
                    raise WeightsError(
                        f"{file}: {name}: expected float32 ({_DTYPE}), found {part.get_dtype()}"
                    )
                found[name] = tuple(part.get_shape())
    return found


def _compare(file: PurePosixPath, expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise WeightsError(f"{file}: {name}: expected shape {_text(shape)}; it is missing")
        if found[name] != shape:
            raise WeightsError(f"{file}: {name}: expected shape {_text(shape)}, found {_text(found[name])}")
    if extra := sorted(set(found) - set(expected)):
        raise WeightsError(
            f"{file}: {extra[0]}: found shape {_text(found[extra[0]])}, expected no tensor of this name"
            + (f" (nor {len(extra) - 1} others)" if len(extra) > 1 else "")
        )


def _values(root: Path, file: PurePosixPath, names: Mapping[str, Shape]) -> dict[str, torch.Tensor]:
    values: dict[str, torch.Tensor] = {}
    with _faults(file), safe_open(root / file, framework="pt") as source:
        for name in names:
            if name == layout.UNUSED:
                continue
            # A mapped file that is cut while we serve would end the process with SIGBUS.
            value: torch.Tensor = source.get_tensor(name).clone()
            if not bool(torch.isfinite(value).all()):
                raise WeightsError(f"{file}: {name}: it holds values that are no finite numbers")
            values[name] = value
    return values


def _text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


# --- JSON -----------------------------------------------------------------------------------------------


class _Config(msgspec.Struct, frozen=True):
    """The part of `config.json` that matters; the rest is ignored."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: Any = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False


class _AddedToken(msgspec.Struct, frozen=True):
    id: int
    content: str


class _Tokenizer(msgspec.Struct, frozen=True):
    added_tokens: list[_AddedToken]
    model: dict[str, Any]


def _read_json(root: Path, file: PurePosixPath) -> bytes:
    path = root / file
    if path.stat().st_size > _MAX_JSON:
        raise WeightsError(f"{file}: it is larger than {_MAX_JSON >> 20} MiB")
    return path.read_bytes()


def _gpt_shape(root: Path) -> GptShape:
    file = layout.GPT_CONFIG
    with _faults(file):
        config = msgspec.json.decode(_read_json(root, file), type=_Config)
    heads = config.num_attention_heads
    kv_heads = heads if config.num_key_value_heads is None else config.num_key_value_heads
    if min(config.hidden_size, config.num_hidden_layers, heads, kv_heads, config.intermediate_size) < 1:
        raise WeightsError(f"{file}: every size must be at least 1")
    if config.hidden_size % (2 * heads) or heads % kv_heads:
        raise WeightsError(
            f"{file}: hidden_size {config.hidden_size} does not split into {heads} heads of even width"
            f" that share {kv_heads} heads of keys"
        )
    plain = (
        config.rope_scaling is None
        and config.hidden_act == "silu"
        and not config.attention_bias
        and not config.mlp_bias
        and config.head_dim in (None, config.hidden_size // heads)
        and config.rms_norm_eps > 0
        and config.rope_theta > 1
    )
    if not plain:
        raise WeightsError(f"{file}: not ChatTTS's plain LLaMA (silu, no biases, unscaled rotary positions)")
    return GptShape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=config.intermediate_size,
        eps=config.rms_norm_eps,
        theta=config.rope_theta,
        vocabulary=config.vocab_size,
    )


def _check_tokens(root: Path, text_tokens: int) -> None:
    """The special tokens are there by name, and every id has a row in the embedding."""
    file = layout.TOKENIZER
    with _faults(file):
        tokenizer = msgspec.json.decode(_read_json(root, file), type=_Tokenizer)
    added = {token.content: token.id for token in tokenizer.added_tokens}
    for name in layout.SPECIAL_TOKENS:
        if name not in added:
            raise WeightsError(f"{file}: the special token {name} is missing")
    vocabulary = tokenizer.model.get("vocab")
    if not isinstance(vocabulary, dict):
        raise WeightsError(f"{file}: model.vocab is missing")
    ids = [*added.values(), *vocabulary.values()]
    if not all(isinstance(token, int) and 0 <= token < text_tokens for token in ids):
        raise WeightsError(
            f"{file}: it has a token outside 0 to {text_tokens - 1}, the rows of emb_text.weight"
        )
