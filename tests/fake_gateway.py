"""A gateway for the client's tests: aiohttp on a free port, the real messages, and a script for manners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

import msgspec
from aiohttp import WSMsgType, web

from gateway import messages
from gateway.messages import AudioMessage, ClientMessage, Hello, Limits, ServerMessage, Started, VoiceInfo

PACKET_TICKS = messages.FRAME_MS * messages.TICKS_PER_MS


def make_hello(*, text_chars: int = 10_000, pending_chars: int = 100_000) -> Hello:
    return Hello(
        session="s1",
        limits=Limits(
            message_bytes=65_536,
            text_chars=text_chars,
            pending_chars=pending_chars,
            utterances=8,
            lead_ms=2000,
            write_deadline_s=10.0,
            sentence_chars=160,
        ),
        voices=(VoiceInfo(id="tone", name="Tone", languages=("en",)),),
        default_voice="tone",
        engines={"main": "ready"},
    )


class Peer:
    """The server's end of one connection."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request, hello: Hello) -> None:
        self.socket = socket
        self.request = request
        self.hello = hello
        self.received: list[ClientMessage] = []

    async def receive(self) -> ClientMessage:
        frame = await self.socket.receive()
        assert frame.type is WSMsgType.TEXT, f"expected a message, got {frame!r}"
        message = msgspec.json.decode(frame.data, type=ClientMessage)
        self.received.append(message)
        return message

    async def receive_text(self, name: str) -> str:
        """All text of an utterance, up to its `end`."""
        text = ""
        while True:
            message = await self.receive()
            match message:
                case messages.Text(utterance=utterance) if utterance == name:
                    text += message.text
                case messages.End(utterance=utterance) if utterance == name:
                    return text
                case _:
                    pass

    async def receive_close(self) -> int | None:
        """Wait for the end of the connection: its close code."""
        while (await self.socket.receive()).type is WSMsgType.TEXT:
            pass
        return self.socket.close_code

    async def send(self, message: ServerMessage) -> None:
        await self.socket.send_str(messages.encode(message))

    async def started(self, name: str, stream: int, *, sample_rate: int = 24_000) -> None:
        await self.send(
            Started(
                utterance=name, stream=stream, voice="tone", seed=1, format="opus", sample_rate=sample_rate
            )
        )

    async def audio(self, stream: int, packets: Sequence[bytes], *, sequence: int = 0, **flags: bool) -> None:
        message = AudioMessage(
            stream=stream, sequence=sequence, timestamp=sequence * PACKET_TICKS, packets=packets, **flags
        )
        await self.socket.send_bytes(messages.encode_audio(message))

    def drop(self) -> None:
        """Vanish without a close frame."""
        transport = self.request.transport
        assert transport is not None
        transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class FakeGateway:
    """`async with FakeGateway(script) as gateway: connect(gateway.url)`. Raises what a script raised."""

    def __init__(self, script: Script, *, hello: Hello | None = None, token: str | None = None) -> None:
        self._script = script
        self._hello = hello if hello is not None else make_hello()
        self._token = token
        self._failures: list[BaseException] = []
        self.headers: list[dict[str, str]] = []
        self.greet = True
        self.protocols: tuple[str, ...] = (messages.SUBPROTOCOL,)
        self.url = ""

    async def __aenter__(self) -> FakeGateway:
        app = web.Application()
        app.router.add_get("/v1/stream", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"ws://127.0.0.1:{port}/v1/stream"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        if error is None and self._failures:
            raise self._failures[0]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if self._token is not None and request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.Response(status=401, text="this gateway wants a key")
        socket = web.WebSocketResponse(protocols=self.protocols, compress=False)
        await socket.prepare(request)
        peer = Peer(socket, request, self._hello)
        if self.greet:
            await peer.send(self._hello)
        try:
            await self._script(peer)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except BaseException as failure:
            self._failures.append(failure)
            raise
        return socket
