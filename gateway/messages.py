"""The messages of `sayflow.v1`: what may cross the WebSocket, as types.

The JSON schema that the server publishes is generated from these types, so the two cannot disagree. Offsets
count Unicode code points of the client's own text; times are milliseconds of audio; `null` means absent.
This module knows no connection and no state: `protocol` says when a message is legal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

SUBPROTOCOL: Final = "sayflow.v1"
FRAME_MS: Final = 20
"""Audio in one packet, ms."""
TICKS_PER_MS: Final = 48
"""Timestamps run at 48 kHz whatever the sample rate, as in RFC 7587."""

MAX_DROPPED: Final = 256
"""Places that one message lists as not said; what is past them is not listed."""
MIN_CHUNK: Final = 50
MAX_CHUNK: Final = 500
"""Characters of a segment, whatever is asked for; the engine may take fewer."""

UtteranceId = Annotated[str, Meta(pattern=r"^[!-~]{1,64}(?![\s\S])")]
"""1 to 64 visible ASCII characters, chosen by the client, new for each utterance of a socket."""
Language = Literal["auto", "zh", "en"]
SpokenIn = Literal["zh", "en", "mixed"]
Format = Literal["opus", "pcm"]
SampleRate = Literal[8000, 16000, 24000, 48000]
Milliseconds = Annotated[float, Meta(ge=0.0, le=86_400_000.0)]


class Auth(Struct, tag="auth", frozen=True):
    """The first message where the server wants a key and the handshake carried none."""

    token: Annotated[str, Meta(max_length=4096)]


class Style(Struct, frozen=True, kw_only=True, rename={"pause": "break"}):
    """How an engine that knows styles speaks (ChatTTS); others ignore it."""

    oral: Annotated[int, Meta(ge=0, le=9)] | None = None
    laugh: Annotated[int, Meta(ge=0, le=2)] | None = None
    pause: Annotated[int, Meta(ge=0, le=7)] | None = None
    refine: bool | None = None


Word = Annotated[str, Meta(min_length=1, max_length=64)]
Saying = Annotated[str, Meta(min_length=1, max_length=256)]
Sayings = Annotated[dict[Word, Saying], Meta(max_length=100)]
Words = Annotated[dict[Word, Saying | Sayings], Meta(max_length=100)]
"""At most 100 words, and under `zh` and `en` as many each, for texts mainly in that language."""


class Start(Struct, tag="start", frozen=True, kw_only=True):
    """Begin an utterance: text that is spoken as one stream of sound."""

    utterance: UtteranceId
    voice: Annotated[str, Meta(max_length=64)] | None = None
    language: Language | None = None
    format: Format | None = None
    sample_rate: SampleRate | None = None
    bundle: Annotated[int, Meta(ge=1, le=25)] | None = None
    """Packets in one binary message; fewer where the lead is too short for them."""
    pace: Literal["realtime", "fast"] | None = None
    """`fast`: as fast as it is made and taken, for a file; `realtime`: never over the lead limit."""
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**53 - 1)] | Literal["random"] | None = None
    temperature: Annotated[float, Meta(ge=0.01, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=625)] | None = None
    style: Style | None = None
    tags: bool | None = None
    """`[uv_break]`, `[lbreak]` and `[laugh]` in the text act; an engine without them is silent there."""
    code: Literal["skip", "read"] | None = None
    """Blocks of code in the text. Inline code is always read."""
    chunk_size: Annotated[int, Meta(ge=MIN_CHUNK, le=MAX_CHUNK)] | None = None
    """Characters of a segment: 50 to 150 where somebody waits, up to 500 where nobody does."""
    lexicon: Words | None = None
    """How words are said, beside the settings' own and before them: `{"nginx": "engine x"}`."""
    alignment: Literal["none", "chars"] | None = None
    """`chars`: an `alignment` event for each sentence."""


class Text(Struct, tag="text", frozen=True):
    """More text, cut anywhere, as a language model emits it."""

    utterance: UtteranceId
    text: str


class Flush(Struct, tag="flush", frozen=True):
    """Speak what has been received, though the sentence is not at its end."""

    utterance: UtteranceId


class End(Struct, tag="end", frozen=True):
    """No more text; the utterance ends as `done` once it was heard."""

    utterance: UtteranceId


class Cancel(Struct, tag="cancel", frozen=True):
    """Fall silent now (barge-in). `played_ms`: what the listener had heard, if the client knows."""

    utterance: UtteranceId
    played_ms: Milliseconds | None = None


class Played(Struct, tag="played", frozen=True):
    """How much of the utterance the listener has heard; the server paces by it."""

    utterance: UtteranceId
    ms: Milliseconds


class Ping(Struct, tag="ping", frozen=True):
    """A heartbeat for clients that cannot send WebSocket pings, such as browsers."""


ClientMessage = Auth | Start | Text | Flush | End | Cancel | Played | Ping


class Limits(Struct, frozen=True, kw_only=True):
    """What the server accepts; a test holds each at its limit and one past it."""

    message_bytes: int
    text_chars: int
    pending_chars: int
    utterances: int
    lead_ms: int
    write_deadline_s: float
    sentence_chars: int


class VoiceInfo(Struct, frozen=True, kw_only=True):
    """A voice one may ask for by `id`."""

    id: str
    name: str
    languages: tuple[str, ...]


class Hello(Struct, tag="hello", frozen=True, kw_only=True):
    """The server's first message (after `auth`, where a key is needed)."""

    session: str
    limits: Limits
    voices: tuple[VoiceInfo, ...]
    default_voice: str
    engines: dict[str, str]
    """Engine links by name, with their state: `starting`, `ready`, `stalled` or `lost`."""


class Started(Struct, tag="started", frozen=True, kw_only=True):
    """The utterance was accepted; binary messages name it by `stream`."""

    utterance: str
    stream: int
    voice: str
    seed: int
    format: Format
    sample_rate: int
    frame_ms: int = FRAME_MS


class SentenceEvent(Struct, tag="sentence", frozen=True, kw_only=True):
    """The audio that follows speaks `[start, end)` of the client's text, from `start_ms` of the stream on."""

    utterance: str
    index: int
    start: int
    end: int
    start_ms: int
    sentence: int = 0
    """A long sentence is spoken as several segments, and these have its number in common."""
    language: SpokenIn = "en"
    """Of what is said."""
    dropped: tuple[tuple[int, int], ...] = ()
    """Places of it that are not said, the first `MAX_DROPPED`; marks and blanks are not listed."""


class Alignment(Struct, tag="alignment", frozen=True, kw_only=True):
    """When each character of a sentence is heard; sent once all its sound is made, after its `sentence`."""

    utterance: str
    index: int
    chars: tuple[tuple[int, int, int, int], ...]
    """(start, end, start_ms, end_ms): a place of the client's text, one character or what is read as one, and
    its time in the stream. In order; what is not said is not there."""
    estimated: bool = True
    """Only the sentence's own length is measured; within it, each character has its likely share."""


class Done(Struct, tag="done", frozen=True, kw_only=True):
    """All was spoken. Terminal. `pace: realtime`: sent when the listener has heard it."""

    utterance: str
    duration_ms: int
    truncated: bool = False
    """A sentence outran the engine's limit and was cut."""
    dropped: tuple[tuple[int, int], ...] = ()
    """Places of the text that lie in no sentence, since nothing of them can be said: the first `MAX_DROPPED`.
    With the spans of the `sentence` events they make up the whole text."""


class Cancelled(Struct, tag="cancelled", frozen=True, kw_only=True):
    """The utterance was cancelled. Terminal. Both texts are the client's own, cut where the sound was."""

    utterance: str
    played_ms: int
    text_spoken: str
    text_remaining: str


class Error(Struct, tag="error", frozen=True, kw_only=True, omit_defaults=True):
    """Something failed. With `utterance` it is that utterance's terminal event; without, nothing ended."""

    code: str
    message: str
    utterance: str | None = None
    about: str | None = None
    """The utterance id that a refused message named, where that utterance goes on untouched."""
    retry_after_ms: int | None = None


class Pong(Struct, tag="pong", frozen=True):
    """Answers `ping`."""


Terminal = Done | Cancelled | Error
ServerMessage = Hello | Started | SentenceEvent | Alignment | Done | Cancelled | Error | Pong

_encoder = msgspec.json.Encoder()


def encode(message: ServerMessage) -> str:
    """One JSON text message."""
    return _encoder.encode(message).decode()


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of both directions, generated from the types above."""
    (client, server), components = msgspec.json.schema_components(
        (ClientMessage, ServerMessage), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SUBPROTOCOL,
        "$defs": {**components, "ClientMessage": client, "ServerMessage": server},
        "oneOf": [{"$ref": "#/$defs/ClientMessage"}, {"$ref": "#/$defs/ServerMessage"}],
    }


# --- binary audio ---------------------------------------------------------------------------------------

AUDIO_VERSION: Final = 1
LIVE: Final = 0
CACHE: Final = 1
FALLBACK: Final = 2
RESET: Final = 0x04
"""The first packet starts a sentence: decode it with a fresh decoder state."""
LAST: Final = 0x08
"""No audio follows on this stream. Such a message may carry no packet."""

_HEADER: Final = struct.Struct("<BBHIIHH")
"""version u8, flags u8 (bits 0-1: source), stream u16, sequence u32, timestamp u32, packets u16, zero u16."""


class AudioMessage(Struct, frozen=True, kw_only=True):
    """One binary message: a 16-byte little-endian header, then packets, each behind a u16 length.

    `sequence` counts messages of the stream from 0; `timestamp` is the first packet's place on the stream's
    timeline in 48 kHz ticks. A packet is one Opus packet, or `FRAME_MS` of little-endian int16 mono PCM.
    """

    stream: int
    sequence: int
    timestamp: int
    packets: Sequence[bytes]
    source: int = LIVE
    reset: bool = False
    last: bool = False


def encode_audio(message: AudioMessage) -> bytes:
    """The bytes of a binary message."""
    flags = message.source | (RESET if message.reset else 0) | (LAST if message.last else 0)
    parts = [
        _HEADER.pack(
            AUDIO_VERSION, flags, message.stream, message.sequence, message.timestamp, len(message.packets), 0
        )
    ]
    for packet in message.packets:
        parts.append(len(packet).to_bytes(2, "little"))
        parts.append(packet)
    return b"".join(parts)


def decode_audio(data: bytes) -> AudioMessage:
    """The inverse of `encode_audio`, for clients. Raises `ValueError` for anything it would not have made."""
    if len(data) < _HEADER.size:
        raise ValueError(f"audio message of {len(data)} bytes is shorter than its {_HEADER.size}-byte header")
    version, flags, stream, sequence, timestamp, count, _ = _HEADER.unpack_from(data)
    if version != AUDIO_VERSION:
        raise ValueError(f"audio message of version {version}, expected {AUDIO_VERSION}")
    packets: list[bytes] = []
    at = _HEADER.size
    for _ in range(count):
        size = int.from_bytes(data[at : at + 2], "little")
        packet = data[at + 2 : at + 2 + size]
        if at + 2 > len(data) or len(packet) != size:
            raise ValueError("audio message ends inside a packet")
        packets.append(packet)
        at += 2 + size
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last packet of an audio message")
    return AudioMessage(
        stream=stream,
        sequence=sequence,
        timestamp=timestamp,
        packets=packets,
        source=flags & 0x03,
        reset=bool(flags & RESET),
        last=bool(flags & LAST),
    )
