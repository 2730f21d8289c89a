"""`start` with every choice made: the client's, else that of the settings, else the engine's default."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from engine import wire
from gateway.config import Config
from gateway.errors import SpeechError
from gateway.lexicon import Lexicon, LexiconError, parse
from gateway.markup import MarkupPolicy
from gateway.messages import Format, Language, Start, Style
from gateway.rendition import Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`start`, with every choice made."""

    voice: str
    seed: int
    language: Language
    format: Format
    sample_rate: int
    bundle: int
    realtime: bool
    chunk_size: int
    markup: MarkupPolicy
    lexicon: Lexicon
    tags: Tags
    aligned: bool
    """The client wants `alignment` events."""
    parameters: wire.Parameters

    @classmethod
    def choose(cls, start: Start, spec: wire.Ready, config: Config) -> Options:
        """Fill in what the client left open. Raises `SpeechError` for a voice that is not there, or a
        lexicon that is none."""
        voice = start.voice or config.voice or spec.default_voice
        if voice not in {known.id for known in spec.voices}:
            raise SpeechError("no such voice; 'hello' lists them", code="unknown_voice")
        return cls(
            voice=voice,
            seed=_seed(start, voice),
            language=start.language or "auto",
            format=start.format or "opus",
            sample_rate=start.sample_rate or 24_000,
            bundle=start.bundle or config.bundle,
            realtime=start.pace != "fast",
            chunk_size=start.chunk_size or config.chunk_size,
            markup=MarkupPolicy(code=start.code or config.code, thoughts=config.thoughts),
            lexicon=_lexicon(start, config),
            tags=_tags(start, spec),
            aligned=start.alignment == "chars",
            parameters=_parameters(start),
        )


def _lexicon(start: Start, config: Config) -> Lexicon:
    if not start.lexicon:
        return config.words
    try:
        return _joined(config.words, msgspec.json.encode(start.lexicon))
    except LexiconError as error:
        raise SpeechError(str(error), code="bad_lexicon") from error


@lru_cache(maxsize=64)
def _joined(words: Lexicon, table: bytes) -> Lexicon:
    """A client tends to send the same table each time, and 1000 entries take 20 ms to check."""
    return words.joined(parse(msgspec.json.decode(table)))


def _tags(start: Start, spec: wire.Ready) -> Tags:
    """Both ChatTTS engines know the tags; their models' names tell them."""
    if not start.tags:
        return "read"
    return "act" if spec.model.startswith("chattts") else "drop"


def _parameters(start: Start) -> wire.Parameters:
    style = start.style or Style()
    return wire.Parameters(
        speed=start.speed or 1.0,
        temperature=start.temperature,
        top_p=start.top_p,
        top_k=start.top_k,
        oral=style.oral,
        laugh=style.laugh,
        pause=style.pause,
        tags=bool(start.tags),
        refine=bool(style.refine),
    )


def _seed(start: Start, voice: str) -> int:
    """The voice's own seed unless the client says otherwise, so that equal requests give equal sound."""
    if start.seed == "random":
        return secrets.randbits(32)
    return zlib.crc32(voice.encode()) if start.seed is None else int(start.seed)
