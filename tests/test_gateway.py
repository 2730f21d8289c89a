"""A whole utterance over a real socket: order, formats, pacing, pauses, several at once, back-pressure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import opuslib_next
import pytest

from tests.checks import check_marks, check_order, check_tone
from tests.inside import EngineProcess, engine, gateway
from tests.listener import PACKET_MS, Heard, Said, Sound, eventually, listening
from tests.server import Server

SENTENCE = "The quick brown fox jumps over the lazy dog."
SENTENCE_MS = 60 * len(SENTENCE)
LEAD_MS = 2000


@pytest.fixture(scope="module")
def engine_process() -> Iterator[EngineProcess]:
    with engine() as process:
        yield process


def samples_of(heard: Heard) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Decoded sound, each sentence by a decoder of its own."""
    if heard.format == "pcm":
        return np.frombuffer(b"".join(heard.packets), "<i2")
    decoder = opuslib_next.Decoder(heard.sample_rate, 1)
    frame = heard.sample_rate * PACKET_MS // 1000
    return np.frombuffer(b"".join(decoder.decode(packet, frame) for packet in heard.packets), "<i2")


async def test_text_in_pieces_is_spoken_whole(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a", seed=9)
        for char in f"{SENTENCE} {SENTENCE}":
            await listener.text(heard, char)
        await listener.end(heard)
        await listener.wait(heard)
    check_order(heard)
    assert heard.terminal["type"] == "done"
    assert check_marks(heard) * 10 == heard.milliseconds == 2 * SENTENCE_MS


@pytest.mark.parametrize("form", ["pcm", "opus"])
@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("bundle", [1, 10, 25])
async def test_formats(tones: Server, form: str, rate: int, bundle: int) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", SENTENCE, seed=7, format=form, sample_rate=rate, bundle=bundle)
        await listener.wait(heard)
    check_order(heard)
    started = heard.log[0]
    assert isinstance(started, Said)
    assert (started.message["format"], started.message["sample_rate"]) == (form, rate)
    assert SENTENCE_MS <= heard.milliseconds <= SENTENCE_MS + 2 * PACKET_MS
    samples = samples_of(heard)
    assert len(samples) == rate * heard.milliseconds // 1000
    check_tone(samples[: rate * SENTENCE_MS // 1000], 7, rate)
    # What the client asked for, but that a tick holds no more than 12.
    assert min(bundle, 12) <= max(len(sound.packets) for sound in heard.sounds) <= bundle


async def test_several_utterances_of_one_socket_at_once(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        all_heard = [await listener.start(f"u{number}", seed=100 + number) for number in range(8)]
        for piece in range(6):
            for number, heard in enumerate(all_heard):
                await listener.text(heard, f"Piece {'x' * number}{piece}. ")
        for heard in all_heard:
            await listener.end(heard)
        await listener.wait(*all_heard)
    for heard in all_heard:
        check_order(heard)
        assert heard.terminal["type"] == "done"
        assert check_marks(heard) > 0
    order = [sound.stream for heard in all_heard for sound in heard.sounds]
    assert len(set(order)) == 8


async def test_flush_speaks_what_is_held(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a", seed=3)
        await listener.text(heard, "and so")
        await asyncio.sleep(0.3)
        assert not heard.sounds
        await listener.send(type="flush", utterance="a")
        async with asyncio.timeout(2):
            await heard.first_sound.wait()
        await listener.text(heard, "on it goes")
        await listener.end(heard)
        await listener.wait(heard)
    check_order(heard)
    assert check_marks(heard) == 6 * len("and so" + "on it goes")


async def test_equal_requests_give_equal_sound(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        first = await listener.say("a", SENTENCE, seed=5, format="opus")
        await listener.wait(first)
        second = await listener.say("b", SENTENCE, seed=5, format="opus")
        await listener.wait(second)
    assert first.packets == second.packets


async def test_the_random_seed_is_named(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a", seed="random")  # type: ignore[arg-type]
        await listener.text(heard, SENTENCE)
        await listener.end(heard)
        await listener.wait(heard)
    started = heard.log[0]
    assert isinstance(started, Said)
    heard.seed = started.message["seed"]
    assert check_marks(heard) > 0


# --- pacing -----------------------------------------------------------------------------------------------


def worst_lead_ms(sounds: list[Sound]) -> float:
    """The most sound that had come and could not have been heard yet, by the listener's clock."""
    start, sent, worst = sounds[0].at, 0, 0.0
    for sound in sounds:
        sent += PACKET_MS * len(sound.packets)
        worst = max(worst, sent - (sound.at - start) * 1000)
    return worst


async def test_realtime_lead_is_bounded(tones: Server) -> None:
    bundle_ms = 3 * PACKET_MS
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", SENTENCE * 2, pace="realtime")
        await listener.wait(heard)
    check_order(heard)
    check_marks(heard)
    worst = worst_lead_ms(heard.sounds)
    took = (heard.terminal_entry.at - heard.sounds[0].at) * 1000
    print(f"lead at most {worst:.0f} ms; done {took - heard.milliseconds:.0f} ms after the last sample")
    assert LEAD_MS / 2 < worst <= LEAD_MS + bundle_ms
    # `done` comes when the listener has heard it.
    assert heard.milliseconds - 20 <= took <= heard.milliseconds + 500


async def test_the_lead_follows_reports_of_a_listener_that_stands_still(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", SENTENCE * 4, pace="realtime")
        await heard.first_sound.wait()
        for _ in range(35):
            await listener.send(type="played", utterance="a", ms=0)
            await asyncio.sleep(0.1)
        held = heard.milliseconds
        await listener.send(type="played", utterance="a", ms=2000)
        await asyncio.sleep(0.5)
        more = heard.milliseconds
        await listener.cancel(heard)
        await listener.wait(heard)
    check_order(heard)
    # At most a report's interval beside the lead: the playhead runs on between reports.
    assert LEAD_MS - 200 <= held <= LEAD_MS + 300
    assert 2000 + LEAD_MS - 200 <= more <= 2000 + LEAD_MS + 700


async def test_reports_ahead_of_the_clock_let_more_come(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", SENTENCE * 3, pace="realtime")
        while not heard.over.is_set():
            await listener.send(type="played", utterance="a", ms=heard.milliseconds)
            await asyncio.sleep(0.02)
    check_order(heard)
    took = heard.terminal_entry.at - heard.sounds[0].at
    assert took < heard.milliseconds / 2000, "all was heard at once, and the server paced by the clock"


@pytest.mark.parametrize("bundle", [3, 10, 25])
async def test_a_short_lead_does_not_starve_a_large_bundle(
    engine_process: EngineProcess, bundle: int
) -> None:
    async with (
        gateway(engine_process, lead_ms=200) as inside,
        listening(inside.ws_url) as listener,
    ):
        heard = await listener.say("a", "Hello there.", pace="realtime", bundle=bundle)
        await listener.wait(heard, within_s=5.0)
    check_order(heard)
    assert worst_lead_ms(heard.sounds) <= 200 + PACKET_MS * bundle


# --- pauses and back-pressure -----------------------------------------------------------------------------


async def test_a_pause_gives_the_slot_back_and_text_goes_on(engine_process: EngineProcess) -> None:
    async with (
        gateway(engine_process, slot_idle_s=0.3) as inside,
        listening(inside.ws_url) as listener,
    ):
        heard = await listener.start("a", seed=11)
        await listener.text(heard, "First words. ")
        await listener.send(type="flush", utterance="a")
        await heard.first_sound.wait()
        assert inside.used_slots == 1
        await eventually(lambda: inside.used_slots == 0)
        before = heard.milliseconds
        await asyncio.sleep(0.1)
        await listener.text(heard, "Second words.")
        await listener.end(heard)
        await listener.wait(heard)
    check_order(heard)
    assert heard.terminal["type"] == "done"
    # In its new slot the engine counts from 0 again.
    assert before == 60 * len("First words.")
    second = next(n for n, sound in enumerate(heard.sounds) if sound.timestamp >= before * 48)
    parts: list[list[Said | Sound]] = [[*heard.sounds[:second]], [*heard.sounds[second:]]]
    blocks = [check_marks(Heard("part", 11, log=part)) for part in parts]
    assert blocks == [6 * len("First words."), 6 * len("Second words.")]


async def test_a_long_text_is_whole_behind_a_small_ring(engine_process: EngineProcess) -> None:
    text = " ".join([SENTENCE] * 16)
    async with (
        gateway(engine_process, ring_ms=500) as inside,
        listening(inside.ws_url) as listener,
    ):
        heard = await listener.say("a", text, seed=21)
        neighbour = await listener.say("b", SENTENCE, seed=22)
        await listener.wait(neighbour)
        assert not heard.over.is_set()
        await listener.wait(heard, within_s=90.0)
    check_order(heard)
    assert check_marks(heard) * 10 == 16 * SENTENCE_MS
    assert check_marks(neighbour) * 10 == SENTENCE_MS


async def test_a_queue_is_served_in_order_and_refuses_in_time() -> None:
    with engine(slots=1) as process:
        async with (
            gateway(process, queue_wait_s=1.0, utterances=20) as inside,
            listening(inside.ws_url) as listener,
        ):
            holder = await listener.say("holder", SENTENCE * 3, pace="realtime")
            await holder.first_sound.wait()
            waiting = [await listener.say(f"w{number}", SENTENCE) for number in range(4)]
            await listener.settle()
            assert inside.services.admission.waiting == 4
            began = time.monotonic()
            refused = await listener.say("refused", SENTENCE)
            await listener.wait(refused)
            assert time.monotonic() - began < 0.5
            assert refused.terminal["code"] == "overloaded"
            assert refused.terminal["retry_after_ms"] > 0
            await listener.cancel(waiting[0])
            await listener.wait(waiting[0])
            assert waiting[0].terminal["text_remaining"] == SENTENCE
            assert inside.services.admission.waiting == 3
            await listener.wait(*waiting)
            assert {heard.terminal.get("code") for heard in waiting[1:]} == {"overloaded"}
            assert 0.8 < time.monotonic() - began < 2.0
            await listener.cancel(holder)
            await listener.wait(holder)
            order = [await listener.say(f"o{number}", SENTENCE) for number in range(4)]
            await listener.wait(*order)
        ends = [heard.terminal_entry.at for heard in order]
        assert all(early < late for early, late in pairwise(ends))
        for heard in (holder, *order, *waiting, refused):
            check_order(heard)


async def test_an_utterance_without_text_holds_no_slot(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        for number in range(8):
            await listener.start(f"u{number}")
        await listener.settle()
        assert tones.health()["engines"]["main"]["used_slots"] == 0
