"""Words to clauses: where a sentence is cut so that sound starts early and then never stops.

A voice makes one clause in one call, and nothing is heard before the call is over. So the first clause is
short; every later one may be as long as what was made so far takes to play, less a margin. The estimate uses
sizes only and no clock, so that equal requests are cut equally. Cuts prefer punctuation, then word
boundaries. Pure; imports the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

MARKS: Final = ",;:.!?—…"
"""Where a sentence may be cut with a pause: the marks that both readers write."""

PAUSE_MS: Final = {",": 200, ";": 250, ":": 220, "—": 220, ".": 300, "!": 300, "?": 300, "…": 300}
CUT_PAUSE_MS: Final = 30
"""At a cut inside a phrase: the ear should not notice it."""
UNMARKED_END_MS: Final = 120
"""After a sentence that ends without a mark."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word's phonemes with its punctuation; `size` in syllables or phonemes, `mark` in `MARKS` or ''."""

    phonemes: str
    size: int
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a voice costs and yields at speed 1, per unit of `Word.size`, on the slowest machine meant."""

    first: int
    """Units of a clause that nothing was made before."""
    least: int
    most: int
    """Units of any clause: bounds one call's memory and time."""
    sound_s: float
    """Seconds of sound a unit."""
    cost_s: float
    """Seconds of work a unit."""
    call_s: float
    """Seconds of work a call, beside its units."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What one call of a voice says, and the silence after it."""

    phonemes: str
    size: int
    pause_ms: int
    marked: bool
    """Ends at punctuation; otherwise the phrase goes on in the next clause."""

    def with_pause(self, pause_ms: int) -> Clause:
        """The same, with another silence after it."""
        return replace(self, pause_ms=pause_ms)


class Cutter:
    """Cuts one sentence; `feed` its words run by run, in order."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._lead_s: float | None = None

    def feed(self, words: Sequence[Word], pace: Pace) -> list[Clause]:
        """The clauses of one run of words."""
        clauses: list[Clause] = []
        at = 0
        while at < len(words):
            end = self._end(words, at, self._limit(pace))
            clause = _clause(words[at:end])
            clauses.append(clause)
            self._account(clause, pace)
            at = end
        return clauses

    def _limit(self, pace: Pace) -> int:
        if self._lead_s is None:
            return max(3, min(round(pace.first * self._speed), pace.most))
        units = (self._lead_s - pace.call_s) / (pace.cost_s / self._speed)
        return max(pace.least, min(int(units), round(pace.most * min(1.0, self._speed))))

    def _account(self, clause: Clause, pace: Pace) -> None:
        made_s = (clause.size * pace.sound_s + clause.pause_ms / 1000) / self._speed
        spent_s = clause.size * pace.cost_s / self._speed + pace.call_s
        # What the first clause cost was waited for in silence, not taken from what plays.
        self._lead_s = made_s if self._lead_s is None else max(0.0, self._lead_s - spent_s) + made_s

    @staticmethod
    def _end(words: Sequence[Word], at: int, limit: int) -> int:
        slack = limit + max(1, limit // 6)
        total = 0
        marked = 0
        phrase = 0
        for end in range(at + 1, len(words) + 1):
            total += words[end - 1].size
            if words[end - 1].mark or end == len(words):
                if total <= slack:
                    marked = end
                phrase = total
                if total > slack or end == len(words):
                    break
        if marked:
            return marked
        return _word_boundary(words, at, limit, phrase)


def _word_boundary(words: Sequence[Word], at: int, limit: int, phrase: int) -> int:
    """Cuts a phrase too long for one clause into parts about equal, so that no orphan is left."""
    target = math.ceil(phrase / math.ceil(phrase / limit))
    end = at + 1
    total = words[at].size
    while end < len(words) and total + words[end].size <= limit and total < target:
        total += words[end].size
        end += 1
    return end


def _clause(words: Sequence[Word]) -> Clause:
    mark = words[-1].mark
    return Clause(
        phonemes=" ".join(word.phonemes for word in words),
        size=sum(word.size for word in words),
        pause_ms=PAUSE_MS.get(mark, CUT_PAUSE_MS),
        marked=bool(mark),
    )
