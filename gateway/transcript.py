"""What is heard of an utterance's text: from a time in its sound to a place in the client's own text. Pure.

Inside a part of a sentence the place is an estimate (`lines`), and never inside a word.
"""

from __future__ import annotations

from bisect import bisect_right

from gateway.language import is_wide
from gateway.lines import Line


class Transcript:
    """The text of one utterance, and when each segment of it is heard."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._length = 0
        self._heard: list[Line] = []

    def add(self, text: str) -> None:
        """More of the client's text."""
        if text:
            self._pieces.append(text)
            self._starts.append(self._length)
            self._length += len(text)

    def slice(self, start: int, end: int) -> str:
        """Characters `[start, end)` of the text."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_right(self._starts, end)
        text = "".join(self._pieces[first:last])
        offset = self._starts[first] if self._starts else 0
        return text[start - offset : end - offset]

    def on_starts(self, line: Line, start_ms: int) -> None:
        """Its sound begins at `start_ms`."""
        line.start_ms = start_ms
        self._heard.append(line)

    def split(self, played_ms: float) -> tuple[str, str]:
        """(spoken, remaining) at a playhead; never inside a word."""
        text = "".join(self._pieces)
        place = 0
        for line in self._heard:
            assert line.start_ms is not None
            if played_ms <= line.start_ms:
                break
            place = line.place(played_ms - line.start_ms)
        while 0 < place < len(text) and _in_word(text[place - 1]) and _in_word(text[place]):
            place += 1
        return text[:place], text[place:]


def _in_word(char: str) -> bool:
    return char.isalnum() and not is_wide(char)
