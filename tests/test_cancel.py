"""Barge-in: silent at once, the slot free soon, the text split without loss; and clients that just vanish.

Times are asserted at five times what is promised, and printed as they were.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable

import pytest

from tests.checks import check_marks, check_order
from tests.inside import engine, gateway
from tests.listener import Heard, Listener, eventually, listening
from tests.server import Server

TEXT = "One day I will tell you all about it. But not today, since there is no time! Good night."
SILENT_S = 0.1
SLOT_S = 0.2
VANISHED_S = 0.3
SLACK = 5


def used_slots(server: Server) -> int:
    used = server.health()["engines"]["main"]["used_slots"]
    assert isinstance(used, int)
    return used


async def speaking(
    listener: Listener, name: str = "a", text: str = TEXT * 5, pace: str = "realtime"
) -> Heard:
    """An utterance that can be heard already and has much to say."""
    heard = await listener.say(name, text, seed=8, pace=pace)
    async with asyncio.timeout(5):
        await heard.first_sound.wait()
    return heard


@pytest.mark.parametrize("pace", ["realtime", "fast"])
async def test_cancel_silences_and_frees_the_slot(tones: Server, pace: str) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await speaking(listener, pace=pace)
        await asyncio.sleep(0.3)
        assert used_slots(tones) == 1
        began = time.monotonic()
        await listener.cancel(heard)
        await listener.wait(heard)
        freed = asyncio.create_task(eventually(lambda: used_slots(tones) == 0))
        silent_s = heard.terminal_entry.at - began
        await freed
        free_s = time.monotonic() - began
        await asyncio.sleep(0.2)
        await listener.settle()
    check_order(heard)
    check_marks(heard)
    print(f"{pace}: silent {silent_s * 1000:.1f} ms after cancel, slot free after {free_s * 1000:.1f} ms")
    assert silent_s < SLACK * SILENT_S
    assert free_s < SLACK * SLOT_S
    assert heard.terminal["type"] == "cancelled"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "你好，世界。今天天气很好！我们出去走走吧？",
        "Smile 😀😀 and go. 👩‍👩‍👧‍👦 Family first, 𝒜𝓁𝓌𝒶𝓎𝓈! Done 🎉",
        "  # Title\n\n* one `code` [link](http://x.y) **bold**\n\n```\nskip\n```\nThe end. ",
    ],
)
@pytest.mark.parametrize("played_ms", [None, 0, 1, 700, 86_400_000.0])
async def test_both_texts_make_the_clients_own(tones: Server, text: str, played_ms: float | None) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await speaking(listener, text=text)
        await eventually(lambda: heard.milliseconds > 700)
        await listener.cancel(heard, played_ms=played_ms)
        await listener.wait(heard)
    check_order(heard)
    spoken = heard.terminal["text_spoken"]
    if played_ms == 0:
        assert spoken == ""
    elif played_ms == 700:
        assert 699 <= heard.terminal["played_ms"] <= 700
        assert 0 < len(spoken) < len(text)


async def test_played_ms_grows_the_spoken_text(tones: Server) -> None:
    """A word that has begun counts as spoken."""
    spoken = []
    async with listening(tones.ws_url) as listener:
        for place in (300, 900, 1100):
            heard = await speaking(listener, name=f"at{place}", text=TEXT)
            await asyncio.sleep(0.2)
            await listener.cancel(heard, played_ms=place)
            await listener.wait(heard)
            check_order(heard)
            spoken.append(heard.terminal["text_spoken"])
    assert spoken == ["One day", "One day I will", "One day I will tell"]


async def test_a_pair_cut_by_the_cancel_is_not_lost(tones: Server) -> None:
    """The half that waits for its other half is the client's text, too: it is returned as what it is."""
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a")
        await listener.text(heard, "go \ud83d")
        await listener.text(heard, "\ude00 on")
        heard.text = "go 😀 on"
        await listener.cancel(heard)
        await listener.wait(heard)
    check_order(heard)


async def test_cancel_before_any_text_and_before_any_sound(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        empty = await listener.start("empty")
        await listener.cancel(empty)
        held = await listener.start("held")
        await listener.text(held, "no end yet")
        await listener.cancel(held, played_ms=500)
        await listener.wait(empty, held)
    for heard in (empty, held):
        check_order(heard)
        assert heard.terminal["type"] == "cancelled"
        assert (heard.terminal["played_ms"], heard.terminal["text_spoken"]) == (0, "")
    assert held.terminal["text_remaining"] == "no end yet"


async def test_cancel_while_queued() -> None:
    with engine(slots=1) as process:
        async with gateway(process) as inside, listening(inside.ws_url) as listener:
            holder = await speaking(listener, "holder")
            waiting = await listener.say("waiting", TEXT)
            await listener.settle()
            assert inside.services.admission.waiting == 1
            began = time.monotonic()
            await listener.cancel(waiting)
            await listener.wait(waiting)
            assert time.monotonic() - began < SLACK * SILENT_S
            assert inside.services.admission.waiting == 0
            assert waiting.terminal["text_remaining"] == TEXT
            # The slot that comes free goes to one who still waits.
            second = await listener.say("second", "Still here.")
            await listener.cancel(holder)
            await listener.wait(holder, second)
            assert second.terminal["type"] == "done"
        for heard in (holder, waiting, second):
            check_order(heard)


async def test_cancel_twice_and_after_the_end(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await speaking(listener)
        await listener.cancel(heard)
        await listener.cancel(heard)
        await listener.wait(heard)
        await listener.cancel(heard, played_ms=5)
        done = await listener.say("b", "Hi.")
        await listener.wait(done)
        for kind in ("cancel", "flush", "end"):
            await listener.send(type=kind, utterance="b")
        await listener.send(type="played", utterance="b", ms=5)
        await listener.send(type="ping")
        assert [(await listener.next_stray("pong"))["type"], listener.strays] == ["pong", []]
    check_order(heard)
    check_order(done)


async def test_a_cancel_leaves_the_neighbours_alone(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        victim = await speaking(listener, "victim", pace="fast")
        others = [await listener.say(f"n{n}", TEXT, seed=50 + n) for n in range(5)]
        await listener.cancel(victim)
        await listener.wait(victim, *others)
    for heard in others:
        check_order(heard)
        assert check_marks(heard) > 0
        assert heard.terminal["type"] == "done"


async def test_new_text_goes_on_after_many_quick_cancels(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        for number in range(60):
            heard = await listener.say(f"u{number}", TEXT, seed=number + 1)
            if number % 3:
                await heard.first_sound.wait()
            await listener.cancel(heard)
            if number % 2:
                await listener.wait(heard)
        await listener.wait(*listener.heard.values())
        last = await listener.say("last", "Hello again.", seed=99)
        await listener.wait(last)
    for heard in listener.heard.values():
        check_order(heard)
        check_marks(heard)
    assert last.terminal["type"] == "done"
    await eventually(lambda: used_slots(tones) == 0)


# --- clients that vanish ----------------------------------------------------------------------------------


def reset(listener: Listener) -> None:
    transport = listener.socket.transport
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def half_close(listener: Listener) -> None:
    listener.socket.transport.write_eof()


def close(listener: Listener) -> None:
    listener.closing = asyncio.create_task(listener.socket.close())  # type: ignore[attr-defined]


@pytest.mark.parametrize("vanish", [reset, half_close, close])
@pytest.mark.parametrize("pace", ["realtime", "fast"])
async def test_a_vanished_client_frees_its_slots(
    tones: Server, vanish: Callable[[Listener], None], pace: str
) -> None:
    lines = tones.output().count("\n")
    async with listening(tones.ws_url) as listener, listening(tones.ws_url) as other:
        neighbour = await other.say("n", TEXT, seed=4)
        heard = [await speaking(listener, f"u{n}", pace=pace) for n in range(3)]
        await other.wait(neighbour)
        await eventually(lambda: used_slots(tones) == 3)
        began = time.monotonic()
        vanish(listener)
        await eventually(lambda: used_slots(tones) == 0)
        free_s = time.monotonic() - began
    print(f"{vanish.__name__}, {pace}: slots free after {free_s * 1000:.0f} ms")
    assert free_s < SLACK * VANISHED_S
    for one in heard:
        check_order(one, complete=False)
        check_marks(one)
    check_order(neighbour)
    log = "\n".join(tones.output().splitlines()[lines:])
    assert "Traceback" not in log
    assert "error" not in log


async def test_a_client_that_vanishes_while_queued_leaves_the_queue() -> None:
    with engine(slots=1) as process:
        async with gateway(process) as inside, listening(inside.ws_url) as stays:
            await speaking(stays)
            async with listening(inside.ws_url) as leaves:
                for number in range(3):
                    await leaves.say(f"w{number}", TEXT)
                await leaves.settle()
                assert inside.services.admission.waiting == 3
                reset(leaves)
                took = await eventually(lambda: inside.services.admission.waiting == 0)
                assert took < SLACK * VANISHED_S
            assert inside.used_slots == 1
