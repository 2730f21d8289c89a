"""The embedded engine as a `SpeechModel`: texts to clauses at `begin`, one clause a `step`.

One clause of one slot is made at a time (`max_batch` 1): a call uses every thread it was given, and between
clauses the other slots have their turn. All methods run on the step thread, but for `interrupt`.
"""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime as ort
import structlog
from numpy.typing import NDArray

from engine.embedded import english, hibari_voice, joins, kokoro, mandarin
from engine.embedded.clauses import UNMARKED_END_MS, Clause, Cutter
from engine.embedded.script import Language, runs
from engine.errors import CannotSpeak, EngineError, ModelFault, UnknownVoice
from engine.model import ModelSpec, Output
from engine.wire import Parameters, Span, Voice

log = structlog.get_logger(__name__)

MAX_CHARS: Final = 200
MAX_STEPS: Final = 2 * MAX_CHARS
"""Never reached: a clause has at least one character, or what one character is read as."""
SWITCH_PAUSE_MS: Final = 60
"""Between the voices of two languages, where no mark asks for more."""
MIN_LIMIT_S: Final = 5.0
LIMIT_FACTOR: Final = 12.0
"""A step may take this many times what it would on this machine with nothing else to do."""

MANDARIN_STYLES: Final = {
    "xiaoxiao": ("Xiaoxiao", "zf_xiaoxiao.bin"),
    "xiaobei": ("Xiaobei", "zf_xiaobei.bin"),
}
PACKAGED_VOICE: Final = "alpha"
GAINS: Final = {"xiaoxiao": 0.55, "xiaobei": 0.9, "alpha": 0.85}
"""The styles differ by 4 dB as they come, and the loudest one clips."""
_EMPTY: Final = np.zeros(0, np.int16)


@dataclass(frozen=True, slots=True)
class Part:
    """One step's work."""

    language: Language
    clause: Clause


@dataclass(slots=True)
class Slot:
    """An utterance's state."""

    style: kokoro.Style
    gain: float
    """Of its Mandarin."""
    speed: float
    seed: int
    parts: deque[Part] = field(default_factory=deque)
    made: int = 0
    """Clauses of this sentence that were made."""
    truncated: bool = False


class EmbeddedModel:
    """English through hibari, Mandarin through Kokoro. Loads in the constructor."""

    def __init__(self, *, slots: int = 8, threads: int = 2, styles: Path | None = None) -> None:
        self._styles = load_styles(styles)
        with _no_collection(), ThreadPoolExecutor(1) as pool:
            # ONNX Runtime builds its session without the interpreter's lock; dictionaries are read meanwhile.
            loading = pool.submit(kokoro.Kokoro, threads)
            mandarin.load_dictionary()
            self._hibari = hibari_voice.HibariVoice()
            self._english = english.EnglishReader(self._hibari.hibari)
            self._kokoro = loading.result()
        self._mandarin = mandarin.MandarinReader(self._kokoro.vocabulary)
        self._slots: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._running: tuple[int, ort.RunOptions] | None = None
        self._interrupted: set[int] = set()
        self._spec = ModelSpec(
            name="embedded",
            sample_rate=joins.RATE,
            slots=slots,
            max_batch=1,
            max_steps=MAX_STEPS,
            max_chars=MAX_CHARS,
            voices=tuple(Voice(key, _name(key), ("zh", "en")) for key in self._styles),
            default_voice=next(iter(self._styles)),
        )

    @property
    def spec(self) -> ModelSpec:
        """Constant from construction on."""
        return self._spec

    def warm_up(self) -> tuple[float, ...]:
        """Speaks both languages once; seconds of the first Mandarin clause of a sentence."""
        slot = -1
        self.open(slot, self._spec.default_voice, Parameters(), 0)
        self.begin(slot, [Span("Hello there, and 42 more.", "en", 0, 0)])
        self.step([slot])
        self.begin(slot, [Span("今天天气好，", "zh", 0, 0)])
        started = time.monotonic()
        failed = self.step([slot])[0].error
        spent = time.monotonic() - started
        self.close(slot)
        if failed is not None:
            raise failed
        # What was loaded stays; the collector need not look at it again.
        gc.freeze()
        return (spent,)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Give the slot to an utterance. Raises `UnknownVoice`."""
        if (style := self._styles.get(voice)) is None:
            raise UnknownVoice("the embedded engine has no such voice")
        with self._lock:
            self._interrupted.discard(slot)
        self._slots[slot] = Slot(style, GAINS[voice], parameters.speed, seed)

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        """Start a sentence. Raises `CannotSpeak` or, where a text rule fails, `ModelFault`."""
        state = self._slots[slot]
        kept, state.truncated = _within(spans, MAX_CHARS)
        state.made = 0
        state.parts.clear()
        try:
            state.parts.extend(self._parts(kept, state.speed))
        except Exception as error:
            # Third-party text rules meet arbitrary text here; one sentence must not end the engine. What they
            # raise may quote the text, so that only its type and place go above DEBUG.
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error(
                "text rules failed", slot=slot, error=type(error).__name__, at=f"{place.name}:{place.lineno}"
            )
            log.debug("text rules failed", slot=slot, exc_info=True)
            raise ModelFault("the text could not be read") from error
        if not state.parts:
            raise CannotSpeak("nothing in the sentence can be said in English or Chinese")
        return False

    def prefill(self, slot: int) -> bool:
        """Nothing to do."""
        return True

    def step(self, slots: Sequence[int]) -> list[Output]:
        """Make the next clause of each slot."""
        return [self._step(slot) for slot in slots]

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """Generous: a busy machine is slow, and only a hung call should look hung."""
        seconds = 0.0
        for slot in slots:
            state = self._slots[slot]
            if state.parts:
                part = state.parts[0]
                pace = mandarin.PACE if part.language == "zh" else english.PACE
                seconds += pace.call_s + part.clause.size * pace.cost_s / state.speed
        return MIN_LIMIT_S + LIMIT_FACTOR * seconds

    def close(self, slot: int) -> None:
        """Forget the slot's utterance."""
        self._slots.pop(slot, None)
        with self._lock:
            self._interrupted.discard(slot)

    def interrupt(self, slot: int) -> None:
        """Any thread: end the slot's running call, or the next one if none runs. Others are not touched."""
        with self._lock:
            self._interrupted.add(slot)
            if self._running is not None and self._running[0] == slot:
                self._running[1].terminate = True

    def figures(self) -> dict[str, float]:
        """None."""
        return {}

    def _parts(self, spans: Sequence[Span], speed: float) -> list[Part]:
        cutter = Cutter(speed)
        parts: list[Part] = []
        for run in runs(spans):
            reader, pace = (
                (self._mandarin, mandarin.PACE) if run.language == "zh" else (self._english, english.PACE)
            )
            clauses = cutter.feed(reader.words(run.text), pace)
            if clauses and parts and not parts[-1].clause.marked:
                parts[-1] = Part(parts[-1].language, parts[-1].clause.with_pause(SWITCH_PAUSE_MS))
            parts += [Part(run.language, clause) for clause in clauses]
        if parts and not parts[-1].clause.marked:
            parts[-1] = Part(parts[-1].language, parts[-1].clause.with_pause(UNMARKED_END_MS))
        return parts

    def _step(self, slot: int) -> Output:
        state = self._slots[slot]
        options = ort.RunOptions()
        options.log_severity_level = 4
        with self._lock:
            if slot in self._interrupted:
                self._interrupted.discard(slot)
                return Output(slot=slot, pcm=_EMPTY)
            self._running = (slot, options)
        fault: EngineError | None = None
        pcm = _EMPTY
        try:
            pcm = self._speak(state, options)
        except EngineError as error:
            fault = error
        except Exception:
            # The boundary between a stranger's library and the loop: one slot fails, the others go on.
            if not options.terminate:
                log.exception("model call failed", slot=slot)
                fault = ModelFault("the voice failed on a clause")
        with self._lock:
            self._running = None
            interrupted = slot in self._interrupted
            self._interrupted.discard(slot)
        if interrupted:
            # The clause stays: a slot that is stepped again says it from its start.
            return Output(slot=slot, pcm=_EMPTY)
        state.parts.popleft()
        state.made += 1
        finished = not state.parts
        return Output(
            slot=slot, pcm=pcm, finished=finished, truncated=finished and state.truncated, error=fault
        )

    def _speak(self, state: Slot, options: ort.RunOptions) -> NDArray[np.int16]:
        part = state.parts[0]
        if part.language == "zh":
            # Kokoro was trained on whole clauses: without a mark it swallows the last syllable.
            said = part.clause.phonemes if part.clause.marked else part.clause.phonemes + ","
            audio, gain = self._kokoro.run(said, state.style, state.speed, options), state.gain
        else:
            generator = np.random.default_rng([state.seed, state.made])
            audio = self._hibari.run(part.clause.phonemes, state.speed, generator, options)
            gain = hibari_voice.GAIN
        joins.check(audio)
        return joins.join(audio, gain, part.clause.pause_ms, state.speed)


def load_styles(folder: Path | None) -> dict[str, kokoro.Style]:
    """The styles by voice id, the default one first."""
    found: dict[str, kokoro.Style] = {}
    for voice, (_, file) in MANDARIN_STYLES.items():
        if folder is not None and (folder / file).is_file():
            found[voice] = kokoro.read_style(folder / file)
    found[PACKAGED_VOICE] = kokoro.packaged_style()
    default = next(iter(found))
    log.info("styles loaded", default=default, mandarin=default != PACKAGED_VOICE, voices=list(found))
    return found


def _name(voice: str) -> str:
    return MANDARIN_STYLES[voice][0] if voice in MANDARIN_STYLES else "Alpha (Japanese accent)"


def _within(spans: Sequence[Span], limit: int) -> tuple[list[Span], bool]:
    """The spans up to `limit` characters in all, and whether something was cut off."""
    kept: list[Span] = []
    for span in spans:
        room = limit - sum(len(other.text) for other in kept)
        if len(span.text) > room:
            kept.append(Span(span.text[:room], span.language, span.start, span.end))
            return kept, True
        kept.append(span)
    return kept, False


@contextmanager
def _no_collection() -> Iterator[None]:
    """Loading makes a million objects that live for ever; the collector would count them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
