"""The text side of an utterance: client's text in, in pieces; renditions out, in order.

Place in the flow: `utterance` feeds it and takes what the engine is to say. Between the two stand
`sentences`, which cuts, and `rendition`, which has a segment read by `normalize`: as it is needed, not as it
comes, and a long one on another thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from gateway.messages import MAX_DROPPED
from gateway.options import Options
from gateway.rendition import Rendition, render
from gateway.sentences import Segment, Splitter
from gateway.speech import joined
from gateway.transcript import Transcript

INLINE_CHARS: Final = 100
"""A segment of at most so many is read on the event loop: 0.1 ms is usual there, 5 ms the worst found."""


class Script:
    """What an utterance has to say."""

    def __init__(
        self, options: Options, transcript: Transcript, *, max_chars: int, release_s: float | None
    ) -> None:
        self._options = options
        self._transcript = transcript
        self._max_chars = max_chars
        self._splitter = Splitter(max_chars=max_chars, chunk_size=options.chunk_size, policy=options.markup)
        self._release_s = release_s
        self._release_at: float | None = None
        """When a pause lets out what is held; none is due while nothing is held."""
        self._waiting: deque[Segment] = deque()
        self._ready: deque[Rendition] = deque()
        self._cut_to = 0
        self._taken_to = 0
        self._default: Literal["zh", "en"] = "en"
        self._dropped: list[tuple[int, int]] = []
        self.ended = False
        """No more text will come."""
        self.first_at: float | None = None
        """When the text arrived that completed the first segment."""

    # --- in -----------------------------------------------------------------------------------------------

    def feed(self, text: str, now: float) -> bool:
        """More text. True where it completes a segment."""
        self._transcript.add(text)
        came = self._take(self._splitter.feed(text), now)
        held = self._splitter.position > self._cut_to
        self._release_at = now + self._release_s if held and self._release_s is not None else None
        return came

    def flush(self, now: float) -> bool:
        """All that is held is to be said. True where that is a segment."""
        self._release_at = None
        return self._take(self._splitter.flush(), now)

    def end(self, now: float) -> tuple[int, int] | None:
        """No more text. What is left at its end and has nothing to say belongs to the last segment, or where
        that was taken, is returned."""
        self.flush(now)
        self.ended = True
        rest = self._splitter.dropped
        if rest is None:
            return None
        if self._waiting:
            self._waiting[-1] = replace(self._waiting[-1], end=rest[1])
        elif self._ready and self._ready[-1].segment.end == rest[0]:
            self._ready[-1] = self._ready[-1].extended(self._transcript.slice(*rest))
        else:
            return rest
        return None

    def release(self, now: float) -> bool:
        """Let out what can be said, where no text has come for long. True where that is a segment."""
        if self._release_at is None or now < self._release_at:
            return False
        self._release_at = None
        return self._take(self._splitter.release(), now)

    def _take(self, segments: Sequence[Segment], now: float) -> bool:
        if not segments:
            return False
        self._waiting.extend(segments)
        self._cut_to = segments[-1].end
        if self.first_at is None:
            self.first_at = now
        return True

    # --- out ----------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Segments wait. It may turn out that they have nothing to say."""
        return bool(self._waiting or self._ready)

    @property
    def pending(self) -> int:
        """Characters that came and were not taken."""
        if self._ready:
            return self._splitter.position - self._ready[0].segment.start
        return self._splitter.position - (self._waiting[0].start if self._waiting else self._taken_to)

    @property
    def is_ready(self) -> bool:
        """`take` has something."""
        return bool(self._ready)

    async def read_ahead(self, count: int) -> None:
        """Read segments until so many can be taken. One task calls it."""
        while len(self._ready) < count and self._waiting:
            segment = self._waiting[0]
            work = partial(
                render,
                segment,
                self._transcript.slice(segment.start, segment.end),
                max_chars=self._max_chars,
                language=self._options.language,
                lexicon=self._options.lexicon,
                tags=self._options.tags,
                default=self._default,
            )
            is_short = len(segment.text) <= INLINE_CHARS
            rendition = work() if is_short else await asyncio.to_thread(work)
            if self._waiting[0] is not segment:
                continue  # The end of the text was given to it meanwhile.
            self._waiting.popleft()
            self._taken_to = segment.end
            if rendition.parts:
                self._default = rendition.main_language
                self._ready.append(rendition)
            else:
                self.drop(segment.start, segment.end)

    def take(self) -> Rendition:
        """The next one."""
        return self._ready.popleft()

    def drop(self, start: int, end: int) -> None:
        """This place of the text is in no sentence that was said."""
        self._dropped.append((start, end))

    @property
    def dropped(self) -> tuple[tuple[int, int], ...]:
        """What was in none, those that touch made one; the first `MAX_DROPPED`."""
        return joined(self._dropped)[:MAX_DROPPED]
