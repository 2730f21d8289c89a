"""Steps to deliverable sound, for every slot: when the vocoder is fed, and what is taken early.

Between the decode steps of `model` and the ring. The vocoder's work on many steps of many streams at once
costs a fraction of that on one at a time. So steps are held until a stream runs low, which is when and with
which lookahead `lookahead.Schedule` says, or until they are many; and streams are fed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from engine.chattts.backend import SlotVocoder
from engine.chattts.lookahead import CONTEXT, Schedule, Seam
from engine.chattts.vocoder import SAMPLE_RATE

FEED: Final = 16
"""Steps that are held at most."""
COMPANY: Final = 8
"""Steps from which on a stream is fed along with another that has to be."""


@dataclass(slots=True)
class _Voiced:
    """The sentence that a slot is at."""

    seam: Seam = field(default_factory=Seam)
    held: list[Tensor] = field(default_factory=list)
    """Steps that the vocoder was not given yet: [n, ...] each."""
    made: int = 0
    """Steps so far, with those held."""

    @property
    def held_steps(self) -> int:
        """How many they are."""
        return sum(map(len, self.held))


class Sound:
    """One vocoder and its schedule; `None`: sound is taken only when it is certain."""

    def __init__(
        self, vocoder: SlotVocoder, schedule: Schedule | None, *, clock: Callable[[], float]
    ) -> None:
        self._vocoder = vocoder
        self._schedule = schedule
        self._clock = clock
        self._slots: dict[int, _Voiced] = {}
        self._heard_at: dict[int, float] = {}
        """When the listener of each slot will have heard all that was taken, at the earliest."""

    def open(self, slot: int) -> None:
        """An utterance has the slot."""
        self._heard_at[slot] = self._clock()

    def begin(self, slot: int) -> None:
        """A sentence of it starts."""
        self._vocoder.reset(slot)
        self._slots[slot] = _Voiced()

    def close(self, slot: int) -> None:
        """Forget the slot."""
        self._slots.pop(slot, None)
        self._heard_at.pop(slot, None)

    def put(self, slot: int, steps: Tensor) -> None:
        """The next steps [n, ...] of the slot's sentence."""
        voiced = self._slots[slot]
        voiced.held.append(steps)
        voiced.made += len(steps)

    def take(self, slots: Sequence[int]) -> dict[int, Tensor]:
        """The samples of each of these slots that are to be delivered after a step; mostly none."""
        wanted = {slot: self._lookahead(slot, len(slots)) for slot in slots}
        due = any(lookahead is not None for lookahead in wanted.values())
        company = COMPANY if due else FEED
        fed = {slot for slot in slots if wanted[slot] is not None or self._slots[slot].held_steps >= company}
        self._feed(fed)
        return {slot: self._take(slot, lookahead, slot in fed) for slot, lookahead in wanted.items()}

    def _take(self, slot: int, lookahead: int | None, is_fed: bool) -> Tensor:
        seam = self._slots[slot].seam
        if lookahead == CONTEXT or (lookahead is None and is_fed and seam.delivered):
            return self._delivered(slot, seam.take())
        if lookahead is None:
            return torch.zeros(0)
        estimate = self._vocoder.peek(slot, lookahead, skip=seam.ahead)
        return self._delivered(slot, seam.take(estimate))

    def finish(self, slot: int) -> Tensor:
        """The sentence is over: all that was not taken."""
        self._feed([slot])
        return self._delivered(slot, self._slots[slot].seam.finish(self._vocoder.flush(slot)))

    def _delivered(self, slot: int, samples: Tensor) -> Tensor:
        self._heard_at[slot] = max(self._heard_at[slot], self._clock()) + len(samples) / SAMPLE_RATE
        return samples

    def _lookahead(self, slot: int, streams: int) -> int | None:
        voiced = self._slots[slot]
        if self._schedule is None:
            return CONTEXT if voiced.made == CONTEXT + 1 else None
        lead = max(0.0, self._heard_at[slot] - self._clock())
        return self._schedule.lookahead(
            made=voiced.made,
            delivered=voiced.seam.delivered,
            lead=int(lead * SAMPLE_RATE),
            streams=streams,
        )

    def _feed(self, slots: Iterable[int]) -> None:
        """Give the vocoder what is held; slots that hold as many steps go together."""
        groups: dict[int, list[int]] = {}
        for slot in slots:
            if count := self._slots[slot].held_steps:
                groups.setdefault(count, []).append(slot)
        for group in groups.values():
            steps = torch.stack([torch.cat(self._slots[slot].held) for slot in group])
            for slot, samples in zip(group, self._vocoder.feed(group, steps), strict=True):
                self._slots[slot].held.clear()
                self._slots[slot].seam.feed(samples)
