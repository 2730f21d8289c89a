"""The outbox: in order, bounded, and nobody waits for a reader who is slow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.outbox import WRITE_BUFFER, Audio, Outbox, SocketWire


@dataclass
class FakeWire:
    """A socket that takes what is written, and keeps it unsent while `stuck`."""

    stuck: bool = False
    written: list[str | bytes] = field(default_factory=list)
    buffered: int = 0
    gate: asyncio.Event | None = None
    """`send` waits for it."""

    def unsent(self) -> int:
        return self.buffered

    async def send(self, data: str | bytes) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.written.append(data)
        if self.stuck:
            self.buffered += len(data)


@dataclass
class Fixture:
    wire: FakeWire = field(default_factory=FakeWire)
    now: float = 100.0
    max_bytes: int = 1000

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.wire, max_bytes=self.max_bytes, clock=lambda: self.now)

    async def send(self, message: str | Audio) -> None:
        self.outbox.put(message)
        await self.outbox.drain()

    def block(self) -> None:
        self.wire.buffered = WRITE_BUFFER + 1

    def unblock(self) -> None:
        self.wire.buffered = 0


def audio(stream: int, text: str, size: int = 0) -> Audio:
    return Audio(stream, text.encode().ljust(size, b"."))


async def test_what_can_be_written_is_written_at_once() -> None:
    box = Fixture()
    await box.send("hello")
    await box.send(audio(1, "sound"))
    assert box.wire.written == ["hello", b"sound"]
    assert not box.outbox.is_blocked
    assert box.outbox.sent_bytes == 10


async def test_the_transport_at_its_limit_takes_and_past_it_does_not() -> None:
    box = Fixture()
    box.wire.buffered = WRITE_BUFFER
    await box.send("a")
    assert not box.outbox.is_blocked
    box.wire.buffered = WRITE_BUFFER + 1
    await box.send("b")
    assert box.outbox.is_blocked
    assert box.wire.written == ["a"]


async def test_what_waited_goes_out_in_order() -> None:
    box = Fixture()
    box.block()
    for name in "abc":
        await box.send(name)
    await box.send(audio(1, "d"))
    assert box.wire.written == []
    box.unblock()
    await box.outbox.drain()
    assert box.wire.written == ["a", "b", "c", b"d"]
    assert not box.outbox.is_blocked


async def test_it_stops_writing_when_the_transport_is_full_again() -> None:
    box = Fixture(FakeWire(stuck=True))
    for number in range(10):
        await box.send(audio(1, str(number), 4000))
    assert len(box.wire.written) == 5  # the fifth went over the limit
    assert box.outbox.is_blocked


async def test_how_long_it_is_blocked() -> None:
    box = Fixture()
    assert box.outbox.blocked_s() == 0.0
    box.block()
    await box.send("a")
    box.now += 5
    await box.send("b")
    assert box.outbox.blocked_s() == 5.0
    box.unblock()
    await box.outbox.drain()
    assert box.outbox.blocked_s() == 0.0


async def test_a_reader_who_takes_a_little_is_not_stalled() -> None:
    box = Fixture()
    box.block()
    await box.send(audio(1, "a"))
    await box.send(audio(1, "b"))
    box.now += 5
    box.unblock()
    box.wire.stuck = True
    await box.outbox.drain()
    box.block()
    await box.send("c")
    box.now += 3
    assert box.outbox.blocked_s() == 3.0


async def test_it_says_when_more_waits_than_may() -> None:
    box = Fixture(max_bytes=100)
    box.block()
    await box.send(audio(1, "", 100))
    assert not box.outbox.overflowed
    await box.send("x")
    assert box.outbox.overflowed
    box.outbox.purge(1)
    assert not box.outbox.overflowed


async def test_bytes_are_counted_and_not_characters() -> None:
    box = Fixture(max_bytes=100)
    box.block()
    await box.send("语" * 34)  # 102 bytes on the wire
    assert box.outbox.overflowed
    box.unblock()
    await box.outbox.drain()
    assert box.outbox.sent_bytes == 102


async def test_purging_drops_the_sound_of_one_stream_only() -> None:
    box = Fixture()
    box.block()
    for item in (audio(1, "a"), "text", audio(2, "b"), audio(1, "c"), audio(2, "d")):
        await box.send(item)
    box.outbox.purge(1)
    box.outbox.purge(3)
    box.unblock()
    await box.outbox.drain()
    assert box.wire.written == ["text", b"b", b"d"]


async def test_purging_all_that_waited_ends_the_block() -> None:
    box = Fixture()
    box.block()
    await box.send(audio(1, "a"))
    box.outbox.purge(1)
    assert not box.outbox.is_blocked
    box.now += 60
    assert box.outbox.blocked_s() == 0.0


async def test_senders_at_once_keep_their_order_and_do_not_write_into_each_other() -> None:
    gate = asyncio.Event()
    box = Fixture(FakeWire(gate=gate))
    first = asyncio.create_task(box.send("a"))
    await asyncio.sleep(0)
    # The first one is being written; these do not wait for it.
    async with asyncio.timeout(1):
        for item in ("b", audio(1, "c"), audio(2, "d")):
            await box.send(item)
    box.outbox.purge(1)
    gate.set()
    await first
    assert box.wire.written == ["a", "b", b"d"]
    assert not box.outbox.is_blocked


async def test_a_write_that_fails_does_not_lock_the_box() -> None:
    class Broken(FakeWire):
        async def send(self, data: str | bytes) -> None:
            if data == "a":
                raise RuntimeError("broken")
            await super().send(data)

    box = Fixture(Broken())
    with pytest.raises(RuntimeError):
        await box.send("a")
    await box.send("b")
    assert box.wire.written == ["b"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(0, 3), st.integers(0, 400)),
            st.tuples(st.just("purge"), st.integers(1, 3), st.just(0)),
            st.tuples(st.sampled_from(["block", "unblock", "drain"]), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_any_order_of_calls(actions: list[tuple[str, int, int]]) -> None:
    asyncio.run(play(actions))


async def play(actions: list[tuple[str, int, int]]) -> None:
    """Stream 0 is text. What is not purged comes out, once and in order, and is counted while it waits."""
    box = Fixture()
    waiting: list[tuple[int, str | bytes]] = []
    expected: list[str | bytes] = []

    def flush() -> None:
        if box.wire.buffered == 0:
            expected.extend(data for _, data in waiting)
            waiting.clear()

    for number, (action, stream, size) in enumerate(actions):
        if action == "send":
            data = str(number).ljust(size, ".")
            await box.send(data if stream == 0 else Audio(stream, data.encode()))
            waiting.append((stream, data if stream == 0 else data.encode()))
            flush()
        elif action == "purge":
            box.outbox.purge(stream)
            waiting = [item for item in waiting if item[0] != stream]
        elif action == "drain":
            await box.outbox.drain()
            flush()
        else:
            box.wire.buffered = WRITE_BUFFER + 1 if action == "block" else 0
        assert box.wire.written == expected
        assert box.outbox.is_blocked == bool(waiting)
        assert box.outbox.overflowed == (sum(len(data) for _, data in waiting) > 1000)


# --- the real wire ----------------------------------------------------------------------------------------


@dataclass
class FakeSocket:
    closed: bool = False
    sent: list[str | bytes] = field(default_factory=list)
    error: Exception | None = None

    async def send_str(self, data: str) -> None:
        await self.send_bytes(data)

    async def send_bytes(self, data: str | bytes) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(data)


@dataclass
class FakeTransport:
    closing: bool = False

    def get_write_buffer_size(self) -> int:
        return 42

    def is_closing(self) -> bool:
        return self.closing


def wire(socket: FakeSocket, transport: FakeTransport) -> SocketWire:
    return SocketWire(cast(web.WebSocketResponse, socket), cast(asyncio.Transport, transport))


async def test_the_wire_sends_text_and_bytes() -> None:
    socket = FakeSocket()
    real = wire(socket, FakeTransport())
    assert real.unsent() == 42
    await real.send("text")
    await real.send(b"bytes")
    assert socket.sent == ["text", b"bytes"]


async def test_the_wire_of_a_client_that_went_takes_all_and_says_nothing() -> None:
    for socket, transport in (
        (FakeSocket(closed=True), FakeTransport()),
        (FakeSocket(), FakeTransport(closing=True)),
        (FakeSocket(error=ConnectionResetError()), FakeTransport()),
    ):
        await wire(socket, transport).send("text")
        assert socket.sent == []
