"""What no good client sends: each gets a typed error, and the session speaks on as if nothing had been."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.checks import check_marks, check_order
from tests.inside import EngineProcess, engine, gateway
from tests.listener import Listener, listening
from tests.server import Server

SEED = 42


@pytest.fixture(scope="module")
def engine_process() -> Iterator[EngineProcess]:
    with engine(slots=16) as process:
        yield process


def message(**fields: Any) -> str:
    return json.dumps(fields)


def start(**fields: Any) -> str:
    return message(type="start", utterance="bad", **fields)


async def speaks_on(listener: Listener) -> None:
    """The session is as good as new."""
    heard = await listener.say(f"after{len(listener.sent)}", "It goes on.", seed=SEED)
    await listener.wait(heard, within_s=5)
    check_order(heard)
    assert check_marks(heard) == 6 * len("It goes on.")


# --- typed errors that end nothing ------------------------------------------------------------------------

DEEP = 30_000
REFUSED = {
    "empty": ("", "bad_json"),
    "not JSON": ("hello", "bad_json"),
    "cut": ('{"type": "ping"', "bad_json"),
    "two values": ("{}{}", "bad_json"),
    "NaN": ('{"type": "played", "utterance": "u", "ms": NaN}', "bad_json"),
    "-Infinity": ('{"type": "ping", "x": -Infinity}', "bad_json"),
    "deep lists": ("[" * DEEP + "]" * DEEP, "bad_json"),
    "deep lists, never closed": ("[" * 2 * DEEP, "bad_json"),
    "deep objects": ('{"a":' * 10_000 + "1" + "}" * 10_000, "bad_json"),
    "a number of 5,000 digits": ('{"type": "ping", "x": ' + "9" * 5000 + "}", "bad_json"),
    "a byte order mark": ('\ufeff{"type": "ping"}', "bad_json"),
    "null": ("null", "bad_message"),
    "a list": ('[{"type": "ping"}]', "bad_message"),
    "a string": ('"ping"', "bad_message"),
    "no type": ("{}", "unknown_type"),
    "type of another type": ('{"type": 1}', "unknown_type"),
    "unknown type": ('{"type": "sing"}', "unknown_type"),
    "a server's type": ('{"type": "done", "utterance": "u", "duration_ms": 1}', "unknown_type"),
    "duplicate keys": ('{"type": "ping", "type": "sing"}', "unknown_type"),
    "no utterance": (message(type="start"), "bad_field"),
    "utterance null": (message(type="start", utterance=None), "bad_field"),
    "utterance number": (message(type="start", utterance=5), "bad_field"),
    "utterance empty": (message(type="start", utterance=""), "bad_field"),
    "utterance of 65": (message(type="start", utterance="u" * 65), "bad_field"),
    "utterance with a blank": (message(type="start", utterance="a b"), "bad_field"),
    "utterance of another script": (message(type="start", utterance="声"), "bad_field"),
    "utterance with a newline": (message(type="start", utterance="a\n"), "bad_field"),
    "utterance a lone surrogate": ('{"type": "start", "utterance": "\\ud800"}', "bad_field"),
    "voice number": (start(voice=1), "bad_field"),
    "voice of 65": (start(voice="v" * 65), "bad_field"),
    "language": (start(language="tlh"), "bad_field"),
    "format": (start(format="mp3"), "bad_field"),
    "sample_rate": (start(sample_rate=44100), "bad_field"),
    "sample_rate string": (start(sample_rate="24000"), "bad_field"),
    "bundle 0": (start(bundle=0), "bad_field"),
    "bundle 26": (start(bundle=26), "bad_field"),
    "bundle 1.5": (start(bundle=1.5), "bad_field"),
    "pace": (start(pace="slow"), "bad_field"),
    "speed 0.49": (start(speed=0.49), "bad_field"),
    "speed 2.01": (start(speed=2.01), "bad_field"),
    "speed 1e999": ('{"type": "start", "utterance": "bad", "speed": 1e999}', "bad_field"),
    "seed -1": (start(seed=-1), "bad_field"),
    "seed 2**53": (start(seed=2**53), "bad_field"),
    "seed 1e999": ('{"type": "start", "utterance": "bad", "seed": 1e999}', "bad_field"),
    "seed of 4,000 digits": (start(seed=10**3999), "bad_field"),
    "seed word": (start(seed="lucky"), "bad_field"),
    "temperature 0": (start(temperature=0.0), "bad_field"),
    "top_p 0": (start(top_p=0.0), "bad_field"),
    "top_p 1.01": (start(top_p=1.01), "bad_field"),
    "top_k 0": (start(top_k=0), "bad_field"),
    "top_k 626": (start(top_k=626), "bad_field"),
    "true for a number": (start(speed=True), "bad_field"),
    "text without text": (message(type="text", utterance="u"), "bad_field"),
    "text null": (message(type="text", utterance="u", text=None), "bad_field"),
    "text list": (message(type="text", utterance="u", text=["a"]), "bad_field"),
    "played without ms": (message(type="played", utterance="u"), "bad_field"),
    "played -1": (message(type="played", utterance="u", ms=-1), "bad_field"),
    "played 1e999": ('{"type": "played", "utterance": "u", "ms": 1e999}', "bad_field"),
    "cancel played_ms string": (message(type="cancel", utterance="u", played_ms="1"), "bad_field"),
    "token of 4,097": (message(type="auth", token="t" * 4097), "bad_field"),
    "text for nobody": (message(type="text", utterance="nobody", text="x"), "unknown_utterance"),
    "flush for nobody": (message(type="flush", utterance="nobody"), "unknown_utterance"),
    "end for nobody": (message(type="end", utterance="nobody"), "unknown_utterance"),
    "cancel for nobody": (message(type="cancel", utterance="nobody"), "unknown_utterance"),
    "played for nobody": (message(type="played", utterance="nobody", ms=1), "unknown_utterance"),
}


async def test_each_refusal_is_typed_and_the_session_goes_on(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        neighbour = await listener.start("n", seed=7)
        for number, (case, (raw, code)) in enumerate(REFUSED.items()):
            error = await listener.refusal(raw)
            assert error["code"] == code, case
            assert error["message"].isprintable(), case
            assert len(error["message"]) < 500, case
            assert "utterance" not in error, case
            if number % 10 == 0:
                await speaks_on(listener)
        await listener.text(neighbour, "I was here all the time.")
        await listener.end(neighbour)
        await listener.wait(neighbour)
        await speaks_on(listener)
    check_order(neighbour)
    assert check_marks(neighbour) == 6 * len("I was here all the time.")


async def test_unknown_fields_are_ignored_and_null_is_absent(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start(
            "a", seed=SEED, voice=None, speed=None, colour="blue", deep={"a": [1, None]}, language=None
        )
        await listener.text(heard, "Fine.")
        await listener.end(heard)
        await listener.wait(heard)
        await listener.send(type="ping", utterance=5)
        await listener.next_stray("pong")
    check_order(heard)
    assert heard.terminal["type"] == "done"


async def test_binary_from_the_client(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        for data in (b"", b"\x00" * 100, b'{"type": "ping"}'):
            assert (await listener.refusal(data))["code"] == "unexpected_binary"
        await speaks_on(listener)


async def test_an_unknown_voice_ends_that_utterance(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        for number, voice in enumerate(("nobody", "../../etc/passwd", "tone\0", "TONE", " tone", "声")):
            heard = await listener.start(f"v{number}", voice=voice)
            await listener.wait(heard)
            assert heard.terminal["code"] == "unknown_voice"
            assert len(heard.log) == 1
            error = await listener.refusal(message(type="text", utterance=f"v{number}", text="x"))
            assert error["code"] == "utterance_ended"
        await speaks_on(listener)


async def test_an_id_is_used_once(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a", seed=SEED)
        error = await listener.refusal(message(type="start", utterance="a"))
        assert (error["code"], error["about"]) == ("duplicate_utterance", "a")
        await listener.text(heard, "Still mine.")
        await listener.end(heard)
        await listener.wait(heard)
        error = await listener.refusal(message(type="start", utterance="a"))
        assert error["code"] == "duplicate_utterance"
        await speaks_on(listener)
    check_order(heard)
    assert check_marks(heard) == 6 * len("Still mine.")


@pytest.mark.parametrize("kind", ["text", "flush", "end"])
async def test_nothing_comes_after_end(tones: Server, kind: str) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", "All is said now.", seed=SEED, pace="realtime")
        more = {"text": "more"} if kind == "text" else {}
        error = await listener.refusal(message(type=kind, utterance="a", **more))
        assert (error["code"], error["about"]) == ("utterance_ended", "a")
        await listener.wait(heard)
        await speaks_on(listener)
    check_order(heard)
    assert check_marks(heard) == 6 * len("All is said now.")


# --- limits: each at its value and one past it ------------------------------------------------------------


async def test_text_chars(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a", format="opus")
        error = await listener.refusal(message(type="text", utterance="a", text="。" * 10_001))
        assert (error["code"], error["about"]) == ("text_too_long", "a")
        await listener.text(heard, "。" * 10_000)
        await listener.end(heard)
        await listener.wait(heard)
        assert heard.terminal["type"] == "done"
        await speaks_on(listener)


async def test_utterances_of_a_socket(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        eight = [await listener.start(f"u{number}", seed=number + 1) for number in range(8)]
        ninth = await listener.start("ninth")
        await listener.wait(ninth)
        assert ninth.terminal["code"] == "too_many_utterances"
        for heard in eight:
            await listener.text(heard, "Each one speaks.")
            await listener.end(heard)
        await listener.wait(*eight)
        await speaks_on(listener)
    for heard in eight:
        check_order(heard)
        assert check_marks(heard) == 6 * len("Each one speaks.")


async def test_pending_chars(engine_process: EngineProcess) -> None:
    sentence = "Nine char."
    async with (
        gateway(engine_process, pending_chars=1000) as inside,
        listening(inside.ws_url) as listener,
    ):
        fits = await listener.start("fits", pace="realtime")
        await listener.text(fits, sentence * 100)
        over = await listener.start("over", pace="realtime")
        for _ in range(104):  # three of them are in the engine, and wait no more
            await listener.text(over, sentence)
        await listener.wait(over)
        assert over.terminal["code"] == "text_too_long"
        await listener.settle()
        assert not fits.over.is_set()
        await listener.cancel(fits)
        await listener.wait(fits)
        check_order(fits)
        await speaks_on(listener)


@pytest.mark.parametrize("text", ["😀" * 5_000, "```\n" + "x" * 9_996, "。" * 10_000, " " * 10_000])
async def test_text_that_is_never_spoken_is_bounded_too(engine_process: EngineProcess, text: str) -> None:
    """It waits for nothing, but it is kept for `cancelled`: 30 messages are past the limit of 100,000."""
    async with gateway(engine_process) as inside, listening(inside.ws_url) as listener:
        heard = await listener.start("a")
        for _ in range(30):
            await listener.text(heard, text)
        await listener.send(type="ping")
        pong = asyncio.create_task(listener.next_stray("pong"))
        over = asyncio.create_task(heard.over.wait())
        await asyncio.wait({pong, over}, return_when=asyncio.FIRST_COMPLETED)
        for task in (pong, over):
            task.cancel()
        assert heard.over.is_set(), "the text of one utterance grows without a limit"
        assert heard.terminal["code"] == "text_too_long"


async def test_a_message_at_the_limit_and_one_byte_past_it(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        base = '{"type": "ping", "x": ""}'
        limit = 65_536
        await listener.socket.send(base.replace('""', '"' + "x" * (limit - len(base)) + '"'))
        await listener.next_stray("pong", within_s=3)
        await speaks_on(listener)
        await listener.socket.send(base.replace('""', '"' + "x" * (limit + 1 - len(base)) + '"'))
        assert await listener.until_closed() == 1009


async def test_hello_tells_the_limits(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        limits = listener.received[0]["limits"]
    assert limits == {
        "message_bytes": 65_536,
        "text_chars": 10_000,
        "pending_chars": 100_000,
        "utterances": 8,
        "lead_ms": 2000,
        "write_deadline_s": 10.0,
        "sentence_chars": 200,
    }


# --- the published schema ---------------------------------------------------------------------------------


async def test_the_schema_holds_for_what_is_exchanged(tones: Server) -> None:
    schema = json.loads(await asyncio.to_thread(tones.get, "/v1/schema"))
    Draft202012Validator.check_schema(schema)
    definitions = {"$schema": schema["$schema"], "$defs": schema["$defs"]}
    client = Draft202012Validator(definitions | {"$ref": "#/$defs/ClientMessage"})
    server = Draft202012Validator(definitions | {"$ref": "#/$defs/ServerMessage"})
    async with listening(tones.ws_url) as listener:
        done = await listener.start("a", seed="random", speed=1.5, temperature=0.3, top_p=1, top_k=20)  # type: ignore[arg-type]
        await listener.text(done, "Hello there. 你好。")
        await listener.send(type="flush", utterance="a")
        await listener.send(type="played", utterance="a", ms=12.5)
        await listener.end(done)
        cancelled = await listener.say("b", "Hello " * 300, pace="realtime")
        await cancelled.first_sound.wait()
        await listener.cancel(cancelled, played_ms=10)
        lost = await listener.start("c", voice="nobody")
        await listener.wait(done, cancelled, lost)
        await listener.refusal(message(type="start", utterance="a"))
        await listener.send(type="ping")
        await listener.next_stray("pong")
        kinds = {said["type"] for said in listener.received}
        for said in listener.sent:
            client.validate(said)
        for said in listener.received:
            server.validate(said)
    assert kinds == {"hello", "started", "sentence", "done", "cancelled", "error", "pong"}
    refused = {case: raw for case, (raw, code) in REFUSED.items() if code in ("bad_field", "bad_message")}
    for case, raw in refused.items():
        if "1e999" not in raw:  # infinity is no number of JSON, but Python reads it as one
            assert not client.is_valid(json.loads(raw)), case
