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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from engine.synthetic.model import BLOCK, MARK_BITS, RATE, TONES, tone_hz

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
        wanted = {"format": "pcm", "pace": "fast"} | options
        heard = self.heard[name] = Heard(
            name,
            seed,
            sample_rate=wanted.get("sample_rate", RATE),
            format=wanted["format"],
            bundle=wanted.get("bundle", 3),
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


# --- what must hold of a whole utterance ------------------------------------------------------------------


def check_order(heard: Heard, *, complete: bool = True) -> None:
    """Legal order, exactly one terminal event and nothing after it, no gap in numbers or times.

    `complete=False`: the connection ended before the terminal event, so there need not be one.
    """
    kinds = [entry.type if isinstance(entry, Said) else "sound" for entry in heard.log]
    ends = [place for place, kind in enumerate(kinds) if kind in TERMINAL]
    if complete or ends:
        assert ends == [len(kinds) - 1], f"{heard.name}: not one terminal event at the end: {kinds[-8:]}"
    if not kinds:
        return
    assert kinds[0] == "started", f"{heard.name}: begins with {kinds[0]}"
    assert kinds.count("started") == 1
    _check_sounds(heard)
    _check_sentences(heard)
    if ends and heard.terminal["type"] == "done":
        promised = heard.terminal["duration_ms"]
        assert promised == heard.milliseconds, f"{heard.name}: {heard.milliseconds} of {promised} ms came"
        assert not heard.sounds or heard.sounds[-1].is_last, f"{heard.name}: no last flag"
    if ends and heard.terminal["type"] == "cancelled":
        spoken, remaining = heard.terminal["text_spoken"], heard.terminal["text_remaining"]
        assert spoken + remaining == heard.text, f"{heard.name}: {spoken!r} + {remaining!r}"
        assert 0 <= heard.terminal["played_ms"] <= heard.milliseconds


def _check_sounds(heard: Heard) -> None:
    packets = 0
    for place, sound in enumerate(heard.sounds):
        assert sound.sequence == place, f"{heard.name}: message {sound.sequence} where {place} was due"
        assert sound.timestamp == packets * TICKS_A_PACKET, f"{heard.name}: time {sound.timestamp}"
        assert len(sound.packets) <= heard.bundle
        assert not sound.is_last or place == len(heard.sounds) - 1, f"{heard.name}: sound after the last"
        assert sound.packets or sound.is_last, f"{heard.name}: an empty message"
        packets += len(sound.packets)
    if heard.format == "pcm":
        size = heard.sample_rate * PACKET_MS // 1000 * 2
        assert all(len(packet) == size for packet in heard.packets)


def _check_sentences(heard: Heard) -> None:
    index, place = 0, 0
    due: Json | None = None
    for entry in heard.log:
        if isinstance(entry, Sound):
            assert entry.resets == (due is not None), f"{heard.name}: a reset without its sentence"
            if due is not None:
                assert entry.timestamp == due["start_ms"] * 48
            due = None
        elif entry.type == "sentence":
            due = entry.message
            assert due["index"] >= index, f"{heard.name}: sentence {due['index']} after {index - 1}"
            assert place <= due["start"] < due["end"] <= len(heard.text)
            index, place = due["index"] + 1, due["end"]
        elif entry.type in TERMINAL:
            assert due is None or entry.type != "done", f"{heard.name}: a sentence without sound"


def check_marks(heard: Heard) -> int:
    """Every 10 ms of PCM at the engine's rate is this seed's, no block is missing and none comes twice.

    A sentence's last packet may be filled up with zeros. Returns the number of blocks.
    """
    assert (heard.format, heard.sample_rate) == ("pcm", RATE)
    due = 0
    sentences: list[list[bytes]] = []
    for sound in heard.sounds:
        if sound.resets:
            sentences.append([])
        if sound.packets:
            sentences[-1].extend(sound.packets)
    for sentence in sentences:
        blocks = np.frombuffer(b"".join(sentence), "<i2").reshape(-1, BLOCK)
        if not blocks[-1].any():
            blocks = blocks[:-1]
        bits = (blocks[:, :MARK_BITS] & 1).astype(np.uint8)
        marks = np.packbits(bits, axis=1, bitorder="little").view("<u4")
        foreign = np.flatnonzero(marks[:, 0] != heard.seed)
        assert not len(foreign), f"{heard.name}: sound of {marks[foreign[0], 0]}, not of {heard.seed}"
        wrong = np.flatnonzero(marks[:, 1] != np.arange(due, due + len(marks)))
        assert not len(wrong), f"{heard.name}: block {marks[wrong[0], 1]} where {due + wrong[0]} was due"
        due += len(blocks)
    return due


def loudest_tone(samples: NDArray[np.int16], rate: int = RATE) -> float:
    """The pitch (Hz) of the synthetic engine's tones that is strongest, by Goertzel's projections."""
    times = np.arange(len(samples)) / rate
    pitches = np.array([tone_hz(seed) for seed in range(TONES)])
    waves = np.exp(-2j * np.pi * np.outer(pitches, times))
    return float(pitches[np.argmax(np.abs(waves @ samples.astype(np.float64)))])


def check_tone(samples: NDArray[np.int16], seed: int, rate: int = RATE) -> None:
    """Each 40 ms of decoded sound, but for its very beginning and end, has the seed's pitch and no other."""
    step = rate // 25
    for at in range(step, len(samples) - 2 * step + 1, step):
        found = loudest_tone(samples[at : at + step], rate)
        assert found == tone_hz(seed), f"{found} Hz at sample {at}, expected {tone_hz(seed)} Hz"


async def eventually(holds: Callable[[], bool], *, within_s: float = 5.0) -> float:
    """Seconds until it holds; fails past the limit. The check may block for a few milliseconds."""
    began = time.monotonic()
    while not await asyncio.to_thread(holds):
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        await asyncio.sleep(0.005)
    return time.monotonic() - began
