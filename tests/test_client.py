"""The client library against a gateway that behaves, and one that does not."""

from __future__ import annotations

import asyncio
import socket as sockets

import pytest

from gateway import messages
from gateway.client import BadServerMessage, CannotConnect, connect
from gateway.client_utterance import QUEUE_MESSAGES, ConnectionLost, Mailbox
from gateway.messages import AudioMessage, Cancelled, Done, Error, SentenceEvent, Started
from tests.fake_gateway import FakeGateway, Peer, make_hello


async def idle(peer: Peer) -> None:
    await peer.receive_close()


async def speak_two_packets(peer: Peer) -> None:
    start = await peer.receive()
    assert isinstance(start, messages.Start)
    await peer.started(start.utterance, 7)
    text = await peer.receive_text(start.utterance)
    await peer.send(SentenceEvent(utterance=start.utterance, index=0, start=0, end=len(text), start_ms=0))
    await peer.audio(7, [b"one", b"two"], reset=True)
    await peer.audio(7, [], sequence=1, last=True)
    await peer.send(Done(utterance=start.utterance, duration_ms=40))
    await peer.receive_close()


async def test_speaks_a_text_and_returns_all_that_came() -> None:
    async with FakeGateway(speak_two_packets) as gateway, connect(gateway.url) as client:
        spoken = await client.speak("Hello there.", voice="tone", speed=1.5)
    assert client.hello == make_hello()
    assert [type(event) for event in spoken.events] == [Started, SentenceEvent, Done]
    assert spoken.packets == [b"one", b"two"]
    assert [message.reset for message in spoken.audio] == [True, False]
    assert spoken.audio[-1].last
    assert (spoken.outcome, spoken.audio_ms, len(spoken.sentences)) == ("done", 40, 1)
    assert spoken.ttfa_ms is not None
    assert 0 < spoken.ttfa_ms <= 1000 * spoken.wall_s
    assert len(spoken.arrivals) == 2
    assert client.stray == 0


async def test_offers_the_protocol_and_the_key_but_no_compression() -> None:
    async with FakeGateway(idle, token="k1") as gateway:
        async with connect(gateway.url, token="k1"):
            pass
        [headers] = gateway.headers
    assert headers["Authorization"] == "Bearer k1"
    assert headers["Sec-WebSocket-Protocol"] == "sayflow.v1"
    assert "Sec-WebSocket-Extensions" not in headers


async def test_options_travel_in_start() -> None:
    starts: list[messages.ClientMessage] = []

    async def script(peer: Peer) -> None:
        starts.append(await peer.receive())
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        await client.start(
            "mine", language="zh", format="pcm", sample_rate=16_000, seed=5, pace="fast", bundle=4
        )
    assert starts == [
        messages.Start(
            utterance="mine", language="zh", format="pcm", sample_rate=16_000, seed=5, pace="fast", bundle=4
        )
    ]


async def test_two_utterances_on_one_socket_get_their_own_sound() -> None:
    async def script(peer: Peer) -> None:
        for stream in (1, 2):
            start = await peer.receive()
            assert isinstance(start, messages.Start)
            await peer.started(start.utterance, stream)
        for sequence in range(50):
            await peer.audio(1, [b"a%d" % sequence], sequence=sequence)
            await peer.audio(2, [b"b%d" % sequence], sequence=sequence)
        await peer.send(Done(utterance="b", duration_ms=1000))
        await peer.send(Done(utterance="a", duration_ms=1000))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        a, b = await client.start("a"), await client.start("b")
        of_a, of_b = await asyncio.gather(a.collect(), b.collect())
    assert of_a.packets == [b"a%d" % n for n in range(50)]
    assert of_b.packets == [b"b%d" % n for n in range(50)]


async def test_an_id_in_use_is_refused_here_and_free_after_its_end() -> None:
    async def script(peer: Peer) -> None:
        for stream in (1, 2):
            start = await peer.receive()
            assert isinstance(start, messages.Start)
            await peer.started(start.utterance, stream)
            await peer.receive_text(start.utterance)
            await peer.send(Done(utterance=start.utterance, duration_ms=0))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        first = await client.start("same")
        with pytest.raises(ValueError, match="still being spoken"):
            await client.start("same")
        await first.end()
        assert (await first.collect()).outcome == "done"
        second = await client.start("same")
        await second.end()
        spoken = await second.collect()
    assert isinstance(spoken.events[0], Started)
    assert spoken.events[0].stream == 2


async def test_long_text_is_cut_to_the_servers_limit_and_stays_whole() -> None:
    text = "".join(chr(0x4E00 + n % 500) for n in range(1003)) + "\U0001f600\x01"
    pieces: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.receive_text("u1")
        pieces.extend(message.text for message in peer.received if isinstance(message, messages.Text))
        await peer.send(Done(utterance="u1", duration_ms=0))
        await peer.receive_close()

    async with (
        FakeGateway(script, hello=make_hello(text_chars=100)) as gateway,
        connect(gateway.url) as client,
    ):
        await client.speak(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == 100


async def test_text_waits_while_too_much_is_unspoken() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        for n in range(4):
            message = await peer.receive()
            assert isinstance(message, messages.Text)
            assert len(message.text) == 10, n
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await peer.receive()
        await peer.send(SentenceEvent(utterance="u1", index=0, start=0, end=25, start_ms=0))
        for _ in range(2):
            await peer.receive()
        await peer.send(SentenceEvent(utterance="u1", index=1, start=25, end=60, start_ms=500))
        await peer.receive_text("u1")
        await peer.send(Done(utterance="u1", duration_ms=0))
        await peer.receive_close()

    hello = make_hello(pending_chars=40)
    async with FakeGateway(script, hello=hello) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        speaking = asyncio.create_task(utterance.send_all("x" * 70))
        assert (await utterance.collect()).outcome == "done"
        await speaking
    assert utterance.sent_chars == utterance.spoken_chars == 70


async def test_cancel_tells_what_was_heard_and_ends_as_cancelled() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        await peer.audio(1, [b"x"])
        cancel = await peer.receive()
        assert cancel == messages.Cancel(utterance="u1", played_ms=12.5)
        await peer.send(Cancelled(utterance="u1", played_ms=12, text_spoken="He", text_remaining="llo"))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        await utterance.cancel(12.5)
        spoken = await utterance.collect()
        assert spoken.outcome == "cancelled"
        assert spoken.packets == [b"x"]
        assert [event async for event in utterance.events()] == []


async def test_an_error_ends_its_utterance_and_leaves_the_others() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.receive()
        await peer.started("good", 1)
        await peer.send(Error(code="unknown_voice", message="no such voice", utterance="bad"))
        await peer.send(Error(code="refused", message="text after end", about="good"))
        await peer.send(Error(code="bad_json", message="not JSON"))
        await peer.send(Done(utterance="good", duration_ms=0))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        bad, good = await client.start("bad"), await client.start("good")
        assert (await bad.collect()).outcome == "unknown_voice"
        spoken = await good.collect()
        assert spoken.outcome == "done"
        assert [event.code for event in spoken.events if isinstance(event, Error)] == ["refused"]
        assert [error.code for error in client.errors] == ["bad_json"]


async def test_what_a_later_server_adds_is_ignored() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.socket.send_str('{"type":"visemes","utterance":"u1","words":[1]}')
        await peer.socket.send_str(
            '{"type":"started","utterance":"u1","stream":3,"voice":"v","seed":1,"format":"opus",'
            '"sample_rate":24000,"mood":"new"}'
        )
        await peer.audio(99, [b"somebody else's"])
        await peer.send(Done(utterance="never", duration_ms=1))
        await peer.send(Done(utterance="u1", duration_ms=0))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        spoken = await (await client.start()).collect()
        assert [type(event) for event in spoken.events] == [Started, Done]
        assert spoken.packets == []
        assert client.stray == 2


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x01", id="short"),
        pytest.param(b"\x09" + bytes(15), id="version"),
        pytest.param(bytes([1, 0, 1, 0]) + bytes(8) + b"\x02\x00\x00\x00" + b"\x01\x00x", id="cut"),
        pytest.param("not JSON", id="text"),
        pytest.param('{"type":"done","utterance":"u1"}', id="field"),
        pytest.param('{"type":3}', id="type"),
    ],
)
async def test_a_server_that_breaks_the_protocol_is_left(frame: str | bytes) -> None:
    codes: list[int | None] = []

    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        if isinstance(frame, str):
            await peer.socket.send_str(frame)
        else:
            await peer.socket.send_bytes(frame)
        codes.append(await peer.receive_close())

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        with pytest.raises(BadServerMessage):
            await utterance.collect()
        with pytest.raises(BadServerMessage):
            await utterance.end()
        await asyncio.sleep(0.05)
    assert codes == [1002]


async def test_a_dropped_connection_is_told_after_what_had_come() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        await peer.audio(1, [b"x"])
        await asyncio.sleep(0.05)
        peer.drop()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        events = utterance.events()
        assert isinstance(await anext(events), Started)
        assert isinstance(await anext(events), AudioMessage)
        with pytest.raises(ConnectionLost) as lost:
            await anext(events)
        assert lost.value.code == 1006
        with pytest.raises(ConnectionLost):
            await client.ping()


async def test_a_close_carries_the_servers_reason_and_last_error() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(Error(code="slow_consumer", message="you read too slowly"))
        await peer.socket.close(code=1008, message=b"slow_consumer")

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        with pytest.raises(ConnectionLost, match=r"you read too slowly \(slow_consumer\).*1008") as lost:
            await utterance.collect()
        assert lost.value.error is not None


async def test_text_held_back_does_not_wait_for_a_dead_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.receive()
        peer.drop()

    hello = make_hello(pending_chars=8)
    async with FakeGateway(script, hello=hello) as gateway, connect(gateway.url) as client:
        utterance = await client.start()
        async with asyncio.timeout(2):
            with pytest.raises(ConnectionLost):
                await utterance.send_text("x" * 1000)


async def test_closing_ends_those_who_still_listen() -> None:
    async with FakeGateway(idle) as gateway:
        async with connect(gateway.url) as client:
            collecting = asyncio.create_task((await client.start()).collect())
            pinging = asyncio.create_task(client.ping())
            await asyncio.sleep(0.02)
        with pytest.raises(ConnectionLost, match="closed by this client"):
            await collecting
        with pytest.raises(ConnectionLost):
            await pinging


async def test_an_untaken_utterance_holds_the_socket_back_and_loses_nothing() -> None:
    total = QUEUE_MESSAGES + 500

    async def script(peer: Peer) -> None:
        for stream in (1, 2):
            await peer.receive()
            await peer.started("ab"[stream - 1], stream)
        for sequence in range(total):
            await peer.audio(1, [b"%d" % sequence], sequence=sequence)
        await peer.send(Done(utterance="b", duration_ms=0))
        await peer.send(Done(utterance="a", duration_ms=0))
        await peer.receive_close()

    async with FakeGateway(script) as gateway:
        async with connect(gateway.url) as client:
            a, b = await client.start("a"), await client.start("b")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await b.collect()
            spoken = await a.collect()
            assert spoken.packets == [b"%d" % n for n in range(total)]
        async with connect(gateway.url) as client:
            a, b = await client.start("a"), await client.start("b")
            await asyncio.sleep(0.1)
            a.abandon()
            async with asyncio.timeout(5):
                assert (await b.collect()).outcome == "done"


async def test_the_mailbox_never_holds_more_than_its_bound() -> None:
    box = Mailbox(2)
    events = [SentenceEvent(utterance="u", index=n, start=0, end=1, start_ms=0) for n in range(4)]
    taken: list[object] = []

    async def give() -> None:
        for event in events:
            await box.put(0.0, event)

    giving = asyncio.create_task(give())
    await asyncio.sleep(0.01)
    assert not giving.done()
    for _ in events:
        taken.append((await box.get())[1])
    await giving
    box.close(ConnectionLost(1006, "gone"))
    assert taken == events
    with pytest.raises(ConnectionLost):
        await box.get()


async def test_ping_is_answered() -> None:
    async def script(peer: Peer) -> None:
        assert isinstance(await peer.receive(), messages.Ping)
        await peer.send(messages.Pong())
        await peer.receive_close()

    async with FakeGateway(script) as gateway, connect(gateway.url) as client:
        assert 0 < await client.ping() < 5


async def test_abort_leaves_without_a_close_frame() -> None:
    codes: list[int | None] = []

    async def script(peer: Peer) -> None:
        codes.append(await peer.receive_close())

    async with FakeGateway(script) as gateway:
        async with connect(gateway.url) as client:
            client.abort()
        await asyncio.sleep(0.05)
    assert codes == [1006]


async def test_nobody_listens() -> None:
    with sockets.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}/v1/stream"
        with pytest.raises(CannotConnect) as refused:
            async with connect(url):
                pass
    assert url in str(refused.value)
    assert refused.value.status is None


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ws://", "nonsense"])
async def test_no_address_of_a_websocket(url: str) -> None:
    with pytest.raises(CannotConnect, match="not a WebSocket address"):
        async with connect(url):
            pass


async def test_a_wrong_key_is_refused_with_the_servers_words() -> None:
    async with FakeGateway(idle, token="right") as gateway:
        with pytest.raises(CannotConnect, match="this gateway wants a key") as refused:
            async with connect(gateway.url, token="wrong"):
                pass
    assert refused.value.status == 401
    assert "wrong" not in str(refused.value)


async def test_a_server_of_another_protocol_is_left() -> None:
    async with FakeGateway(idle) as gateway:
        gateway.protocols = ("other.v1",)
        with pytest.raises(CannotConnect, match=r"sayflow\.v1"):
            async with connect(gateway.url):
                pass


async def test_no_hello_in_time() -> None:
    async with FakeGateway(idle) as gateway:
        gateway.greet = False
        with pytest.raises(CannotConnect, match=r"no session within 0\.2 s"):
            async with connect(gateway.url, timeout_s=0.2):
                pass


async def test_closed_instead_of_hello() -> None:
    async def script(peer: Peer) -> None:
        await peer.socket.close(code=1013, message=b"overloaded")

    async with FakeGateway(script) as gateway:
        gateway.greet = False
        with pytest.raises(CannotConnect, match="1013: overloaded"):
            async with connect(gateway.url):
                pass
