"""The step loop: takes requests from the control thread, steps the model, hands sound to the rings.

Two threads meet here. The control thread calls `open` to `drop`, which never wait for the model: they change
counters under the lock. The step thread runs `run`: choose under the lock, call the model without it, deliver
under it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from engine.errors import CannotSpeak, EngineError, ModelFault
from engine.model import Output, SpeechModel
from engine.outlet import Outlet
from engine.ring import RingWriter
from engine.scheduler import Batch, Scheduler, Sentence, Stream
from engine.wire import (
    Audio,
    Block,
    Checkpoint,
    Closed,
    Credit,
    Failed,
    FromEngine,
    LinkError,
    Open,
    Opened,
    SentenceDone,
    Submit,
)

log = structlog.get_logger(__name__)

BEGIN_LIMIT_S: Final = 5.0
"""Opening slots and reading the sentences of a step is over by then."""


class Link(Protocol):
    """A gateway, as the loop sees it."""

    @property
    def ring(self) -> RingWriter:
        """Where its sound goes."""

    def emit(self, messages: Sequence[FromEngine]) -> None:
        """Send in this order; any thread; never waits."""


class StepLoop:
    """One model and the streams in its slots."""

    def __init__(
        self,
        model: SpeechModel,
        *,
        window_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`window_s`: see `Scheduler`."""
        self._model = model
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._scheduler: Scheduler[Link] = Scheduler(
            slots=model.spec.slots,
            max_batch=model.spec.max_batch,
            sample_rate=model.spec.sample_rate,
            window_s=window_s,
        )
        self._streams: dict[tuple[Link, int], Stream[Link]] = {}
        self._outlets: dict[Stream[Link], Outlet] = {}
        self._stopping = False
        self.busy_until = 0.0
        """When the running model call will surely be over (clock of `clock`); 0 while there is none."""

    # --- control thread -----------------------------------------------------------------------------------

    def open(self, link: Link, message: Open) -> None:
        """Give the utterance a slot, or say why not."""
        ring = link.ring
        with self._lock:
            if (link, message.utterance) in self._streams:
                raise LinkError("a number of an utterance that is under way")
            try:
                stream = self._scheduler.open(
                    link, message.utterance, message.voice, message.parameters, message.seed
                )
            except EngineError as error:
                link.emit([Failed(message.utterance, error.code, str(error))])
                return
            self._streams[link, message.utterance] = stream
            self._outlets[stream] = Outlet(
                ring, slot=stream.slot, generation=stream.generation, utterance=stream.utterance
            )
            link.emit([Opened(stream.utterance, stream.slot, stream.generation)])

    def submit(self, link: Link, message: Submit) -> None:
        """Queue a sentence; one for an utterance that is over is dropped, since the two may cross."""
        with self._lock:
            if stream := self._streams.get((link, message.utterance)):
                sentence = Sentence(message.sentence, message.spans, message.resume)
                self._scheduler.submit(stream, sentence, self._clock())
                self._work.notify()

    def close(self, link: Link, utterance: int) -> None:
        """No more sentences."""
        with self._lock:
            if (stream := self._streams.get((link, utterance))) and self._scheduler.close(stream):
                self._release(stream)
                link.emit([Closed(utterance)])

    def cancel(self, link: Link, utterance: int) -> None:
        """Free the slot: at once, or as soon as the model call that holds it has been stopped."""
        with self._lock:
            if stream := self._streams.get((link, utterance)):
                self._cancel(stream)
                if stream not in self._outlets:
                    link.emit([Closed(utterance)])

    def credit(self, link: Link, message: Credit) -> None:
        """Room in the ring: what waited for it goes in now, whatever the step thread is at."""
        with self._lock:
            if stream := self._streams.get((link, message.utterance)):
                self._scheduler.credit(stream, message.read_pos, message.playhead, self._clock())
                if stream.parked or stream.spoken:
                    self._deliver([stream], [])
                    self._work.notify()

    def drop(self, link: Link) -> None:
        """The gateway is gone: free all that it held."""
        with self._lock:
            for stream in [stream for stream in self._outlets if stream.owner is link]:
                self._cancel(stream)

    def stop(self) -> None:
        """End `run` after the step under way."""
        with self._lock:
            self._stopping = True
            self._work.notify()

    def figures(self) -> dict[str, float]:
        """Of the slots, and of the model's caches."""
        with self._lock:
            streams = self._scheduler.streams
            parked = sum(stream.parked for stream in streams)
        slots = {"slots_used": float(len(streams)), "slots_parked": float(parked)}
        return slots | self._model.figures()

    def _cancel(self, stream: Stream[Link]) -> None:
        if self._scheduler.cancel(stream):
            self._release(stream)
        else:
            self._model.interrupt(stream.slot)

    def _release(self, stream: Stream[Link]) -> None:
        self._scheduler.release(stream)
        del self._streams[stream.owner, stream.utterance]
        del self._outlets[stream]
        self._work.notify()

    # --- step thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step until `stop`."""
        while self._step_once():
            pass

    def _step_once(self) -> bool:
        with self._lock:
            while not (self._stopping or self._scheduler.has_work):
                self._work.wait()
            if self._stopping:
                return False
            fresh, stale = self._scheduler.begin_next(self._clock())
            self.busy_until = self._clock() + BEGIN_LIMIT_S
        for slot in stale:
            self._model.close(slot)
        refused = self._begin(fresh)
        with self._lock:
            self._scheduler.commit()
            self._finish([stream for stream in fresh if stream.cancelled or stream in refused], {}, refused)
            batch = self._scheduler.next_batch(self._clock())
        outputs, failed = self._call(batch)
        with self._lock:
            self.busy_until = 0.0
            self._scheduler.commit()
            ended = [stream for stream in batch.prefill if stream.cancelled or stream in failed]
            self._finish([*batch.steps, *ended], outputs, failed)
        return True

    def _begin(self, fresh: Iterable[Stream[Link]]) -> dict[Stream[Link], EngineError]:
        failed: dict[Stream[Link], EngineError] = {}
        for stream in fresh:
            sentence = stream.current
            assert sentence is not None
            try:
                if not stream.in_model:
                    stream.in_model = True
                    self._model.open(stream.slot, stream.voice, stream.parameters, stream.seed)
                stream.prefilling = self._model.begin(
                    stream.slot, sentence.spans, number=sentence.number, resume=sentence.resume
                )
            except EngineError as error:
                failed[stream] = error
            except Exception:
                log.exception("model failed to begin a sentence")
                failed[stream] = ModelFault("the model failed to begin a sentence")
        return failed

    def _call(self, batch: Batch[Link]) -> tuple[dict[int, Output], dict[Stream[Link], EngineError]]:
        """Outputs by slot, and the streams whose prefill failed."""
        # One that was cancelled meanwhile is not stepped: its interrupt may have come before the call.
        slots = [stream.slot for stream in batch.steps if not stream.cancelled]
        outputs: dict[int, Output] = {}
        failed: dict[Stream[Link], EngineError] = {}
        if slots or batch.prefill:
            self.busy_until = self._clock() + self._model.step_limit_s(slots)
        try:
            if slots:
                outputs = {output.slot: output for output in self._model.step(slots)}
        except Exception:
            # The model could not say whose row it was: none of the batch has an output, and each fails.
            log.exception("model step failed", batch=len(slots))
        for stream in batch.prefill:
            try:
                stream.prefilling = not self._model.prefill(stream.slot)
            except EngineError as error:
                failed[stream] = error
            except Exception:
                log.exception("model prefill failed")
                failed[stream] = ModelFault("the model failed to begin a sentence")
        return outputs, failed

    def _finish(
        self,
        batch: Iterable[Stream[Link]],
        outputs: dict[int, Output],
        failed: dict[Stream[Link], EngineError],
    ) -> None:
        delivered: list[Stream[Link]] = []
        checkpoints: list[tuple[Link, Checkpoint]] = []
        for stream in batch:
            if stream.cancelled:
                self._release(stream)
                stream.owner.emit([Closed(stream.utterance)])
                continue
            output = outputs.get(stream.slot)
            error = failed.get(stream) or (output.error if output else ModelFault("the model step failed"))
            assert stream.current is not None
            outlet = self._outlets[stream]
            if isinstance(error, CannotSpeak):
                outlet.put_end(stream.current.number, unsaid=True)
                stream.current = None
                delivered.append(stream)
                continue
            if error or not output:
                self._release(stream)
                assert error is not None
                stream.owner.emit([Failed(stream.utterance, error.code, str(error))])
                continue
            if output.checkpoint is not None:
                checkpoint = Checkpoint(stream.utterance, stream.current.number, output.checkpoint)
                checkpoints.append((stream.owner, checkpoint))
            outlet.put(output.pcm)
            if output.finished:
                outlet.put_end(stream.current.number, truncated=output.truncated)
                stream.current = None
            delivered.append(stream)
        self._deliver(delivered, checkpoints)

    # --- either thread, under the lock --------------------------------------------------------------------

    def _deliver(
        self, streams: Iterable[Stream[Link]], checkpoints: Iterable[tuple[Link, Checkpoint]]
    ) -> None:
        """Move sound into the rings; one `Audio` a link, after its checkpoints and before its ends."""
        blocks: dict[Link, list[Block]] = {}
        ends: dict[Link, list[SentenceDone | Closed]] = {}
        first: dict[Link, list[FromEngine]] = {}
        for link, checkpoint in checkpoints:
            first.setdefault(link, []).append(checkpoint)
        for stream in streams:
            outlet = self._outlets[stream]
            new_blocks, new_ends = outlet.drain(stream.read_pos)
            stream.written = outlet.written
            stream.parked = bool(outlet)
            blocks.setdefault(stream.owner, []).extend(new_blocks)
            tail = ends.setdefault(stream.owner, [])
            tail.extend(new_ends)
            if stream.spoken:
                self._release(stream)
                tail.append(Closed(stream.utterance))
        for link in blocks:
            audio: list[FromEngine] = [Audio(tuple(blocks[link]))] if blocks[link] else []
            link.emit([*first.get(link, []), *audio, *ends[link]])
