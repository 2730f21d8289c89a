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
from gateway.lines import Line, Lines
from gateway.messages import (
    AudioMessage,
    Cancelled,
    Done,
    ServerMessage,
    Started,
    Terminal,
    encode_audio,
)
from gateway.options import Options
from gateway.opus import PacketEncoder
from gateway.outbox import Audio, Outbox
from gateway.playout import Playout
from gateway.script import Script
from gateway.services import Services
from gateway.track import SentenceEnd, Starts, Track
from gateway.transcript import Transcript

AHEAD: Final = 3
"""Parts in the engine at once: the one that is spoken, and enough after it that no gap opens."""
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
        self._transcript = Transcript()
        self._script = Script(
            options,
            self._transcript,
            max_chars=spec.max_chars,
            release_s=services.config.release_ms / 1000.0 or None,
        )
        self._playout = Playout(
            lead_ms=services.config.lead_ms, realtime=options.realtime, bundle=options.bundle
        )
        self._encoder = PacketEncoder(
            format=options.format, engine_rate=spec.sample_rate, sample_rate=options.sample_rate
        )
        self.track = Track(stream=stream, encoder=self._encoder, playout=self._playout, bundle=options.bundle)
        self._changed = asyncio.Event()
        self._lines = Lines(rate=spec.sample_rate)
        self._unaligned: deque[Line] = deque()
        """Heard from some time on, and their alignment not told."""
        self._cancelled_ms: float | None = None
        self._failure: SpeechError | None = None
        self._ticket: Ticket | None = None
        self._stream: EngineStream | None = None
        self._idle_since = services.clock()
        self._truncated = False

    # --- from the session ---------------------------------------------------------------------------------

    async def feed(self, text: str) -> None:
        """More text. A long one is split in slices, so that others get their turn."""
        arrived = self._services.clock()
        for at in range(0, len(text), SLICE):
            if self._script.feed(text[at : at + SLICE], arrived):
                self._changed.set()
            if len(text) > SLICE:
                await asyncio.sleep(0)
        limit = self._services.config.pending_chars
        if self._script.pending > limit:
            self.fail(SpeechError(f"more than {limit} characters wait to be spoken", code="text_too_long"))

    def flush(self) -> None:
        """Speak what is held."""
        self._script.flush(self._services.clock())
        self._changed.set()

    def end(self) -> None:
        """No more text."""
        rest = self._script.end(self._services.clock())
        if rest is not None and not self._lines.extend(rest[0], self._transcript.slice(*rest)):
            self._script.drop(*rest)
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
            while True:
                await self._script.read_ahead(AHEAD)
                await self._tell_alignments()
                if (terminal := self._advance(self._services.clock())) is not None:
                    return terminal
                await self._changed.wait()
                self._changed.clear()
                await self._services.pump.kick(self)
        except SpeechError as error:
            return error.as_message(self.name)

    def _advance(self, now: float) -> Terminal | None:
        """One look at everything; the terminal event, once it is due."""
        if self._cancelled_ms is not None:
            return self._as_cancelled(self._cancelled_ms)
        if self._failure is not None:
            raise self._failure
        self._submit(now)
        if self._has_more or self._lines.in_engine:
            self._idle_since = now
            return None
        if not self._script.ended:
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
            dropped=self._script.dropped,
        )

    @property
    def _has_more(self) -> bool:
        return self._lines.has_unsent or self._script.has_more

    def _submit(self, now: float) -> None:
        while (self._lines.has_unsent or self._script.is_ready) and self._lines.in_engine < AHEAD:
            if self._stream is None:
                if not self._is_admitted(now):
                    return
                self._stream = self._services.link.open(
                    voice=self._options.voice,
                    parameters=self._options.parameters,
                    seed=self._options.seed,
                    listener=self,
                )
            if not self._lines.has_unsent:
                self._lines.put(self._script.take())
            self._stream.submit(*self._lines.submit())

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
        if self._stream is None or self._has_more or self._lines.in_engine or not self.track.drained:
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
        spoken, remaining = self._transcript.split(played_ms)
        return Cancelled(
            utterance=self.name, played_ms=round(played_ms), text_spoken=spoken, text_remaining=remaining
        )

    # --- from the engine (`engine_client.Listener`) -------------------------------------------------------

    def on_audio(self, chunk: Chunk) -> None:
        """Samples are in the ring."""
        self._lines.add(chunk.samples)
        self.track.put(chunk)
        if self.track.is_fresh:
            self._changed.set()

    def on_sentence_done(self, done: wire.SentenceDone) -> None:
        """A part's samples are all there."""
        self._truncated |= done.truncated
        line = self._lines.end_part()
        if line is not None:
            self.track.put(SentenceEnd(line.number))
            if not line.has_sound:
                segment = line.rendition.segment
                self._script.drop(segment.start, segment.end)
        if self._script.ended and not self._has_more and not self._lines.in_engine:
            self.track.end()
        self._changed.set()

    def on_failed(self, error: SpeechError) -> None:
        """The engine gave it up, or was lost. What it had made is in our own memory, and is still played."""
        self._stream = None
        if self._lines.in_engine:
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
        if message.sequence == 0 and self._script.first_at is not None:
            metrics.ttfa.observe(now - self._script.first_at)
        self._outbox.put(Audio(message.stream, encode_audio(message)))
        metrics.lead.observe(self._playout.lead(now) / 1000.0)

    def _post_starts(self, message: Starts) -> None:
        line = self._lines.start(message.number)
        self._transcript.on_starts(line, message.start_ms)
        self._post(line.as_sentence(self.name))
        if self._options.aligned:
            self._unaligned.append(line)
            self._changed.set()

    async def _tell_alignments(self) -> None:
        while self._unaligned and self._unaligned[0].is_whole:
            self._post(self._unaligned.popleft().as_alignment(self.name))
            await self._outbox.drain()

    def on_tick(self, now: float) -> None:
        """Notice an underrun; wake the task when time itself has something to decide."""
        if self._playout.check_underrun(now, more=self._lines.in_engine > 0):
            self._services.metrics.underruns.inc()
        if self._script.release(now) or self._is_heard(now) or self._is_idle(now):
            self._changed.set()

    def fail(self, error: SpeechError) -> None:
        """End with this error."""
        self._failure = error
        self._changed.set()
