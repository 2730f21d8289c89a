"""What can go wrong for a client, and its translation to the wire. The one place that knows codes.

GatewayError            code, plain message, retry_after_ms
├─ Refused              a message that was not accepted; nothing ended
└─ SpeechError          an utterance that ends
   ├─ EngineLost        the engine died or hung
   ├─ EngineFailed      the engine gave up this utterance; the code is the engine's own
   └─ Overloaded        no slot within the deadline, or the queue is full
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from gateway.messages import Error


class CloseCode(IntEnum):
    """WebSocket close codes that the server sends."""

    NORMAL = 1000
    GOING_AWAY = 1001
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011
    RESTART = 1012
    OVERLOAD = 1013


class GatewayError(Exception):
    """A typed failure with words for a person."""

    code = "internal"

    def __init__(self, message: str, *, code: str | None = None, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.retry_after_ms = retry_after_ms


class Refused(GatewayError):
    """The message was not accepted. `about` names the utterance that it named, which goes on."""

    def __init__(self, code: str, message: str, *, about: str | None = None) -> None:
        super().__init__(message, code=code)
        self.about = about

    def as_message(self) -> Error:
        """What the client is told."""
        return Error(code=self.code, message=self.message, about=self.about)


class SpeechError(GatewayError):
    """The utterance ends with this."""

    def as_message(self, utterance: str) -> Error:
        """The utterance's terminal event."""
        return Error(
            code=self.code, message=self.message, utterance=utterance, retry_after_ms=self.retry_after_ms
        )


class EngineLost(SpeechError):
    """The engine died or hung in the middle, or is not there."""

    code = "engine_lost"


_ENGINE_CODES: Final = frozenset(
    {"engine_error", "unknown_voice", "busy", "cannot_speak", "bad_audio", "model_fault"}
)
"""Of `engine.errors`, which this package does not import."""


class EngineFailed(SpeechError):
    """The engine gave up this utterance."""

    code = "engine_error"

    @classmethod
    def of(cls, code: str, message: str) -> EngineFailed:
        """As the engine says, in printable words and a code that clients know."""
        words = "".join(char for char in message if char.isprintable())[:200]
        return cls(words, code=code if code in _ENGINE_CODES else None)


class Overloaded(SpeechError):
    """No slot came free in time."""

    code = "overloaded"
