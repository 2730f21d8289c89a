"""The link against a scripted engine on a real Unix socket: one that is late, wrong, silent, or dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest

from engine import wire
from engine.ring import CorruptBlock, RingWriter, StaleGeneration
from gateway.engine_client import EngineLink
from gateway.engine_stream import Chunk, EngineStream
from gateway.errors import EngineFailed, EngineLost, SpeechError

WAIT_S: Final = 5.0
STALL_S: Final = 0.4
KILL_S: Final = 1.4
RING_MS: Final = 100
RATE: Final = 24_000
SAMPLES: Final = RATE * RING_MS // 1000


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@dataclass
class Heard:
    """A listener that keeps what it was told."""

    chunks: list[Chunk] = field(default_factory=list)
    done: list[wire.SentenceDone] = field(default_factory=list)
    failed: list[SpeechError] = field(default_factory=list)
    lead: float = 0.0

    def on_audio(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def on_sentence_done(self, done: wire.SentenceDone) -> None:
        self.done.append(done)

    def on_failed(self, error: SpeechError) -> None:
        self.failed.append(error)

    def lead_ms(self) -> float:
        return self.lead


class FakeEngine:
    """The engine's end of one connection, a step at a time."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self._frames = wire.FrameBuffer()
        self._waiting: list[wire.ToEngine] = []
        self._pid = pid
        self.writer: RingWriter | None = None

    def ready(self, **changes: int) -> wire.Ready:
        fields = {"sample_rate": RATE, "slots": 2, "pid": self._pid, **changes}
        return wire.Ready(
            model="fake",
            max_steps=100,
            max_chars=80,
            default_voice="v",
            voices=(wire.Voice("v", "V", ("en",)),),
            step_s=(0.01,),
            **fields,
        )

    async def send(self, *messages: wire.FromEngine) -> None:
        await self.send_raw(b"".join(map(wire.encode, messages)))

    async def send_raw(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def hello(self) -> wire.Hello:
        """Says ready and takes the ring."""
        await self.send(self.ready())
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._connection, readable.set)
        async with asyncio.timeout(WAIT_S):
            await readable.wait()
        loop.remove_reader(self._connection)
        data, fds, _, _ = socket.recv_fds(self._connection, 65_536, 1)
        (fd,) = fds
        self._take(data)
        hello = self._waiting.pop(0)
        assert isinstance(hello, wire.Hello)
        self.writer = RingWriter.attach(fd, 2, hello.ring_samples)
        os.close(fd)
        return hello

    async def receive(self) -> wire.ToEngine:
        async with asyncio.timeout(WAIT_S):
            while not self._waiting:
                data = await asyncio.get_running_loop().sock_recv(self._connection, 65_536)
                assert data, "the gateway closed the link"
                self._take(data)
        return self._waiting.pop(0)

    async def is_left(self) -> bool:
        """The gateway closes its end."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                while await asyncio.get_running_loop().sock_recv(self._connection, 65_536):
                    pass
        return True

    def _take(self, data: bytes) -> None:
        self._waiting += [wire.decode_to_engine(body) for body in self._frames.feed(data)]

    def write(self, utterance: int, slot: int, generation: int, start: int, data: bytes) -> wire.Audio:
        assert self.writer is not None
        crc = self.writer.write(slot, start, memoryview(data))
        return wire.Audio((wire.Block(utterance, generation, start + len(data) // 2, crc),))

    def begin(self, slot: int, generation: int) -> None:
        assert self.writer is not None
        self.writer.begin(slot, generation)

    def close(self) -> None:
        self._connection.close()


@dataclass
class Bench:
    """A running link, and the listening socket that engines answer on."""

    link: EngineLink
    task: asyncio.Task[None]
    listener: socket.socket
    process: subprocess.Popen[bytes]
    """Whom the engine names as itself."""
    states: list[str]
    engines: list[FakeEngine] = field(default_factory=list)

    async def engine(self) -> FakeEngine:
        async with asyncio.timeout(WAIT_S):
            connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        self.engines.append(FakeEngine(connection, self.process.pid))
        return self.engines[-1]

    async def connected(self) -> FakeEngine:
        engine = await self.engine()
        await engine.hello()
        await until(lambda: self.link.state == "ready")
        return engine

    def open(self, heard: Heard) -> EngineStream:
        return self.link.open(voice="v", parameters=wire.Parameters(), seed=7, listener=heard)

    async def opened(self, engine: FakeEngine, *, slot: int = 0, generation: int = 1) -> tuple[Heard, int]:
        """A stream that has its slot; and its number."""
        heard = Heard()
        number = self.open(heard).utterance
        message = await engine.receive()
        assert isinstance(message, wire.Open)
        engine.begin(slot, generation)
        await engine.send(wire.Opened(number, slot, generation))
        return heard, number

    async def speaking(self, engine: FakeEngine, *, slot: int = 0, generation: int = 1) -> tuple[Heard, int]:
        """The same, with sentence 0 submitted."""
        heard = Heard()
        stream = self.open(heard)
        stream.submit(0, ())
        assert isinstance(await engine.receive(), wire.Open)
        assert isinstance(await engine.receive(), wire.Submit)
        engine.begin(slot, generation)
        await engine.send(wire.Opened(stream.utterance, slot, generation))
        return heard, stream.utterance


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Something that can be killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.fixture
def patience() -> tuple[float, float]:
    """After how long an engine counts as stalled, and is killed: never, where a test does not say so."""
    return 60.0, 120.0


impatient = pytest.mark.parametrize("patience", [(STALL_S, KILL_S)])


@pytest.fixture
async def bench(process: subprocess.Popen[bytes], patience: tuple[float, float]) -> AsyncIterator[Bench]:
    name = f"\0sayflow-test-{os.getpid()}-{secrets.token_hex(4)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(name)
    listener.listen(8)
    states: list[str] = []
    link = EngineLink(
        "main",
        name,
        ring_ms=RING_MS,
        stall_s=patience[0],
        stall_kill_s=patience[1],
        clock=time.monotonic,
        on_change=lambda: states.append(link.state),
    )
    bench = Bench(link, asyncio.create_task(link.run()), listener, process, states)
    yield bench
    crashed = bench.task.done()
    bench.task.cancel()
    await asyncio.gather(bench.task, return_exceptions=True)
    for engine in bench.engines:
        engine.close()
    listener.close()
    assert not crashed, "the link's task ended by itself"


def pcm(count: int, value: int = 1) -> bytes:
    return value.to_bytes(2, "little") * count


# --- connecting -------------------------------------------------------------------------------------------


async def test_the_hand_over(bench: Bench) -> None:
    engine = await bench.engine()
    hello = await engine.hello()
    assert hello.ring_samples == SAMPLES
    await until(lambda: bench.link.state == "ready")
    assert bench.states == ["ready"]
    assert bench.link.spec == engine.ready()
    assert (bench.link.free_slots, bench.link.used_slots) == (2, 0)


@impatient
async def test_an_engine_that_is_late_is_waited_for(bench: Bench) -> None:
    engine = await bench.engine()
    await asyncio.sleep(2 * KILL_S)  # warming up is no stall
    assert bench.link.state == "starting"
    assert bench.link.free_slots == 0
    await engine.hello()
    await until(lambda: bench.link.state == "ready")


async def test_ready_may_come_in_pieces_and_with_more_behind_it(bench: Bench) -> None:
    engine = await bench.engine()
    data = wire.encode(engine.ready()) + wire.encode(wire.Progress(0.0))
    for at in range(0, len(data), 7):
        await engine.send_raw(data[at : at + 7])
        await asyncio.sleep(0)
    await until(lambda: bench.link.state == "ready")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        wire.encode(wire.Progress(0.0)),
        wire.encode(wire.Closed(1)),
        b"\x02\x00\x00\x00\x02\x90",
        b"\x02\x00\x00\x00\x01\xc1",
        b"",
    ],
    ids=["garbage", "progress", "closed", "version 2", "malformed", "hangs up"],
)
async def test_an_engine_that_begins_wrong_is_left_and_the_next_one_served(bench: Bench, data: bytes) -> None:
    engine = await bench.engine()
    if data:
        await engine.send_raw(data)
        assert await engine.is_left()
    engine.close()
    assert bench.link.state == "starting"
    await bench.connected()


@pytest.mark.parametrize("pid", [-1, 0, 2**31, 2**62])
async def test_an_engine_whose_process_cannot_be_watched_is_left(bench: Bench, pid: int) -> None:
    engine = await bench.engine()
    await engine.send(engine.ready(pid=pid))
    assert await engine.is_left()
    await bench.connected()


async def test_memory_that_cannot_be_had_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway has sessions to keep: a lack of memory costs the link, not the process."""

    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    engine = await bench.engine()
    with monkeypatch.context() as patch:
        patch.setattr("engine.ring.os.posix_fallocate", refuse)
        await engine.send(engine.ready())
        assert await engine.is_left()
    assert not bench.task.done()
    await bench.connected()


# --- streams ----------------------------------------------------------------------------------------------


async def test_an_utterance_from_open_to_closed(bench: Bench) -> None:
    engine = await bench.connected()
    heard = Heard()
    stream = bench.open(heard)
    assert (bench.link.free_slots, bench.link.used_slots) == (1, 1)
    spans = (wire.Span("hi", "en", 0, 2),)
    stream.submit(0, spans)
    number = stream.utterance
    assert await engine.receive() == wire.Open(number, "v", wire.Parameters(), 7)
    assert await engine.receive() == wire.Submit(number, 0, spans)
    engine.begin(1, 42)
    await engine.send(
        wire.Opened(number, 1, 42),
        wire.Checkpoint(number, 0, b"opaque"),
        engine.write(number, 1, 42, 0, pcm(300)),
        engine.write(number, 1, 42, 300, pcm(200, 2)),
        wire.SentenceDone(number, 0, 500, False, False),
    )
    await until(lambda: bool(heard.done))
    assert [(chunk.start, chunk.stop, chunk.samples) for chunk in heard.chunks] == [
        (0, 300, 300),
        (300, 500, 200),
    ]
    assert [chunk.take() for chunk in heard.chunks] == [pcm(300), pcm(200, 2)]
    assert await engine.receive() == wire.Credit(number, 500, 500)
    stream.close()
    stream.close()
    assert await engine.receive() == wire.Close(number)
    await engine.send(wire.Closed(number))
    await until(lambda: bench.link.free_slots == 2)
    assert heard.failed == []


async def test_credits_tell_where_the_listener_is(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(480)))
    await until(lambda: bool(heard.chunks))
    heard.lead = 15.0
    heard.chunks[0].take()
    assert await engine.receive() == wire.Credit(number, 480, 480 - 360)
    heard.lead = 1000.0
    await engine.send(engine.write(number, 0, 1, 480, pcm(10)))
    await until(lambda: len(heard.chunks) == 2)
    heard.chunks[1].take()
    assert await engine.receive() == wire.Credit(number, 490, 0)


async def test_numbers_are_never_used_twice(bench: Bench) -> None:
    engine = await bench.connected()
    numbers = set()
    for _ in range(5):
        _, number = await bench.opened(engine)
        numbers.add(number)
        await engine.send(wire.Closed(number))
        await until(lambda: bench.link.free_slots == 2)
    assert len(numbers) == 5


async def test_a_slot_that_comes_free_is_told(bench: Bench) -> None:
    engine = await bench.connected()
    _, number = await bench.opened(engine)
    bench.states.clear()
    await engine.send(wire.Closed(number))
    await until(lambda: bench.states == ["ready"])


async def test_what_the_engine_gives_up_fails_and_frees_its_slot(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.opened(engine)
    other, _ = await bench.opened(engine, slot=1, generation=2)
    await engine.send(wire.Failed(number, "bad_audio", "silence"))
    await until(lambda: bool(heard.failed))
    (error,) = heard.failed
    assert isinstance(error, EngineFailed)
    assert (error.code, error.message) == ("bad_audio", "silence")
    assert bench.link.free_slots == 1
    assert other.failed == []


async def test_after_a_cancel_the_listener_hears_nothing(bench: Bench) -> None:
    engine = await bench.connected()
    heard = Heard()
    stream = bench.open(heard)
    stream.submit(0, ())
    await engine.receive()
    await engine.receive()
    engine.begin(0, 1)
    stream.cancel()
    assert await engine.receive() == wire.Cancel(stream.utterance)
    number = stream.utterance
    await engine.send(
        wire.Opened(number, 0, 1),
        engine.write(number, 0, 1, 0, pcm(100)),
        wire.SentenceDone(number, 0, 100, False, False),
    )
    await engine.send(wire.Closed(number))
    await until(lambda: bench.link.free_slots == 2)
    assert (heard.chunks, heard.done, heard.failed) == ([], [], [])
    assert bench.link.state == "ready"


async def test_what_comes_late_for_an_utterance_that_is_over_is_dropped(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(
        wire.Closed(number),
        engine.write(number, 0, 1, 0, pcm(10)),
        wire.SentenceDone(number, 0, 10, False, False),
        wire.Failed(number, "model_fault", "x"),
        wire.Opened(number, 0, 1),
        wire.Closed(number),
        wire.Closed(999),
    )
    _, other = await bench.speaking(engine)
    assert other != number
    assert bench.link.state == "ready"
    assert (heard.chunks, heard.failed) == ([], [])


async def test_opening_where_no_engine_is_fails_as_lost(bench: Bench) -> None:
    """A slot may be granted and the engine be lost in the same breath."""
    engine = await bench.connected()
    engine.close()
    await until(lambda: bench.link.state == "lost")
    with pytest.raises(EngineLost):
        bench.open(Heard())


# --- an engine that breaks the rules ----------------------------------------------------------------------


async def assert_lost(bench: Bench, heard: Heard) -> None:
    """The link is dropped, its streams are told once, and the next engine is served."""
    await until(lambda: bool(heard.failed))
    (error,) = heard.failed
    assert isinstance(error, EngineLost)
    assert error.retry_after_ms is not None
    assert bench.link.used_slots == 0
    await bench.connected()
    assert len(heard.failed) == 1


@pytest.mark.parametrize("position", [0, SAMPLES + 1, 2**62, -1])
async def test_audio_outside_the_rings_free_part(bench: Bench, position: int) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(wire.Audio((wire.Block(number, 1, position, 0),)))
    await assert_lost(bench, heard)
    assert heard.chunks == []


async def test_audio_that_goes_back(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(100)))
    await engine.send(wire.Audio((wire.Block(number, 1, 99, 0),)))
    await assert_lost(bench, heard)


async def test_audio_over_what_was_not_read(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(SAMPLES)))
    await until(lambda: bool(heard.chunks))
    await engine.send(wire.Audio((wire.Block(number, 1, SAMPLES + 1, 0),)))
    await assert_lost(bench, heard)


async def test_audio_fills_the_ring_to_the_last_sample_and_again_once_read(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(SAMPLES)))
    await until(lambda: len(heard.chunks) == 1)
    assert heard.chunks[0].take() == pcm(SAMPLES)
    await engine.send(engine.write(number, 0, 1, SAMPLES, pcm(SAMPLES, 2)))
    await until(lambda: len(heard.chunks) == 2)
    assert heard.chunks[1].take() == pcm(SAMPLES, 2)


async def test_audio_of_another_generation(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine, generation=5)
    await engine.send(wire.Audio((wire.Block(number, 4, 10, 0),)))
    await assert_lost(bench, heard)


async def test_audio_before_the_slot(bench: Bench) -> None:
    engine = await bench.connected()
    heard = Heard()
    number = bench.open(heard).utterance
    await engine.send(wire.Audio((wire.Block(number, 1, 10, 0),)))
    await assert_lost(bench, heard)


@pytest.mark.parametrize("slot", [-1, 2, 2**40])
async def test_a_slot_that_the_ring_has_not(bench: Bench, slot: int) -> None:
    """Else the encoding thread would meet it, where it ends the pump and not the link."""
    engine = await bench.connected()
    heard = Heard()
    number = bench.open(heard).utterance
    await engine.send(wire.Opened(number, slot, 1))
    await assert_lost(bench, heard)


@pytest.mark.parametrize("data", [b"\xff" * 64, b"\x02\x00\x00\x00\x02\x90", b"\x02\x00\x00\x00\x01\xc1"])
async def test_garbage_in_the_middle(bench: Bench, data: bytes) -> None:
    engine = await bench.connected()
    heard, _ = await bench.opened(engine)
    await engine.send_raw(data)
    await assert_lost(bench, heard)


async def test_a_second_ready(bench: Bench) -> None:
    engine = await bench.connected()
    heard, _ = await bench.opened(engine)
    await engine.send(engine.ready())
    await assert_lost(bench, heard)


async def test_nothing_is_taken_from_an_engine_after_it_broke_the_rules(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    other, second = await bench.speaking(engine, slot=1, generation=2)
    await engine.send(wire.Audio((wire.Block(number, 1, 0, 0),)), engine.write(second, 1, 2, 0, pcm(10)))
    for _ in range(20):
        with contextlib.suppress(ConnectionError):
            await engine.send(wire.SentenceDone(second, 0, 10, False, False))
        await asyncio.sleep(0)
    await assert_lost(bench, heard)
    assert (other.chunks, other.done) == ([], [])


async def test_the_end_of_a_sentence_whose_sound_did_not_come(bench: Bench) -> None:
    """`on_sentence_done` promises that all of the sentence's samples came before it."""
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(10)), wire.SentenceDone(number, 0, 11, False, False))
    await assert_lost(bench, heard)
    assert heard.done == []


async def test_damaged_and_overwritten_samples_are_not_handed_out(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.speaking(engine)
    await engine.send(engine.write(number, 0, 1, 0, pcm(10)))
    await engine.send(engine.write(number, 0, 1, 10, pcm(10)))
    await until(lambda: len(heard.chunks) == 2)
    engine.write(number, 0, 1, 0, pcm(1, 99))
    with pytest.raises(CorruptBlock):
        heard.chunks[0].take()
    engine.begin(0, 2)
    with pytest.raises(StaleGeneration):
        heard.chunks[1].take()


# --- an engine that dies or hangs -------------------------------------------------------------------------


async def test_death_fails_every_stream_once_and_what_was_delivered_is_still_there(bench: Bench) -> None:
    engine = await bench.connected()
    first, number = await bench.speaking(engine)
    second, _ = await bench.speaking(engine, slot=1, generation=2)
    await engine.send(engine.write(number, 0, 1, 0, pcm(100)))
    await until(lambda: bool(first.chunks))
    engine.close()
    await until(lambda: bench.link.state == "lost")
    for heard in (first, second):
        assert [type(error) for error in heard.failed] == [EngineLost]
    assert bench.link.free_slots == bench.link.used_slots == 0
    assert first.chunks[0].take() == pcm(100)
    assert bench.link.spec is not None
    await bench.connected()
    assert bench.link.free_slots == 2
    assert bench.states[-1] == "ready"


async def test_a_stream_of_the_last_engine_cannot_reach_the_next(bench: Bench) -> None:
    engine = await bench.connected()
    heard = Heard()
    old = bench.open(heard)
    engine.close()
    await until(lambda: bool(heard.failed))
    engine = await bench.connected()
    _, number = await bench.opened(engine)
    assert number != old.utterance


@impatient
async def test_an_engine_that_is_silent_stalls_recovers_and_speaks(bench: Bench) -> None:
    engine = await bench.connected()
    heard, number = await bench.opened(engine)
    await until(lambda: bench.link.state == "stalled")
    assert [type(error) for error in heard.failed] == [EngineLost]
    assert bench.link.free_slots == 0
    assert await engine.receive() == wire.Cancel(number)
    await engine.send(wire.Progress(0.0), wire.Closed(number))
    await until(lambda: bench.link.state == "ready")
    assert bench.link.free_slots == 2
    assert bench.process.poll() is None
    _, other = await bench.opened(engine)
    assert other != number
    assert len(heard.failed) == 1


@impatient
async def test_an_engine_past_its_own_word_is_killed_though_it_answers(bench: Bench) -> None:
    engine = await bench.connected()
    heard, _ = await bench.opened(engine)
    word = time.monotonic() + 0.2

    async def beat() -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await engine.send(wire.Progress(word))
                await asyncio.sleep(0.05)

    beating = asyncio.create_task(beat())
    await until(lambda: bench.link.state == "stalled")
    assert STALL_S <= time.monotonic() - word < KILL_S
    assert bench.process.poll() is None
    await until(lambda: bench.link.state == "lost")
    assert time.monotonic() - word >= KILL_S
    assert bench.process.wait(WAIT_S) == -signal.SIGKILL
    beating.cancel()
    assert len(heard.failed) == 1


@impatient
async def test_an_engine_within_its_word_is_left_alone(bench: Bench) -> None:
    engine = await bench.connected()
    heard, _ = await bench.opened(engine)
    for _ in range(16):
        await engine.send(wire.Progress(time.monotonic() + 60))
        await asyncio.sleep(STALL_S / 4)
    await engine.send(wire.Progress(0.0))
    assert bench.link.state == "ready"
    assert heard.failed == []


async def test_one_incarnation_after_the_other_leaves_no_descriptor_behind(bench: Bench) -> None:
    async def live_and_die() -> None:
        engine = await bench.connected()
        await bench.opened(engine)
        engine.close()
        bench.engines.clear()
        await until(lambda: bench.link.state == "lost")

    await live_and_die()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await live_and_die()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_an_end_in_the_middle_fails_the_streams(bench: Bench) -> None:
    engine = await bench.connected()
    heard, _ = await bench.opened(engine)
    bench.task.cancel()
    await asyncio.gather(bench.task, return_exceptions=True)
    assert [type(error) for error in heard.failed] == [EngineLost]
    bench.task = asyncio.create_task(bench.link.run())  # for the fixture, which wants it alive
