"""Client process of `bench/gateway.py`: paced streams as cheap as they can be, so that not they are measured.

It reads commands from standard input, a line each, and answers each with a line of JSON: `mark` (figures so
far), `probe N` (time to first audio of N short utterances under this load), `stop`. The streams take raw
frames and look at a header of 16 bytes; nothing is decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import click
import uvloop
from websockets.asyncio.client import connect as open_socket
from websockets.typing import Subprotocol

from gateway.client import connect
from gateway.messages import FRAME_MS, SUBPROTOCOL, AudioMessage

SENTENCES_AHEAD: Final = 3
"""Sentences that the gateway holds beyond the one that sounds: there is always text to speak."""
SENTENCE: Final = "This is sentence number {} of a story that goes on for as long as one listens. "
PROBE_TEXT: Final = "Here is a short answer to your question."
PROBE_PAUSE_S: Final = 0.05

_HEADER: Final = struct.Struct("<BBHIIHH")
_JSON_START: Final = ord("{")


@dataclass(slots=True)
class PlayoutClock:
    """A listener who plays from the first packet on: counts the times when there was nothing to play."""

    received_ms: int = 0
    underruns: int = 0
    _started_at: float = 0.0

    def feed(self, now: float, ms: int) -> None:
        """`ms` of audio arrived."""
        if self.received_ms == 0:
            self._started_at = now
        late_ms = 1000 * (now - self._started_at) - self.received_ms
        if late_ms > 0 and self.received_ms > 0:
            self.underruns += 1
            self._started_at += late_ms / 1000
        self.received_ms += ms


@dataclass(slots=True)
class Stream:
    """One socket with one utterance that never ends."""

    number: int
    ttfa_ms: float | None = None
    clock: PlayoutClock = field(default_factory=PlayoutClock)
    first_audio: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, url: str) -> None:
        """Listen until cancelled. Raises if the gateway ends the utterance."""
        async with open_socket(
            url, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, proxy=None
        ) as socket:
            await socket.recv()
            start = {"type": "start", "utterance": "u", "pace": "realtime", "seed": self.number}
            await socket.send(json.dumps(start))
            sent_at = time.monotonic()
            for number in range(1 + SENTENCES_AHEAD):
                await socket.send(_text(number))
            while True:
                data = await socket.recv(decode=False)
                if data[0] != _JSON_START:
                    self._take_audio(data, sent_at)
                    continue
                message = json.loads(data)
                if message["type"] == "sentence":
                    await socket.send(_text(message["index"] + 1 + SENTENCES_AHEAD))
                elif message["type"] in ("done", "error", "cancelled"):
                    raise RuntimeError(f"stream {self.number} ended: {message}")

    def _take_audio(self, data: bytes, sent_at: float) -> None:
        now = time.monotonic()
        if self.ttfa_ms is None:
            self.ttfa_ms = 1000 * (now - sent_at)
            self.first_audio.set()
        self.clock.feed(now, FRAME_MS * _HEADER.unpack_from(data)[5])


def _text(number: int) -> str:
    return json.dumps({"type": "text", "utterance": "u", "text": SENTENCE.format(number)})


async def probe(url: str, count: int) -> list[float]:
    """Time to first audio, ms, of short utterances one after the other on a socket of their own."""
    ttfa_ms: list[float] = []
    async with connect(url) as client:
        for _ in range(count):
            utterance = await client.start()
            await utterance.send_all(PROBE_TEXT)
            async for event in utterance.events():
                if isinstance(event, AudioMessage) and utterance.first_audio_at is not None:
                    break
            if utterance.ttfa_ms is None:
                raise RuntimeError(f"a probe ended without sound: {utterance.ended}")
            ttfa_ms.append(utterance.ttfa_ms)
            await utterance.cancel()
            await utterance.collect()
            await asyncio.sleep(PROBE_PAUSE_S)
    return ttfa_ms


def answer(**values: Any) -> None:
    """One line to the parent."""
    print(json.dumps(values), flush=True)


async def obey(url: str, streams: list[Stream]) -> None:
    """Answer the parent's commands until `stop`, or until the parent is gone."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    for stream in streams:
        await stream.first_audio.wait()
    answer(ttfa_ms=[stream.ttfa_ms for stream in streams])
    while line := (await commands.readline()).decode().split():
        match line:
            case ["mark"]:
                answer(
                    received_ms=sum(stream.clock.received_ms for stream in streams),
                    underruns=sum(stream.clock.underruns for stream in streams),
                )
            case ["probe", count]:
                answer(ttfa_ms=await probe(url, int(count)))
            case _:
                return


async def load(url: str, first: int, count: int, ramp_s: float) -> None:
    """Start the streams evenly over `ramp_s`, then obey. One stream's failure ends all."""
    streams = [Stream(number) for number in range(first, first + count)]
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            tasks = []
            obeying = group.create_task(obey(url, streams))
            for stream in streams:
                tasks.append(group.create_task(stream.run(url)))
                await asyncio.sleep(ramp_s / count)
            await obeying
            for task in tasks:
                task.cancel()


@click.command()
@click.option("--url", required=True)
@click.option("--first", required=True, type=int, help="Number of the first stream: its seed.")
@click.option("--count", required=True, type=int)
@click.option("--ramp-s", required=True, type=float)
def main(url: str, first: int, count: int, ramp_s: float) -> None:
    """Hold COUNT streams open."""
    uvloop.run(load(url, first, count, ramp_s))


if __name__ == "__main__":
    main()
