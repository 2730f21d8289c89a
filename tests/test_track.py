"""A track: chunks in, messages out; whatever the sizes, each packet goes once, in order and in time."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import wire
from engine.ring import RingReader, RingWriter
from gateway.engine_stream import Chunk, EngineStream
from gateway.errors import EngineFailed, SpeechError
from gateway.messages import FRAME_MS, AudioMessage
from gateway.opus import PacketEncoder
from gateway.playout import Playout
from gateway.track import SentenceEnd, Starts, Track

FRAME = 480
"""Samples of a packet."""
Out = list[Starts | AudioMessage]


@dataclass
class Engine:
    """Puts an utterance's samples into a ring and hands over what the link would."""

    samples: int = 1 << 16
    chunks: list[Chunk] = field(default_factory=list)

    def __post_init__(self) -> None:
        reader, fd = RingReader.create(1, self.samples)
        self._writer = RingWriter.attach(fd, 1, self.samples)
        os.close(fd)
        self._stream = EngineStream(lambda message: None, reader, 1, self)
        self._stream.submit(0, ())
        self._stream.opened(wire.Opened(1, 0, 7))
        self._writer.begin(0, 7)
        self._written = 0

    def make(self, data: bytes, *, crc: int | None = None) -> Chunk:
        """A chunk of these samples."""
        checksum = self._writer.write(0, self._written, memoryview(data))
        self._written += len(data) // 2
        self._stream.wrote(wire.Block(1, 7, self._written, checksum if crc is None else crc))
        return self.chunks[-1]

    def overwrite(self) -> None:
        """The slot is another's."""
        self._writer.begin(0, 8)

    # --- engine_client.Listener ---------------------------------------------------------------------------

    def on_audio(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def on_sentence_done(self, done: wire.SentenceDone) -> None: ...
    def on_failed(self, error: SpeechError) -> None: ...
    def lead_ms(self) -> float:
        return 0.0


def make(*, bundle: int = 3, realtime: bool = False, stream: int = 9) -> Track:
    """A track of PCM at the engine's own rate: its packets are the samples themselves."""
    return Track(
        stream=stream,
        encoder=PacketEncoder(format="pcm", engine_rate=24_000, sample_rate=24_000),
        playout=Playout(lead_ms=2000, realtime=realtime, bundle=bundle),
        bundle=bundle,
    )


def pcm(count: int, start: int = 0) -> bytes:
    return b"".join((at % 30_000).to_bytes(2, "little") for at in range(start, start + count))


def run(track: Track, count: int = 12, now: float = 0.0) -> Out:
    track.encode(count)
    return track.dispatch(count, now)


def audio(out: Out) -> list[AudioMessage]:
    return [message for message in out if isinstance(message, AudioMessage)]


# --- one sentence -----------------------------------------------------------------------------------------


def test_a_track_without_sound_says_nothing() -> None:
    track = make()
    assert track.due(0.0) == 0
    assert run(track) == []
    assert track.is_fresh
    assert track.drained
    assert not track.finished
    track.end()
    assert run(track) == []
    assert track.finished


def test_a_sentence_that_was_never_said_makes_no_message() -> None:
    track = make()
    track.put(SentenceEnd(0))
    track.end()
    assert run(track) == []
    assert track.finished


def test_one_sentence_whole() -> None:
    track, engine = make(), Engine()
    track.put(engine.make(pcm(4 * FRAME)))
    track.put(SentenceEnd(0))
    track.end()
    out = run(track)
    assert out[0] == Starts(0, 0)
    first, second = audio(out)
    assert (len(first.packets), len(second.packets)) == (3, 1)
    assert (first.reset, first.last, second.reset, second.last) == (True, False, False, True)
    assert (first.timestamp, second.timestamp) == (0, 3 * 960)
    assert (first.sequence, second.sequence) == (0, 1)
    assert {first.stream, second.stream} == {9}
    assert b"".join([*first.packets, *second.packets]) == pcm(4 * FRAME)
    assert track.finished
    assert track.due(0.0) == 0
    assert run(track) == []


def test_the_end_may_come_after_the_last_packet() -> None:
    track, engine = make(), Engine()
    track.put(engine.make(pcm(3 * FRAME)))
    track.put(SentenceEnd(0))
    (first,) = audio(run(track))
    assert not first.last
    assert track.drained
    assert not track.finished
    track.end()
    assert track.due(0.0) > 0
    (closing,) = run(track)
    assert closing == AudioMessage(stream=9, sequence=1, timestamp=3 * 960, packets=[], last=True)
    assert track.finished
    assert run(track) == []


def test_at_most_as_many_packets_as_were_asked_for() -> None:
    track, engine = make(bundle=2), Engine()
    track.put(engine.make(pcm(7 * FRAME)))
    track.encode(1)
    (first,) = audio(track.dispatch(1, 0.0))
    assert len(first.packets) == 1
    assert [len(message.packets) for message in audio(track.dispatch(5, 0.0))] == [2, 2, 1]
    track.end()
    assert [len(message.packets) for message in audio(track.dispatch(5, 0.0))] == [1]


def test_a_part_of_a_bundle_waits_while_the_listener_has_enough() -> None:
    track, engine = make(bundle=3, realtime=True), Engine()
    track.put(engine.make(pcm(8 * FRAME)))
    assert [len(message.packets) for message in audio(run(track))] == [3, 3, 2]
    track.put(engine.make(pcm(2 * FRAME)))
    assert run(track) == []  # 160 ms in hand
    (late,) = audio(run(track, now=0.1))  # 60 ms in hand
    assert len(late.packets) == 2


def test_a_part_of_a_bundle_at_a_sentences_end_does_not_wait() -> None:
    track, engine = make(bundle=3, realtime=True), Engine()
    track.put(engine.make(pcm(6 * FRAME)))
    run(track)
    track.put(engine.make(pcm(FRAME)))
    track.put(SentenceEnd(0))
    (rest,) = audio(run(track))
    assert len(rest.packets) == 1


def test_nothing_may_be_put_after_the_end() -> None:
    track, engine = make(), Engine()
    track.end()
    with pytest.raises(AssertionError):
        track.put(engine.make(pcm(10)))


def test_sentences_are_named_by_their_numbers() -> None:
    track, engine = make(), Engine()
    for number in (0, 1, 2, 5):  # 1 could not be said, 3 and 4 ended without any sound
        if number != 1:
            track.put(engine.make(pcm(FRAME)))
        for silent in range(3, 5) if number == 2 else ():
            track.put(SentenceEnd(number))
            number = silent
        track.put(SentenceEnd(number))
    starts = [item for item in run(track, 50) if isinstance(item, Starts)]
    assert [(item.number, item.start_ms) for item in starts] == [(0, 0), (2, 20), (5, 40)]


# --- what goes wrong --------------------------------------------------------------------------------------


def test_damaged_sound_is_an_error_and_nothing_of_it_is_sent() -> None:
    track, engine = make(), Engine()
    track.put(engine.make(pcm(3 * FRAME)))
    track.put(engine.make(pcm(3 * FRAME), crc=zlib.crc32(b"other")))
    track.encode(12)
    for _ in range(2):
        with pytest.raises(EngineFailed) as caught:
            track.dispatch(12, 0.0)
        assert caught.value.code == "bad_audio"


def test_overwritten_sound_is_an_error() -> None:
    track, engine = make(), Engine()
    track.put(engine.make(pcm(3 * FRAME)))
    engine.overwrite()
    track.encode(12)
    with pytest.raises(EngineFailed, match="overwritten"):
        track.dispatch(12, 0.0)


def test_a_broken_track_is_due_until_its_failure_is_told() -> None:
    track, engine = make(), Engine()
    track.put(engine.make(pcm(FRAME)))
    engine.overwrite()
    assert track.due(0.0) > 0
    track.encode(12)
    with pytest.raises(EngineFailed):
        track.dispatch(12, 0.0)


# --- any sizes --------------------------------------------------------------------------------------------

SENTENCES = st.lists(st.lists(st.integers(1, 1500), max_size=5), min_size=1, max_size=5)


@given(
    SENTENCES,
    st.integers(1, 7),
    st.lists(st.integers(1, 12), min_size=1, max_size=10),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None)
def test_any_sizes(
    sentences: list[list[int]], bundle: int, counts: list[int], realtime: bool, at_once: bool
) -> None:
    """`sentences`: sizes of their chunks. `at_once`: all is put before anything is encoded."""
    track, engine = make(bundle=bundle, realtime=realtime), Engine()
    out: Out = []
    made, now, turn = 0, 0.0, 0

    def play() -> None:
        nonlocal turn, now
        now += 0.02
        turn += 1
        if track.due(now):
            out.extend(run(track, counts[turn % len(counts)], now))

    expected: list[bytes] = []
    for number, sizes in enumerate(sentences):
        whole = b""
        for size in sizes:
            data = pcm(size, made)
            made += size
            whole += data
            track.put(engine.make(data))
            if not at_once:
                play()
        track.put(SentenceEnd(number))
        expected.append(whole + bytes(-len(whole) % (2 * FRAME)))
    track.end()
    for _ in range(1000):
        play()
    check(out, expected, bundle)
    assert track.finished
    assert track.playout.sent == sum(len(whole) // (2 * FRAME) for whole in expected) * FRAME_MS


def check(out: Out, expected: list[bytes], bundle: int) -> None:
    """`expected`: the padded sound of each sentence."""
    messages = audio(out)
    assert [message.sequence for message in messages] == list(range(len(messages)))
    sent = 0
    sounds: list[bytes] = []
    starts: Starts | None = None
    for item in out:
        if isinstance(item, Starts):
            assert starts is None
            assert item.start_ms == sent * FRAME_MS
            starts = item
            continue
        assert item.timestamp == sent * 960
        assert len(item.packets) <= bundle
        assert item.reset == (starts is not None)
        if starts is not None:
            assert item.packets
            sounds.append(b"")
        if item.packets:
            # Only sound of the sentence that it belongs to: a bundle never spans a sentence's start.
            sounds[-1] += b"".join(item.packets)
        starts = None
        sent += len(item.packets)
    assert starts is None
    spoken = [(number, whole) for number, whole in enumerate(expected) if whole]
    assert sounds == [whole for _, whole in spoken]
    assert [item.number for item in out if isinstance(item, Starts)] == [number for number, _ in spoken]
    assert [message.last for message in messages] == [False] * (len(messages) - 1) + [True] * bool(messages)


def test_timestamps_wrap_as_their_field_does() -> None:
    track, engine = make(), Engine()
    track.playout.sent = (1 << 32) // 48 // FRAME_MS * FRAME_MS + FRAME_MS
    track.put(engine.make(pcm(FRAME)))
    track.put(SentenceEnd(0))
    (message,) = audio(run(track))
    assert message.timestamp == track.playout.sent * 48 % (1 << 32) - 960
