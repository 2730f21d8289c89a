"""The step loop on its real threads, with a model that blocks, fails and raises when it is told to."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import BadAudio, CannotSpeak, EngineError, UnknownVoice
from engine.loop import StepLoop
from engine.model import ModelSpec, Output
from engine.ring import RingReader, RingWriter
from engine.wire import (
    Audio,
    Block,
    Checkpoint,
    Closed,
    Credit,
    Failed,
    FromEngine,
    LinkError,
    Open,
    Opened,
    Parameters,
    SentenceDone,
    Span,
    Submit,
)

WAIT_S = 5.0
RING = 1000
Message = TypeVar("Message", bound=FromEngine)


class FakeLink:
    """A gateway's end: keeps what it was told, and reads the ring as a gateway does."""

    def __init__(self, slots: int, samples: int = RING) -> None:
        self.reader, fd = RingReader.create(slots, samples)
        self._ring: RingWriter | None = RingWriter.attach(fd, slots, samples)
        os.close(fd)
        self._changed = threading.Condition()
        self.messages: list[FromEngine] = []

    @property
    def ring(self) -> RingWriter:
        if self._ring is None:
            raise LinkError("a request before hello")
        return self._ring

    def forget_ring(self) -> None:
        self._ring = None

    def emit(self, messages: Sequence[FromEngine]) -> None:
        with self._changed:
            self.messages.extend(messages)
            self._changed.notify_all()

    def wait(self, kind: type[Message], count: int = 1) -> list[Message]:
        """The first `count` messages of this kind, once they are there."""

        def found() -> list[Message]:
            return [message for message in self.messages if isinstance(message, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, WAIT_S), self.messages
            return found()[:count]

    def of(self, kind: type[Message]) -> list[Message]:
        with self._changed:
            return [message for message in self.messages if isinstance(message, kind)]

    def blocks(self, utterance: int) -> list[Block]:
        return [block for audio in self.of(Audio) for block in audio.blocks if block.utterance == utterance]

    def sound(self, opened: Opened, start: int = 0) -> NDArray[np.int16]:
        """All of an utterance's sound from `start` on, which is still in the ring."""
        data = b""
        for block in self.blocks(opened.utterance):
            if block.write_pos > start:
                data += self.reader.read(opened.slot, opened.generation, start, block.write_pos, block.crc)
                start = block.write_pos
        return np.frombuffer(data, "<i2")


@dataclass
class FakeModel:
    """Says the span's text as samples: `"100 200"` is a step of 100 samples, then one of 200, then the end.

    A word may also be `raise`, `bad` (an error in the output), `none` (no output) or `dumb` (`CannotSpeak` at
    `begin`); each `prefill` before the first is a piece of prefill, of which `unfit` and `burst` make the
    last one fail. Every sample of utterance `seed` has the value `seed`.
    """

    slots: int = 4
    max_batch: int = 4
    holding: bool = False
    """`step` waits until `go`, or until one of its slots is interrupted."""
    calls: list[tuple[str, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Where the loop broke the contract of `SpeechModel`."""
    state: dict[int, tuple[int, deque[str] | None]] = field(default_factory=dict)
    pieces: dict[int, int] = field(default_factory=dict)
    """Pieces of prefill that a slot still wants."""
    resumed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """What `begin` was last told of the sentence's number and checkpoint."""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._interrupted: set[int] = set()
        self._steps_begun = 0
        self._allowed = 0
        self.spec = ModelSpec(
            name="fake",
            sample_rate=24_000,
            slots=self.slots,
            max_batch=self.max_batch,
            max_steps=100,
            max_chars=100,
            voices=(),
            default_voice="voice",
        )

    # --- the test's side ----------------------------------------------------------------------------------

    def wait_for_step(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._steps_begun >= count, WAIT_S)

    def go(self, steps: int = 1) -> None:
        with self._changed:
            self._allowed += steps
            self._changed.notify_all()

    def made(self, name: str) -> list[int]:
        with self._changed:
            return [slot for call, slot in self.calls if call == name]

    # --- SpeechModel --------------------------------------------------------------------------------------

    def warm_up(self) -> tuple[float, ...]:
        return (0.01,)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        self._note("open", slot)
        if slot in self.state:
            self.faults.append(f"open of slot {slot}, which was not closed")
        if voice == "nobody":
            raise UnknownVoice("no such voice")
        if voice == "crash":
            raise RuntimeError("open")
        self.state[slot] = (seed, None)

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        self._note("begin", slot)
        if slot not in self.state:
            self.faults.append(f"begin in slot {slot}, which is not open")
        seed, words = self.state[slot]
        if words is not None:
            self.faults.append(f"begin in slot {slot} before its sentence was over")
        text = deque(" ".join(span.text for span in spans).split())
        if text[0] == "dumb":
            raise CannotSpeak("not a word")
        if text[0] == "crash":
            raise RuntimeError("begin")
        self.resumed[slot] = (number, resume)
        self.pieces[slot] = 0
        while text[0] == "prefill":
            text.popleft()
            self.pieces[slot] += 1
        self.state[slot] = (seed, text)
        return self.pieces[slot] > 0

    def prefill(self, slot: int) -> bool:
        self._note("prefill", slot)
        self.pieces[slot] -= 1
        if self.pieces[slot] < 0:
            self.faults.append(f"prefill of slot {slot}, which wanted none")
        words = self.state[slot][1]
        if self.pieces[slot] == 0 and words and words[0] == "unfit":
            raise BadAudio("unfit")
        if self.pieces[slot] == 0 and words and words[0] == "burst":
            raise RuntimeError("prefill")
        return self.pieces[slot] == 0

    def step(self, slots: Sequence[int]) -> list[Output]:
        with self._changed:
            self._steps_begun += 1
            self._changed.notify_all()
            for slot in slots:
                self.calls.append(("step", slot))
            if self.holding:
                number = self._steps_begun
                free = self._changed.wait_for(
                    lambda: self._allowed >= number or not self._interrupted.isdisjoint(slots), WAIT_S
                )
                assert free, "nobody let the step go on"
            interrupted, self._interrupted = set(self._interrupted), set()
        return [output for slot in slots for output in self._advance(slot, slot in interrupted)]

    def _advance(self, slot: int, interrupted: bool) -> Iterator[Output]:
        seed, words = self.state[slot]
        if not words or self.pieces[slot]:
            self.faults.append(f"step of slot {slot}, where no sentence is ready")
            return
        if interrupted:
            yield Output(slot=slot, pcm=np.full(33, -1, np.int16))
            return
        word = words.popleft()
        if not words:
            self.state[slot] = (seed, None)
        if word == "raise":
            raise RuntimeError("step")
        if word == "none":
            return
        if word == "bad":
            yield Output(slot=slot, pcm=np.zeros(50, np.int16), error=BadAudio("silence"))
            return
        pcm = np.full(int(word.rstrip("!")), seed, np.int16)
        finished = not words
        yield Output(
            slot=slot,
            pcm=pcm,
            finished=finished,
            truncated=word.endswith("!"),
            checkpoint=b"%d" % len(pcm) if len(pcm) % 2 else None,
        )

    def step_limit_s(self, slots: Sequence[int]) -> float:
        for slot in slots:
            if slot not in self.state or self.state[slot][1] is None:
                self.faults.append(f"step_limit_s of slot {slot}, where no sentence is begun")
        return 60.0

    def close(self, slot: int) -> None:
        self._note("close", slot)
        self.state.pop(slot, None)

    def interrupt(self, slot: int) -> None:
        with self._changed:
            self.calls.append(("interrupt", slot))
            self._interrupted.add(slot)
            self._changed.notify_all()

    def figures(self) -> dict[str, float]:
        return {"calls": float(len(self.calls))}

    def _note(self, name: str, slot: int) -> None:
        with self._changed:
            self.calls.append((name, slot))
            self._changed.notify_all()


class Running:
    """A loop whose step thread runs."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self.loop = StepLoop(model)
        self.link = FakeLink(model.slots)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def stop(self) -> None:
        self.loop.stop()
        self.model.go(1000)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def open(self, utterance: int, *, voice: str = "voice", link: FakeLink | None = None) -> Opened:
        link = link or self.link
        self.loop.open(link, Open(utterance, voice, Parameters(), utterance))
        (opened,) = [message for message in link.of(Opened) if message.utterance == utterance]
        return opened

    def submit(self, utterance: int, *texts: str, first: int = 0, link: FakeLink | None = None) -> None:
        for number, text in enumerate(texts, first):
            spans = (Span(text, "en", 0, len(text)),)
            self.loop.submit(link or self.link, Submit(utterance, number, spans))

    def credit(self, utterance: int, read_pos: int) -> None:
        self.loop.credit(self.link, Credit(utterance, read_pos, read_pos))

    def assert_all_free(self) -> None:
        """Every slot can be had, and one more cannot."""
        probe = FakeLink(self.model.slots)
        for number in range(self.model.slots):
            self.open(1000 + number, link=probe)
        self.loop.open(probe, Open(2000, "voice", Parameters(), 0))
        assert [failed.code for failed in probe.of(Failed)] == ["busy"]
        self.loop.drop(probe)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts a loop; checks at the end that it kept the model's contract, ended and freed everything."""
    started: list[Running] = []

    def begin(model: FakeModel | None = None) -> Running:
        started.append(Running(model or FakeModel()))
        return started[-1]

    yield begin
    for running in started:
        assert running.is_alive, "the step thread died"
        running.loop.drop(running.link)
        running.stop()
        limits = [fault for fault in running.model.faults if fault.startswith("step_limit_s")]
        assert [fault for fault in running.model.faults if fault not in limits] == []


# --- speaking ---------------------------------------------------------------------------------------------


def test_an_utterance_from_open_to_closed(start: Callable[..., Running]) -> None:
    running = start()
    opened = running.open(5)
    running.submit(5, "100 200", "50")
    done = running.link.wait(SentenceDone, 2)
    assert done == [SentenceDone(5, 0, 300, False, False), SentenceDone(5, 1, 350, False, False)]
    sound = running.link.sound(opened)
    assert len(sound) == 350
    assert set(sound) == {5}
    running.loop.close(running.link, 5)
    assert running.link.of(Closed) == []
    running.credit(5, 349)
    assert running.link.of(Closed) == []
    running.credit(5, 350)
    assert running.link.wait(Closed) == [Closed(5)]
    running.assert_all_free()


def test_a_sentence_is_prefilled_piece_by_piece_while_others_speak(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    running.open(1)
    running.submit(1, "10 " * 25)
    running.model.wait_for_step()
    opened = running.open(2)
    running.submit(2, "prefill prefill 100")
    running.model.go(100)
    running.link.wait(SentenceDone, 2)
    assert running.model.made("prefill") == [opened.slot] * 2
    calls = [call for call in running.model.calls if call[0] in ("prefill", "step")]
    first, second = (at for at, call in enumerate(calls) if call[0] == "prefill")
    assert second > first + 1, "a step came in between"
    assert ("step", opened.slot) not in calls[:second]


@pytest.mark.parametrize(("word", "code"), [("unfit", "bad_audio"), ("burst", "model_fault")])
def test_a_prefill_that_fails_takes_nobody_along(start: Callable[..., Running], word: str, code: str) -> None:
    running = start()
    running.open(1)
    running.open(2)
    running.submit(1, f"prefill {word}")
    running.submit(2, "prefill 100")
    assert [(failed.utterance, failed.code) for failed in running.link.wait(Failed)] == [(1, code)]
    assert running.link.wait(SentenceDone) == [SentenceDone(2, 0, 100, False, False)]
    running.loop.cancel(running.link, 2)
    running.link.wait(Closed)
    running.assert_all_free()


def test_the_model_is_told_the_number_and_the_checkpoint(start: Callable[..., Running]) -> None:
    running = start()
    opened = running.open(1)
    running.loop.submit(running.link, Submit(1, 7, (Span("10", "en", 0, 2),), b"so far"))
    running.link.wait(SentenceDone)
    assert running.model.resumed[opened.slot] == (7, b"so far")
    assert running.loop.figures()["slots_used"] == 1.0
    assert running.loop.figures()["calls"] > 0


def test_what_a_gateway_is_told_is_in_order(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.submit(1, "101 100!")
    running.link.wait(SentenceDone)
    kinds = [type(message) for message in running.link.messages]
    assert kinds == [Opened, Checkpoint, Audio, Audio, SentenceDone]
    assert running.link.of(Checkpoint) == [Checkpoint(1, 0, b"101")]
    assert running.link.of(SentenceDone)[0].truncated


def test_one_step_serves_many_and_a_link_gets_one_message_of_it(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    other = FakeLink(4)
    running.open(1)
    running.submit(1, "10 11 12")
    running.model.wait_for_step(1)
    running.open(2)
    running.submit(2, "20 21")
    running.open(1, link=other)
    running.submit(1, "30 31", link=other)
    running.model.go()
    running.model.wait_for_step(2)
    running.model.go()
    other.wait(Audio, 1)
    second = running.link.wait(Audio, 2)[1]
    assert {block.utterance for block in second.blocks} == {1, 2}
    running.model.go(100)
    running.link.wait(SentenceDone, 2)
    other.wait(SentenceDone)
    assert set(other.sound(other.of(Opened)[0])) == {1}
    running.loop.drop(other)


def test_an_utterance_that_says_nothing_closes_at_once(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.loop.close(running.link, 1)
    assert running.link.of(Closed) == [Closed(1)]
    running.assert_all_free()


def test_closing_while_a_sentence_is_made_waits_for_it(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    opened = running.open(1)
    running.submit(1, "10 10")
    running.model.wait_for_step()
    running.loop.close(running.link, 1)
    running.model.go(2)
    running.link.wait(SentenceDone)
    assert len(running.link.sound(opened)) == 20
    assert running.link.of(Closed) == []
    running.credit(1, 20)
    running.link.wait(Closed)


def test_messages_for_an_utterance_that_is_over_are_dropped(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.loop.close(running.link, 1)
    before = list(running.link.messages)
    running.submit(1, "100")
    running.credit(1, 5)
    running.loop.cancel(running.link, 1)
    running.loop.close(running.link, 1)
    running.submit(99, "100")
    assert running.link.messages == before
    running.assert_all_free()


# --- cancelling -------------------------------------------------------------------------------------------


def test_a_running_step_is_interrupted_and_the_slot_is_free_after_it(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    opened = running.open(1)
    running.submit(1, "100 100", "100")
    running.model.wait_for_step()
    running.loop.cancel(running.link, 1)
    running.link.wait(Closed)  # the model was never told to go on: the interrupt ended the step
    assert running.model.made("interrupt") == [opened.slot]
    assert running.link.of(Audio) == []
    assert running.link.of(SentenceDone) == []
    running.assert_all_free()


def test_cancelling_twice_closes_once(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    running.open(1)
    running.submit(1, "100 100")
    running.model.wait_for_step()
    running.loop.cancel(running.link, 1)
    running.loop.cancel(running.link, 1)
    running.link.wait(Closed)
    running.loop.cancel(running.link, 1)
    running.assert_all_free()
    assert running.link.of(Closed) == [Closed(1)]


def test_a_stream_outside_the_running_step_is_free_at_once(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True, max_batch=1))
    first, second = running.open(1), running.open(2)
    running.submit(1, "100 100")
    running.model.wait_for_step()
    running.submit(2, "100")
    running.loop.cancel(running.link, 2)
    assert running.link.of(Closed) == [Closed(2)]
    assert running.model.made("interrupt") == []
    assert running.open(3).slot == second.slot != first.slot
    running.model.go(10)
    running.link.wait(SentenceDone)


def test_neighbours_in_an_interrupted_step_go_on(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    running.open(1)
    running.submit(1, "10 10 10")
    running.model.wait_for_step()
    neighbour = running.open(2)
    running.submit(2, "20 20")
    running.model.go()
    running.model.wait_for_step(2)
    running.loop.cancel(running.link, 1)
    running.link.wait(Closed)
    running.model.go(100)
    running.link.wait(SentenceDone)
    sound = running.link.sound(neighbour)
    assert len(sound) == 40
    assert set(sound) == {2}


def test_a_stream_cancelled_before_its_step_is_not_stepped(start: Callable[..., Running]) -> None:
    """While a sentence is begun the call that could be stopped does not run yet; it must not start then."""

    class SlowToBegin(FakeModel):
        def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
            wants = super().begin(slot, spans)
            begun.set()
            assert cancelled.wait(WAIT_S)
            return wants

    begun, cancelled = threading.Event(), threading.Event()
    running = start(SlowToBegin())
    opened = running.open(1)
    running.submit(1, "100 100")
    assert begun.wait(WAIT_S)
    running.loop.cancel(running.link, 1)
    cancelled.set()
    running.link.wait(Closed)
    assert opened.slot not in running.model.made("step")
    running.assert_all_free()


def test_a_slot_is_closed_in_the_model_before_it_is_opened_again(start: Callable[..., Running]) -> None:
    running = start(FakeModel(slots=1, max_batch=1))
    for utterance in range(1, 20):
        opened = running.open(utterance)
        running.submit(utterance, "10")
        running.link.wait(SentenceDone, utterance)
        assert set(running.link.sound(opened)) == {utterance}
        running.loop.cancel(running.link, utterance)
    names = [name for name, _ in running.model.calls if name in ("open", "close")]
    assert names[: 2 * 18] == ["open", "close"] * 18


# --- failing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voice", "text", "code"),
    [
        ("nobody", "10", "unknown_voice"),
        ("crash", "10", "model_fault"),
        ("voice", "crash", "model_fault"),
        ("voice", "10 raise", "model_fault"),
        ("voice", "10 none", "model_fault"),
        ("voice", "10 bad", "bad_audio"),
    ],
)
def test_a_failing_model_fails_the_utterance_and_frees_its_slot(
    start: Callable[..., Running], voice: str, text: str, code: str
) -> None:
    running = start()
    opened = running.open(1, voice=voice)
    running.submit(1, text, "10 10")
    (failed,) = running.link.wait(Failed)
    assert (failed.utterance, failed.code) == (1, code)
    assert "Traceback" not in failed.message
    assert running.link.of(SentenceDone) == []
    running.loop.cancel(running.link, 1)  # crosses it
    assert running.link.of(Closed) == []
    running.assert_all_free()
    # The loop lives, and the slot serves the next.
    running.open(2)
    running.submit(2, "10")
    running.link.wait(SentenceDone)
    assert opened.slot in running.model.made("close")


def test_what_failed_to_begin_does_not_keep_its_neighbours_from_speaking(
    start: Callable[..., Running],
) -> None:
    running = start(FakeModel(holding=True))
    running.open(1)
    running.submit(1, "10 10")
    running.model.wait_for_step()
    running.open(2)
    running.submit(2, "crash")
    running.open(3, voice="nobody")
    running.submit(3, "10")
    running.model.go(100)
    running.link.wait(SentenceDone)
    assert {failed.utterance for failed in running.link.wait(Failed, 2)} == {2, 3}


def test_a_step_that_raises_fails_all_of_its_batch_and_nobody_else(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True, max_batch=2))
    for utterance in (1, 2, 3):
        running.open(utterance)
    running.submit(1, "10 raise 10")
    running.model.wait_for_step()
    running.submit(2, "10 10 10")
    running.submit(3, "20 20 20")
    running.model.go(100)
    failed = {message.utterance for message in running.link.wait(Failed, 2)}
    assert 1 in failed
    (left,) = {1, 2, 3} - failed
    running.link.wait(SentenceDone)
    assert running.link.of(SentenceDone)[0].utterance == left


def test_what_cannot_be_said_is_skipped_and_said_so(start: Callable[..., Running]) -> None:
    running = start()
    opened = running.open(1)
    running.submit(1, "30", "dumb", "40")
    assert running.link.wait(SentenceDone, 3) == [
        SentenceDone(1, 0, 30, False, False),
        SentenceDone(1, 1, 30, False, True),
        SentenceDone(1, 2, 70, False, False),
    ]
    assert len(running.link.sound(opened)) == 70


def test_an_utterance_of_nothing_that_can_be_said_closes(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.submit(1, "dumb")
    running.link.wait(SentenceDone)
    running.loop.close(running.link, 1)
    running.link.wait(Closed)
    running.assert_all_free()


# --- the full ring ----------------------------------------------------------------------------------------


def test_a_full_ring_parks_and_credit_resumes(start: Callable[..., Running]) -> None:
    running = start()
    opened = running.open(1)
    running.submit(1, "900 900 50", "10")
    (first, second) = running.link.wait(Audio, 2)
    assert [block.write_pos for block in (*first.blocks, *second.blocks)] == [900, RING]
    # A neighbour that has room is stepped meanwhile, the parked stream is not.
    running.open(2)
    running.submit(2, "10")
    running.link.wait(SentenceDone)
    assert running.model.made("step").count(opened.slot) == 2
    heard = running.link.sound(opened)
    running.credit(1, RING)
    running.link.wait(SentenceDone, 3)
    heard = np.concatenate([heard, running.link.sound(opened, RING)])
    assert len(heard) == 900 + 900 + 50 + 10
    assert set(heard) == {1}


def test_credit_delivers_from_the_control_thread_while_a_step_runs(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.submit(1, "1500")
    running.link.wait(Audio)
    running.model.holding = True
    running.open(2)
    running.submit(2, "10 10")
    running.model.wait_for_step(2)  # and nobody lets it go on
    running.credit(1, 600)
    assert running.link.blocks(1)[-1].write_pos == 1500
    assert running.link.of(SentenceDone) == [SentenceDone(1, 0, 1500, False, False)]
    running.loop.cancel(running.link, 2)


def test_a_parked_stream_can_be_cancelled(start: Callable[..., Running]) -> None:
    running = start()
    running.open(1)
    running.submit(1, "1500 100")
    running.link.wait(Audio)
    running.loop.cancel(running.link, 1)
    assert running.link.wait(Closed) == [Closed(1)]
    running.credit(1, 1000)
    assert running.link.blocks(1)[-1].write_pos == RING
    running.assert_all_free()


def test_a_slot_is_not_reused_before_its_last_sample_was_read(start: Callable[..., Running]) -> None:
    running = start(FakeModel(slots=1, max_batch=1))
    opened = running.open(1)
    running.submit(1, "400 300")
    running.link.wait(SentenceDone)
    running.loop.close(running.link, 1)
    for read_pos in (0, 400, 699):
        running.credit(1, read_pos)
        running.loop.open(running.link, Open(2, "voice", Parameters(), 2))
        assert running.link.of(Failed)[-1].code == "busy"
    assert len(running.link.sound(opened)) == 700
    running.credit(1, 700)
    assert running.link.of(Closed) == [Closed(1)]
    running.open(3)


# --- links ------------------------------------------------------------------------------------------------


def test_a_link_that_goes_frees_all_that_it_held_and_nothing_else(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True, max_batch=1))
    other = FakeLink(4)
    running.open(1, link=other)
    running.submit(1, "10 10", link=other)
    running.model.wait_for_step()
    running.open(2, link=other)
    running.submit(2, "10", link=other)
    kept = running.open(1)
    running.loop.drop(other)
    running.submit(1, "50")
    running.model.go(100)
    running.link.wait(SentenceDone)
    assert set(running.link.sound(kept)) == {1}
    running.loop.cancel(running.link, 1)
    running.assert_all_free()


def test_two_links_may_use_the_same_numbers(start: Callable[..., Running]) -> None:
    running = start()
    other = FakeLink(4)
    mine, theirs = running.open(1), running.open(1, link=other)
    assert mine.slot != theirs.slot
    assert mine.generation != theirs.generation
    running.submit(1, "10")
    running.submit(1, "20", link=other)
    other.wait(SentenceDone)
    running.link.wait(SentenceDone)
    running.loop.cancel(running.link, 1)
    assert other.of(Closed) == []
    running.loop.drop(other)
    running.assert_all_free()


def test_a_link_without_a_ring_takes_no_slot(start: Callable[..., Running]) -> None:
    running = start()
    early = FakeLink(4)
    early.forget_ring()
    with pytest.raises(LinkError):
        running.loop.open(early, Open(1, "voice", Parameters(), 1))
    running.loop.drop(early)
    running.assert_all_free()


def test_a_number_used_twice_breaks_the_link_and_leaves_no_slot_behind(start: Callable[..., Running]) -> None:
    running = start()
    other = FakeLink(4)
    running.open(1, link=other)
    with pytest.raises(LinkError):
        running.loop.open(other, Open(1, "voice", Parameters(), 1))
    running.loop.drop(other)
    running.assert_all_free()


# --- the engine's word ------------------------------------------------------------------------------------


def test_the_loop_gives_its_word_while_a_step_runs_and_only_then(start: Callable[..., Running]) -> None:
    running = start(FakeModel(holding=True))
    assert running.loop.busy_until == 0.0
    running.open(1)
    running.submit(1, "10")
    running.model.wait_for_step()
    assert running.loop.busy_until > 0.0
    running.model.go()
    running.link.wait(SentenceDone)
    assert running.loop.busy_until == 0.0


def test_the_model_is_asked_for_its_word_when_it_can_give_it(start: Callable[..., Running]) -> None:
    """`step_limit_s` is about slots in which a sentence is begun; before, a model knows nothing of them."""
    running = start()
    running.open(1)
    running.submit(1, "10 10", "20")
    running.link.wait(SentenceDone, 2)
    assert running.model.faults == []


def test_stopping_ends_a_loop_that_waits() -> None:
    running = Running(FakeModel())
    running.stop()


def test_errors_of_the_engine_have_distinct_codes() -> None:
    kinds: list[type[EngineError]] = [EngineError, *EngineError.__subclasses__()]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
