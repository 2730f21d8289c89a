"""Control messages between a gateway and an engine, and their framing on the Unix socket.

The gateway imports this module, so it needs the standard library and msgspec only. Sound never travels here:
it lies in the ring (`engine.ring`), and messages carry positions in it. Positions count samples of one
utterance from 0. A frame is a u32 length, a version byte and one msgpack array whose first item is the tag.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

VERSION: Final = 1
MAX_FRAME: Final = 1 << 20
"""Bytes; a longer frame means that the peer is broken, and ends the link."""


class LinkError(Exception):
    """The peer sent something that no peer of this version would."""


class Voice(Struct, frozen=True, array_like=True):
    """A voice that an engine offers; `id` is a key of its map of voices, never a path."""

    id: str
    name: str
    languages: tuple[str, ...]


class Parameters(Struct, frozen=True, array_like=True):
    """How to speak; `None` leaves the choice to the engine."""

    speed: float = 1.0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    oral: int | None = None
    laugh: int | None = None
    pause: int | None = None
    tags: bool = False
    """`[uv_break]`, `[lbreak]` and `[laugh]` in the text act instead of being read."""
    refine: bool = False
    """The model first writes breaks and laughs into the text itself; for engines that can."""


class Span(Struct, frozen=True, array_like=True):
    """Text of one language; `[start, end)` is its place in the client's own text."""

    text: str
    language: str
    start: int
    end: int


# --- gateway to engine ------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """Answers `Ready`; the ring's file descriptor travels beside it (`SCM_RIGHTS`)."""

    ring_samples: int


class Open(Struct, frozen=True, array_like=True, tag="open"):
    """Ask for a slot. `utterance` is a number of the gateway's, unique on the link."""

    utterance: int
    voice: str
    parameters: Parameters
    seed: int


class Submit(Struct, frozen=True, array_like=True, tag="submit"):
    """Speak a sentence after those before it. `resume`: go on from this `Checkpoint` of it; the sound comes
    again from the sentence's beginning, and is that of the first time where the model is exact."""

    utterance: int
    sentence: int
    spans: tuple[Span, ...]
    resume: bytes = b""


class Close(Struct, frozen=True, array_like=True, tag="close"):
    """No more sentences: the engine answers `Closed` when the last one is delivered."""

    utterance: int


class Cancel(Struct, frozen=True, array_like=True, tag="cancel"):
    """Stop at once: the engine answers `Closed` when the slot is free."""

    utterance: int


class Credit(Struct, frozen=True, array_like=True, tag="credit"):
    """The ring is free up to `read_pos`; the listener is at `playhead`. Both in samples."""

    utterance: int
    read_pos: int
    playhead: int


ToEngine = Hello | Open | Submit | Close | Cancel | Credit

# --- engine to gateway ------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    """The engine is warm. `step_s[i]`: seconds a model step takes at a batch of i + 1, as measured.
    `pid`: whom to kill when it hangs."""

    model: str
    sample_rate: int
    slots: int
    max_steps: int
    max_chars: int
    default_voice: str
    voices: tuple[Voice, ...]
    step_s: tuple[float, ...]
    pid: int


class Opened(Struct, frozen=True, array_like=True, tag="opened"):
    """The utterance has a slot; (slot, generation) names its part of the ring from now on."""

    utterance: int
    slot: int
    generation: int


class Block(Struct, frozen=True, array_like=True):
    """Samples up to `write_pos` are in the ring; `crc` is the CRC-32 of the block's bytes."""

    utterance: int
    generation: int
    write_pos: int
    crc: int


class Audio(Struct, frozen=True, array_like=True, tag="audio"):
    """One step's blocks, in order of writing."""

    blocks: tuple[Block, ...]


class Checkpoint(Struct, frozen=True, array_like=True, tag="checkpoint"):
    """Opaque state of a sentence, sent before the audio that depends on it."""

    utterance: int
    sentence: int
    data: bytes


class SentenceDone(Struct, frozen=True, array_like=True, tag="sentence_done"):
    """The sentence ends at `end_pos`; `truncated` where it outran a limit, `unsaid` where nothing of it can
    be said by the model."""

    utterance: int
    sentence: int
    end_pos: int
    truncated: bool
    unsaid: bool


class Closed(Struct, frozen=True, array_like=True, tag="closed"):
    """The utterance is over and its slot is free."""

    utterance: int


class Failed(Struct, frozen=True, array_like=True, tag="failed"):
    """The utterance failed and holds no slot. `code` is one of `engine.errors`."""

    utterance: int
    code: str
    message: str


class Progress(Struct, frozen=True, array_like=True, tag="progress"):
    """A heartbeat. The running model call says that it ends by `busy_until` (monotonic clock, s; 0: idle).
    `figures`: of the model's caches and of the scheduler, by name."""

    busy_until: float
    figures: dict[str, float] = {}


FromEngine = Ready | Opened | Audio | Checkpoint | SentenceDone | Closed | Failed | Progress

# --- framing ----------------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()


def encode(message: ToEngine | FromEngine) -> bytes:
    """One frame."""
    body = _encoder.encode(message)
    return (len(body) + 1).to_bytes(4, "little") + VERSION.to_bytes(1, "little") + body


class FrameBuffer:
    """Cuts a byte stream into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes. Raises `LinkError` for a bad length or version."""
        self._buffer += data
        bodies: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= 5:
            size = int.from_bytes(self._buffer[at : at + 4], "little")
            if not 1 <= size <= MAX_FRAME:
                raise LinkError(f"frame of {size} bytes")
            if self._buffer[at + 4] != VERSION:
                raise LinkError(f"frame of version {self._buffer[at + 4]}, expected {VERSION}")
            if len(self._buffer) - at < 4 + size:
                break
            bodies.append(bytes(self._buffer[at + 5 : at + 4 + size]))
            at += 4 + size
        del self._buffer[:at]
        return bodies


_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def decode_to_engine(body: bytes) -> ToEngine:
    """A message of the gateway's. Raises `LinkError` for anything else."""
    try:
        return _to_engine.decode(body)
    except msgspec.MsgspecError as error:
        raise LinkError(str(error)) from error


def decode_from_engine(body: bytes) -> FromEngine:
    """A message of the engine's. Raises `LinkError` for anything else."""
    try:
        return _from_engine.decode(body)
    except msgspec.MsgspecError as error:
        raise LinkError(str(error)) from error
