"""What was heard of an utterance's text: from a time in its sound to a place in the client's own text. Pure.

Inside a segment the place is an estimate, linear in its characters and never inside a word.
"""

from __future__ import annotations

from typing import Final

from gateway.language import is_wide
from gateway.sentences import Segment

WIDE_MS: Final = 220.0
NARROW_MS: Final = 65.0
"""About the sound of a Han and of a Latin character: used while a segment's own length is not known."""


class Transcript:
    """The text of one utterance, and when each segment of it is heard."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._heard: list[tuple[Segment, int]] = []

    def add(self, text: str) -> None:
        """More of the client's text."""
        self._pieces.append(text)

    def on_starts(self, segment: Segment, start_ms: int) -> None:
        """The segment's sound begins at `start_ms`."""
        self._heard.append((segment, start_ms))

    def split(self, played_ms: float, *, sent_ms: int, segment_over: bool) -> tuple[str, str]:
        """(spoken, remaining) at a playhead. `segment_over`: the last segment's sound ends at `sent_ms`."""
        text = "".join(self._pieces)
        place = self._place(played_ms, sent_ms, segment_over)
        while 0 < place < len(text) and _in_word(text[place - 1]) and _in_word(text[place]):
            place += 1
        return text[:place], text[place:]

    def _place(self, played_ms: float, sent_ms: int, segment_over: bool) -> int:
        place = 0
        for index, (segment, start_ms) in enumerate(self._heard):
            if played_ms <= start_ms:
                break
            if index + 1 < len(self._heard):
                length = self._heard[index + 1][1] - start_ms
            else:
                length = sent_ms - start_ms
                if not segment_over:
                    length = max(length, int(_estimate_ms(segment.text)))
            share = min(1.0, (played_ms - start_ms) / max(length, 1))
            place = segment.start + round(share * (segment.end - segment.start))
        return place


def _in_word(char: str) -> bool:
    return char.isalnum() and not is_wide(char)


def _estimate_ms(text: str) -> float:
    return sum(WIDE_MS if is_wide(char) else NARROW_MS for char in text)
