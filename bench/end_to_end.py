"""Streams through the whole gateway: how many clients hear ChatTTS in real time at once, with no gap."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from rich.console import Console

from bench.load import PlayoutClock
from bench.server import Server, serving
from gateway.client import connect
from gateway.messages import FRAME_MS, AudioMessage, Done

TEXT: Final = "今天天气很好我们一起去公园走走。明天我们再去河边看看那些小船。"
MOST: Final = 6


def hold(weights: str, threads: int, console: Console) -> int:
    """The most clients that all heard two sentences each without a gap."""
    held = 0
    with serving(kind="chattts", weights=weights, threads=threads, slots=MOST, backend="onnx") as server:
        for count in range(1, MOST + 1):
            # Twice, since other work on the machine may spoil one.
            gaps = min(asyncio.run(_gaps(server, count)) for _ in range(2))
            console.print(f"end to end: {count} clients, {gaps} gaps")
            if gaps:
                break
            held = count
    return held


async def _gaps(server: Server, count: int) -> int:
    """Gaps that `count` clients heard together."""
    return sum(await asyncio.gather(*(_listen(server, number) for number in range(count))))


async def _listen(server: Server, number: int) -> int:
    clock = PlayoutClock()
    async with connect(server.url) as client:
        utterance = await client.start(seed=number)
        await utterance.send_all(TEXT)
        async for event in utterance.events():
            if isinstance(event, AudioMessage):
                clock.feed(time.monotonic(), FRAME_MS * len(event.packets))
    if not isinstance(utterance.ended, Done):
        raise SystemExit(f"a stream ended as {utterance.ended}")
    return clock.underruns
