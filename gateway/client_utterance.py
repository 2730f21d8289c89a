"""An utterance as a client sees it: text goes out, events and sound come in, timed on arrival.

Used by `client`, which feeds it from the socket's one reading task. Must not import `engine`, `protocol` or
`server`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gateway import messages
from gateway.messages import (
    FRAME_MS,
    Alignment,
    AudioMessage,
    Cancelled,
    ClientMessage,
    Done,
    Error,
    Limits,
    SentenceEvent,
    Started,
)

QUEUE_MESSAGES: Final = 256
"""Events of an utterance that wait for their taker. At the bound the client stops reading its socket, for all
utterances on it: nothing is dropped, and the server's lead limit and write deadline apply."""

STUCK_S: Final = 30.0
"""Text is held back for speech to catch up, but not past so long a silence; then the server decides."""

ESCAPED_BYTES: Final = 6
"""Bytes that one code point may take in a JSON string (a control character: `\\u0001`)."""
ENVELOPE_BYTES: Final = 512
"""Bytes of a `text` message beside its text, with the longest id, escaped."""

Event = Started | SentenceEvent | Alignment | AudioMessage | Done | Cancelled | Error
Ended = Done | Cancelled | Error


class ClientError(Exception):
    """What a client may raise.

    ClientError
     ├─ CannotConnect     no session was opened
     ├─ ConnectionLost    the session ended while something was going on
     └─ BadServerMessage  the server broke the protocol
    """


class ConnectionLost(ClientError):
    """The connection is gone. `error`: the last thing that the server said about the session."""

    def __init__(self, code: int, reason: str, *, error: Error | None = None) -> None:
        said = f"{error.message} ({error.code}); " if error is not None else ""
        super().__init__(f"{said}connection closed with {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """All that an utterance brought."""

    events: tuple[Event, ...]
    """Without the sound."""
    audio: tuple[AudioMessage, ...]
    arrivals: tuple[float, ...]
    """When each message of `audio` came, monotonic seconds."""
    ended: Ended
    ttfa_ms: float | None
    """From the first text sent to the first message with sound."""
    wall_s: float
    """From the first text sent (from `start`, where none was) to the terminal event."""

    @property
    def outcome(self) -> str:
        """`done`, `cancelled`, or the code of the error."""
        return outcome_of(self.ended)

    @property
    def packets(self) -> list[bytes]:
        """The packets of all messages, in order."""
        return [packet for message in self.audio for packet in message.packets]

    @property
    def audio_ms(self) -> int:
        """How much sound came."""
        return FRAME_MS * sum(len(message.packets) for message in self.audio)

    @property
    def sentences(self) -> list[SentenceEvent]:
        """The sentences that began to sound."""
        return [event for event in self.events if isinstance(event, SentenceEvent)]


def outcome_of(ended: Ended) -> str:
    """`done`, `cancelled`, or the code of the error."""
    match ended:
        case Done():
            return "done"
        case Cancelled():
            return "cancelled"
        case Error():
            return ended.code


class Mailbox:
    """A bounded queue between one giver and one taker, that can be closed with a reason."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: deque[tuple[float, Event]] = deque()
        self._closed: ClientError | None = None
        self._discarding = False
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()

    async def put(self, at: float, event: Event) -> None:
        """Waits while the box is full."""
        while len(self._items) >= self._bound and not self._discarding:
            self._drained.clear()
            await self._drained.wait()
        if not self._discarding:
            self._items.append((at, event))
            self._filled.set()

    async def get(self) -> tuple[float, Event]:
        """Waits while the box is empty; raises the reason once it is empty and closed."""
        while not self._items:
            if self._closed is not None:
                raise self._closed
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        self._drained.set()
        return item

    def close(self, reason: ClientError) -> None:
        """Nothing will be put any more."""
        self._closed = reason
        self._filled.set()

    def discard(self) -> None:
        """Drop what is in the box, and all that comes."""
        self._discarding = True
        self._items.clear()
        self._drained.set()


class Utterance:
    """Text spoken as one stream of sound. Made by `Client.start`."""

    def __init__(self, name: str, limits: Limits, send: Callable[[ClientMessage], Awaitable[None]]) -> None:
        self.name = name
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.started_at = time.monotonic()
        """When `start` was sent; these four are monotonic seconds."""
        self.text_sent_at: float | None = None
        self.first_audio_at: float | None = None
        self.ended_at: float | None = None
        self.sent_chars = 0
        self.spoken_chars = 0
        """The start of the sentence that sounds; all that was sent, once it is done."""
        self.sounding_chars = 0
        """The end of the sentence that sounds."""
        self.sentences = 0
        self._limits = limits
        self._send = send
        self._mailbox = Mailbox(QUEUE_MESSAGES)
        self._progress = asyncio.Event()
        self._taken = False
        self._failed = False

    async def send_text(self, text: str) -> None:
        """Send a piece of text of any length.

        It is cut to the server's limit on messages, and held back while more than `pending_chars` would wait
        to be spoken: with texts that long somebody has to take the events meanwhile.
        """
        piece_chars = (self._limits.message_bytes - ENVELOPE_BYTES) // ESCAPED_BYTES
        piece_chars = max(1, min(piece_chars, self._limits.text_chars, self._limits.pending_chars // 4))
        for at in range(0, len(text), piece_chars):
            piece = text[at : at + piece_chars]
            await self._await_room(len(piece))
            if self.text_sent_at is None:
                self.text_sent_at = time.monotonic()
            self.sent_chars += len(piece)
            await self._send(messages.Text(utterance=self.name, text=piece))

    async def send_all(self, text: str) -> None:
        """Send the text and say that it was all."""
        await self.send_text(text)
        await self.end()

    async def flush(self) -> None:
        """Have spoken what was sent, though the sentence is not at its end."""
        await self._send(messages.Flush(utterance=self.name))

    async def end(self) -> None:
        """No more text."""
        await self._send(messages.End(utterance=self.name))

    async def cancel(self, played_ms: float | None = None) -> None:
        """Fall silent. The terminal event still comes, and may yet be `Done`."""
        await self._send(messages.Cancel(utterance=self.name, played_ms=played_ms))

    async def played(self, ms: float) -> None:
        """Tell how much the listener has heard."""
        await self._send(messages.Played(utterance=self.name, ms=ms))

    async def events(self) -> AsyncIterator[Event]:
        """What comes, up to the terminal event. Raises `ConnectionLost` where none will come."""
        async for _, event in self.timed_events():
            yield event

    async def timed_events(self) -> AsyncIterator[tuple[float, Event]]:
        """The same, with the monotonic second of each arrival."""
        while not self._taken:
            at, event = await self._mailbox.get()
            self._taken = is_terminal(event)
            yield at, event

    async def collect(self) -> Collected:
        """Wait for the end, and return all that came; the memory it takes grows with the sound."""
        events: list[Event] = []
        audio: list[AudioMessage] = []
        arrivals: list[float] = []
        async for at, event in self.timed_events():
            if isinstance(event, AudioMessage):
                audio.append(event)
                arrivals.append(at)
            else:
                events.append(event)
        assert self.ended is not None
        return Collected(
            events=tuple(events),
            audio=tuple(audio),
            arrivals=tuple(arrivals),
            ended=self.ended,
            ttfa_ms=self.ttfa_ms,
            wall_s=self.wall_s,
        )

    def abandon(self) -> None:
        """Take no more events, so that the socket's other utterances do not wait for us."""
        self._mailbox.discard()

    @property
    def ttfa_ms(self) -> float | None:
        """Time to first audio so far: from the first text sent to the first message with sound."""
        if self.text_sent_at is None or self.first_audio_at is None:
            return None
        return 1000 * (self.first_audio_at - self.text_sent_at)

    @property
    def wall_s(self) -> float:
        """Seconds from the first text sent (from `start`, where none was) to the end, or to now."""
        begun = self.text_sent_at if self.text_sent_at is not None else self.started_at
        return (self.ended_at if self.ended_at is not None else time.monotonic()) - begun

    async def receive(self, event: Event, now: float) -> None:
        """From the reading task: an event of this utterance."""
        match event:
            case Started():
                self.started = event
            case SentenceEvent():
                self.sentences += 1
                self.spoken_chars, self.sounding_chars = event.start, event.end
            case AudioMessage() if event.packets and self.first_audio_at is None:
                self.first_audio_at = now
            case Done() | Cancelled() | Error() if is_terminal(event):
                self.ended, self.ended_at = event, now
                if isinstance(event, Done):
                    self.spoken_chars = self.sent_chars
        self._progress.set()
        await self._mailbox.put(now, event)

    def fail(self, reason: ClientError) -> None:
        """From the reading task: no terminal event will come."""
        self._failed = True
        self._mailbox.close(reason)
        self._progress.set()

    async def _await_room(self, chars: int) -> None:
        """Returns also where the utterance is over: then sending tells how."""
        while self.sent_chars - self.sounding_chars + chars > self._limits.pending_chars:
            if self.ended is not None or self._failed:
                return
            self._progress.clear()
            try:
                async with asyncio.timeout(STUCK_S):
                    await self._progress.wait()
            except TimeoutError:
                return


def is_terminal(event: Event) -> bool:
    """An error ends an utterance only where it names it as its own."""
    return isinstance(event, Done | Cancelled) or (isinstance(event, Error) and event.utterance is not None)
