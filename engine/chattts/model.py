"""ChatTTS as a `SpeechModel`: rows of codes in slots, a step a call, sound as the vocoder commits it.

A sentence is prefilled piece by piece; each step then draws the codes of one 21 ms frame for every row of the
batch, hands what predicted them to `sound`, and decodes the next. All that a row depends on is its own:
parameters, seed, history, cache, vocoder state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from engine.chattts import backend as backends
from engine.chattts import layout, prompt, sampler
from engine.chattts.backend import Backend
from engine.chattts.lookahead import Schedule
from engine.chattts.prefill import Prefill, Prefixes
from engine.chattts.refine import Refine
from engine.chattts.row import (
    EOS,
    MAX_STEPS,
    RETRIES,
    Ending,
    Row,
    Settings,
    decode_checkpoint,
    encode_checkpoint,
)
from engine.chattts.sound import Sound
from engine.chattts.voices import VoiceStore
from engine.errors import BadAudio, CannotSpeak, UnknownVoice
from engine.model import ModelSpec, Output
from engine.wire import Parameters, Span, Voice

log = structlog.get_logger(__name__)

RATE: Final = 24_000
MAX_CHARS: Final = 80
PROMPT_POSITIONS: Final = 640
"""A cloned voice takes up to 384 steps and 120 characters, a sentence 80 characters and its style."""
STEPS_PER_CHAR: Final = 14
STEPS_EXTRA: Final = 94
"""A sentence may take 2 s and 0.3 s a character; a row that goes on past it has lost its way."""
WALL_S: Final = 30.0
"""Of steps that a sentence may take. The time in which it waits for its listener is not counted."""
SILENCE: Final = 1e-3
"""Peak of a sentence under which it is no sound."""
HISTORY: Final = 16
WARM_STEPS: Final = 12
"""Steps of a batch whose time is measured: as many as the first sound takes."""
WARM: Final = Settings(min_steps=WARM_STEPS)
BACKEND: Final = Backend()
DEFAULT_SCHEDULE: Final = Schedule()
_EMPTY: Final = np.zeros(0, np.int16)

Steps = Literal["hidden", "codes"]
"""What the vocoder is fed with: hidden states (the Decoder), or codes (the DVAE)."""


class ChatTTSModel:
    """Loads in the constructor. Raises `WeightsError`."""

    def __init__(
        self,
        checkpoint_dir: Path,
        *,
        slots: int = 8,
        voices: Path | None = None,
        backend: Backend = BACKEND,
        schedule: Schedule | None = DEFAULT_SCHEDULE,
        steps: Steps = "hidden",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedule`: when sound is taken before it is certain; `None`: never, all of it is exact."""
        chosen = backend.choose(checkpoint_dir)
        unused = layout.DVAE if steps == "hidden" else layout.DECODER
        checkpoint = backends.load_weights(checkpoint_dir, chosen, unused=unused)
        self._clock = clock
        self._gpt = backends.load(chosen, checkpoint, slots=slots, max_positions=PROMPT_POSITIONS + MAX_STEPS)
        vocoder = backends.load_vocoder(chosen, checkpoint, slots=slots, steps=steps)
        self._steps = steps
        self._dtype = chosen.sound_dtype
        self._sound = Sound(vocoder, schedule, clock=clock)
        self._tokenizer = prompt.Tokenizer(checkpoint.tokenizer)
        self._voices = VoiceStore(voices, hidden=checkpoint.gpt_shape.hidden)
        self._prefixes = Prefixes()
        self.rows: dict[int, Row] = {}
        """What is in the slots."""
        listed = self._voices.list()
        self.spec = ModelSpec(
            name=f"chattts {checkpoint.fingerprint[:12]}",
            sample_rate=RATE,
            slots=slots,
            max_batch=slots,
            max_steps=MAX_STEPS,
            max_chars=MAX_CHARS,
            voices=tuple(Voice(voice.id, voice.name, ("zh", "en")) for voice in listed),
            default_voice=listed[0].id,
        )

    # --- SpeechModel --------------------------------------------------------------------------------------

    def warm_up(self) -> tuple[float, ...]:
        """Speak in 1, 2, ... slots; seconds of a step at each of these batches, with the sound it makes."""
        spent: list[float] = []
        for batch in range(1, self.spec.slots + 1):
            slots = range(batch)
            for slot in slots:
                self.open(slot, self.spec.default_voice, Parameters(), 0)
                self.begin(slot, [Span("你好 hello", "zh", 0, 8)])
                while not self.prefill(slot):
                    pass
                self.rows[slot].settings = WARM
                self.rows[slot].limit = WARM_STEPS
            began = time.monotonic()
            for _ in range(WARM_STEPS):
                self.step(slots)
            spent.append((time.monotonic() - began) / WARM_STEPS)
            for slot in slots:
                self.close(slot)
        return tuple(spent)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Give the slot to an utterance. Raises `UnknownVoice`."""
        stored = self._voices.find(voice)
        if stored is None:
            raise UnknownVoice("ChatTTS has no such voice here")
        self.rows[slot] = Row(stored, parameters, Settings.choose(parameters), seed)
        self._sound.open(slot)

    @torch.inference_mode()
    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        """See `SpeechModel`. Raises `CannotSpeak` for text without a token, `EngineError` for a checkpoint
        that is none."""
        row = self.rows[slot]
        text = "".join(span.text for span in spans)[:MAX_CHARS]
        if self._tokenizer.build(text, tags=row.parameters.tags).text_tokens == 0:
            raise CannotSpeak("nothing in the sentence can be said by ChatTTS")
        row.codes, row.retries = decode_checkpoint(resume) if resume else ([], 0)
        row.text = text
        row.sentence = number
        row.hidden = row.prefill = None
        row.refine = self._refine(row) if row.parameters.refine else None
        row.limit = min(MAX_STEPS, STEPS_EXTRA + STEPS_PER_CHAR * len(text))
        row.worked_s = 0.0
        row.peak = 0.0
        self._sound.begin(slot)
        return True

    @torch.inference_mode()
    def prefill(self, slot: int) -> bool:
        """A piece of the refine pass, or of the prompt."""
        row = self.rows[slot]
        if row.prefill is None:
            if row.refine is not None and not row.refine.step(slot):
                return False
            row.prefill = self._prefill(row)
            return False
        if not row.prefill.step(slot):
            return False
        row.hidden = row.prefill.hidden
        if row.codes:
            self._put(slot, row.prefill.resumed, torch.tensor(row.codes))
        row.prefill = row.refine = None
        return True

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[Output]:
        """One step of every row."""
        began = self._clock()
        drawn = self._draw(slots)
        ends = (drawn == EOS).any(-1).tolist()
        ended = {slot: self._ending(slot, is_end) for slot, is_end in zip(slots, ends, strict=True)}
        going = [index for index, slot in enumerate(slots) if ended[slot] is None]
        pcm = self._advance([slots[index] for index in going], drawn[going]) if going else {}
        outputs = [self._output(slot, pcm.get(slot), ended[slot]) for slot in slots]
        for slot in slots:
            self.rows[slot].worked_s += self._clock() - began
        return outputs

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """A step takes tens of milliseconds; a machine that swaps takes longer."""
        return 5.0

    def close(self, slot: int) -> None:
        """Forget the slot's utterance."""
        self.rows.pop(slot, None)
        self._sound.close(slot)
        self._gpt.reset(slot)

    def interrupt(self, slot: int) -> None:
        """A step is over sooner than it could be stopped."""

    def figures(self) -> dict[str, float]:
        """Of the cache of voices' prefixes."""
        asked = self._prefixes.hits + self._prefixes.misses
        return {
            "prefix_hit_rate": self._prefixes.hits / asked if asked else 0.0,
            "prefix_positions_saved": float(self._prefixes.saved),
        }

    # --- before the first step ----------------------------------------------------------------------------

    def _style(self, row: Row) -> prompt.Style:
        given = row.parameters
        speed = prompt.speed_tag(given.speed)
        return prompt.Style(speed=speed, oral=given.oral, laugh=given.laugh, pause=given.pause)

    def _refine(self, row: Row) -> Refine:
        given = row.parameters
        style = prompt.Style(oral=given.oral, laugh=given.laugh, pause=given.pause)
        return Refine(self._gpt, self._tokenizer, row.text, style, row.sentence_seed())

    def _prefill(self, row: Row) -> Prefill:
        tags = row.parameters.tags
        said = row.refine.ids if row.refine is not None else self._tokenizer.encode(row.text, tags=tags)
        built = self._tokenizer.compose(
            said,
            style=self._style(row),
            speaker=row.voice.embedding is not None,
            sample_text=row.voice.sample_text or "",
        )
        return Prefill(self._gpt, self._prefixes, row.voice, built, row.codes)

    # --- one step -----------------------------------------------------------------------------------------

    def _draw(self, slots: Sequence[int]) -> torch.Tensor:
        """Codes [B, 4]. A row that ends before its first step draws anew, at most `RETRIES` times."""
        rows = [self.rows[slot] for slot in slots]
        logits = self._gpt.code_logits(torch.stack([_state(row) for row in rows])).to(self._dtype)
        drawn = self._draw_rows(rows, logits)
        for _ in range(RETRIES):
            again = [i for i, row in enumerate(rows) if row.step == 0 and bool((drawn[i] == EOS).any())]
            if not again:
                break
            for index in again:
                rows[index].retries += 1
            drawn[again] = self._draw_rows([rows[i] for i in again], logits[again])
        return drawn

    @staticmethod
    def _draw_rows(rows: Sequence[Row], logits: torch.Tensor) -> torch.Tensor:
        history = torch.full((len(rows), HISTORY, 4), -1)
        for index, row in enumerate(rows):
            if recent := row.codes[-HISTORY:]:
                history[index, -len(recent) :] = torch.tensor(recent)
        settings = [row.settings for row in rows]
        return sampler.draw(
            logits,
            history,
            sampler.Parameters(
                temperature=torch.tensor([each.temperature for each in settings], dtype=logits.dtype),
                top_p=torch.tensor([each.top_p for each in settings], dtype=logits.dtype),
                top_k=torch.tensor([each.top_k for each in settings]),
                penalty=torch.tensor([each.penalty for each in settings], dtype=logits.dtype),
                min_steps=torch.tensor([each.min_steps for each in settings]),
            ),
            torch.tensor([row.sentence_seed() for row in rows]),
            torch.tensor([row.step for row in rows]),
        )

    def _ending(self, slot: int, is_end: bool) -> Ending | None:
        """Whether the row is at its end, and how."""
        row = self.rows[slot]
        # What is no number makes the sum none either.
        if not math.isfinite(float(_state(row).sum())):
            return Ending(error=BadAudio("the model made no number"))
        if is_end:
            if row.step == 0:
                return Ending(error=BadAudio("the model ended the sentence before it began, three times"))
            return Ending()
        if row.step >= row.limit or row.worked_s >= WALL_S:
            return Ending(truncated=True)
        return None

    def _advance(self, slots: Sequence[int], codes: torch.Tensor) -> dict[int, torch.Tensor]:
        """Accept these codes: the next hidden states, and the sound that is due."""
        rows = [self.rows[slot] for slot in slots]
        following = self._gpt.decode(torch.tensor(slots), self._gpt.embed_codes(codes))
        for slot, row, taken, state in zip(slots, rows, codes, following, strict=True):
            self._put(slot, _state(row)[None], taken[None])
            row.codes.append(taken.tolist())
            row.hidden = state
        return self._sound.take(slots)

    def _put(self, slot: int, hidden: torch.Tensor, codes: torch.Tensor) -> None:
        """Steps [n, H] and [n, 4] of one sentence: the vocoder takes one of the two."""
        self._sound.put(slot, hidden.to(self._dtype) if self._steps == "hidden" else codes)

    def _output(self, slot: int, samples: torch.Tensor | None, ending: Ending | None) -> Output:
        row = self.rows[slot]
        if ending is not None and ending.error is not None:
            return Output(slot=slot, pcm=_EMPTY, error=ending.error)
        if ending is not None:
            samples = self._sound.finish(slot)
            row.hidden = None
        assert samples is not None
        if len(samples):
            if not torch.isfinite(samples).all():
                return Output(slot=slot, pcm=_EMPTY, error=BadAudio("the sound is not a number"))
            row.peak = max(row.peak, float(samples.abs().max()))
        if ending is not None and row.peak < SILENCE:
            return Output(slot=slot, pcm=_EMPTY, error=BadAudio("the model made silence"))
        # What was delivered since the last checkpoint must be in this one.
        wanted = ending is None and len(samples) > 0
        return Output(
            slot=slot,
            pcm=to_pcm(samples),
            finished=ending is not None,
            truncated=ending is not None and ending.truncated,
            checkpoint=encode_checkpoint(row.codes, row.retries) if wanted else None,
        )


def _state(row: Row) -> torch.Tensor:
    assert row.hidden is not None
    return row.hidden


def to_pcm(samples: torch.Tensor) -> NDArray[np.int16]:
    """[-1, 1] to int16, with the same gain for every chunk."""
    if not len(samples):
        return _EMPTY
    scaled = (samples.float() * 32767.0).round().clamp(-32768.0, 32767.0)
    return scaled.to(torch.int16).cpu().numpy()
