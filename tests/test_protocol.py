"""The protocol machine: every state x every message, and anything at all that a client may send."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import CloseCode
from gateway.messages import (
    Auth,
    Cancel,
    Cancelled,
    Done,
    End,
    Error,
    Flush,
    Limits,
    Ping,
    Played,
    Pong,
    SentenceEvent,
    ServerMessage,
    Start,
    Started,
    Text,
)
from gateway.protocol import REMEMBERED_IDS, Event, Hangup, Protocol, Reply

ROOT = Path(__file__).resolve().parent.parent
LIMITS: Final = Limits(
    message_bytes=65_536,
    text_chars=10,
    pending_chars=100,
    utterances=3,
    lead_ms=2000,
    write_deadline_s=10.0,
    sentence_chars=80,
)


def machine(*, authenticated: bool = True) -> Protocol:
    return Protocol(LIMITS, authenticated=authenticated)


def receive(protocol: Protocol, kind: str, **fields: Any) -> list[Event]:
    return protocol.receive_text(json.dumps({"type": kind, **fields}))


def errors(events: list[Event]) -> list[tuple[str, str | None, str | None]]:
    """(code, about, utterance) of the errors that a client is told."""
    found = [event.message for event in events if isinstance(event, Reply)]
    return [(m.code, m.about, m.utterance) for m in found if isinstance(m, Error)]


# --- every state x every message --------------------------------------------------------------------------

MESSAGES: Final[dict[str, dict[str, Any]]] = {
    "auth": {"token": "t"},
    "start": {"utterance": "a"},
    "text": {"utterance": "a", "text": "hi"},
    "flush": {"utterance": "a"},
    "end": {"utterance": "a"},
    "cancel": {"utterance": "a", "played_ms": 5},
    "played": {"utterance": "a", "ms": 5},
    "ping": {},
}


def in_state(state: str) -> Protocol:
    """A machine, and utterance `a` of it, in this state."""
    protocol = machine(authenticated=state != "no auth")
    if state in ("open", "half", "ended", "over"):
        receive(protocol, "start", utterance="a")
    if state == "half":
        receive(protocol, "text", utterance="a", text="\ud83d")
    if state in ("ended", "over"):
        receive(protocol, "end", utterance="a")
    if state == "over":
        protocol.send(Done(utterance="a", duration_ms=0))
    return protocol


ACCEPTED: Final = {
    "auth": [Auth("t")],
    "start": [Start(utterance="a")],
    "text": [Text("a", "hi")],
    "flush": [Flush("a")],
    "end": [End("a")],
    "cancel": [Cancel("a", 5.0)],
    "played": [Played("a", 5.0)],
    "ping": [Reply(Pong())],
}
UNKNOWN, AFTER_END, TAKEN = "unknown_utterance", "utterance_ended", "duplicate_utterance"
LATE: Final = [Text("a", "\ufffd")]
"""The half of a pair that never came."""
HANGUP: Final = [Hangup(CloseCode.POLICY, "auth first")]

# What follows: "yes" (the message itself), a list of events, or the code of a refusal.
TABLE: Final[dict[str, dict[str, str | list[Any]]]] = {
    "no auth": {kind: "yes" if kind == "auth" else HANGUP for kind in MESSAGES},
    "fresh": {
        "auth": [],
        "start": "yes",
        "text": UNKNOWN,
        "flush": UNKNOWN,
        "end": UNKNOWN,
        "cancel": UNKNOWN,
        "played": UNKNOWN,
        "ping": "yes",
    },
    "open": {**dict.fromkeys(MESSAGES, "yes"), "auth": [], "start": TAKEN},
    "half": {
        **dict.fromkeys(MESSAGES, "yes"),
        "auth": [],
        "start": TAKEN,
        "text": [Text("a", "\ufffdhi")],
        "flush": [*LATE, Flush("a")],
        "end": [*LATE, End("a")],
    },
    "ended": {
        "auth": [],
        "start": TAKEN,
        "text": AFTER_END,
        "flush": AFTER_END,
        "end": AFTER_END,
        "cancel": "yes",
        "played": "yes",
        "ping": "yes",
    },
    "over": {
        "auth": [],
        "start": TAKEN,
        "text": AFTER_END,
        "flush": [],
        "end": [],
        "cancel": [],
        "played": [],
        "ping": "yes",
    },
}


def test_the_table_is_whole() -> None:
    kinds = {
        str(kind.__struct_config__.tag) for kind in (Auth, Start, Text, Flush, End, Cancel, Played, Ping)
    }
    assert set(MESSAGES) == kinds
    assert all(set(row) == kinds for row in TABLE.values())


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("state", TABLE)
def test_every_state_and_message(state: str, kind: str) -> None:
    protocol = in_state(state)
    was_open = protocol.is_open("a")
    events = receive(protocol, kind, **MESSAGES[kind])
    expected = TABLE[state][kind]
    if expected == "yes":
        assert events == ACCEPTED[kind]
    elif isinstance(expected, list):
        assert events == expected
    else:
        # A refusal ends nothing, and names the utterance only where this connection knows it.
        about = None if expected == UNKNOWN else "a"
        assert errors(events) == [(expected, about, None)]
        assert len(events) == 1
    assert protocol.is_open("a") == (was_open or (kind == "start" and expected == "yes"))


@pytest.mark.parametrize("state", TABLE)
def test_binary_is_refused_in_every_state_and_changes_none(state: str) -> None:
    protocol = in_state(state)
    was_open = protocol.is_open("a")
    assert errors(protocol.receive_binary()) == [("unexpected_binary", None, None)]
    assert protocol.is_open("a") == was_open


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("raw", ["", "{", "null", "[]", '"x"', "5", "{}", '{"type":"nope"}', '{"type":null}'])
def test_nonsense_is_refused_in_every_state_and_changes_none(state: str, raw: str) -> None:
    protocol = in_state(state)
    was_open = protocol.is_open("a")
    ((code, about, utterance),) = errors(protocol.receive_text(raw))
    assert code in ("bad_json", "bad_message", "unknown_type")
    assert (about, utterance) == (None, None)
    assert protocol.is_open("a") == was_open


def test_an_utterance_may_be_used_after_a_refusal() -> None:
    protocol = in_state("open")
    receive(protocol, "start", utterance="a")
    receive(protocol, "text", utterance="a", text="x" * 11)
    assert receive(protocol, "text", utterance="a", text="x" * 10) == [Text("a", "x" * 10)]


def test_the_right_token_opens_the_door() -> None:
    protocol = in_state("no auth")
    protocol.authenticate()
    assert receive(protocol, "start", utterance="a") == [Start(utterance="a")]


# --- limits -----------------------------------------------------------------------------------------------


def test_text_at_its_limit_passes_and_one_past_it_does_not() -> None:
    protocol = in_state("open")
    assert receive(protocol, "text", utterance="a", text="语" * 10) == [Text("a", "语" * 10)]
    assert errors(receive(protocol, "text", utterance="a", text="语" * 11)) == [("text_too_long", "a", None)]


def test_utterances_at_their_limit_pass_and_one_past_it_ends_as_an_error() -> None:
    protocol = machine()
    for name in "abc":
        assert receive(protocol, "start", utterance=name) == [Start(utterance=name)]
    (event,) = receive(protocol, "start", utterance="d")
    assert isinstance(event, Reply)
    assert isinstance(event.message, Error)
    assert (event.message.code, event.message.utterance) == ("too_many_utterances", "d")
    protocol.send(event.message)
    assert errors(receive(protocol, "text", utterance="d", text="x")) == [("utterance_ended", "d", None)]
    protocol.send(Done(utterance="a", duration_ms=0))
    assert receive(protocol, "start", utterance="e") == [Start(utterance="e")]


def test_ids_stay_taken_until_many_others_ended() -> None:
    protocol = machine()
    for number in range(REMEMBERED_IDS + 1):
        assert receive(protocol, "start", utterance=f"u{number}") == [Start(utterance=f"u{number}")]
        protocol.send(Done(utterance=f"u{number}", duration_ms=0))
    assert errors(receive(protocol, "start", utterance="u1")) == [("duplicate_utterance", "u1", None)]
    assert receive(protocol, "start", utterance="u0") == [Start(utterance="u0")]


# --- fields -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("auth", {}),
        ("auth", {"token": 5}),
        ("auth", {"token": "x" * 4097}),
        ("start", {}),
        ("start", {"utterance": None}),
        ("start", {"utterance": 5}),
        ("start", {"utterance": ""}),
        ("start", {"utterance": "x" * 65}),
        ("start", {"utterance": "a b"}),
        ("start", {"utterance": "ä"}),
        ("start", {"utterance": "a\n"}),
        ("start", {"utterance": "\n"}),
        ("start", {"utterance": "a", "voice": 5}),
        ("start", {"utterance": "a", "voice": "v" * 65}),
        ("start", {"utterance": "a", "language": "fr"}),
        ("start", {"utterance": "a", "format": "mp3"}),
        ("start", {"utterance": "a", "sample_rate": 44_100}),
        ("start", {"utterance": "a", "sample_rate": "24000"}),
        ("start", {"utterance": "a", "bundle": 0}),
        ("start", {"utterance": "a", "bundle": 26}),
        ("start", {"utterance": "a", "bundle": True}),
        ("start", {"utterance": "a", "pace": "slow"}),
        ("start", {"utterance": "a", "speed": 0.49}),
        ("start", {"utterance": "a", "speed": 2.01}),
        ("start", {"utterance": "a", "seed": -1}),
        ("start", {"utterance": "a", "seed": 2**53}),
        ("start", {"utterance": "a", "seed": "dice"}),
        ("start", {"utterance": "a", "temperature": 0}),
        ("start", {"utterance": "a", "top_p": 0}),
        ("start", {"utterance": "a", "top_p": 1.01}),
        ("start", {"utterance": "a", "top_k": 0}),
        ("start", {"utterance": "a", "top_k": 626}),
        ("text", {"utterance": "a"}),
        ("text", {"utterance": "a", "text": None}),
        ("text", {"utterance": "a", "text": ["x"]}),
        ("text", {"text": "x"}),
        ("cancel", {"utterance": "a", "played_ms": -1}),
        ("cancel", {"utterance": "a", "played_ms": "5"}),
        ("played", {"utterance": "a"}),
        ("played", {"utterance": "a", "ms": -0.5}),
        ("played", {"utterance": "a", "ms": 86_400_001}),
        ("played", {"utterance": "a", "ms": True}),
    ],
)
def test_wrong_fields_are_refused(kind: str, fields: dict[str, Any]) -> None:
    ((code, _, utterance),) = errors(receive(in_state("fresh"), kind, **fields))
    assert (code, utterance) == ("bad_field", None)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400, "9" * 5000])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    protocol = in_state("open")
    for raw in (
        f'{{"type":"played","utterance":"a","ms":{number}}}',
        f'{{"type":"start","utterance":"b","seed":{number}}}',
        f'{{"type":"start","utterance":"b","speed":{number}}}',
    ):
        ((code, _, _),) = errors(protocol.receive_text(raw))
        assert code in ("bad_json", "bad_field")
    assert not protocol.is_open("b")


@pytest.mark.parametrize(
    "raw", ["[" * 60_000, '{"a":' * 10_000, '{"type":' + "[" * 50_000 + "]" * 50_000 + "}"]
)
def test_deep_nesting_is_refused(raw: str) -> None:
    ((code, _, _),) = errors(machine().receive_text(raw))
    assert code in ("bad_json", "unknown_type")


def test_null_means_absent_and_unknown_fields_are_ignored() -> None:
    fields = dict.fromkeys(
        (
            "voice",
            "language",
            "format",
            "sample_rate",
            "bundle",
            "pace",
            "speed",
            "seed",
            "temperature",
            "top_p",
        )
    )
    assert receive(machine(), "start", utterance="a", **fields) == [Start(utterance="a")]
    assert receive(machine(), "start", utterance="a", delivery="whole", x=[{}]) == [Start(utterance="a")]


@pytest.mark.parametrize("name", ["!", "~" * 64, '"\\', "null"])
def test_odd_ids_that_are_allowed(name: str) -> None:
    assert receive(machine(), "start", utterance=name) == [Start(utterance=name)]


@pytest.mark.parametrize(
    "raw",
    [
        '{"type":"start","utterance":"a","\\ud800":1}',
        '{"type":"start","utterance":"a","language":"\\ud800"}',
        '{"type":"start","utterance":"a","format":"\\udfff"}',
        '{"type":"start","utterance":"a","pace":"\\ud800"}',
        '{"type":"start","utterance":"a","seed":"\\ud800"}',
        '{"type":"text","utterance":"a","text":"x","\\udc00":{}}',
        '{"type":"ping","\\ud800":1}',
        '{"type":"\\ud800"}',
        '{"type":"start","utterance":"\\ud800"}',
    ],
)
def test_lone_surrogates_outside_the_text_do_no_harm(raw: str) -> None:
    protocol = in_state("open")
    for event in protocol.receive_text(raw):
        if isinstance(event, Reply):
            protocol.send(event.message).encode()


@pytest.mark.parametrize(
    "raw",
    [
        '{"type":"auth","token":"\\ud800"}',
        '{"type":"start","utterance":"b","voice":"v\\udc00"}',
    ],
)
def test_what_is_accepted_can_be_written_as_utf_8(raw: str) -> None:
    """`session` compares the token as bytes; only `text` keeps halves, and `join` mends those."""
    for event in machine(authenticated=False).receive_text(raw):
        if isinstance(event, Auth):
            event.token.encode()
    for event in machine().receive_text(raw):
        if isinstance(event, Start) and event.voice is not None:
            event.voice.encode()


# --- surrogates -------------------------------------------------------------------------------------------


def joined(pieces: list[str]) -> str:
    """The text that comes out when these pieces go in, and then the end."""
    protocol = machine()
    receive(protocol, "start", utterance="a")
    out: list[str] = []
    for piece in pieces:
        out += [e.text for e in receive(protocol, "text", utterance="a", text=piece) if isinstance(e, Text)]
    out += [e.text for e in receive(protocol, "end", utterance="a") if isinstance(e, Text)]
    return "".join(out)


def test_an_emoji_cut_in_two_is_joined() -> None:
    assert joined(["a\ud83d", "\ude00b"]) == "a😀b"
    assert joined(["\ud83d", "", "\ude00"]) == "😀"


def test_halves_that_stay_alone_are_replaced() -> None:
    assert joined(["a\ud83d", "b"]) == "a\ufffdb"
    assert joined(["\ude00b"]) == "\ufffdb"
    assert joined(["\ud83d\ud83d", "\ude00"]) == "\ufffd😀"
    assert joined(["x\ud83d"]) == "x\ufffd"


def test_a_pair_is_not_joined_over_a_flush() -> None:
    protocol = in_state("half")
    assert receive(protocol, "flush", utterance="a") == [Text("a", "\ufffd"), Flush("a")]
    assert receive(protocol, "text", utterance="a", text="\ude00") == [Text("a", "\ufffd")]


def test_halves_of_two_utterances_do_not_meet() -> None:
    protocol = in_state("half")
    receive(protocol, "start", utterance="b")
    assert receive(protocol, "text", utterance="b", text="\ude00") == [Text("b", "\ufffd")]
    assert receive(protocol, "text", utterance="a", text="\ude00") == [Text("a", "😀")]


def test_a_refused_text_keeps_the_half_before_it() -> None:
    protocol = in_state("half")
    assert errors(receive(protocol, "text", utterance="a", text="x" * 11)) == [("text_too_long", "a", None)]
    assert receive(protocol, "text", utterance="a", text="\ude00") == [Text("a", "😀")]


UNITS: Final = st.sampled_from(["a", "中", "\ud83d", "\ude00", "\udfff", "\ud800", "é"])


@given(st.lists(UNITS, max_size=30), st.lists(st.integers(0, 30), max_size=8))
def test_cutting_text_anywhere_changes_nothing(units: list[str], cuts: list[int]) -> None:
    text = "".join(units)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    fine = [piece[at : at + 10] for piece in pieces for at in range(0, len(piece), 10)]
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert joined(fine) == whole


# --- anything at all --------------------------------------------------------------------------------------

JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["a", "start", "text", "\ud800", "opus", "random", "a\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner),
    max_leaves=6,
)
FIELDS: Final = st.sampled_from(
    [*Start.__struct_fields__, "text", "token", "ms", "played_ms", "type", "\udfff", "x"]
)
LIKELY: Final = st.builds(
    lambda kind, fields: json.dumps({"type": kind, "utterance": "a", **fields}),
    st.sampled_from(sorted(MESSAGES)),
    st.dictionaries(FIELDS, JSON, max_size=4),
)


@given(st.sampled_from(sorted(TABLE)), st.lists(LIKELY | JSON.map(json.dumps) | st.text(), max_size=6))
@settings(max_examples=300)
def test_anything_gets_an_answer_and_never_an_exception(state: str, raws: list[str]) -> None:
    protocol = in_state(state)
    for raw in raws:
        for event in protocol.receive_text(raw):
            if isinstance(event, Reply):
                text = protocol.send(event.message)
                assert json.loads(text)["type"] in ("error", "pong")
                assert len(text) < 600


# --- out --------------------------------------------------------------------------------------------------

TERMINAL: Final[tuple[ServerMessage, ...]] = (
    Done(utterance="a", duration_ms=10),
    Cancelled(utterance="a", played_ms=1, text_spoken="x", text_remaining="y"),
    Error(code="engine_lost", message="gone", utterance="a"),
)
EVENTS: Final[tuple[ServerMessage, ...]] = (
    Started(utterance="a", stream=1, voice="v", seed=1, format="opus", sample_rate=24_000),
    SentenceEvent(utterance="a", index=0, start=0, end=1, start_ms=0),
)


@pytest.mark.parametrize("terminal", TERMINAL, ids=lambda message: type(message).__name__)
def test_a_terminal_event_ends_an_utterance_once(terminal: ServerMessage) -> None:
    protocol = in_state("open")
    for event in EVENTS:
        protocol.send(event)
    assert json.loads(protocol.send(terminal))["utterance"] == "a"
    assert not protocol.is_open("a")
    for again in (*TERMINAL, *EVENTS):
        with pytest.raises(AssertionError):
            protocol.send(again)


@pytest.mark.parametrize("message", [*TERMINAL, *EVENTS], ids=lambda message: type(message).__name__)
def test_nothing_is_said_of_an_utterance_that_never_was(message: ServerMessage) -> None:
    with pytest.raises(AssertionError):
        in_state("fresh").send(message)


def test_an_error_about_an_utterance_does_not_end_it() -> None:
    protocol = in_state("open")
    protocol.send(Error(code="bad_field", message="no", about="a"))
    protocol.send(Pong())
    assert protocol.is_open("a")


OPTIMISED: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from gateway.messages import Done, Limits
from gateway.protocol import Protocol
protocol = Protocol(Limits(message_bytes=1, text_chars=1, pending_chars=1, utterances=1, lead_ms=1,
                           write_deadline_s=1, sentence_chars=1), authenticated=True)
protocol.receive_text('{"type":"start","utterance":"a"}')
protocol.send(Done(utterance="a", duration_ms=0))
print(protocol.is_open("a"))
"""


def test_ending_an_utterance_does_not_hang_on_assertions_being_on() -> None:
    run = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMISED, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert run.stdout == "False\n"
