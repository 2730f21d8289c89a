"""Lines: renditions on their way through the engine to the listener, and when each bit of them sounds. Pure.

Place in the flow: `utterance` puts the renditions of `script` here and submits them part by part. How long a
part sounds is known once the engine has made it; before, it is guessed from the text. Inside a part all is an
estimate: each character takes a share of the sound, a Han character more than a Latin one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from engine.wire import Span
from gateway.messages import MAX_DROPPED, Alignment, SentenceEvent
from gateway.rendition import Bit, Rendition, sound_ms, spans

Timed = tuple[int, int, int, int]
"""A place of the client's text and the time of its sound: start, end, start_ms, end_ms."""


class Line:
    """A rendition on its way from the engine to the listener."""

    def __init__(self, number: int, rendition: Rendition) -> None:
        self.number = number
        """Of the sentences that go to the engine, from 0, without a gap."""
        self.rendition = rendition
        self.start_ms: int | None = None
        """When it is heard, once its sound begins to go out."""
        self._lengths: list[float] = []
        self._making = 0.0

    def add(self, ms: float) -> None:
        """More sound of the part that is being made."""
        self._making += ms

    def end_part(self) -> None:
        """The part is made."""
        self._lengths.append(self._making)
        self._making = 0.0

    @property
    def is_whole(self) -> bool:
        """All of its sound is made."""
        return len(self._lengths) == len(self.rendition.parts)

    @property
    def has_sound(self) -> bool:
        """Some was made."""
        return self._making > 0 or any(self._lengths)

    def place(self, ms: float) -> int:
        """The place that is heard so long after its beginning: where a character or a reading ends."""
        segment = self.rendition.segment
        if ms <= 0:
            return segment.start
        making: float | None = self._making
        place = segment.start
        for part, known in zip_longest(self.rendition.parts, self._lengths):
            length = known
            if length is None:
                length, making = max(sound_ms(_text(part)), making or 0.0), None
            if ms < length:
                return max(place, _place(part, ms / length))
            ms -= length
            place = part[-1].end
        return segment.end

    def chars(self) -> tuple[Timed, ...]:
        """Each character, or what is read as one, with its time in the utterance. All must be made."""
        assert self.is_whole
        assert self.start_ms is not None
        at = float(self.start_ms)
        found: list[Timed] = []
        for part, length in zip(self.rendition.parts, self._lengths, strict=True):
            pace = length / max(sound_ms(_text(part)), 1.0)
            for start, end, said in _atoms(part):
                begun, at = at, at + sound_ms(said) * pace
                if found and found[-1][:2] == (start, end):  # one thing said in two bits
                    found[-1] = (start, end, found[-1][2], round(at))
                else:
                    found.append((start, end, round(begun), round(at)))
        return tuple(found)

    def as_sentence(self, utterance: str) -> SentenceEvent:
        """What the client is told when its sound begins."""
        segment = self.rendition.segment
        assert self.start_ms is not None
        return SentenceEvent(
            utterance=utterance,
            index=segment.index,
            start=segment.start,
            end=segment.end,
            start_ms=self.start_ms,
            sentence=segment.sentence,
            language=self.rendition.language,
            dropped=self.rendition.dropped[:MAX_DROPPED],
        )

    def as_alignment(self, utterance: str) -> Alignment:
        """What the client may be told when all of its sound is made and it is being heard."""
        return Alignment(utterance=utterance, index=self.rendition.segment.index, chars=self.chars())


class Lines:
    """The lines of one utterance that are under way."""

    def __init__(self, *, rate: int) -> None:
        self._rate = rate
        self._unsent: deque[tuple[Line, tuple[Bit, ...]]] = deque()
        """Parts that go to the engine next."""
        self._making: deque[Line] = deque()
        """Those whose parts are in the engine, once a part."""
        self._silent: dict[int, Line] = {}
        """Those whose sound has not begun to go out, by number."""
        self._count = self._parts = 0

    def put(self, rendition: Rendition) -> None:
        """The next one."""
        line = self._silent[self._count] = Line(self._count, rendition)
        self._unsent.extend((line, part) for part in rendition.parts)
        self._count += 1

    def extend(self, start: int, rest: str) -> bool:
        """Give text without a sound to the line before it, if that was not told of yet."""
        line = next(reversed(self._silent.values()), None)
        if line is None or line.rendition.segment.end != start:
            return False
        line.rendition = line.rendition.extended(rest)
        return True

    @property
    def has_unsent(self) -> bool:
        """There are parts for the engine."""
        return bool(self._unsent)

    @property
    def in_engine(self) -> int:
        """Parts that the engine has and has not finished."""
        return len(self._making)

    def submit(self) -> tuple[int, tuple[Span, ...]]:
        """The next part for the engine, with a number of its own."""
        line, part = self._unsent.popleft()
        self._making.append(line)
        self._parts += 1
        return self._parts - 1, spans(part)

    def add(self, samples: int) -> None:
        """More sound of the part that is being made."""
        self._making[0].add(1000.0 * samples / self._rate)

    def end_part(self) -> Line | None:
        """That part is made. The line, if it was its last one; without sound it is heard of no more."""
        line = self._making.popleft()
        line.end_part()
        if line.is_whole and not line.has_sound:
            del self._silent[line.number]
        return line if line.is_whole else None

    def start(self, number: int) -> Line:
        """This one's sound begins to go out."""
        return self._silent.pop(number)


def _text(part: Sequence[Bit]) -> str:
    return "".join(bit.spoken for bit in part)


def _atoms(part: Sequence[Bit]) -> Iterator[tuple[int, int, str]]:
    """What has one time: a character that stands for itself, or a reading. Its place and how it is said."""
    for bit in part:
        if bit.literal:
            for at, char in enumerate(bit.spoken, bit.start):
                yield at, at + 1, char
        else:
            yield bit.start, bit.end, bit.spoken


def _place(part: Sequence[Bit], share: float) -> int:
    """Up to where a part is heard; half of a character or of a reading counts as all of it, a blank as
    nothing until something follows."""
    heard = share * sound_ms(_text(part))
    place = part[0].start
    for _, end, said in _atoms(part):
        weight = sound_ms(said)
        if heard < weight / 2:
            break
        heard -= weight
        place = place if said == " " else end
    return place
