"""The queue: first come first served, bounded, with a deadline, and never more grants than slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine import wire
from gateway.admission import WAITING_PER_SLOT, Admission, Ticket
from gateway.engine_client import EngineLink, State
from gateway.errors import EngineLost, Overloaded

WAIT_S = 10.0


def ready(slots: int) -> wire.Ready:
    return wire.Ready("m", 24_000, slots, 100, 80, "v", (), (), 1)


@dataclass
class FakeLink:
    """What `Admission` reads of a link."""

    slots: int = 2
    used: int = 0
    state: State = "ready"
    known: bool = True

    @property
    def spec(self) -> wire.Ready | None:
        return ready(self.slots) if self.known else None

    @property
    def free_slots(self) -> int:
        return self.slots - self.used if self.state == "ready" and self.known else 0


@dataclass
class Queue:
    """An admission, its link, and who was called."""

    link: FakeLink = field(default_factory=FakeLink)
    called: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(cast(EngineLink, self.link), wait_s=WAIT_S)

    def request(self, name: str, now: float = 0.0) -> Ticket:
        return self.admission.request(now, lambda: self.called.append(name))

    def use(self, ticket: Ticket) -> None:
        self.admission.use(ticket)
        self.link.used += 1


def states(*tickets: Ticket) -> list[str]:
    return [ticket.state for ticket in tickets]


def test_a_free_slot_is_granted_at_once() -> None:
    queue = Queue()
    ticket = queue.request("a")
    assert ticket.state == "granted"
    assert queue.called == ["a"]
    assert queue.admission.waiting == 0


def test_a_grant_is_counted_until_it_is_used() -> None:
    queue = Queue()
    first, second, third = (queue.request(name) for name in "abc")
    assert [ticket.state for ticket in (first, second, third)] == ["granted", "granted", "waiting"]
    queue.use(first)
    queue.admission.serve(1.0)
    assert states(third) == ["waiting"]
    queue.link.used -= 1
    queue.admission.serve(2.0)
    assert states(third) == ["granted"]
    assert queue.called == ["a", "b", "c"]


def test_first_come_first_served() -> None:
    queue = Queue(FakeLink(slots=1, used=1))
    tickets = [queue.request(name, float(at)) for at, name in enumerate("abcd")]
    for turn in range(4):
        queue.link.used = 0
        queue.admission.serve(5.0)
        assert queue.called == list("abcd"[: turn + 1])
        queue.use(tickets[turn])


def test_the_queue_at_its_bound_and_one_past_it() -> None:
    queue = Queue(FakeLink(slots=2, used=2))
    for number in range(2 * WAITING_PER_SLOT):
        queue.request(str(number))
    assert queue.admission.waiting == 2 * WAITING_PER_SLOT
    with pytest.raises(Overloaded) as caught:
        queue.request("late")
    assert caught.value.code == "overloaded"
    assert caught.value.retry_after_ms is not None
    assert "late" not in queue.called


def test_a_queue_that_is_full_of_the_expired_has_room() -> None:
    queue = Queue(FakeLink(slots=1, used=1))
    for number in range(WAITING_PER_SLOT):
        queue.request(str(number))
    assert queue.request("late", WAIT_S + 1).state == "waiting"


def test_a_ticket_is_refused_at_its_deadline() -> None:
    queue = Queue(FakeLink(slots=1, used=1))
    early, late = queue.request("early", 0.0), queue.request("late", 1.0)
    queue.admission.serve(WAIT_S - 0.001)
    assert (early.state, late.state) == ("waiting", "waiting")
    queue.admission.serve(WAIT_S)
    assert (early.state, late.state) == ("refused", "waiting")
    assert queue.called == ["early"]
    assert isinstance(queue.admission.expired(), Overloaded)


def test_a_refusal_says_whether_the_engine_is_there() -> None:
    states: tuple[State, ...] = ("starting", "stalled", "lost")
    for state in states:
        queue = Queue(FakeLink(state=state))
        error = queue.admission.expired()
        assert isinstance(error, EngineLost)
        assert error.retry_after_ms is not None


def test_without_an_engine_nothing_is_granted_and_the_queue_is_bounded() -> None:
    queue = Queue(FakeLink(state="starting", known=False))
    for number in range(WAITING_PER_SLOT):
        assert queue.request(str(number)).state == "waiting"
    with pytest.raises(EngineLost):
        queue.request("late")
    queue.link.known, queue.link.state = True, "ready"
    queue.admission.serve(1.0)
    assert queue.called == ["0", "1"]


# --- leaving ----------------------------------------------------------------------------------------------


def test_leaving_the_queue() -> None:
    queue = Queue(FakeLink(slots=1, used=1))
    first, second = queue.request("a"), queue.request("b")
    queue.admission.withdraw(first)
    queue.link.used = 0
    queue.admission.serve(1.0)
    assert (first.state, second.state) == ("refused", "granted")
    assert queue.called == ["b"]


def test_a_grant_that_is_given_back_goes_to_the_next() -> None:
    queue = Queue(FakeLink(slots=1))
    first, second = queue.request("a"), queue.request("b")
    assert states(first, second) == ["granted", "waiting"]
    queue.admission.withdraw(first)
    queue.admission.serve(1.0)
    assert states(first, second) == ["refused", "granted"]


@pytest.mark.parametrize("how", ["used", "expired", "withdrawn"])
def test_leaving_after_it_is_over_changes_nothing(how: Literal["used", "expired", "withdrawn"]) -> None:
    queue = Queue(FakeLink(slots=1, used=1 if how == "expired" else 0))
    ticket = queue.request("a")
    if how == "used":
        queue.use(ticket)
        queue.link.used = 0
    elif how == "expired":
        queue.admission.serve(WAIT_S)
        queue.link.used = 0
    else:
        queue.admission.withdraw(ticket)
    queue.admission.withdraw(ticket)
    assert queue.request("b").state == "granted"
    assert queue.request("c").state == "waiting"


def test_only_a_grant_can_be_used() -> None:
    queue = Queue(FakeLink(slots=1, used=1))
    waiting = queue.request("a")
    with pytest.raises(AssertionError):
        queue.admission.use(waiting)
    queue.link.used = 0
    queue.admission.serve(0.0)
    queue.use(waiting)
    with pytest.raises(AssertionError):
        queue.admission.use(waiting)


# --- any order --------------------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """Utterances come, wait, speak and go, while slots come free and the engine comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(FakeLink(slots=3))
        self.now = 0.0
        self.tickets: list[tuple[str, Ticket]] = []
        self.asked: list[str] = []

    def live(self, state: str) -> list[Ticket]:
        return [ticket for _, ticket in self.tickets if ticket.state == state]

    @rule(wait=st.floats(0, 6))
    def tick(self, wait: float) -> None:
        self.now += wait
        self.queue.admission.serve(self.now)
        assert all(ticket.deadline > self.now for ticket in self.live("waiting"))

    @rule()
    def request(self) -> None:
        name = str(len(self.asked))
        try:
            ticket = self.queue.request(name, self.now)
        except (Overloaded, EngineLost):
            assert len(self.live("waiting")) >= WAITING_PER_SLOT * 3
            return
        self.asked.append(name)
        self.tickets.append((name, ticket))

    @precondition(lambda self: self.live("granted") and self.queue.link.free_slots)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        self.queue.use(data.draw(st.sampled_from(self.live("granted"))))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.queue.admission.withdraw(data.draw(st.sampled_from(self.tickets))[1])

    @precondition(lambda self: self.queue.link.used)
    @rule()
    def free(self) -> None:
        self.queue.link.used -= 1
        self.queue.admission.serve(self.now)

    @rule(state=st.sampled_from(["ready", "stalled"]))
    def turn(self, state: State) -> None:
        self.queue.link.state = state
        self.queue.admission.serve(self.now)

    @invariant()
    def grants_never_exceed_free_slots(self) -> None:
        link = self.queue.link
        assert len(self.live("granted")) + link.used <= link.slots

    @invariant()
    def the_queue_is_bounded_and_told_in_order(self) -> None:
        assert self.queue.admission.waiting == len(self.live("waiting")) <= WAITING_PER_SLOT * 3
        called = [int(name) for name in self.queue.called]
        assert called == sorted(called)
        assert len(called) == len(set(called))

    @invariant()
    def nobody_waits_beside_a_free_slot_after_serving(self) -> None:
        self.queue.admission.serve(self.now)
        if self.queue.link.free_slots > len(self.live("granted")):
            assert not self.live("waiting")

    def teardown(self) -> None:
        for _, ticket in self.tickets:
            self.queue.admission.withdraw(ticket)
        self.queue.link.used, self.queue.link.state = 0, "ready"
        names = [self.queue.request(name, self.now).state for name in "abcd"]
        assert names == ["granted"] * 3 + ["waiting"]


Life.TestCase.settings = settings(stateful_step_count=40, max_examples=60, deadline=None)
TestLife = Life.TestCase
