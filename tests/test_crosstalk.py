"""No sound of one listener ever reaches another, and none is lost or heard twice, whatever the others do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct

import numpy as np
import opuslib_next

from engine.synthetic.model import RATE
from tests.checks import check_marks, check_order, check_tone
from tests.listener import Heard, Listener, eventually, listening
from tests.server import Server

SOCKETS = 16
UTTERANCES = 50
AT_ONCE = 3
"""Utterances of a socket that are under way together."""
CANCELLED = 0.2
DISCONNECTED = 0.04
OPUS = 0.1
WORDS = ("one", "small", "step", "for", "any", "man", "is", "two", "big", "steps", "for", "all", "of", "us")


def make_text(chance: random.Random) -> str:
    sentences = (" ".join(chance.choices(WORDS, k=chance.randint(1, 7))) for _ in range(chance.randint(1, 4)))
    return " ".join(sentence.capitalize() + chance.choice(".?!") for sentence in sentences)


def pieces(text: str, chance: random.Random) -> list[str]:
    cuts = sorted(chance.sample(range(len(text) + 1), k=min(len(text), chance.randint(0, 5))))
    return [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def reset_connection(listener: Listener) -> None:
    """The client is gone with an RST."""
    transport = listener.socket.transport
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


class Crowd:
    """What all sockets did."""

    def __init__(self) -> None:
        self.seeds = iter(range(1, 1 << 20))
        self.outcomes = {"done": 0, "cancelled": 0, "lost": 0}
        self.blocks = 0
        self.opus = 0

    def judge(self, heard: Heard, *, complete: bool) -> None:
        check_order(heard, complete=complete)
        outcome = heard.terminal["type"] if heard.over.is_set() else "lost"
        assert outcome in self.outcomes, heard.terminal
        self.outcomes[outcome] += 1
        if heard.format == "pcm":
            blocks = check_marks(heard)
            self.blocks += blocks
            if outcome == "done":
                assert blocks == heard.spoken_blocks
        elif outcome == "done":
            self.opus += 1
            for sentence in sentences(heard):
                check_tone(decode(sentence), heard.seed)


def sentences(heard: Heard) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    for sound in heard.sounds:
        if sound.resets:
            found.append([])
        if sound.packets:
            found[-1].extend(sound.packets)
    return found


def decode(packets: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    decoder = opuslib_next.Decoder(RATE, 1)
    return np.frombuffer(b"".join(decoder.decode(packet, 480) for packet in packets), "<i2")


async def speak(listener: Listener, name: str, crowd: Crowd, chance: random.Random) -> Heard:
    """One utterance, cut into pieces at random and perhaps cancelled."""
    seed = next(crowd.seeds)
    form = "opus" if chance.random() < OPUS else "pcm"
    heard = await listener.start(name, seed=seed, format=form, bundle=chance.choice((1, 3, 10)))
    cancelling = chance.random() < CANCELLED
    for piece in pieces(make_text(chance), chance):
        await listener.text(heard, piece)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.uniform(0.0, 0.03))
    if not cancelling or chance.random() < 0.7:
        await listener.end(heard)
    if cancelling:
        await asyncio.sleep(chance.uniform(0.0, 0.15))
        await listener.cancel(heard)
    await listener.wait(heard, within_s=60.0)
    return heard


async def occupy(server: Server, number: int, crowd: Crowd) -> None:
    """One seat: a socket after the other, until its share of utterances is spoken."""
    chance = random.Random(number)
    left = UTTERANCES
    while left:
        async with listening(server.ws_url) as listener:
            leaving = asyncio.Event()

            async def take_turns(
                lane: int, listener: Listener = listener, leaving: asyncio.Event = leaving
            ) -> None:
                nonlocal left
                turn = 0
                while left and not leaving.is_set():
                    left -= 1
                    turn += 1
                    await speak(listener, f"{lane}.{turn}", crowd, chance)

            lanes = asyncio.gather(*(take_turns(lane) for lane in range(AT_ONCE)))
            if left > UTTERANCES // 2 and chance.random() < DISCONNECTED * 12:
                await asyncio.sleep(chance.uniform(0.2, 1.0))
                leaving.set()
                lanes.cancel()
                reset_connection(listener)
            with contextlib.suppress(asyncio.CancelledError):
                await lanes
            if not leaving.is_set():
                await listener.settle()
        for heard in listener.heard.values():
            # On a thread: a loop that stands still for seconds sends no text, and idle slots are given back.
            await asyncio.to_thread(crowd.judge, heard, complete=not leaving.is_set())


async def test_crosstalk(tones: Server) -> None:
    crowd = Crowd()
    async with asyncio.timeout(120):
        await asyncio.gather(*(occupy(tones, number, crowd) for number in range(SOCKETS)))
    print(f"{crowd.outcomes}, {crowd.blocks} blocks of 10 ms, {crowd.opus} in Opus")
    assert sum(crowd.outcomes.values()) == SOCKETS * UTTERANCES
    assert min(*crowd.outcomes.values(), crowd.opus) > 10, "the crowd did not do what it should"
    await eventually(lambda: tones.health()["engines"]["main"]["used_slots"] == 0)
    health = tones.health()
    assert (health["sessions"], health["queue"]) == (0, 0)
    assert "Traceback" not in tones.output()
