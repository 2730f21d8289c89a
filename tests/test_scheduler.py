"""The scheduler: slots and generations under any order of calls, and who is stepped first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from engine.errors import Busy
from engine.scheduler import PATIENCE, Scheduler, Sentence, Stream
from engine.wire import Parameters, Span

ROOT = Path(__file__).resolve().parent.parent


def sentence(number: int) -> Sentence:
    return Sentence(number, (Span("hello", "en", 0, 5),))


def opened(scheduler: Scheduler[str], utterance: int = 1, *, sentences: int = 1) -> Stream[str]:
    stream = scheduler.open("link", utterance, "voice", Parameters(), 7)
    for number in range(sentences):
        scheduler.submit(stream, sentence(number))
    return stream


def chosen(scheduler: Scheduler[str], now: float = 0.0) -> list[Stream[str]]:
    """Whom the next step advances, after what begins has begun without prefill; the step runs."""
    scheduler.begin_next(now)
    scheduler.commit()
    return list(scheduler.next_batch(now).steps)


def step(scheduler: Scheduler[str], samples: int = 100) -> list[Stream[str]]:
    """A step that makes `samples` for each, and ends no sentence."""
    batch = chosen(scheduler)
    scheduler.commit()
    for stream in batch:
        stream.written += samples
    return batch


# --- slots ------------------------------------------------------------------------------------------------


def test_a_slot_more_than_there_are_is_busy() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=2)
    streams = [opened(scheduler, number) for number in (1, 2)]
    assert {stream.slot for stream in streams} == {0, 1}
    assert scheduler.free_slots == 0
    with pytest.raises(Busy):
        opened(scheduler, 3)
    scheduler.release(streams[0])
    assert opened(scheduler, 3).slot == streams[0].slot


def test_a_generation_never_returns() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    seen = set()
    for number in range(100):
        stream = opened(scheduler, number)
        seen.add(stream.generation)
        scheduler.release(stream)
    assert len(seen) == 100
    assert 0 not in seen  # what fresh memory holds


def test_a_failed_open_takes_no_generation_and_no_slot() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    stream = opened(scheduler)
    for _ in range(3):
        with pytest.raises(Busy):
            opened(scheduler, 2)
    scheduler.release(stream)
    assert scheduler.free_slots == 1
    assert scheduler.streams == []


def test_a_stream_cannot_be_released_twice_or_in_a_running_step() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=2)
    stream = opened(scheduler)
    chosen(scheduler)
    assert scheduler.is_running(stream)
    with pytest.raises(AssertionError):
        scheduler.release(stream)
    scheduler.commit()
    assert not scheduler.is_running(stream)
    scheduler.release(stream)
    with pytest.raises((AssertionError, KeyError)):
        scheduler.release(stream)


OPTIMISED = """
import sys
sys.path.insert(0, sys.argv[1])
from engine.scheduler import Scheduler
from engine.wire import Parameters
scheduler = Scheduler(slots=1, max_batch=1)
scheduler.release(scheduler.open("link", 1, "voice", Parameters(), 7))
print(len(scheduler.streams), scheduler.free_slots)
"""


def test_releasing_does_not_hang_on_assertions_being_on() -> None:
    run = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMISED, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert run.stdout.split() == ["0", "1"]


# --- closing and cancelling -------------------------------------------------------------------------------


def test_a_closed_stream_goes_once_its_last_sample_was_read() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    stream = opened(scheduler)
    assert not scheduler.close(stream)
    step(scheduler, 100)
    stream.current = None
    assert not stream.spoken
    scheduler.credit(stream, 99, 50)
    assert not stream.spoken
    scheduler.credit(stream, 100, 50)
    assert stream.spoken


def test_a_stream_that_said_nothing_goes_when_it_is_closed() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    assert scheduler.close(opened(scheduler, sentences=0))


def test_a_closed_stream_still_speaks_what_was_submitted() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    stream = opened(scheduler, sentences=2)
    assert not scheduler.close(stream)
    assert step(scheduler) == [stream]
    stream.current = None
    scheduler.credit(stream, 100, 100)
    assert not stream.spoken
    assert step(scheduler) == [stream]


def test_cancel_frees_at_once_unless_a_step_runs() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=1)
    running, idle = opened(scheduler, 1), opened(scheduler, 2)
    assert chosen(scheduler) == [running]
    assert scheduler.cancel(idle)
    assert not scheduler.cancel(running)
    scheduler.commit()
    assert chosen(scheduler) == []
    assert not running.waiting


def test_the_model_is_told_to_forget_once_and_only_what_it_had() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=3, max_batch=3)
    known, unknown = opened(scheduler, 1), opened(scheduler, 2)
    known.in_model = True
    scheduler.release(known)
    scheduler.release(unknown)
    assert scheduler.has_work
    assert scheduler.begin_next() == ([], {known.slot})
    scheduler.commit()
    assert not scheduler.has_work
    assert scheduler.begin_next() == ([], set())


def test_the_model_forgets_a_slot_before_its_next_owner_is_stepped() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    old = opened(scheduler)
    old.in_model = True
    scheduler.release(old)
    new = opened(scheduler, 2)
    assert scheduler.begin_next() == ([new], {old.slot})


def test_credit_never_goes_back_nor_past_what_was_written() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=1, max_batch=1)
    stream = opened(scheduler)
    step(scheduler, 100)
    for read, heard, expected in (
        (60, 40, (60, 40)),
        (10, 5, (60, 40)),
        (1000, 1000, (100, 100)),
        (-1, -1, (100, 100)),
    ):
        scheduler.credit(stream, read, heard)
        assert (stream.read_pos, stream.playhead) == expected


# --- order ------------------------------------------------------------------------------------------------


def test_the_nearest_to_underrun_goes_first() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=4, max_batch=2)
    streams = [opened(scheduler, number) for number in range(4)]
    for stream, (written, playhead) in zip(
        streams, [(900, 100), (5000, 4900), (300, 0), (200, 0)], strict=True
    ):
        stream.written, stream.playhead = written, playhead
    assert chosen(scheduler) == [streams[1], streams[3]]


def test_of_equals_the_one_that_came_first_goes_first() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=4, max_batch=2)
    first = opened(scheduler, 1)
    second, third = opened(scheduler, 2), opened(scheduler, 3)
    scheduler.release(first)
    late = opened(scheduler, 4)  # in the slot of the first
    assert late.slot == first.slot
    assert chosen(scheduler) == [second, third]


def test_a_new_stream_goes_before_those_with_sound_in_hand() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=4, max_batch=1)
    old = opened(scheduler, 1)
    step(scheduler)
    new = opened(scheduler, 2)
    assert step(scheduler) == [new]
    assert step(scheduler) == [old]


def test_a_parked_stream_keeps_its_slot_and_is_not_stepped() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=2)
    parked, other = opened(scheduler, 1), opened(scheduler, 2)
    parked.parked = True
    assert chosen(scheduler) == [other]
    assert parked in scheduler.streams
    scheduler.commit()
    parked.parked = False
    assert set(chosen(scheduler)) == {parked, other}


def test_a_stream_without_text_is_not_stepped() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=2)
    stream = opened(scheduler, sentences=0)
    assert not scheduler.has_work
    assert chosen(scheduler) == []
    scheduler.submit(stream, sentence(0))
    assert scheduler.has_work
    assert chosen(scheduler) == [stream]


def in_hand(stream: Stream[str], seconds: float) -> None:
    stream.written = stream.playhead + int(seconds * 24_000)


def test_the_rich_wait_while_another_is_poor() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=3, max_batch=3)
    rich, fair, poor = (opened(scheduler, number) for number in range(3))
    for stream, seconds in ((rich, 2.5), (fair, 1.0), (poor, 0.4)):
        in_hand(stream, seconds)
    assert chosen(scheduler) == [poor, fair]
    scheduler.commit()
    in_hand(poor, 0.6)
    assert chosen(scheduler) == [poor, fair, rich]


def test_what_a_listener_has_in_hand_runs_down_with_the_clock() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=2, max_batch=1)
    told, untold = opened(scheduler, 1), opened(scheduler, 2)
    in_hand(told, 1.0)
    in_hand(untold, 0.7)
    scheduler.credit(told, 0, 0, now=5.0)
    assert told.in_hand(5.0, 24_000) == pytest.approx(1.0)
    assert told.in_hand(5.6, 24_000) == pytest.approx(0.4)
    assert told.in_hand(9.0, 24_000) == 0.0
    assert chosen(scheduler, 5.1) == [untold]
    scheduler.commit()
    assert chosen(scheduler, 5.6) == [told]


def test_one_piece_of_prefill_a_step_and_none_while_a_listener_is_about_to_wait() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=3, max_batch=3)
    speaking, first, second = (opened(scheduler, number) for number in range(3))
    scheduler.begin_next()
    scheduler.commit()
    first.prefilling = second.prefilling = True
    in_hand(speaking, 0.3)
    batches = []
    for _ in range(4):
        batches.append(scheduler.next_batch())
        scheduler.commit()
    assert {batch.steps for batch in batches} == {(speaking,)}
    assert [batch.prefill for batch in batches] == [(first,), (second,), (first,), (second,)]
    in_hand(speaking, 0.1)
    for _ in range(PATIENCE):
        assert scheduler.next_batch().prefill == ()
        scheduler.commit()
    assert scheduler.next_batch().prefill == (first,), "it is put off, not starved"
    scheduler.commit()
    assert scheduler.next_batch().prefill == ()


def test_sentences_that_come_close_together_begin_together() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=3, max_batch=3, window_s=0.04)
    idle = opened(scheduler, 1)
    assert scheduler.begin_next(0.0)[0] == [idle], "nothing to wait for"
    scheduler.commit()
    early, late = (opened(scheduler, number, sentences=0) for number in (2, 3))
    scheduler.submit(early, sentence(0), 1.00)
    assert scheduler.begin_next(1.01)[0] == []
    scheduler.submit(late, sentence(0), 1.03)
    assert scheduler.begin_next(1.03)[0] == []
    assert scheduler.begin_next(1.04)[0] == [early, late]


@given(st.integers(1, 6), st.integers(1, 3), st.lists(st.integers(1, 500), min_size=30, max_size=30))
def test_nobody_starves(streams: int, max_batch: int, sizes: list[int]) -> None:
    """Whatever sizes the steps make, no stream falls behind another by more than one step's sound."""
    scheduler: Scheduler[str] = Scheduler(slots=streams, max_batch=max_batch)
    everyone = [opened(scheduler, number) for number in range(streams)]
    for size in sizes:
        batch = step(scheduler, size)
        assert len(batch) == min(streams, max_batch)
        written = [stream.written for stream in everyone]
        assert max(written) - min(written) <= 500


def hand(stream: Stream[str]) -> float:
    return stream.in_hand(0.0, 24_000)


# --- any order of calls -----------------------------------------------------------------------------------

SLOTS, MAX_BATCH = 4, 2


class Life(RuleBasedStateMachine):
    """Everything that the loop may do, in any order; the model of it is a few sets."""

    streams: Bundle[Stream[str]] = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler[str] = Scheduler(slots=SLOTS, max_batch=MAX_BATCH)
        self.alive: set[Stream[str]] = set()
        self.running: list[Stream[str]] = []
        self.in_step = False
        self.generations: set[int] = set()
        self.forgotten: set[int] = set()
        self.known: set[int] = set()
        self.waits: dict[Stream[str], int] = {}

    def release(self, stream: Stream[str]) -> None:
        self.scheduler.release(stream)
        self.alive.remove(stream)
        self.waits.pop(stream, None)

    @rule(target=streams)
    def open(self) -> Stream[str]:
        if len(self.alive) == SLOTS:
            with pytest.raises(Busy):
                opened(self.scheduler, sentences=0)
            return next(iter(self.alive))
        stream = opened(self.scheduler, len(self.generations), sentences=0)
        assert stream.generation not in self.generations
        assert stream.slot not in {other.slot for other in self.alive}
        self.generations.add(stream.generation)
        self.alive.add(stream)
        return stream

    @rule(stream=streams, count=st.integers(1, 3))
    def submit(self, stream: Stream[str], count: int) -> None:
        if stream in self.alive and not stream.closing and not stream.cancelled:
            for number in range(count):
                self.scheduler.submit(stream, sentence(number))

    @rule(stream=streams)
    def close(self, stream: Stream[str]) -> None:
        if stream in self.alive and not stream.cancelled and self.scheduler.close(stream):
            self.release(stream)

    @rule(stream=consumes(streams))
    def cancel(self, stream: Stream[str]) -> None:
        if stream in self.alive:
            free = self.scheduler.cancel(stream)
            assert free == (stream not in self.running)
            if free:
                self.release(stream)

    @rule(stream=streams, share=st.floats(0, 1.5), heard=st.floats(0, 1.5))
    def credit(self, stream: Stream[str], share: float, heard: float) -> None:
        if stream not in self.alive:
            return
        before = (stream.read_pos, stream.playhead)
        self.scheduler.credit(stream, int(stream.written * share), int(stream.written * heard))
        assert before[0] <= stream.read_pos <= stream.written
        assert before[1] <= stream.playhead <= stream.written
        stream.parked = stream.parked and share < 0.5
        if stream.spoken and not stream.cancelled:
            self.release(stream)

    @precondition(lambda self: not self.in_step)
    @rule(wants=st.booleans())
    def begin(self, wants: bool) -> None:
        fresh, stale = self.scheduler.begin_next()
        self.known -= stale
        assert set(fresh) == {s for s in self.alive if s.wants_step and (s in fresh or not s.current)}
        for stream in fresh:
            # The model has no other utterance's state in this slot.
            assert stream.in_model == (stream.slot in self.known)
            stream.in_model = True
            stream.prefilling = wants
            self.known.add(stream.slot)
        self.scheduler.commit()

    @precondition(lambda self: not self.in_step)
    @rule()
    def choose(self) -> None:
        ready = {stream for stream in self.alive if stream.wants_step and stream.current}
        batch = self.scheduler.next_batch()
        assert set(batch.streams) <= ready
        stepped = {stream for stream in ready if not stream.prefilling}
        assert len(batch.steps) == min(len(stepped), MAX_BATCH)
        left = stepped - set(batch.steps)
        if batch.steps and left:
            assert max(map(hand, batch.steps)) <= min(map(hand, left))
        assert len(batch.prefill) <= 1
        assert bool(batch.streams) or not ready, "work is done as long as there is some"
        assert all(stream.prefilling for stream in batch.prefill)
        self.running, self.in_step = list(batch.streams), True

    @precondition(lambda self: self.in_step)
    @rule(samples=st.integers(0, 300), finished=st.booleans(), parked=st.booleans(), failed=st.booleans())
    def finish(self, samples: int, finished: bool, parked: bool, failed: bool) -> None:
        self.scheduler.commit()
        batch, self.running, self.in_step = self.running, [], False
        for stream in batch:
            if stream.cancelled or failed:
                self.release(stream)
                continue
            if stream.prefilling:
                stream.prefilling = not finished
                continue
            stream.written += samples
            stream.parked = parked
            if finished:
                stream.current = None
            if stream.spoken:
                self.release(stream)

    @invariant()
    def counters_agree(self) -> None:
        assert self.scheduler.free_slots == SLOTS - len(self.alive)
        assert set(self.scheduler.streams) == self.alive
        assert {s for s in self.alive if self.scheduler.is_running(s)} == set(self.running)

    def teardown(self) -> None:
        if self.in_step:
            self.finish(samples=0, finished=True, parked=False, failed=False)
        for stream in list(self.alive):
            assert self.scheduler.cancel(stream)
            self.release(stream)
        assert self.scheduler.free_slots == SLOTS
        assert self.scheduler.streams == []
        _, stale = self.scheduler.begin_next()
        assert self.known <= stale


Life.TestCase.settings = settings(stateful_step_count=40, max_examples=60, deadline=None)
TestLife = Life.TestCase
