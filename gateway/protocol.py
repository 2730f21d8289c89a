"""`sayflow.v1` without I/O: which message is legal now, and what it means.

Text in, decisions out; the session moves them. No asyncio, no clock, no engine. Every utterance gets exactly
one terminal event: `send` is the only way out, and it holds that rule.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

import msgspec

from gateway.errors import CloseCode, Refused
from gateway.messages import (
    Alignment,
    Auth,
    Cancel,
    Cancelled,
    ClientMessage,
    Done,
    End,
    Error,
    Flush,
    Limits,
    Ping,
    Played,
    Pong,
    SentenceEvent,
    ServerMessage,
    Start,
    Started,
    Text,
    encode,
)

REMEMBERED_IDS: Final = 1024
"""Ended utterances whose ids stay taken; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Send this."""

    message: ServerMessage


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the socket."""

    code: CloseCode
    reason: str


Event = Auth | Start | Text | Flush | End | Cancel | Played | Reply | Hangup


@dataclass(slots=True)
class _Utterance:
    ended: bool = False
    half: str = ""
    """The first half of a surrogate pair that the client cut in two."""

    def join(self, text: str) -> str:
        """Whole code points: a cut pair is joined, a lone surrogate becomes U+FFFD, which is not spoken."""
        text = self.half + text
        self.half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.half = text[:-1], text[-1]
        if text.isascii():
            return text
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Protocol:
    """The server's side of one socket."""

    def __init__(self, limits: Limits, *, authenticated: bool) -> None:
        self._limits = limits
        self._authenticated = authenticated
        self._open: dict[str, _Utterance] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    # --- in -----------------------------------------------------------------------------------------------

    def receive_text(self, raw: str) -> list[Event]:
        """A text message. Never raises for what a client can send."""
        try:
            return self._accept(_parse(raw))
        except Refused as refused:
            return [Reply(refused.as_message())]

    def receive_binary(self) -> list[Event]:
        """A binary message: clients have none to send."""
        return [Reply(Error(code="unexpected_binary", message="this protocol takes text messages only"))]

    def authenticate(self) -> None:
        """The token of `auth` was right."""
        self._authenticated = True

    def _accept(self, message: ClientMessage) -> list[Event]:
        if isinstance(message, Auth):
            return [] if self._authenticated else [message]
        if not self._authenticated:
            return [Hangup(CloseCode.POLICY, "auth first")]
        if isinstance(message, Ping):
            return [Reply(Pong())]
        if isinstance(message, Start):
            return self._start(message)
        return self._go_on(message)

    def _start(self, message: Start) -> list[Event]:
        name = message.utterance
        if name in self._open or name in self._ended:
            raise Refused(
                "duplicate_utterance", "this id is taken: each utterance needs a new one", about=name
            )
        self._open[name] = _Utterance()
        if len(self._open) > self._limits.utterances:
            limit = self._limits.utterances
            return [
                Reply(
                    Error(
                        code="too_many_utterances",
                        message=f"at most {limit} utterances of a connection may be under way",
                        utterance=name,
                    )
                )
            ]
        return [message]

    def _go_on(self, message: Text | Flush | End | Cancel | Played) -> list[Event]:
        name = message.utterance
        utterance = self._open.get(name)
        if utterance is None:
            return self._late(message)
        if isinstance(message, Cancel | Played):
            return [message]
        if utterance.ended:
            raise Refused("utterance_ended", f"'{_tag(message)}' came after 'end'", about=name)
        if isinstance(message, Text):
            if len(message.text) > self._limits.text_chars:
                limit = self._limits.text_chars
                raise Refused("text_too_long", f"a text message holds at most {limit} characters", about=name)
            text = utterance.join(message.text)
            return [Text(name, text)] if text else []
        events: list[Event] = [Text(name, "\ufffd")] if utterance.half else []
        utterance.half = ""
        utterance.ended = isinstance(message, End)
        return [*events, message]

    def _late(self, message: Text | Flush | End | Cancel | Played) -> list[Event]:
        """For an utterance that is over: it may have ended while the message was under way."""
        name = message.utterance
        if name not in self._ended:
            raise Refused("unknown_utterance", f"'{_tag(message)}' names no utterance of this connection")
        if isinstance(message, Text):
            raise Refused("utterance_ended", "'text' came after the utterance was over", about=name)
        return []

    # --- out ----------------------------------------------------------------------------------------------

    def send(self, message: ServerMessage) -> str:
        """The text of a message, which must be legal now."""
        if isinstance(message, Started | SentenceEvent | Alignment):
            assert message.utterance in self._open, "an event of an utterance that is over"
        elif isinstance(message, Done | Cancelled) or (isinstance(message, Error) and message.utterance):
            assert message.utterance is not None
            assert message.utterance in self._open, "a second terminal event"
            del self._open[message.utterance]
            self._ended[message.utterance] = None
            if len(self._ended) > REMEMBERED_IDS:
                self._ended.popitem(last=False)
        return encode(message)

    def is_open(self, utterance: str) -> bool:
        """The utterance has had no terminal event."""
        return utterance in self._open


def _tag(message: ClientMessage) -> str:
    tag = message.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


_TYPES: Final = {_tag(kind): kind for kind in (Auth, Start, Text, Flush, End, Cancel, Played, Ping)}  # type: ignore[arg-type]


def _parse(raw: str) -> ClientMessage:
    """JSON to a typed message. Raises `Refused`.

    The standard library reads it, since it keeps lone surrogates, which `_Utterance.join` needs to see.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused("bad_json", "the message is not JSON, or nested too deeply") from error
    if not isinstance(value, dict):
        raise Refused("bad_message", "a message is a JSON object with a 'type'")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise Refused("unknown_type", f"'type' must be one of {', '.join(sorted(_TYPES))}")
    try:
        if kind != "text":
            for item in value.items():  # only `text` may hold half a character
                "".join(part for part in item if isinstance(part, str)).encode()
        message: Any = msgspec.convert(value, _TYPES[kind])
    except UnicodeEncodeError as error:
        raise Refused("bad_field", "a lone surrogate outside 'text'", about=_about(value)) from error
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused("bad_field", _clean(str(error)), about=_about(value)) from error
    return cast(ClientMessage, message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _about(value: dict[str, Any]) -> str | None:
    name = value.get("utterance")
    return (
        name if isinstance(name, str) and len(name) <= 64 and name.isascii() and name.isprintable() else None
    )


def _clean(message: str) -> str:
    """msgspec quotes what the client sent, which may hold anything."""
    return message.encode("ascii", "backslashreplace").decode()[:200]
