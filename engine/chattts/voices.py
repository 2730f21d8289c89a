"""The voices of the ChatTTS engine: a bundled set of random ones, and the operator's own from a folder.

A voice is a speaker (an embedding), or a spoken sample (its codes and its text). In the folder it is two
files, `<key>.json` and `<key>.safetensors`; the JSON comes last and holds a digest of the whole, so half a
voice is none. The folder is read once. Clients name keys of the loaded map, which are never made into paths.
Used by `model`; imports of the engine only `speaker` and the errors.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from engine.chattts import speaker
from engine.chattts.speaker import BadVoice

log = structlog.get_logger(__name__)

BUNDLED: Final = ("aspen", "birch", "cedar", "hazel", "linden", "maple", "rowan", "willow")
"""Keys of the bundled voices; the place in this list is the seed, so it only ever grows at its end."""
DEVIATION: Final = 3.75
"""Of each value of a random speaker, about 0: as among the released speakers on average. The engine
normalises a speaker, so that only the direction is heard."""
MAX_VOICES: Final = 1000
MAX_FILE: Final = 1 << 20
"""Bytes of one file of a voice; real ones have under 20 KiB."""
MAX_TEXT: Final = 120
"""Characters of a sample's text, which lies in the prompt of every sentence."""
_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")

Source = Literal["bundled", "random", "imported", "cloned"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Voice:
    """Whose voice an utterance has; its values are checked."""

    id: str
    name: str
    source: Source
    embedding: Tensor | None
    """[H], fp32, not normalised."""
    sample_codes: Tensor | None
    """[4, T], int64, each 0..624."""
    sample_text: str | None
    digest: str
    """SHA-256 of what is heard: equal for equal voices whatever their names, so that a cache may go by it."""


class VoiceStore:
    """Bundled voices and those of a folder, for weights of one hidden size."""

    def __init__(self, folder: Path | None, *, hidden: int) -> None:
        """A voice that cannot be used is logged and left out. A folder that is not there holds no voices."""
        self.hidden = hidden
        self._folder = folder
        self.faults: dict[str, str] = {}
        """Why a voice of the folder was left out, by its key."""
        self._voices = {
            key: random_voice(key, seed=seed, hidden=hidden, source="bundled")
            for seed, key in enumerate(BUNDLED)
        }
        if folder is not None and folder.is_dir():
            self._read(folder)

    def list(self) -> tuple[Voice, ...]:
        """The bundled voices, then the others by key."""
        return tuple(self._voices.values())

    def find(self, key: str) -> Voice | None:
        """The voice, if there is one of this key. Any string may be asked for."""
        return self._voices.get(key)

    def add(self, voice: Voice) -> None:
        """Write a voice into the folder. Raises `BadVoice` where its key is taken, or there is no folder."""
        key = check_key(voice.id)
        if self._folder is None:
            raise BadVoice("no folder of voices was named (--voices DIR)")
        if key in self._voices or (self._folder / f"{key}.json").exists():
            raise BadVoice(f"there is a voice {key!r} already")
        if len(self._voices) >= MAX_VOICES:
            raise BadVoice(f"there are {MAX_VOICES} voices already")
        if voice.embedding is not None:
            speaker.check_embedding(voice.embedding.numpy(), self.hidden)
        _write(self._folder, key, voice)
        self._voices[key] = voice

    def _read(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.json"))[:MAX_VOICES]:
            try:
                if path.stem in self._voices:
                    raise BadVoice("a bundled voice has this key")
                self._voices[path.stem] = _load(folder, check_key(path.stem), self.hidden)
            except (BadVoice, OSError) as error:
                self.faults[path.stem] = str(error)
                log.warning("voice_left_out", voice=path.stem, reason=str(error))


def check_key(key: str) -> str:
    """The key itself. Raises `BadVoice` unless it is 1 to 48 of a-z, 0-9, `-` and `_`, no mark first."""
    if _KEY.fullmatch(key) is None:
        raise BadVoice(
            "the key of a voice is 1 to 48 of a-z, 0-9, - and _, and starts with none of the marks"
        )
    return key


# --- where voices come from -----------------------------------------------------------------------------


def random_voice(key: str, *, seed: int, hidden: int, source: Source = "random") -> Voice:
    """A speaker drawn by the seed: the same values on every machine, whatever the libraries' versions."""
    # Sums of 12 uniform numbers are normal enough. Whole numbers up to here, and one rounding each from here
    # on, so that no library's logarithm can tell two machines apart.
    drawn = hashlib.shake_256(f"sayflow voice {seed} {hidden}".encode()).digest(24 * hidden)
    sums = np.frombuffer(drawn, "<u2").reshape(hidden, 12).sum(axis=1, dtype=np.int64)
    values = (sums / 65536 - 6.0) * DEVIATION
    return _voice(key, source=source, embedding=values.astype(np.float16).astype(np.float32))


def imported_voice(key: str, text: str, *, hidden: int, sample_text: str = "") -> Voice:
    """A voice from its text form, of either kind. Raises `BadVoice`."""
    text = text.strip()
    if speaker.is_sample(text):
        codes = speaker.decode_codes(text)
        return _voice(key, source="imported", codes=codes, sample_text=_text(sample_text))
    return _voice(key, source="imported", embedding=speaker.decode_embedding(text, hidden))


def cloned_voice(key: str, codes: NDArray[np.integer], sample_text: str) -> Voice:
    """A voice from the codes [4, T] of a clip and what is said in it. Raises `BadVoice`."""
    return _voice(key, source="cloned", codes=speaker.check_codes(codes), sample_text=_text(sample_text))


def _text(text: str) -> str:
    text = " ".join(text.split())
    if not 1 <= len(text) <= MAX_TEXT:
        raise BadVoice(f"a sample needs its text, of 1 to {MAX_TEXT} characters")
    return text


def _voice(
    key: str,
    *,
    source: Source,
    name: str | None = None,
    embedding: NDArray[np.float32] | None = None,
    codes: NDArray[np.int64] | None = None,
    sample_text: str | None = None,
) -> Voice:
    if (embedding is None) == (codes is None):
        raise BadVoice("a voice is either a speaker or a sample")
    digest = hashlib.sha256()
    if embedding is not None:
        digest.update(b"speaker" + embedding.astype("<f4").tobytes())
    if codes is not None:
        digest.update(b"sample" + codes.astype("<u2").tobytes() + (sample_text or "").encode())
    return Voice(
        id=key,
        name=key.replace("-", " ").replace("_", " ").capitalize() if name is None else name,
        source=source,
        embedding=None if embedding is None else torch.from_numpy(embedding.copy()),
        sample_codes=None if codes is None else torch.from_numpy(codes.copy()),
        sample_text=sample_text,
        digest=digest.hexdigest(),
    )


# --- files ----------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`<key>.json`."""

    format: Literal["sayflow-voice/1"] = "sayflow-voice/1"
    name: str
    source: Source
    sample_text: str | None
    digest: str


def _write(folder: Path, key: str, voice: Voice) -> None:
    tensors: dict[str, Tensor] = {}
    if voice.embedding is not None:
        tensors["embedding"] = voice.embedding
    if voice.sample_codes is not None:
        tensors["codes"] = voice.sample_codes
    record = _Record(name=voice.name, source=voice.source, sample_text=voice.sample_text, digest=voice.digest)
    folder.mkdir(parents=True, exist_ok=True)
    # A crash between the two leaves tensors without a record, which the next voice of that key replaces.
    _replace(folder / f"{key}.safetensors", save_tensors(tensors))
    _replace(folder / f"{key}.json", msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def _replace(path: Path, data: bytes) -> None:
    """The whole file or none of it."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _load(folder: Path, key: str, hidden: int) -> Voice:
    try:
        record = msgspec.json.decode(_bounded(folder / f"{key}.json"), type=_Record)
        tensors = load_tensors(_bounded(folder / f"{key}.safetensors"))
    except (msgspec.MsgspecError, SafetensorError, UnicodeDecodeError) as error:
        raise BadVoice(f"the files cannot be read: {error}") from error
    if set(tensors) not in ({"embedding"}, {"codes"}):
        raise BadVoice(f"the tensors are {sorted(tensors)}, expected embedding or codes")
    embedding, codes = tensors.get("embedding"), tensors.get("codes")
    if embedding is not None and embedding.dtype != torch.float32:
        raise BadVoice(f"the embedding is of {embedding.dtype}, expected fp32")
    if codes is not None and codes.dtype != torch.int64:
        raise BadVoice(f"the codes are of {codes.dtype}, expected int64")
    voice = _voice(
        key,
        source=record.source,
        name=record.name,
        embedding=None if embedding is None else speaker.check_embedding(embedding.numpy(), hidden),
        codes=None if codes is None else speaker.check_codes(codes.numpy()),
        sample_text=None if codes is None else _text(record.sample_text or ""),
    )
    if voice.digest != record.digest:
        raise BadVoice("the two files do not belong together, or one was changed")
    return voice


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise BadVoice(f"{path.name} has more than {MAX_FILE} bytes")
    return data
