"""`start` with every choice made: the client's, else that of the settings, else the engine's default."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass

from engine import wire
from gateway.config import Config
from gateway.errors import SpeechError
from gateway.messages import Format, Language, Start, Style


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
    parameters: wire.Parameters

    @classmethod
    def choose(cls, start: Start, spec: wire.Ready, config: Config) -> Options:
        """Fill in what the client left open. Raises `SpeechError` for a voice that is not there."""
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
            parameters=_parameters(start),
        )


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
