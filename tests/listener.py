"""A listener that trusts nobody: keeps all that a server says, in order, and checks it against the protocol.

It parses binary messages by itself and imports nothing of the gateway, so that a mistake made on both ends of
the product's own code shows here. The marks of the synthetic engine come from `engine.synthetic`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from engine.synthetic.model import BLOCKS_A_CHAR, RATE

Json = dict[str, Any]
TERMINAL: Final = frozenset({"done", "cancelled", "error"})
PATIENCE_S: Final = 20.0
PACKET_MS: Final = 20
TICKS_A_PACKET: Final = 960
_HEADER: Final = struct.Struct("<BBHIIHH")


@dataclass(frozen=True, slots=True)
class Sound:
    """A binary message, and when it came (monotonic, s)."""

    at: float
    stream: int
    flags: int
    sequence: int
    timestamp: int
    packets: tuple[bytes, ...]

    @property
    def resets(self) -> bool:
        return bool(self.flags & 0x04)

    @property
    def is_last(self) -> bool:
        return bool(self.flags & 0x08)


@dataclass(frozen=True, slots=True)
class Said:
    """A text message, and when it came."""

    at: float
    message: Json

    @property
    def type(self) -> str:
        kind = self.message["type"]
        assert isinstance(kind, str)
        return kind


def _is_sentence(entry: Said | Sound) -> TypeGuard[Said]:
    return isinstance(entry, Said) and entry.type == "sentence"


def parse_sound(data: bytes, at: float) -> Sound:
    version, flags, stream, sequence, timestamp, count, zero = _HEADER.unpack_from(data)
    assert (version, flags & ~0x0F, zero) == (1, 0, 0), "header of another version, or unknown flags"
    packets: list[bytes] = []
    place = _HEADER.size
    for _ in range(count):
        size = int.from_bytes(data[place : place + 2], "little")
        packets.append(data[place + 2 : place + 2 + size])
        assert len(packets[-1]) == size > 0, "a packet that is cut short, or empty"
        place += 2 + size
    assert place == len(data), "bytes behind the last packet"
    return Sound(at, stream, flags, sequence, timestamp, tuple(packets))


@dataclass(slots=True)
class Heard:
    """All of one utterance, in the order it came, and what its client asked for."""

    name: str
    seed: int
    sample_rate: int = RATE
    format: str = "pcm"
    bundle: int = 3
    text: str = ""
    log: list[Said | Sound] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    first_sound: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sounds(self) -> list[Sound]:
        return [entry for entry in self.log if isinstance(entry, Sound)]

    @property
    def terminal(self) -> Json:
        return self.terminal_entry.message

    @property
    def terminal_entry(self) -> Said:
        return next(entry for entry in self.log if isinstance(entry, Said) and entry.type in TERMINAL)

    @property
    def packets(self) -> list[bytes]:
        return [packet for sound in self.sounds for packet in sound.packets]

    @property
    def spoken_blocks(self) -> int:
        """Blocks that the synthetic engine makes of the segments that were announced (plain words only)."""
        spans = [(e.message["start"], e.message["end"]) for e in self.log if _is_sentence(e)]
        return BLOCKS_A_CHAR * sum(len(self.text[start:end].strip()) for start, end in spans)

    @property
    def milliseconds(self) -> int:
        return PACKET_MS * len(self.packets)


class Listener:
    """One socket, read by one task."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: dict[str, Heard] = {}
        self.strays: list[Json] = []
        """Messages that name no utterance: `hello`, `pong`, errors of the session, errors `about` one."""
        self.sent: list[Json] = []
        self.received: list[Json] = []
        self._streams: dict[int, Heard] = {}
        self._stray = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for data in self.socket:
                now = time.monotonic()
                if isinstance(data, bytes):
                    sound = parse_sound(data, now)
                    heard = self._streams[sound.stream]
                    heard.log.append(sound)
                    heard.first_sound.set()
                else:
                    self._hear(json.loads(data), now)

    def _hear(self, message: Json, now: float) -> None:
        self.received.append(message)
        name = message.get("utterance")
        if name is None:
            self.strays.append(message)
            self._stray.set()
            return
        heard = self.heard[name]
        heard.log.append(Said(now, message))
        if message["type"] == "started":
            self._streams[message["stream"]] = heard
        if message["type"] in TERMINAL:
            heard.over.set()

    # --- what a client does -------------------------------------------------------------------------------

    async def send(self, **message: Any) -> None:
        self.sent.append(message)
        await self.socket.send(json.dumps(message))

    async def start(self, name: str, *, seed: int = 1, **options: Any) -> Heard:
        wanted: Json = {"format": "pcm", "pace": "fast", "bundle": 3} | options
        heard = self.heard[name] = Heard(
            name,
            seed,
            sample_rate=wanted.get("sample_rate", RATE),
            format=wanted["format"],
            bundle=wanted["bundle"],
        )
        await self.send(type="start", utterance=name, seed=seed, **wanted)
        return heard

    async def text(self, heard: Heard, text: str) -> None:
        heard.text += text
        await self.send(type="text", utterance=heard.name, text=text)

    async def end(self, heard: Heard) -> None:
        await self.send(type="end", utterance=heard.name)

    async def cancel(self, heard: Heard, **more: Any) -> None:
        await self.send(type="cancel", utterance=heard.name, **more)

    async def say(self, name: str, text: str, *, seed: int = 1, **options: Any) -> Heard:
        """Start, text, end."""
        heard = await self.start(name, seed=seed, **options)
        await self.text(heard, text)
        await self.end(heard)
        return heard

    async def wait(self, *all_heard: Heard, within_s: float = PATIENCE_S) -> None:
        """Until each has its terminal event."""
        async with asyncio.timeout(within_s):
            for heard in all_heard:
                await heard.over.wait()

    async def next_stray(self, kind: str, *, within_s: float = PATIENCE_S) -> Json:
        """The next message of this type that belongs to no utterance; those before it are dropped."""
        async with asyncio.timeout(within_s):
            while True:
                while self.strays:
                    if (message := self.strays.pop(0))["type"] == kind:
                        return message
                self._stray.clear()
                await self._stray.wait()

    async def settle(self) -> None:
        """All that the server had to say before now has come."""
        self.strays.clear()
        await self.send(type="ping")
        await self.next_stray("pong")

    async def refusal(self, raw: str | bytes) -> Json:
        """The typed error that answers this message, which ends nothing."""
        await self.socket.send(raw)
        return await self.next_stray("error")

    async def close(self) -> None:
        await self.socket.close()
        await self._reader

    async def until_closed(self, *, within_s: float = PATIENCE_S) -> int:
        """The code that the server closed with; raises what the reader raised."""
        async with asyncio.timeout(within_s):
            await self._reader
            await self.socket.wait_closed()
        assert self.socket.close_code is not None
        return self.socket.close_code


@contextlib.asynccontextmanager
async def listening(url: str, **options: Any) -> AsyncIterator[Listener]:
    """An open session that has heard `hello`. Leaving it closes; what the reader found wrong is raised."""
    socket = await open_socket(url, subprotocols=["sayflow.v1"], open_timeout=PATIENCE_S, **options)  # type: ignore[list-item]
    listener = Listener(socket)
    try:
        await listener.next_stray("hello")
        yield listener
    finally:
        await listener.close()


async def eventually(holds: Callable[[], bool], *, within_s: float = 5.0) -> float:
    """Seconds until it holds; fails past the limit. The check may block for a few milliseconds."""
    began = time.monotonic()
    while not await asyncio.to_thread(holds):
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        await asyncio.sleep(0.005)
    return time.monotonic() - began
