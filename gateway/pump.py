"""The heartbeat of playout: every 20 ms, encode what is due on one worker thread, then send it.

One executor call a tick for all tracks costs a small part of one call a packet. A track's first sound does
not wait for the tick: `kick` encodes its first message on the loop, a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import structlog

from gateway.errors import SpeechError
from gateway.messages import AudioMessage
from gateway.track import Starts, Track

log = structlog.get_logger(__name__)

TICK_S: Final = 0.020
FIRST: Final = 4
"""Packets sent at once when a stream's first sound is there: enough to last until a tick comes round."""
YIELD_EVERY: Final = 8
"""Tracks sent before others of the event loop get their turn."""
BUDGET: Final = 240
"""Packets of one batch, about 15 ms of encoding: a new stream waits for the batch under way."""
RUSH: Final = 6
"""Packets of a track in a batch that cannot hold all that is due."""


class Player(Protocol):
    """An utterance, as the pump sees it."""

    @property
    def track(self) -> Track:
        """Its sound."""

    @property
    def is_blocked(self) -> bool:
        """The client does not take what it was sent."""

    async def play(self, messages: Sequence[Starts | AudioMessage], now: float) -> None:
        """Hand these to the client's outbox."""

    def on_tick(self, now: float) -> None:
        """Time passed."""

    def fail(self, error: SpeechError) -> None:
        """The sound cannot be trusted; the utterance ends."""


class Pump:
    """All tracks of a gateway."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._players: dict[Track, Player] = {}
        self._encoding: frozenset[Track] = frozenset()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="opus")

    def add(self, player: Player) -> None:
        """Play its track from now on."""
        self._players[player.track] = player

    def discard(self, player: Player) -> None:
        """Play no more of it. A batch under way may still read its ring; nothing of that is sent."""
        self._players.pop(player.track, None)

    async def kick(self, player: Player) -> None:
        """First sound is there: send it now."""
        track = player.track
        if (
            track in self._players
            and track.is_fresh
            and track not in self._encoding
            and not player.is_blocked
        ):
            track.encode(FIRST)
            await self._dispatch(player, FIRST)

    async def run(self) -> None:
        """Tick until cancelled. Deadlines are absolute, so that lateness does not add up."""
        deadline = self._clock()
        try:
            while True:
                deadline = max(deadline + TICK_S, self._clock() - 10 * TICK_S)
                await asyncio.sleep(deadline - self._clock())
                await self._tick(self._clock())
        finally:
            self._executor.shutdown(wait=True)

    async def _tick(self, now: float) -> None:
        due: list[tuple[Player, int]] = []
        for player in list(self._players.values()):
            if now < player.track.playout.resting_until:
                continue
            player.on_tick(now)
            if not player.is_blocked and (count := player.track.due(now)):
                due.append((player, count))
        if not due:
            return
        due = _within_budget(due, now)
        self._encoding = frozenset(player.track for player, _ in due)
        work = [(player.track, count) for player, count in due]
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, _encode, work)
        finally:
            self._encoding = frozenset()
        for number, (player, count) in enumerate(due, 1):
            if player.track in self._players:
                await self._dispatch(player, count)
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # sending never waits, so that others would have no turn

    async def _dispatch(self, player: Player, count: int) -> None:
        now = self._clock()
        try:
            messages = player.track.dispatch(count, now)
        except SpeechError as error:
            player.fail(error)
            return
        if messages:
            await player.play(messages, now)


def _within_budget(due: list[tuple[Player, int]], now: float) -> list[tuple[Player, int]]:
    """What one batch holds: in a rush a little for each, those with the least in hand first."""
    if sum(count for _, count in due) <= BUDGET:
        return due
    due.sort(key=lambda work: work[0].track.playout.lead(now))
    return [(player, min(count, RUSH)) for player, count in due[: BUDGET // RUSH]]


def _encode(work: Sequence[tuple[Track, int]]) -> None:
    for track, count in work:
        track.encode(count)
