"""Readers that do not keep up: nothing of theirs is lost while they live, and they cost nobody anything."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from tests.checks import check_marks, check_order
from tests.listener import eventually, listening
from tests.raw import RawClient, frame
from tests.server import Server, running

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom. "
DEADLINE_S = 1.0
SLACK = 5
MIB = 1 << 20


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """A server with a short write deadline."""
    env = {"SAYFLOW_WRITE_DEADLINE_S": str(DEADLINE_S)}
    with running("--engine", "synthetic", "--slots", "32", env=env) as server:
        yield server


def narrow_socket(server: Server) -> socket.socket:
    """Connected, and taking in little."""
    parts = urlsplit(server.url)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect((parts.hostname, parts.port))
    raw.setblocking(False)
    return raw


async def speak_to_one_who_pauses(server: Server, chars: int, pace: str) -> None:
    """Reads nothing until all is made and the sockets are full, then everything."""
    async with listening(server.ws_url, sock=narrow_socket(server)) as listener:
        heard = await listener.start("a", seed=77, sample_rate=48000, bundle=1, pace=pace)
        await eventually(lambda: bool(heard.log))
        listener.socket.transport.pause_reading()
        await listener.text(heard, "a" * chars)
        await listener.end(heard)
        await asyncio.sleep(1.0 if pace == "fast" else 1.0 + 0.06 * chars)
        listener.socket.transport.resume_reading()
        await listener.wait(heard)
    check_order(heard)
    assert heard.milliseconds == 60 * chars


@pytest.mark.parametrize("pace", ["fast", "realtime"])
async def test_the_end_reaches_one_who_pauses(tones: Server, pace: str) -> None:
    """Of 6 KiB to 240 KiB of sound: somewhere between, the last messages wait when `done` is due."""
    await asyncio.gather(*(speak_to_one_who_pauses(tones, chars, pace) for chars in range(10, 42, 2)))


def read_nothing(server: Server) -> RawClient:
    client = RawClient(server.url, receive_buffer=2048)
    for number in range(8):
        name = f"u{number}"
        start = {"type": "start", "utterance": name, "format": "pcm", "sample_rate": 48000, "pace": "fast"}
        for message in (start, {"type": "text", "utterance": name, "text": TEXT * 100}):
            client.send(frame(json.dumps(message).encode()))
    return client


async def stall(server: Server, clients: int) -> float:
    """Seconds until this many who read nothing have been closed."""
    before = await asyncio.to_thread(server.metric, "sayflow_slow_consumers_total")
    began = time.monotonic()
    stalled = [await asyncio.to_thread(read_nothing, server) for _ in range(clients)]
    took_s = await eventually(
        lambda: server.metric("sayflow_slow_consumers_total") == before + clients,
        within_s=SLACK * (DEADLINE_S + 2),
    )
    assert took_s <= time.monotonic() - began
    for client in stalled:
        assert await asyncio.to_thread(client.close_code) in (1006, 1008)
        client.socket.close()
    return time.monotonic() - began


async def test_readers_of_nothing_are_closed_at_the_deadline(hasty: Server) -> None:
    worker = hasty.child("gateway.worker")
    async with listening(hasty.ws_url) as listener:
        neighbours = [await listener.say(f"n{n}", TEXT * 4, seed=50 + n, pace="realtime") for n in range(4)]
        await stall(hasty, 3)  # what the process allocates once and keeps is there from now on
        memory = worker.memory_info().rss
        took_s = await stall(hasty, 3)
        growth = worker.memory_info().rss - memory
        await eventually(lambda: hasty.health()["sessions"] == 1)
        await eventually(lambda: hasty.health()["engines"]["main"]["used_slots"] <= len(neighbours))
        for neighbour in neighbours:
            await listener.cancel(neighbour)
        await listener.wait(*neighbours)
    print(f"closed {took_s:.2f} s after they stopped to read; the gateway grew by {growth / MIB:.2f} MiB")
    assert took_s > DEADLINE_S
    assert growth < 3 * MIB, "more than 1 MiB a client"
    for neighbour in neighbours:
        check_order(neighbour)
        check_marks(neighbour)
        assert neighbour.milliseconds >= 2000, "a neighbour went without sound"
        gaps = [after.at - before.at for before, after in pairwise(neighbour.sounds[40:])]
        assert max(gaps, default=0.0) < 0.5
    assert "Traceback" not in hasty.output()


async def test_one_who_reads_slowly_hears_it_all(hasty: Server) -> None:
    """Half of the deadline between reads is slow, but alive."""
    async with listening(hasty.ws_url, sock=narrow_socket(hasty)) as listener:
        heard = await listener.say("a", TEXT * 4, seed=6)
        while not heard.over.is_set():
            listener.socket.transport.pause_reading()
            await asyncio.sleep(DEADLINE_S * 0.3)
            listener.socket.transport.resume_reading()
            await asyncio.sleep(0.02)
    check_order(heard)
    assert heard.terminal["type"] == "done"
    assert check_marks(heard) == heard.spoken_blocks > 6 * 300


async def test_a_cancel_reaches_one_who_pauses_before_any_more_sound(hasty: Server) -> None:
    async with listening(hasty.ws_url, sock=narrow_socket(hasty)) as listener:
        heard = await listener.start("a", seed=77, sample_rate=48000, bundle=10)
        await eventually(lambda: bool(heard.log))
        listener.socket.transport.pause_reading()
        await listener.text(heard, TEXT * 10)
        await asyncio.sleep(0.5)
        await listener.cancel(heard)
        await asyncio.sleep(0.1)
        listener.socket.transport.resume_reading()
        await listener.wait(heard)
        await listener.settle()
    check_order(heard)
