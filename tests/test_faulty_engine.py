"""Whatever an engine does, the gateway lives, each utterance ends typed, and the next one speaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.checks import check_marks, check_order
from tests.faulty_engine import GARBAGE, VICTIM
from tests.inside import EngineProcess, Inside, gateway
from tests.listener import Heard, Listener, eventually, listening

TEXT = "There was a table set out under a tree. "
LOST_S = 1.0
SLACK = 5


@pytest.fixture
def engine_process() -> Iterator[EngineProcess]:
    process = EngineProcess(slots=6)
    yield process
    process.close()


async def speak(listener: Listener, *names: str, seed: int = 1, text: str = TEXT * 5) -> list[Heard]:
    return [await listener.say(name, text, seed=seed + number) for number, name in enumerate(names)]


async def heals(process: EngineProcess, inside: Inside, listener: Listener) -> None:
    """A true engine takes over; the session speaks on."""
    if process.process is not None and process.process.poll() is None:
        process.process.kill()
        process.process.wait()
    await eventually(lambda: inside.link_state != "ready")
    process.start()
    await inside.ready()
    heard = await listener.say("healed", "All is well.", seed=3)
    await listener.wait(heard)
    check_order(heard)
    assert check_marks(heard) == 6 * len("All is well.")
    inside.check()


@pytest.mark.parametrize("fault", ["raise@5", "nothing@5"])
async def test_a_failed_step_fails_its_batch_only(engine_process: EngineProcess, fault: str) -> None:
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        batch = await speak(listener, "a", "b", "c")
        await listener.wait(*batch)
        later = await speak(listener, "later")
        await listener.wait(*later)
        assert {heard.terminal.get("code") for heard in batch} <= {"model_fault", None}
        assert [heard for heard in batch if heard.terminal.get("code") == "model_fault"]
        assert later[0].terminal["type"] == "done"
        for heard in [*batch, *later]:
            check_order(heard)
            check_marks(heard)
        await eventually(lambda: inside.used_slots == 0)


@pytest.mark.parametrize(
    ("fault", "code"), [("row@3", "bad_audio"), ("begin", "model_fault"), ("wrong_slot", "model_fault")]
)
async def test_a_failed_row_leaves_the_others_alone(
    engine_process: EngineProcess, fault: str, code: str
) -> None:
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        others = await speak(listener, "a", "b")
        victim = await listener.say("v", TEXT, seed=VICTIM)
        more = await speak(listener, "c", seed=9)
        await listener.wait(victim, *others, *more)
        assert victim.terminal["code"] == code
        for heard in [*others, *more]:
            check_order(heard)
            assert check_marks(heard) == 6 * (5 * len(TEXT) - 5)
        check_order(victim)
        await eventually(lambda: inside.used_slots == 0)


async def test_sentences_without_a_sample_are_done(engine_process: EngineProcess) -> None:
    engine_process.start("silent")
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        victim = await listener.say("v", TEXT * 3, seed=VICTIM)
        await listener.wait(victim)
        assert (victim.terminal["type"], victim.terminal["duration_ms"]) == ("done", 0)
        check_order(victim)


async def test_a_hung_step_is_seen_and_killed(engine_process: EngineProcess) -> None:
    process = engine_process.start("hang@4")
    async with (
        gateway(engine_process, stall_s=0.5, stall_kill_s=1.5) as inside,
        listening(inside.ws_url) as listener,
    ):
        began = time.monotonic()
        victims = await speak(listener, "a", "b")
        await listener.wait(*victims)
        failed_s = time.monotonic() - began
        for heard in victims:
            check_order(heard)
            check_marks(heard)
            assert heard.terminal["code"] == "engine_lost"
            assert heard.terminal["retry_after_ms"] > 0
        assert await asyncio.to_thread(process.wait, 10) == -9
        killed_s = time.monotonic() - began
        print(f"a step said 1.02 s and hung: failed after {failed_s:.2f} s, killed after {killed_s:.2f} s")
        assert 1.5 < failed_s < 1.5 + SLACK
        assert 2.5 < killed_s < 2.5 + SLACK
        await heals(engine_process, inside, listener)


async def test_a_slow_step_within_its_word_is_no_stall(engine_process: EngineProcess) -> None:
    engine_process.start("slow")
    async with (
        gateway(engine_process, stall_s=0.8, stall_kill_s=0.9) as inside,
        listening(inside.ws_url) as listener,
    ):
        heard = await listener.say("a", "No", seed=2)
        await listener.wait(heard)
        check_order(heard)
        assert check_marks(heard) == 12
        assert inside.link_state == "ready"


async def test_a_mute_engine_is_killed(engine_process: EngineProcess) -> None:
    process = engine_process.start("mute@3")
    async with (
        gateway(engine_process, stall_s=1.2, stall_kill_s=2.0) as inside,
        listening(inside.ws_url) as listener,
    ):
        (victim,) = await speak(listener, "a")
        await listener.wait(victim)
        assert victim.terminal["code"] == "engine_lost"
        check_order(victim)
        assert await asyncio.to_thread(process.wait, 10) == -9
        await heals(engine_process, inside, listener)


@pytest.mark.parametrize("fault", ["exit@3", *(f"{name}@3" for name in GARBAGE)])
async def test_garbage_ends_the_link_typed(engine_process: EngineProcess, fault: str) -> None:
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        victims = await speak(listener, "a", "b")
        await listener.wait(*victims)
        for heard in victims:
            check_order(heard)
            check_marks(heard)
            assert heard.terminal["code"] == "engine_lost"
        await heals(engine_process, inside, listener)


@pytest.mark.parametrize("fault", ["corrupt@3", "wrong_crc@3"])
async def test_damaged_sound_is_not_played(engine_process: EngineProcess, fault: str) -> None:
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        victims = await speak(listener, "a", "b")
        await listener.wait(*victims)
        for heard in victims:
            check_order(heard)
            check_marks(heard)
            assert heard.terminal["code"] in ("bad_audio", "engine_lost")
        await heals(engine_process, inside, listener)


@pytest.mark.parametrize(
    "fault",
    [
        "stale_generation@3",
        "backwards@3",
        "past_the_ring@3",
        "slot_out_of_range",
        "negative_slot",
        "no_opened",
        "other_sentence",
        "other_sentence_unsaid",
        "done_twice",
        "done_first@3",
        "closed_early@3",
        "failed@3",
        "strange_code@3",
    ],
)
async def test_messages_that_make_no_sense_end_the_utterance_typed(
    engine_process: EngineProcess, fault: str
) -> None:
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        victims = await speak(listener, "a", "b")
        await listener.wait(*victims, within_s=8.0)
        inside.check()
        for heard in victims:
            check_order(heard)
            check_marks(heard)
            assert heard.terminal["type"] == "error"
            assert (heard.terminal["code"] + heard.terminal["message"]).isprintable()
        await heals(engine_process, inside, listener)


@pytest.mark.parametrize("fault", ["strangers", "closed_twice"])
async def test_messages_about_strangers_are_passed_over(engine_process: EngineProcess, fault: str) -> None:
    """They cross with a cancel in the ordinary course of things."""
    engine_process.start(fault)
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        all_heard = await speak(listener, "a", "b")
        await listener.wait(*all_heard)
        for heard in all_heard:
            check_order(heard)
            assert check_marks(heard) == 6 * (5 * len(TEXT) - 5)
        assert inside.link_state == "ready"


async def test_an_engine_that_never_lives_long_does_no_harm(engine_process: EngineProcess) -> None:
    """Three incarnations in a row die in the first step; each utterance is told, the fourth speaks."""
    engine_process.start("exit")
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        for number in range(3):
            await inside.ready()
            began = time.monotonic()
            (victim,) = await speak(listener, f"v{number}")
            await listener.wait(victim)
            assert victim.terminal["code"] == "engine_lost"
            assert time.monotonic() - began < SLACK * LOST_S
            assert engine_process.process is not None
            await asyncio.to_thread(engine_process.process.wait)
            if number < 2:
                engine_process.start("exit")
        await heals(engine_process, inside, listener)


async def test_a_fault_of_the_model_logs_no_text(engine_process: EngineProcess) -> None:
    engine_process.start("begin")
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        victim = await listener.say("v", "Zanzibar is lovely.", seed=VICTIM)
        await listener.wait(victim)
    log = engine_process.output()
    assert "told to raise" in log
    assert "Zanzibar" not in log
