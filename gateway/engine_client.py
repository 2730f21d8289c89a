"""A named link to an engine: connects, hands over the ring, keeps watch, and gives out streams.

The engine's messages become calls on the stream's listener, in order, on the event loop. A link outlives its
engines: when one is lost every stream fails at once and the link waits for the next incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Literal, cast

import structlog

from engine import wire
from engine.ring import RingError, RingReader
from gateway.engine_stream import EngineStream, Listener
from gateway.errors import EngineFailed, EngineLost

log = structlog.get_logger(__name__)

WATCH_S: Final = 0.1
"""How often credits are sent and the engine's word is checked."""
RECONNECT_S: Final = 0.2

State = Literal["starting", "ready", "stalled", "lost"]


class EngineLink:
    """A gateway's end of the link named `name`; `run` serves it, incarnation after incarnation."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        ring_ms: int,
        stall_s: float,
        stall_kill_s: float,
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self._address = address
        self._ring_ms = ring_ms
        self._stall_s = stall_s
        self._stall_kill_s = stall_kill_s
        self._clock = clock
        self._on_change = on_change
        """Called when a slot comes free or the state changes."""
        self._numbers = count(1)
        self._streams: dict[int, EngineStream] = {}
        self._socket: _Socket | None = None
        self._heard = 0.0
        self._busy_until = 0.0
        self.figures: dict[str, float] = {}
        """Of the engine's caches and slots, as it last told them."""
        self.state: State = "starting"
        self.spec: wire.Ready | None = None
        """The engine's own description: of the last one, while there is none."""
        self._ring: RingReader | None = None

    @property
    def used_slots(self) -> int:
        """Slots that this gateway holds."""
        return len(self._streams)

    @property
    def free_slots(self) -> int:
        """Slots that `open` can take now."""
        if self.state != "ready" or self.spec is None:
            return 0
        return self.spec.slots - len(self._streams)

    def open(self, *, voice: str, parameters: wire.Parameters, seed: int, listener: Listener) -> EngineStream:
        """Take a slot, of which one must be free. Raises `EngineLost` when the engine went meanwhile."""
        if self.state != "ready":
            raise EngineLost("the engine was lost", retry_after_ms=2000)
        assert self.free_slots > 0
        assert self._ring is not None
        number = next(self._numbers)
        stream = EngineStream(self.send, self._ring, number, listener)
        self._streams[number] = stream
        self.send(wire.Open(number, voice, parameters, seed))
        return stream

    def send(self, message: wire.ToEngine) -> None:
        """To the engine, if there is one."""
        if self._socket is not None:
            self._socket.write(wire.encode(message))

    async def run(self) -> None:
        """Serve the link until cancelled."""
        while True:
            try:
                await self._serve()
            except (OSError, OverflowError, RingError, wire.LinkError) as error:
                log.warning("engine link lost", link=self.name, reason=str(error))
            finally:
                self._lose("lost", "the engine was lost")
            await asyncio.sleep(RECONNECT_S)

    # --- one incarnation ----------------------------------------------------------------------------------

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.closing(raw):
            await loop.sock_connect(raw, self._address)
            frames = wire.FrameBuffer()
            bodies: list[bytes] = []
            while not bodies:
                data = await loop.sock_recv(raw, 65536)
                if not data:
                    raise wire.LinkError("the engine closed the link before it was ready")
                bodies = frames.feed(data)
            ready = wire.decode_from_engine(bodies.pop(0))
            if not isinstance(ready, wire.Ready):
                raise wire.LinkError("the engine did not begin with 'ready'")
            self._ring = self._hand_over(raw, ready)
            await self._watch(raw, frames, bodies, ready)

    def _hand_over(self, raw: socket.socket, ready: wire.Ready) -> RingReader:
        samples = ready.sample_rate * self._ring_ms // 1000
        ring, fd = RingReader.create(ready.slots, samples)
        try:
            socket.send_fds(raw, [wire.encode(wire.Hello(samples))], [fd])
        finally:
            os.close(fd)
        return ring

    async def _watch(
        self, raw: socket.socket, frames: wire.FrameBuffer, bodies: list[bytes], ready: wire.Ready
    ) -> None:
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(ready.pid)
        try:
            transport, protocol = await loop.create_connection(
                lambda: _Socket(frames, self._receive), sock=raw.dup()
            )
            try:
                self.spec = ready
                self._socket = protocol
                self._heard = self._clock()
                self._busy_until = 0.0
                for body in bodies:
                    self._receive(body)
                self._turn("ready")
                log.info("engine link ready", link=self.name, model=ready.model, slots=ready.slots)
                while not protocol.lost.done():
                    due = self._clock() + WATCH_S
                    await asyncio.wait([protocol.lost], timeout=WATCH_S)
                    self._forgive(self._clock() - due)
                    self._send_credits()
                    self._check_progress(pidfd)
                raise protocol.lost.result()
            finally:
                transport.abort()
        finally:
            os.close(pidfd)

    def _forgive(self, late_s: float) -> None:
        """Where this loop itself stood still, what the engine said lies unread in the socket."""
        if late_s > WATCH_S:
            self._heard = min(self._clock(), self._heard + late_s)
            if self._busy_until:
                self._busy_until += late_s

    def _check_progress(self, pidfd: int) -> None:
        """An engine is hung when it says nothing, or runs past its own word."""
        now = self._clock()
        overdue = now - self._busy_until if self._busy_until else 0.0
        late = max(now - self._heard, overdue)
        if late < self._stall_s:
            if self.state == "stalled":
                self._turn("ready")
        elif late < self._stall_kill_s:
            if self.state == "ready":
                log.warning("engine stalled", link=self.name, late_s=round(late, 1))
                self._lose("stalled", "the engine hangs")
        else:
            log.error("engine killed, as it hangs", link=self.name, late_s=round(late, 1))
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            raise wire.LinkError("the engine hung and was killed")

    def _send_credits(self) -> None:
        assert self.spec is not None
        assert self._socket is not None
        credits = [stream.credit(self.spec.sample_rate) for stream in self._streams.values()]
        if frames := [wire.encode(credit) for credit in credits if credit]:
            self._socket.write(b"".join(frames))

    def _receive(self, body: bytes) -> None:
        self._heard = self._clock()
        match wire.decode_from_engine(body):
            case wire.Audio(blocks):
                self._wrote(blocks)
            case wire.Progress(busy_until, figures):
                self._busy_until = busy_until
                self.figures = figures
            case wire.SentenceDone() as done:
                if stream := self._streams.get(done.utterance):
                    stream.ended(done)
            case wire.Opened() as opened:
                if stream := self._streams.get(opened.utterance):
                    stream.opened(opened)
            case wire.Closed(utterance):
                if stream := self._free(utterance):
                    stream.closed()
            case wire.Failed(utterance, code, message):
                if stream := self._free(utterance):
                    stream.listener.on_failed(EngineFailed.of(code, message))
            case wire.Checkpoint():
                pass  # carried by the link; nothing resumes from one yet
            case wire.Ready():
                raise wire.LinkError("a second 'ready'")

    def _wrote(self, blocks: Sequence[wire.Block]) -> None:
        for block in blocks:
            if stream := self._streams.get(block.utterance):
                stream.wrote(block)

    def _free(self, utterance: int) -> EngineStream | None:
        stream = self._streams.pop(utterance, None)
        self._on_change()
        return stream

    def _lose(self, state: State, reason: str) -> None:
        """No engine is there to speak: every stream fails."""
        if state == "lost":
            self._socket = None
            self._ring = None
            streams, self._streams = self._streams, {}
        else:
            streams = dict(self._streams)
        if self.state != "starting":
            self._turn(state)
        for stream in streams.values():
            listener = stream.listener
            if state == "stalled":
                stream.cancel()
            listener.on_failed(EngineLost(reason, retry_after_ms=2000))

    def _turn(self, state: State) -> None:
        self.state = state
        self._on_change()


class _Socket(asyncio.Protocol):
    """Moves bytes; `lost` ends with the connection, or with what was wrong with what came by it."""

    def __init__(self, frames: wire.FrameBuffer, receive: Callable[[bytes], None]) -> None:
        self._frames = frames
        self._receive = receive
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def write(self, data: bytes) -> None:
        """Never waits. The engine's control thread always reads, so little can wait here."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._receive(body)
        except wire.LinkError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(wire.LinkError("the engine closed the link"))

    def _end(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
