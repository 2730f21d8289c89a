"""A client of `sayflow.v1` over the `websockets` library: for the command line, the load generator and tests.

It stands at the far end of the socket, so it shares `messages` with the server and nothing else. One task
reads the socket and hands each message to its utterance by id or by stream number. Must not import `engine`,
`protocol` or `server`: a client that shared the server's decisions could not find its errors.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Literal, TypedDict, Unpack
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from gateway import messages
from gateway.client_utterance import ClientError, Collected, ConnectionLost, Utterance
from gateway.messages import (
    Alignment,
    Cancelled,
    ClientMessage,
    Done,
    Error,
    Hello,
    Pong,
    SentenceEvent,
    ServerMessage,
    Started,
)

SESSION_ERRORS: Final = 64
"""Errors of the session that are kept; the oldest goes first."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ServerMessage)


class CannotConnect(ClientError):
    """No session was opened. `status`: the HTTP status of a refused handshake."""

    def __init__(self, url: str, reason: str, *, status: int | None = None) -> None:
        super().__init__(f"cannot connect to {url}: {reason}")
        self.url = url
        self.reason = reason
        self.status = status


class BadServerMessage(ClientError):
    """The server sent what no server of this protocol would; the connection is closed with 1002."""


class StartOptions(TypedDict, total=False):
    """How to speak: the optional fields of `messages.Start`."""

    voice: str | None
    language: messages.Language | None
    format: messages.Format | None
    sample_rate: messages.SampleRate | None
    bundle: int | None
    pace: Literal["realtime", "fast"] | None
    speed: float | None
    seed: int | Literal["random"] | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    tags: bool | None
    code: Literal["skip", "read"] | None
    chunk_size: int | None
    lexicon: messages.Words | None
    alignment: Literal["none", "chars"] | None


class _Tagged(msgspec.Struct):
    type: str


_KNOWN_TYPES: Final = frozenset(
    str(struct.__struct_config__.tag)
    for struct in (Hello, Started, SentenceEvent, Alignment, Done, Cancelled, Error, Pong)
)


def decode_server(data: str) -> ServerMessage | None:
    """The message in a text frame; `None` for a type of a later protocol. Raises `BadServerMessage`."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        try:
            tag = msgspec.json.decode(data, type=_Tagged).type
        except msgspec.MsgspecError:
            tag = None
        if tag is not None and tag not in _KNOWN_TYPES:
            return None
        raise BadServerMessage(f"not a message of {messages.SUBPROTOCOL}: {error}") from error


class Client:
    """One session. Made by `connect`; `hello` says what the server offers and allows."""

    def __init__(self, socket: ClientConnection, hello: Hello) -> None:
        self.hello = hello
        self.errors: deque[Error] = deque(maxlen=SESSION_ERRORS)
        """Errors that named no utterance of ours, the latest last."""
        self.stray = 0
        """Audio messages and events of no utterance that was alive here; a correct server sends none."""
        self._socket = socket
        self._utterances: dict[str, Utterance] = {}
        self._streams: dict[int, Utterance] = {}
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._started = 0
        self._failure: ClientError | None = None
        self._reader = asyncio.create_task(self._read(), name="sayflow client reader")

    async def start(self, utterance: str | None = None, **options: Unpack[StartOptions]) -> Utterance:
        """Begin an utterance. Whether it was accepted is told by its first event: `Started` or `Error`."""
        self._started += 1
        name = utterance if utterance is not None else f"u{self._started}"
        if name in self._utterances:
            raise ValueError(f"utterance {name!r} is still being spoken")
        made = Utterance(name, self.hello.limits, self.send)
        self._utterances[name] = made
        try:
            await self.send(messages.Start(utterance=name, **options))
        except ClientError:
            self._utterances.pop(name, None)
            raise
        return made

    async def speak(self, text: str, **options: Unpack[StartOptions]) -> Collected:
        """Speak a whole text and return all that came back."""
        utterance = await self.start(**options)
        sender = asyncio.create_task(utterance.send_all(text), name="sayflow client sender")
        try:
            return await utterance.collect()
        finally:
            sender.cancel()
            # An utterance may end before all its text was sent; how the sending ended says nothing then.
            await asyncio.gather(sender, return_exceptions=True)

    async def ping(self) -> float:
        """Seconds until the server's `pong`."""
        begun = time.monotonic()
        pong = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        try:
            await self.send(messages.Ping())
            await pong
        finally:
            pong.cancel()
        return time.monotonic() - begun

    async def send(self, message: ClientMessage) -> None:
        """Send a message as it is, legal or not."""
        await self.send_raw(_encoder.encode(message).decode())

    async def send_raw(self, data: str | bytes) -> None:
        """Send a frame as it is: text for `str`, binary for `bytes`."""
        if self._failure is not None:
            raise self._failure
        try:
            await self._socket.send(data)
        except ConnectionClosed as closed:
            raise _lost(closed, self.errors) from closed

    async def close(self) -> None:
        """Close with 1000. Utterances still being spoken end as `ConnectionLost`."""
        self._reader.cancel()
        [outcome] = await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        if isinstance(outcome, Exception):
            raise outcome

    def abort(self) -> None:
        """Drop the connection as a vanished client would: no close frame."""
        self._socket.transport.abort()

    async def _read(self) -> None:
        try:
            while True:
                await self._route(await self._socket.recv(), time.monotonic())
        except ConnectionClosed as closed:
            self._fail(_lost(closed, self.errors))
        except BadServerMessage as bad:
            self._fail(bad)
            await self._socket.close(1002, "bad server message")
        finally:
            self._fail(ConnectionLost(1000, "closed by this client"))

    def _fail(self, failure: ClientError) -> None:
        """Nothing will be read any more; the first reason counts."""
        if self._failure is not None:
            return
        self._failure = failure
        for utterance in self._utterances.values():
            utterance.fail(failure)
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(failure)

    async def _route(self, data: str | bytes, now: float) -> None:
        if isinstance(data, bytes):
            await self._route_audio(data, now)
            return
        message = decode_server(data)
        match message:
            case Started() | SentenceEvent() | Alignment() | Done() | Cancelled():
                await self._deliver(message, message.utterance, now)
            case Error():
                name = message.utterance if message.utterance is not None else message.about
                if name is not None and name in self._utterances:
                    await self._deliver(message, name, now)
                else:
                    self.errors.append(message)
            case Pong() if self._pongs:
                pong = self._pongs.popleft()
                if not pong.done():
                    pong.set_result(None)
            case _:
                pass  # An unknown type, a second `hello` or a `pong` that nobody waits for: ignored.

    async def _deliver(
        self,
        message: Started | SentenceEvent | Alignment | Done | Cancelled | Error,
        name: str,
        now: float,
    ) -> None:
        utterance = self._utterances.get(name)
        if utterance is None:
            self.stray += 1
            return
        if isinstance(message, Started):
            self._streams[message.stream] = utterance
        await utterance.receive(message, now)
        if utterance.ended is not None:
            del self._utterances[name]
            if utterance.started is not None:
                self._streams.pop(utterance.started.stream, None)

    async def _route_audio(self, data: bytes, now: float) -> None:
        try:
            message = messages.decode_audio(data)
        except ValueError as error:
            raise BadServerMessage(str(error)) from error
        utterance = self._streams.get(message.stream)
        if utterance is None:
            self.stray += 1
        else:
            await utterance.receive(message, now)


@asynccontextmanager
async def connect(url: str, *, token: str | None = None, timeout_s: float = 10.0) -> AsyncIterator[Client]:
    """A session at `url` (`ws://host:port/v1/stream`), closed on leaving. Raises `CannotConnect`.

    `token` travels as a bearer token in the `Authorization` header. `timeout_s` bounds the handshake and the
    wait for `hello` together.
    """
    try:
        async with asyncio.timeout(timeout_s):
            socket = await _open(url, token)
            try:
                hello = await _receive_hello(url, socket)
            except BaseException:
                socket.transport.abort()  # No session: whoever answered gets no closing handshake.
                raise
    except TimeoutError as error:
        raise CannotConnect(url, f"no session within {timeout_s:g} s") from error
    client = Client(socket, hello)
    try:
        yield client
    finally:
        await client.close()


async def _open(url: str, token: str | None) -> ClientConnection:
    try:
        socket = await open_socket(
            url,
            subprotocols=[Subprotocol(messages.SUBPROTOCOL)],
            compression=None,
            additional_headers={"Authorization": f"Bearer {token}"} if token is not None else None,
            # A proxy named in the environment cannot know what this machine calls itself.
            proxy=None if _is_loopback(url) else True,
        )
    except InvalidURI as error:
        raise CannotConnect(url, "not a WebSocket address (ws://host:port/v1/stream)") from error
    except InvalidStatus as error:
        status = error.response.status_code
        detail = (error.response.body or b"").decode(errors="replace").strip()[:200]
        reason = f"the server answered HTTP {status}" + (f": {detail}" if detail else "")
        raise CannotConnect(url, reason, status=status) from error
    except (InvalidHandshake, ValueError) as error:
        raise CannotConnect(url, f"not a WebSocket server ({error})") from error
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise CannotConnect(url, error.strerror or str(error)) from error
    if socket.subprotocol != messages.SUBPROTOCOL:
        socket.transport.abort()
        raise CannotConnect(url, f"the server does not speak {messages.SUBPROTOCOL}")
    return socket


async def _receive_hello(url: str, socket: ClientConnection) -> Hello:
    """The first message that this version knows must be `hello`; an error says why there is no session."""
    try:
        while True:
            data = await socket.recv()
            message = decode_server(data) if isinstance(data, str) else None
            match message:
                case Hello():
                    return message
                case Error():
                    raise CannotConnect(url, f"{message.message} ({message.code})")
                case None if isinstance(data, str):
                    continue
                case _:
                    raise CannotConnect(url, "the server's first message was not `hello`")
    except ConnectionClosed as closed:
        raise CannotConnect(url, str(_lost(closed, ()))) from closed
    except BadServerMessage as error:
        raise CannotConnect(url, str(error)) from error


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _lost(closed: ConnectionClosed, errors: deque[Error] | tuple[()]) -> ConnectionLost:
    """The close frame of the server's, or 1006 where there was none, with the last error before it."""
    code = closed.rcvd.code if closed.rcvd is not None else 1006
    reason = closed.rcvd.reason if closed.rcvd is not None else "the connection broke"
    return ConnectionLost(code, reason, error=errors[-1] if errors else None)
