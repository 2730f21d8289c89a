"""One utterance's life on the server: text becomes segments, segments a stream, the stream a track.

`run` is its only task. Everything that happens to it — text, sound, a slot, a cancel — changes a field and
wakes the task, which decides in `_advance` what follows. It ends with exactly one terminal event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from engine import wire
from gateway.admission import Ticket
from gateway.engine_stream import Chunk, EngineStream
from gateway.errors import SpeechError
from gateway.language import spans
from gateway.messages import (
    MAX_DROPPED,
    AudioMessage,
    Cancelled,
    Done,
    SentenceEvent,
    ServerMessage,
    Started,
    Terminal,
    encode_audio,
)
from gateway.options import Options
from gateway.opus import PacketEncoder
from gateway.outbox import Audio, Outbox
from gateway.playout import Playout
from gateway.sentences import Segment, Splitter
from gateway.services import Services
from gateway.track import SentenceEnd, Starts, Track
from gateway.transcript import Transcript

AHEAD: Final = 3
"""Segments in the engine at once: the one that is spoken, and enough after it that no gap opens."""
SLICE: Final = 512
"""Characters split before other tasks get a turn."""


class Utterance:
    """An utterance under way."""

    def __init__(
        self,
        name: str,
        options: Options,
        *,
        stream: int,
        services: Services,
        outbox: Outbox,
        post: Callable[[ServerMessage], None],
    ) -> None:
        spec = services.link.spec
        assert spec is not None
        self.name = name
        self._options = options
        self._services = services
        self._outbox = outbox
        self._post = post
        self._splitter = Splitter(max_chars=spec.max_chars)
        self._transcript = Transcript()
        self._playout = Playout(
            lead_ms=services.config.lead_ms, realtime=options.realtime, bundle=options.bundle
        )
        self._encoder = PacketEncoder(
            format=options.format, engine_rate=spec.sample_rate, sample_rate=options.sample_rate
        )
        self.track = Track(stream=stream, encoder=self._encoder, playout=self._playout, bundle=options.bundle)
        self._changed = asyncio.Event()
        self._waiting: deque[Segment] = deque()
        self._submitted: dict[int, Segment] = {}
        """Segments in the engine or in the track, whose sound has not begun to go out."""
        self._outstanding = 0
        self._submitted_to = 0
        """Where the last segment ends that went to the engine."""
        self._ended = False
        self._cancelled_ms: float | None = None
        self._failure: SpeechError | None = None
        self._ticket: Ticket | None = None
        self._stream: EngineStream | None = None
        self._idle_since = services.clock()
        self._first_text_at: float | None = None
        self._truncated = False
        self._dropped: list[tuple[int, int]] = []

    # --- from the session ---------------------------------------------------------------------------------

    async def feed(self, text: str) -> None:
        """More text. A long one is split in slices, so that others get their turn."""
        arrived = self._services.clock()
        self._transcript.add(text)
        for at in range(0, len(text), SLICE):
            self._take(self._splitter.feed(text[at : at + SLICE]), arrived)
            if len(text) > SLICE:
                await asyncio.sleep(0)
        pending = self._splitter.position - self._spoken_to()
        limit = self._services.config.pending_chars
        if pending > limit:
            self.fail(SpeechError(f"more than {limit} characters wait to be spoken", code="text_too_long"))

    def _spoken_to(self) -> int:
        """Where the text ends that the engine has."""
        return self._waiting[0].start if self._waiting else self._submitted_to

    def flush(self) -> None:
        """Speak what is held."""
        self._take(self._splitter.flush(), self._services.clock())

    def end(self) -> None:
        """No more text."""
        self.flush()
        self._ended = True
        self._changed.set()

    def cancel(self, played_ms: float | None) -> None:
        """Fall silent: nothing more of it is sent, whatever is under way."""
        now = self._services.clock()
        heard = self._playout.played(now) if played_ms is None else played_ms
        self._cancelled_ms = min(heard, float(self._playout.sent))
        self._outbox.purge(self.track.stream)
        self._give_back()
        self._changed.set()

    def report_played(self, ms: float) -> None:
        """Where the client's listener is."""
        self._playout.on_report(ms, self._services.clock())

    def _take(self, segments: Sequence[Segment], arrived: float) -> None:
        if segments:
            self._waiting.extend(segments)
            if self._first_text_at is None:
                self._first_text_at = arrived
            self._changed.set()

    # --- the task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Speak, then send the terminal event."""
        metrics = self._services.metrics
        outcome = "disconnected"
        metrics.active.inc()
        self._services.pump.add(self)
        try:
            self._post(self._started())
            await self._outbox.drain()
            terminal = await self._speak()
            outcome = str(terminal.__struct_config__.tag)
            if not isinstance(terminal, Done):
                self._outbox.purge(self.track.stream)
            self._give_back()
            self._post(terminal)
            await self._outbox.drain()
        finally:
            self._give_back()
            metrics.active.dec()
            metrics.utterances.labels(outcome).inc()

    async def _speak(self) -> Terminal:
        try:
            while (terminal := self._advance(self._services.clock())) is None:
                await self._changed.wait()
                self._changed.clear()
                await self._services.pump.kick(self)
        except SpeechError as error:
            return error.as_message(self.name)
        return terminal

    def _advance(self, now: float) -> Terminal | None:
        """One look at everything; the terminal event, once it is due."""
        if self._cancelled_ms is not None:
            return self._as_cancelled(self._cancelled_ms)
        if self._failure is not None:
            raise self._failure
        self._submit(now)
        if self._waiting or self._outstanding:
            self._idle_since = now
            return None
        if not self._ended:
            if self._is_idle(now):
                self._leave_slot()
            return None
        if self._stream is not None:
            self._stream.close()
        self.track.end()
        if not self._is_heard(now):
            return None
        return Done(
            utterance=self.name,
            duration_ms=self._playout.sent,
            truncated=self._truncated,
            dropped=tuple(self._dropped),
        )

    def _submit(self, now: float) -> None:
        while self._waiting and self._outstanding < AHEAD:
            if self._stream is None:
                if not self._is_admitted(now):
                    return
                self._stream = self._services.link.open(
                    voice=self._options.voice,
                    parameters=self._options.parameters,
                    seed=self._options.seed,
                    listener=self,
                )
            segment = self._waiting.popleft()
            self._submitted[segment.index] = segment
            self._submitted_to = segment.end
            self._outstanding += 1
            tagged = spans(segment.text, segment.start, segment.end, self._options.language)
            self._stream.submit(segment.index, tagged)

    def _is_admitted(self, now: float) -> bool:
        admission = self._services.admission
        if self._ticket is None:
            self._ticket = admission.request(now, self._changed.set)
        if self._ticket.state == "refused":
            raise admission.expired()
        if self._ticket.state == "waiting":
            return False
        admission.use(self._ticket)
        self._ticket = None
        return True

    def _is_idle(self, now: float) -> bool:
        """All was spoken and read, and no text has come for long: the slot can do better."""
        if self._stream is None or self._waiting or self._outstanding or not self.track.drained:
            return False
        return now - self._idle_since >= self._services.config.slot_idle_s

    def _leave_slot(self) -> None:
        """The next text goes by the queue again."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    def _is_heard(self, now: float) -> bool:
        return self.track.finished and not (self._options.realtime and self._playout.lead(now) > 0)

    def _give_back(self) -> None:
        """Let go of all that is held; what waits in the outbox still goes out. Idempotent."""
        self._services.pump.discard(self)
        if self._ticket is not None:
            self._services.admission.withdraw(self._ticket)
            self._ticket = None
        self._leave_slot()

    def _started(self) -> Started:
        return Started(
            utterance=self.name,
            stream=self.track.stream,
            voice=self._options.voice,
            seed=self._options.seed,
            format=self._options.format,
            sample_rate=self._options.sample_rate,
        )

    def _as_cancelled(self, played_ms: float) -> Cancelled:
        over = self._outstanding == 0 and self.track.drained
        spoken, remaining = self._transcript.split(played_ms, sent_ms=self._playout.sent, segment_over=over)
        return Cancelled(
            utterance=self.name, played_ms=round(played_ms), text_spoken=spoken, text_remaining=remaining
        )

    # --- from the engine (`engine_client.Listener`) -------------------------------------------------------

    def on_audio(self, chunk: Chunk) -> None:
        """Samples are in the ring."""
        self.track.put(chunk)
        if self.track.is_fresh:
            self._changed.set()

    def on_sentence_done(self, done: wire.SentenceDone) -> None:
        """A segment's samples are all there."""
        self._outstanding -= 1
        self._truncated |= done.truncated
        if done.unsaid:
            segment = self._submitted.pop(done.sentence)
            if len(self._dropped) < MAX_DROPPED:
                self._dropped.append((segment.start, segment.end))
        self.track.put(SentenceEnd(done.sentence))
        if self._ended and not self._waiting and not self._outstanding:
            self.track.end()
        self._changed.set()

    def on_failed(self, error: SpeechError) -> None:
        """The engine gave it up, or was lost. What it had made is in our own memory, and is still played."""
        self._stream = None
        if self._outstanding:
            self.fail(error)

    def lead_ms(self) -> float:
        """Sound sent that was not heard yet."""
        return self._playout.lead(self._services.clock())

    # --- from the pump (`pump.Player`) --------------------------------------------------------------------

    @property
    def is_blocked(self) -> bool:
        """The client does not take what it was sent."""
        return self._outbox.is_blocked

    async def play(self, messages: Sequence[Starts | AudioMessage], now: float) -> None:
        """Tell the client which segment begins, and send the sound. All is queued before anything waits."""
        for message in messages:
            if isinstance(message, AudioMessage):
                self._post_audio(message, now)
            else:
                self._post_starts(message)
        await self._outbox.drain()

    def _post_audio(self, message: AudioMessage, now: float) -> None:
        metrics = self._services.metrics
        if message.sequence == 0 and self._first_text_at is not None:
            metrics.ttfa.observe(now - self._first_text_at)
        self._outbox.put(Audio(message.stream, encode_audio(message)))
        metrics.lead.observe(self._playout.lead(now) / 1000.0)

    def _post_starts(self, message: Starts) -> None:
        segment = self._submitted.pop(message.number)
        self._transcript.on_starts(segment, message.start_ms)
        self._post(
            SentenceEvent(
                utterance=self.name,
                index=segment.index,
                start=segment.start,
                end=segment.end,
                start_ms=message.start_ms,
            )
        )

    def on_tick(self, now: float) -> None:
        """Notice an underrun; wake the task when time itself has something to decide."""
        if self._playout.check_underrun(now, more=self._outstanding > 0):
            self._services.metrics.underruns.inc()
        if self._is_heard(now) or self._is_idle(now):
            self._changed.set()

    def fail(self, error: SpeechError) -> None:
        """End with this error."""
        self._failure = error
        self._changed.set()
