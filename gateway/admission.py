"""The only queue: utterances that wait for a slot, first come first served, bounded and with a deadline.

Pure: a `Ticket` is granted, refused or expired by calls that pass the time in. It is asked for when the first
sentence is there to speak, so that a client that writes nothing holds nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gateway.engine_client import EngineLink
from gateway.errors import EngineLost, Overloaded

WAITING_PER_SLOT = 4
"""The queue's bound: more could not be served in time anyway."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the queue. `on_change` is called once, when it is granted or refused."""

    deadline: float
    on_change: Callable[[], None]
    state: Literal["waiting", "granted", "refused"] = "waiting"


class Admission:
    """Slots of one engine link, handed out in order."""

    def __init__(self, link: EngineLink, *, wait_s: float) -> None:
        self._link = link
        self._wait_s = wait_s
        self._queue: deque[Ticket] = deque()
        self._granted = 0

    @property
    def waiting(self) -> int:
        """Utterances in the queue."""
        return len(self._queue)

    def request(self, now: float, on_change: Callable[[], None]) -> Ticket:
        """Join the queue. Raises `Overloaded` when it is full."""
        self.serve(now)
        slots = self._link.spec.slots if self._link.spec else 1
        if len(self._queue) >= WAITING_PER_SLOT * slots:
            raise self._refusal()
        ticket = Ticket(now + self._wait_s, on_change)
        self._queue.append(ticket)
        self.serve(now)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the queue, or give back a grant that was not used."""
        if ticket.state == "waiting":
            self._queue.remove(ticket)
        elif ticket.state == "granted":
            self._granted -= 1
        ticket.state = "refused"

    def use(self, ticket: Ticket) -> None:
        """The grant becomes a slot: the caller opens the stream in the same breath."""
        assert ticket.state == "granted"
        self._granted -= 1
        ticket.state = "refused"

    def serve(self, now: float) -> None:
        """Grant what can be granted and refuse what waited too long. On each change, and on each tick."""
        while self._queue and self._queue[0].deadline <= now:
            self._settle(self._queue.popleft(), "refused")
        while self._queue and self._link.free_slots > self._granted:
            self._granted += 1
            self._settle(self._queue.popleft(), "granted")

    def expired(self) -> EngineLost | Overloaded:
        """Why a ticket was refused."""
        return self._refusal()

    def _refusal(self) -> EngineLost | Overloaded:
        if self._link.state != "ready":
            return EngineLost("the engine is not there; it is being started", retry_after_ms=2000)
        return Overloaded("every voice is busy; try again", retry_after_ms=1000)

    @staticmethod
    def _settle(ticket: Ticket, state: Literal["granted", "refused"]) -> None:
        ticket.state = state
        ticket.on_change()
