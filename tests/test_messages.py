"""The messages: what the binary framing holds and refuses, and that the schema describes what is sent."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import messages
from gateway.messages import (
    AUDIO_VERSION,
    CACHE,
    FALLBACK,
    LIVE,
    Alignment,
    AudioMessage,
    Cancelled,
    ClientMessage,
    Done,
    Error,
    Hello,
    Limits,
    Pong,
    SentenceEvent,
    ServerMessage,
    Start,
    Started,
    VoiceInfo,
    decode_audio,
    encode,
    encode_audio,
    schema,
)

HELLO = Hello(
    session="s",
    limits=Limits(
        message_bytes=1,
        text_chars=2,
        pending_chars=3,
        utterances=4,
        lead_ms=5,
        write_deadline_s=6.0,
        sentence_chars=7,
    ),
    voices=(VoiceInfo(id="v", name="语", languages=("zh", "en")),),
    default_voice="v",
    engines={"main": "ready"},
)
SENT: tuple[ServerMessage, ...] = (
    HELLO,
    Started(utterance="a", stream=1, voice="v", seed=2**53 - 1, format="opus", sample_rate=24_000),
    SentenceEvent(utterance="a", index=0, start=0, end=5, start_ms=0),
    SentenceEvent(
        utterance="a", index=1, start=5, end=9, start_ms=40, sentence=1, language="mixed", dropped=((6, 7),)
    ),
    Alignment(utterance="a", index=0, chars=((0, 1, 0, 60), (1, 5, 60, 200))),
    Done(utterance="a", duration_ms=100),
    Done(utterance="a", duration_ms=100, truncated=True, dropped=((0, 3), (5, 9))),
    Cancelled(utterance="a", played_ms=5, text_spoken="你好", text_remaining="\ufffd😀"),
    Error(code="bad_field", message="no"),
    Error(code="engine_lost", message="no", utterance="a", retry_after_ms=5),
    Error(code="bad_field", message="no", about="a"),
    Pong(),
)
RECEIVED: tuple[dict[str, Any], ...] = (
    {"type": "auth", "token": "t"},
    {"type": "start", "utterance": "a"},
    {"type": "start", "utterance": "a", "voice": None, "seed": "random", "speed": 1.5, "sample_rate": 8000},
    {"type": "text", "utterance": "a", "text": ""},
    {"type": "flush", "utterance": "a"},
    {"type": "end", "utterance": "a"},
    {"type": "cancel", "utterance": "a"},
    {"type": "cancel", "utterance": "a", "played_ms": 5},
    {"type": "played", "utterance": "a", "ms": 0},
    {"type": "ping"},
)


def valid(name: str) -> jsonschema.Draft202012Validator:
    document = schema()
    return jsonschema.Draft202012Validator({"$defs": document["$defs"], "$ref": f"#/$defs/{name}"})


# --- text -------------------------------------------------------------------------------------------------


def test_the_samples_show_every_kind() -> None:
    assert {type(message) for message in SENT} == set(get_args(ServerMessage))
    tags = {kind.__struct_config__.tag for kind in get_args(ClientMessage)}
    assert {message["type"] for message in RECEIVED} == tags


def test_the_schema_is_a_schema_that_can_be_served() -> None:
    document = json.loads(json.dumps(schema()))
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["title"] == "sayflow.v1"


@pytest.mark.parametrize("message", SENT, ids=lambda message: type(message).__name__)
def test_what_is_sent_is_what_the_schema_says(message: ServerMessage) -> None:
    value = json.loads(encode(message))
    valid("ServerMessage").validate(value)
    assert msgspec.convert(value, type(message)) == message


@pytest.mark.parametrize("message", RECEIVED, ids=lambda message: str(message["type"]))
def test_what_a_client_may_send_is_what_the_schema_says(message: dict[str, Any]) -> None:
    valid("ClientMessage").validate(message)
    jsonschema.Draft202012Validator(schema()).validate(message)
    msgspec.convert(message, ClientMessage)


@pytest.mark.parametrize(
    "change",
    [
        {"utterance": "a b"},
        {"utterance": ""},
        {"utterance": "x" * 65},
        {"utterance": "a\n"},
        {"utterance": None},
        {"speed": 2.5},
        {"speed": "1"},
        {"bundle": 26},
        {"seed": -1},
        {"seed": "dice"},
        {"sample_rate": 44_100},
        {"language": "fr"},
    ],
)
def test_the_schema_and_the_types_refuse_the_same(change: dict[str, Any]) -> None:
    message = {"type": "start", "utterance": "a", **change}
    assert not valid("ClientMessage").is_valid(message)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(message, Start)


def test_an_error_says_only_what_it_has_to() -> None:
    assert json.loads(encode(Error(code="c", message="m"))) == {"type": "error", "code": "c", "message": "m"}


def test_text_stays_readable_on_the_wire() -> None:
    assert "你好" in encode(Cancelled(utterance="a", played_ms=0, text_spoken="你好", text_remaining=""))


# --- audio ------------------------------------------------------------------------------------------------

AUDIO = st.builds(
    AudioMessage,
    stream=st.integers(0, 0xFFFF),
    sequence=st.integers(0, 0xFFFF_FFFF),
    timestamp=st.integers(0, 0xFFFF_FFFF),
    packets=st.lists(st.binary(max_size=200), max_size=25),
    source=st.sampled_from([LIVE, CACHE, FALLBACK]),
    reset=st.booleans(),
    last=st.booleans(),
)


@given(AUDIO)
def test_audio_goes_round(message: AudioMessage) -> None:
    data = encode_audio(message)
    assert len(data) == 16 + sum(2 + len(packet) for packet in message.packets)
    assert decode_audio(data) == message


def test_the_header_byte_by_byte() -> None:
    message = AudioMessage(
        stream=0x0102,
        sequence=0x03040506,
        timestamp=0x0708090A,
        packets=[b"\xaa", b""],
        source=FALLBACK,
        reset=True,
        last=True,
    )
    assert encode_audio(message).hex(" ") == (
        "01 0e 02 01 06 05 04 03 0a 09 08 07 02 00 00 00 01 00 aa 00 00"
    )


def test_the_largest_packets_fit() -> None:
    pcm = bytes(48_000 // 50 * 2)
    message = AudioMessage(stream=1, sequence=0, timestamp=0, packets=[pcm] * 25)
    assert decode_audio(encode_audio(message)) == message


@given(AUDIO, st.data())
def test_a_message_cut_short_or_made_longer_is_refused(message: AudioMessage, data: st.DataObject) -> None:
    whole = encode_audio(message)
    with pytest.raises(ValueError, match="audio message"):
        decode_audio(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match="audio message"):
        decode_audio(whole + data.draw(st.binary(min_size=1, max_size=3)))


@pytest.mark.parametrize("version", [0, AUDIO_VERSION + 1])
def test_another_version_is_refused(version: int) -> None:
    data = encode_audio(AudioMessage(stream=1, sequence=0, timestamp=0, packets=[]))
    with pytest.raises(ValueError, match="version"):
        decode_audio(bytes([version]) + data[1:])


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    for body in (data, bytes([AUDIO_VERSION]) + data):
        try:
            message = decode_audio(body)
        except ValueError:
            continue
        assert len(encode_audio(message)) == len(body)


@pytest.mark.parametrize(("at", "byte"), [(1, 0x10), (1, 0xF0), (14, 1), (15, 0x80)])
def test_a_client_ignores_what_a_later_server_may_use(at: int, byte: int) -> None:
    """Unknown flags and the reserved field."""
    message = AudioMessage(stream=1, sequence=0, timestamp=0, packets=[b"x"])
    data = bytearray(encode_audio(message))
    data[at] |= byte
    assert decode_audio(bytes(data)) == message


def test_times_agree() -> None:
    assert messages.FRAME_MS * messages.TICKS_PER_MS == 960
