"""The service's settings: frozen, read once, checked before anything starts.

Order of precedence: command line, environment (`SAYFLOW_PORT=...`), the file of `--config` (TOML), defaults.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from gateway.lexicon import Lexicon, parse
from gateway.messages import MAX_CHUNK, MIN_CHUNK, Limits
from gateway.sentences import CHUNK_SIZE, RELEASE_MS


class ConfigError(Exception):
    """A setting is wrong; the message says which, in one line each."""


class EngineSettings(BaseModel, frozen=True, extra="forbid"):
    """One engine process. A gateway knows it by its link's name."""

    kind: Literal["embedded", "synthetic", "chattts", "chattts-upstream"] = "embedded"
    slots: int = Field(8, ge=1, le=4096)
    threads: int = Field(2, ge=1, le=256)
    styles: Path | None = None
    """Folder of the Mandarin styles (embedded engine); None: where set-up put them."""
    weights: Path | None = None
    """Folder of ChatTTS weights in the released layout (ChatTTS engines)."""
    voices: Path | None = None
    """Folder of the operator's own voices (ChatTTS engine)."""
    backend: Literal["auto", "torch", "onnx"] = "auto"
    """What computes ChatTTS's language model; auto: ONNX Runtime where the weights have an 8-bit form."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    """Of that computation; auto: 8 bits on ONNX Runtime, bf16 on a GPU, else fp32."""
    provider: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    """Where it computes: ONNX Runtime's execution provider, or torch's device."""
    decoder: Literal["hidden", "codes"] = "hidden"
    """What ChatTTS's sound is made of: hidden states (its Decoder), or codes alone (its DVAE)."""
    batch_window_ms: int = Field(0, ge=0, le=1000)
    """A sentence that comes while others are being made waits so long for more to begin with it."""
    synthetic_rtf: float = Field(0.02, ge=0.0, le=10.0)
    """Seconds of work a second of sound (synthetic engine)."""

    @model_validator(mode="after")
    def _has_weights(self) -> EngineSettings:
        if self.kind.startswith("chattts") and self.weights is None:
            raise ValueError(f"the engine {self.kind} needs weights (--weights DIR)")
        return self


class Config(BaseSettings):
    """All settings of `sayflow serve`. Times in the unit of their suffix."""

    model_config = SettingsConfigDict(
        env_prefix="SAYFLOW_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    ops_port: int | None = Field(None, ge=0, le=65535)
    """Where `/healthz`, `/readyz` and `/metrics` are served instead of on `port`."""
    engines: dict[str, EngineSettings] = {"main": EngineSettings()}
    voice: str | None = None
    """The voice of those who ask for none; the engine's own default otherwise."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # who may come in
    token: str | None = Field(None, min_length=1)
    """The bearer token that clients must show. None: the door is open."""
    origins: tuple[str, ...] = ()
    """Web origins that may connect, beside the server's own."""

    # limits, told to clients in `hello`
    message_bytes: int = Field(65_536, ge=1024)
    text_chars: int = Field(10_000, ge=1)
    """Characters of one `text` message."""
    pending_chars: int = Field(100_000, ge=1)
    """Characters of one utterance that wait to be spoken; past it the utterance ends as `text_too_long`."""
    utterances: int = Field(8, ge=1)
    """Utterances of one socket that may be under way."""
    lead_ms: int = Field(2000, ge=200)
    """Audio sent ahead of the listener, `pace: realtime`."""
    outbound_bytes: int = Field(262_144, ge=65_536)
    """Bytes that wait for one client; past it the client counts as stalled."""
    bundle: int = Field(10, ge=1, le=25)
    """Packets a binary message (200 ms), where the client does not say; a stream's first ones are shorter."""

    # text; `start` may choose `chunk_size` and `code` anew, and add to the lexicon
    chunk_size: int = Field(CHUNK_SIZE, ge=MIN_CHUNK, le=MAX_CHUNK)
    """Characters of a segment, where the engine takes as many."""
    release_ms: int = Field(RELEASE_MS, ge=0, le=60_000)
    """Without new text for so long, a clause that is complete is spoken. 0: never."""
    code: Literal["skip", "read"] = "skip"
    """Blocks of code in a text."""
    thoughts: Literal["skip", "read"] = "skip"
    """`<think>…</think>`, the reasoning of a language model."""
    lexicon: dict[str, str | dict[str, str]] = {}
    """How words are said; see `gateway/lexicon.py`."""

    # deadlines
    auth_s: float = Field(5.0, gt=0)
    write_deadline_s: float = Field(10.0, gt=0)
    ping_s: float = Field(15.0, gt=0)
    queue_wait_s: float = Field(10.0, gt=0)
    slot_idle_s: float = Field(5.0, gt=0)
    """An utterance without text for so long gives its slot back."""
    stall_s: float = Field(3.0, gt=0)
    """Past its own word by this, an engine is not ready."""
    stall_kill_s: float = Field(5.0, gt=0)
    drain_s: float = Field(30.0, ge=0)

    ring_ms: int = Field(8000, ge=500)
    """Audio that an engine may make ahead of what was taken, a slot."""

    @field_validator("engines")
    @classmethod
    def _has_main(cls, engines: dict[str, EngineSettings]) -> dict[str, EngineSettings]:
        if unknown := engines.keys() - {"main"}:
            raise ValueError(f"the engine served is 'main', not '{min(unknown)}'")
        return {"main": EngineSettings(), **engines}

    @field_validator("lexicon")
    @classmethod
    def _is_lexicon(cls, table: dict[str, str | dict[str, str]]) -> dict[str, str | dict[str, str]]:
        parse(table)
        return table

    @cached_property
    def words(self) -> Lexicon:
        """`lexicon`, ready for use."""
        return parse(self.lexicon)

    @model_validator(mode="after")
    def _stalls_before_it_is_killed(self) -> Config:
        if self.stall_kill_s < self.stall_s:
            raise ValueError("stall_kill_s must not be less than stall_s")
        return self

    def limits(self, sentence_chars: int) -> Limits:
        """What `hello` publishes."""
        return Limits(
            message_bytes=self.message_bytes,
            text_chars=self.text_chars,
            pending_chars=self.pending_chars,
            utterances=self.utterances,
            lead_ms=self.lead_ms,
            write_deadline_s=self.write_deadline_s,
            sentence_chars=sentence_chars,
        )


def load(path: Path | None, overrides: dict[str, Any]) -> Config:
    """Read the settings. Raises `ConfigError`."""

    class Sourced(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            file = (TomlConfigSettingsSource(settings_cls, path),) if path else ()
            return (init_settings, env_settings, *file)

    if path is not None and not path.is_file():
        raise ConfigError(f"no such settings file: {path}")
    try:
        return Config(**Sourced(**overrides).model_dump())
    except ValidationError as error:
        raise ConfigError(
            "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        ) from error
    except ValueError as error:  # TOML syntax
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error
