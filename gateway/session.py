"""One client's connection: moves messages between the socket, the protocol machine and its utterances."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from typing import Any, Final

import structlog
from aiohttp import WSMsgType, web

from gateway.errors import CloseCode, SpeechError
from gateway.messages import (
    Auth,
    Cancel,
    End,
    Flush,
    Hello,
    Played,
    ServerMessage,
    Start,
    Text,
    VoiceInfo,
)
from gateway.options import Options
from gateway.outbox import Outbox, SocketWire
from gateway.protocol import Event, Hangup, Protocol, Reply
from gateway.services import Services
from gateway.utterance import Utterance

log = structlog.get_logger(__name__)

WATCH_S: Final = 0.25
CLOSE_S: Final = 1.0
"""How long a client has to answer a close."""
MAX_STREAM: Final = 0xFFFF


class Session:
    """A connected client, from `hello` to the close."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport,
        services: Services,
        *,
        authenticated: bool,
    ) -> None:
        spec = services.link.spec
        assert spec is not None
        self.id = secrets.token_hex(8)
        self._socket = socket
        self._transport = transport
        self._outbox = Outbox(
            SocketWire(socket, transport), max_bytes=services.config.outbound_bytes, clock=services.clock
        )
        self._services = services
        self._limits = services.config.limits(spec.max_chars)
        self._protocol = Protocol(self._limits, authenticated=authenticated)
        self._authenticated = authenticated
        self._utterances: dict[str, Utterance] = {}
        self._tasks: dict[asyncio.Task[None], Utterance] = {}
        self._streams = 0
        self._draining = False
        self._hangup: asyncio.Future[Hangup] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve the client until either side closes. Whatever it held is free on return."""
        self._services.metrics.sessions.inc()
        opened = self._services.clock()
        log.info("session opened", session=self.id)
        reader = asyncio.create_task(self._read(), name=f"read {self.id}")
        watch = asyncio.create_task(self._watch(), name=f"watch {self.id}")
        try:
            ways_out: set[asyncio.Future[Any]] = {reader, watch, self._hangup}
            await asyncio.wait(ways_out, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, watch, *self._tasks):
                task.cancel()
            results = await asyncio.gather(reader, watch, *self._tasks, return_exceptions=True)
            self._services.metrics.sessions.dec()
        for result in results:
            if isinstance(result, Exception):
                log.error("session crashed", session=self.id, exc_info=result)
                self.hang_up(CloseCode.INTERNAL, "internal error")
        hangup = self._hangup.result() if self._hangup.done() else Hangup(CloseCode.NORMAL, "")
        await self._close(hangup)
        log.info(
            "session closed",
            session=self.id,
            code=self._socket.close_code,
            reason=hangup.reason,
            seconds=round(self._services.clock() - opened, 3),
            utterances=self._streams,
            bytes=self._outbox.sent_bytes,
        )

    def hang_up(self, code: CloseCode, reason: str) -> None:
        """End the session with this code; the first call counts."""
        if not self._hangup.done():
            self._hangup.set_result(Hangup(code, reason))

    async def _close(self, hangup: Hangup) -> None:
        """Say goodbye; a client that does not answer is cut off."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._socket.close(code=hangup.code, message=hangup.reason.encode(), drain=False)
        self._transport.abort()

    async def drain(self) -> None:
        """Take no new utterances; returns when those under way are over."""
        self._draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- in -----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Until the client closes or breaks the protocol of WebSocket, which aiohttp answers."""
        if self._authenticated:
            await self._greet()
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                events = self._protocol.receive_text(message.data)
            elif message.type is WSMsgType.BINARY:
                events = self._protocol.receive_binary()
            else:
                return
            for event in events:
                await self._handle(event)

    async def _handle(self, event: Event) -> None:
        match event:
            case Reply(message):
                await self._send(message)
            case Hangup(code, reason):
                self.hang_up(code, reason)
            case Auth(token):
                await self._authenticate(token)
            case Start():
                await self._start(event)
            case Text(name, text):
                if utterance := self._utterances.get(name):
                    await utterance.feed(text)
            case Flush(name):
                if utterance := self._utterances.get(name):
                    utterance.flush()
            case End(name):
                if utterance := self._utterances.get(name):
                    utterance.end()
            case Cancel(name, played_ms):
                if utterance := self._utterances.get(name):
                    utterance.cancel(played_ms)
            case Played(name, ms):
                if utterance := self._utterances.get(name):
                    utterance.report_played(ms)

    async def _authenticate(self, token: str) -> None:
        expected = self._services.config.token
        if expected is not None and hmac.compare_digest(token.encode(), expected.encode()):
            self._authenticated = True
            self._protocol.authenticate()
            await self._greet()
        else:
            self.hang_up(CloseCode.POLICY, "unauthorized")

    async def _start(self, start: Start) -> None:
        spec = self._services.link.spec
        assert spec is not None
        try:
            if self._draining:
                raise SpeechError("the server restarts; reconnect", code="draining", retry_after_ms=1000)
            options = Options.choose(start, spec, self._services.config)
        except SpeechError as error:
            await self._send(error.as_message(start.utterance))
            return
        self._streams = self._streams % MAX_STREAM + 1
        utterance = Utterance(
            start.utterance,
            options,
            stream=self._streams,
            services=self._services,
            outbox=self._outbox,
            post=self._post,
        )
        self._utterances[start.utterance] = utterance
        task = asyncio.create_task(utterance.run(), name=f"utterance {self.id}")
        self._tasks[task] = utterance
        task.add_done_callback(self._on_over)

    def _on_over(self, task: asyncio.Task[None]) -> None:
        utterance = self._tasks.pop(task)
        del self._utterances[utterance.name]
        if not task.cancelled() and (error := task.exception()):
            log.error("utterance crashed", session=self.id, exc_info=error)
            self.hang_up(CloseCode.INTERNAL, "internal error")

    # --- out ----------------------------------------------------------------------------------------------

    async def _greet(self) -> None:
        spec = self._services.link.spec
        assert spec is not None
        await self._send(
            Hello(
                session=self.id,
                limits=self._limits,
                voices=tuple(VoiceInfo(id=v.id, name=v.name, languages=v.languages) for v in spec.voices),
                default_voice=self._services.config.voice or spec.default_voice,
                engines={self._services.link.name: self._services.link.state},
            )
        )

    def _post(self, message: ServerMessage) -> None:
        """The one way out for text messages: the protocol machine sees them all."""
        self._outbox.put(self._protocol.send(message))

    async def _send(self, message: ServerMessage) -> None:
        self._post(message)
        await self._outbox.drain()

    async def _watch(self) -> None:
        """Hold the deadlines: the first message, and the writes to a slow reader."""
        config = self._services.config
        deadline = self._services.clock() + config.auth_s
        while True:
            await asyncio.sleep(WATCH_S)
            await self._outbox.drain()
            if not self._authenticated and self._services.clock() > deadline:
                self.hang_up(CloseCode.POLICY, "auth first")
            if self._outbox.blocked_s() > config.write_deadline_s or self._outbox.overflowed:
                self._services.metrics.slow_consumers.inc()
                log.info("slow consumer closed", session=self.id)
                self.hang_up(CloseCode.POLICY, "slow_consumer")
