"""What waits to be sent to one client, in order and bounded; never lets anybody wait for a slow reader.

Messages are written to the socket while the transport holds little; past that they wait here, the client
counts as blocked (its tracks are not encoded), and past the deadline as a slow consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import web

WRITE_BUFFER: Final = 16_384
"""Bytes in the transport's own buffer past which nothing more is written to it."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A binary message of a stream."""

    stream: int
    data: bytes


class Wire(Protocol):
    """The socket, as the outbox sees it."""

    def unsent(self) -> int:
        """Bytes in the transport's buffer."""

    async def send(self, data: str | bytes) -> None:
        """Write one message; does not wait while `unsent` is small."""


class Outbox:
    """One client's unsent messages."""

    def __init__(self, wire: Wire, *, max_bytes: int, clock: Callable[[], float]) -> None:
        self._wire = wire
        self._max_bytes = max_bytes
        self._clock = clock
        self._queue: deque[str | Audio] = deque()
        self._bytes = 0
        self._draining = False
        self._blocked_at: float | None = None
        self.sent_bytes = 0

    @property
    def is_blocked(self) -> bool:
        """The client does not keep up."""
        return bool(self._queue)

    def blocked_s(self) -> float:
        """For how long nothing could be written."""
        return 0.0 if self._blocked_at is None else self._clock() - self._blocked_at

    @property
    def overflowed(self) -> bool:
        """More waits than may."""
        return self._bytes > self._max_bytes

    def put(self, message: str | Audio) -> None:
        """Queue a message; `drain` writes it."""
        self._queue.append(message)
        self._bytes += _size(message)

    def purge(self, stream: int) -> None:
        """Drop the sound of a stream that was silenced."""
        kept = [item for item in self._queue if not (isinstance(item, Audio) and item.stream == stream)]
        self._queue = deque(kept)
        self._bytes = sum(map(_size, kept))
        if not kept:
            self._blocked_at = None

    async def drain(self) -> None:
        """Write while the transport takes it."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue:
                if self._wire.unsent() > WRITE_BUFFER:
                    if self._blocked_at is None:
                        self._blocked_at = self._clock()
                    return
                item = self._queue.popleft()
                self._bytes -= _size(item)
                self._blocked_at = None
                data = item.data if isinstance(item, Audio) else item
                self.sent_bytes += _size(item)
                await self._wire.send(data)
            self._blocked_at = None
        finally:
            self._draining = False


def _size(item: str | Audio) -> int:
    return len(item.data) if isinstance(item, Audio) else len(item.encode())


class SocketWire:
    """An aiohttp WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self._socket = socket
        self._transport = transport

    def unsent(self) -> int:
        """Bytes in the transport's buffer."""
        return self._transport.get_write_buffer_size()

    async def send(self, data: str | bytes) -> None:
        """One message; to a socket that is closing it goes nowhere."""
        if self._socket.closed or self._transport.is_closing():
            return
        with contextlib.suppress(ConnectionError):  # the reading side learns of it and ends the session
            if isinstance(data, str):
                await self._socket.send_str(data)
            else:
                await self._socket.send_bytes(data)
