"""Who comes in, and what a connection may look like: origins, tokens, frames that break the rules."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.checks import check_marks, check_order
from tests.inside import EngineProcess, Inside, engine, gateway
from tests.listener import listening
from tests.raw import BINARY, CLOSE, PING, TEXT, RawClient, frame, header
from tests.server import Server, running

TOKEN = "s3cret-8f1b2c-token"
AUTH_S = 1.0


@pytest.fixture(scope="module")
def engine_process() -> Iterator[EngineProcess]:
    with engine() as process:
        yield process


@pytest_asyncio.fixture
async def listed(engine_process: EngineProcess) -> AsyncIterator[Inside]:
    """A gateway that lets two origins in."""
    async with gateway(engine_process, origins=("https://app.example", "http://localhost:3000")) as inside:
        yield inside


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that wants a token, and logs all it can."""
    env = {"SAYFLOW_TOKEN": TOKEN, "SAYFLOW_AUTH_S": str(AUTH_S), "SAYFLOW_LOG_LEVEL": "debug"}
    with running("--engine", "synthetic", env=env) as server:
        yield server


# --- origins ----------------------------------------------------------------------------------------------


def handshake(url: str, *headers: str) -> int:
    with RawClient(url, *headers) as client:
        return client.status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("http://OWN", 101),
        ("https://app.example", 101),
        ("http://localhost:3000", 101),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil.test", 403),
        ("https://evil.test", 403),
        ("http://127.0.0.1", 403),
        ("http://OWN.evil.test", 403),
        ("http://evil.test@OWN", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
        ("http://\udcff", 403),
    ],
)
async def test_origins(listed: Inside, origin: str | None, status: int) -> None:
    own = listed.url.removeprefix("http://")
    headers = [] if origin is None else [f"Origin: {origin.replace('OWN', own)}"]
    assert await asyncio.to_thread(handshake, listed.url, *headers) == status


# --- tokens -----------------------------------------------------------------------------------------------


async def test_a_token_in_the_header(guarded: Server) -> None:
    async with listening(guarded.ws_url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as listener:
        heard = await listener.say("a", "Let me in.", seed=3)
        await listener.wait(heard)
    check_order(heard)
    assert check_marks(heard) == 60


async def test_a_token_in_the_first_message(guarded: Server) -> None:
    async with connect(guarded.ws_url) as socket:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await socket.recv()
        await socket.send(json.dumps({"type": "auth", "token": TOKEN}))
        assert json.loads(await socket.recv())["type"] == "hello"
        await socket.send(json.dumps({"type": "auth", "token": "again, and wrong"}))
        await socket.send(json.dumps({"type": "ping"}))
        assert json.loads(await socket.recv())["type"] == "pong"
        await asyncio.sleep(AUTH_S + 0.5)
        await socket.send(json.dumps({"type": "ping"}))
        assert json.loads(await socket.recv())["type"] == "pong"


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer ",
        "Basic abc",
        TOKEN,
        f"bearer  {TOKEN}",
        "Bearer \udcff",
    ],
)
async def test_a_wrong_header_is_refused(guarded: Server, value: str) -> None:
    assert await asyncio.to_thread(handshake, guarded.url, f"Authorization: {value}") == 401


@pytest.mark.parametrize(
    "first",
    [
        '{"type": "auth", "token": "wrong"}',
        '{"type": "auth", "token": ""}',
        '{"type": "auth", "token": "\\ud800"}',
        '{"type": "auth", "token": "é声"}',
        '{"type": "start", "utterance": "a"}',
        '{"type": "ping"}',
    ],
)
async def test_a_wrong_first_message_is_refused(guarded: Server, first: str) -> None:
    async with connect(guarded.ws_url) as socket:
        await socket.send(first)
        async with asyncio.timeout(5):
            await socket.wait_closed()
    assert socket.close_code == 1008


async def test_silence_is_refused_at_the_deadline(guarded: Server) -> None:
    async with connect(guarded.ws_url) as socket:
        began = time.monotonic()
        for _ in range(3):  # what is refused does not count as a first message
            await socket.send("not JSON")
            await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            await socket.wait_closed()
        took_s = time.monotonic() - began
    assert socket.close_code == 1008
    assert AUTH_S * 0.8 < took_s < AUTH_S * 5


async def test_no_token_is_logged_or_taken_from_the_address(guarded: Server) -> None:
    with pytest.raises(InvalidStatus):
        await connect(guarded.ws_url, additional_headers={"Authorization": f"Bearer {TOKEN}!"})
    async with connect(f"{guarded.ws_url}?token={TOKEN}") as socket:
        await socket.send(json.dumps({"type": "ping"}))
        await socket.wait_closed()
    assert socket.close_code == 1008
    for path in ("/healthz", "/metrics"):
        assert TOKEN not in await asyncio.to_thread(guarded.get, path)
    log = guarded.output()
    assert "session opened" in log
    assert TOKEN not in log
    assert "Traceback" not in log
    processes = [psutil.Process(guarded.process.pid)]
    processes += processes[0].children(recursive=True)
    assert not [process for process in processes if TOKEN in " ".join(process.cmdline())]


# --- frames -----------------------------------------------------------------------------------------------

PING_JSON = b'{"type": "ping", "x": "0123456789"}'


def answers(client: RawClient) -> dict[str, object]:
    """The next text message after `hello`."""
    while True:
        opcode, payload = client.receive()
        if opcode == TEXT and (message := json.loads(payload))["type"] != "hello":
            assert isinstance(message, dict)
            return message


def test_fragments_are_joined(tones: Server) -> None:
    with RawClient(tones.url) as client:
        client.send(frame(PING_JSON[:5], fin=False))
        client.send(frame(b"", PING))
        client.send(frame(PING_JSON[5:9], 0, fin=False))
        client.send(frame(PING_JSON[9:], 0))
        assert answers(client)["type"] == "pong"


def test_bytes_one_by_one(tones: Server) -> None:
    with RawClient(tones.url) as client:
        for byte in frame(PING_JSON):
            client.send(bytes([byte]))
        assert answers(client)["type"] == "pong"


@pytest.mark.parametrize("size", [65_537, 1 << 20, 1 << 40, (1 << 63) - 1])
def test_an_oversized_message_is_refused_by_its_header(tones: Server, size: int) -> None:
    """Nothing of its body was sent, so nothing of it was waited for."""
    with RawClient(tones.url) as client:
        client.send(header(0x81, size) + b"\0\0\0\0")
        assert client.close_code() == 1009


def test_fragments_past_the_limit(tones: Server) -> None:
    with RawClient(tones.url) as client:
        client.send(frame(b"x" * 30_000, fin=False))
        client.send(frame(b"x" * 30_000, 0, fin=False))
        client.send(frame(b"x" * 30_000, 0, fin=False))
        assert client.close_code() == 1009


def test_endless_fragments_are_closed(tones: Server) -> None:
    with RawClient(tones.url) as client:
        client.send(frame(b"x", fin=False))
        flood = frame(b"x", 0, fin=False) * 1000
        try:
            for _ in range(100):
                client.send(flood)
        except ConnectionError:
            return
        assert client.close_code() in (1002, 1006, 1008, 1009)


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (frame(b"\xff\xfe\xfd"), {1007}),
        (frame(b"\xed\xa0\x80"), {1007}),
        (frame(PING_JSON, rsv=4), {1002}),
        (frame(PING_JSON, 0x3), {1002, 1003}),
        (frame(PING_JSON, 0), {1002}),
        (frame(b"x" * 126, PING), {1002}),
        (frame(b"\x00", CLOSE), {1002}),
        (frame((1005).to_bytes(2, "big"), CLOSE), {1002}),
        (header(0x81, 1 << 63) + b"\0\0\0\0", {1002, 1009}),
        (frame(b"a", TEXT, fin=False) + frame(b"b", TEXT), {1002}),
    ],
    ids=[
        "utf-8",
        "surrogate",
        "rsv",
        "opcode",
        "lone continuation",
        "big ping",
        "short close",
        "bad close",
        "2^63",
        "new text in a fragment",
    ],
)
def test_broken_frames_close(tones: Server, data: bytes, codes: set[int]) -> None:
    with RawClient(tones.url) as client:
        client.send(data)
        assert client.close_code() in codes


def test_an_unmasked_frame_is_not_a_fault(tones: Server) -> None:
    """RFC 6455 wants it refused; aiohttp reads it. It harms nobody but proxies between, so it may stay."""
    with RawClient(tones.url) as client:
        client.send(frame(PING_JSON, masked=False))
        try:
            assert answers(client)["type"] == "pong"
        except EOFError:
            pytest.fail("aiohttp refuses unmasked frames by now: say so in README")


def test_binary_and_close(tones: Server) -> None:
    with RawClient(tones.url) as client:
        client.send(frame(b"abc", BINARY))
        assert answers(client)["code"] == "unexpected_binary"
        client.send(frame((1000).to_bytes(2, "big"), CLOSE))
        assert client.close_code() == 1000


async def test_compression_is_not_negotiated(tones: Server) -> None:
    async with connect(tones.ws_url, compression="deflate") as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


def test_nothing_of_that_was_a_crash(tones: Server) -> None:
    assert "Traceback" not in tones.output()
