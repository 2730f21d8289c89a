"""The link's messages and framing: every kind goes round, cuts do not matter, garbage is a `LinkError`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import wire

TO_ENGINE: tuple[wire.ToEngine, ...] = (
    wire.Hello(192_000),
    wire.Open(1, "zf_xiaobei", wire.Parameters(1.25, 0.3, 0.7, 20), 2**53 - 1),
    wire.Open(2**63 - 1, "", wire.Parameters(), 0),
    wire.Submit(1, 0, (wire.Span("你好，", "zh", 0, 3), wire.Span("world", "en", 3, 8))),
    wire.Submit(1, 1, ()),
    wire.Close(1),
    wire.Cancel(1),
    wire.Credit(1, 2**40, 2**40 - 1),
)
FROM_ENGINE: tuple[wire.FromEngine, ...] = (
    wire.Ready("m", 24_000, 8, 1024, 80, "a", (wire.Voice("a", "甲", ("zh", "en")),), (0.01, 0.02), 4242),
    wire.Opened(1, 7, 2**40),
    wire.Audio((wire.Block(1, 9, 4096, 0xFFFF_FFFF), wire.Block(2, 10, 1, 0))),
    wire.Audio(()),
    wire.Checkpoint(1, 0, b"\x00\xff" * 100),
    wire.SentenceDone(1, 0, 4096, truncated=True, unsaid=False),
    wire.Closed(1),
    wire.Failed(1, "model_fault", "text — with 汉字"),
    wire.Progress(12345.678),
)
ALL = (*TO_ENGINE, *FROM_ENGINE)
BODIES = tuple(wire.encode(message)[5:] for message in ALL)


def decoder_of(message: wire.ToEngine | wire.FromEngine) -> Callable[[bytes], Any]:
    return wire.decode_to_engine if isinstance(message, get_args(wire.ToEngine)) else wire.decode_from_engine


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def test_the_samples_above_show_every_kind_of_message() -> None:
    kinds = {*get_args(wire.ToEngine), *get_args(wire.FromEngine)}
    assert {type(message) for message in ALL} == kinds


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_goes_round(message: wire.ToEngine | wire.FromEngine) -> None:
    (body,) = wire.FrameBuffer().feed(wire.encode(message))
    assert decoder_of(message)(body) == message


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_of_the_other_direction_is_refused(message: wire.ToEngine | wire.FromEngine) -> None:
    wrong = wire.decode_from_engine if isinstance(message, get_args(wire.ToEngine)) else wire.decode_to_engine
    with pytest.raises(wire.LinkError):
        wrong(wire.encode(message)[5:])


def test_a_frame_is_length_version_body() -> None:
    frame = wire.encode(wire.Close(1))
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    assert frame[4] == wire.VERSION
    assert frame[5:] == b"\x92\xa5close\x01"


@given(st.lists(st.sampled_from(ALL), max_size=12), st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_may_be_cut_anywhere(messages: list[wire.ToEngine | wire.FromEngine], cuts: list[int]) -> None:
    frames = wire.FrameBuffer()
    bodies: list[bytes] = []
    for piece in cut(b"".join(map(wire.encode, messages)), cuts):
        bodies += frames.feed(piece)
    assert [decoder_of(m)(body) for m, body in zip(messages, bodies, strict=True)] == messages


def test_a_frame_byte_by_byte_comes_out_at_its_last_byte() -> None:
    frames = wire.FrameBuffer()
    data = wire.encode(wire.Progress(1.0))
    out = [frames.feed(data[at : at + 1]) for at in range(len(data))]
    assert out == [[]] * (len(data) - 1) + [[data[5:]]]


def test_the_longest_frame_passes_and_one_byte_more_does_not() -> None:
    header = wire.MAX_FRAME.to_bytes(4, "little") + bytes([wire.VERSION])
    (body,) = wire.FrameBuffer().feed(header + bytes(wire.MAX_FRAME - 1))
    assert len(body) == wire.MAX_FRAME - 1
    with pytest.raises(wire.LinkError, match=f"{wire.MAX_FRAME + 1} bytes"):
        wire.FrameBuffer().feed((wire.MAX_FRAME + 1).to_bytes(4, "little") + bytes([wire.VERSION]))


def test_an_over_long_length_is_refused_on_its_header_alone() -> None:
    frames = wire.FrameBuffer()
    assert frames.feed(b"\xff\xff\xff\xff") == []
    with pytest.raises(wire.LinkError, match="4294967295"):
        frames.feed(bytes([wire.VERSION]))


def test_a_length_of_nothing_is_refused() -> None:
    with pytest.raises(wire.LinkError, match="0 bytes"):
        wire.FrameBuffer().feed(bytes(4) + bytes([wire.VERSION]))


def test_an_empty_body_is_a_frame_but_no_message() -> None:
    (body,) = wire.FrameBuffer().feed(b"\x01\x00\x00\x00" + bytes([wire.VERSION]))
    assert body == b""
    with pytest.raises(wire.LinkError):
        wire.decode_from_engine(body)


@pytest.mark.parametrize("version", [0, wire.VERSION + 1, 255])
def test_another_version_is_refused(version: int) -> None:
    frame = bytearray(wire.encode(wire.Close(1)))
    frame[4] = version
    with pytest.raises(wire.LinkError, match=f"version {version}, expected {wire.VERSION}"):
        wire.FrameBuffer().feed(bytes(frame))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_bodies_or_a_link_error(data: bytes) -> None:
    frames = wire.FrameBuffer()
    try:
        bodies = frames.feed(data)
    except wire.LinkError:
        return
    assert sum(len(body) + 5 for body in bodies) <= len(data)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A real body with a few bytes changed, lost or doubled: nearer to a message than noise is."""
    body = bytearray(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(body)))
        if draw(st.booleans()):
            body[at : at + 1] = draw(st.binary(max_size=3))
        else:
            del body[at:]
    return bytes(body)


@given(st.one_of(st.binary(max_size=200), spoilt()))
def test_decoding_anything_gives_a_message_or_a_link_error(body: bytes) -> None:
    for decode, kinds in (
        (wire.decode_to_engine, get_args(wire.ToEngine)),
        (wire.decode_from_engine, get_args(wire.FromEngine)),
    ):
        try:
            message = decode(body)
        except wire.LinkError:
            continue
        assert isinstance(message, kinds)


@pytest.mark.parametrize("body", [b"\x91" * 100_000, b"\xdc\xff\xff" * 30_000, b"\xdd\xff\xff\xff\xff"])
def test_deep_and_boastful_bodies_are_link_errors(body: bytes) -> None:
    with pytest.raises(wire.LinkError):
        wire.decode_from_engine(body)
    with pytest.raises(wire.LinkError):
        wire.decode_to_engine(body)


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_newer_peer_may_append_fields(message: wire.ToEngine | wire.FromEngine) -> None:
    body = wire.encode(message)[5:]
    assert 0x90 <= body[0] < 0x9F
    longer = bytes([body[0] + 1]) + body[1:] + b"\xc0"
    assert decoder_of(message)(longer) == message
