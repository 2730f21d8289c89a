"""ChatTTS as a `SpeechModel`: rows of codes in slots, a step a call, sound as the vocoder commits it.

A row is prefilled when its sentence begins; each step then draws the codes of one 21 ms frame for every row
of the batch, feeds the hidden states that predicted them to the streaming vocoder, and decodes the next. All
that a row depends on is its own: parameters, seed, history, cache, vocoder state.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from engine.chattts import prompt, sampler, weights
from engine.chattts.gpt import Gpt, Prefix
from engine.chattts.lookahead import CONTEXT, Schedule, Seam
from engine.chattts.row import (
    EOS,
    MAX_STEPS,
    Ending,
    Row,
    Settings,
    decode_checkpoint,
    encode_checkpoint,
)
from engine.chattts.vocoder import StreamingVocoder, Vocoder
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
RETRIES: Final = 2
"""Of a row that ends before its first step."""
SILENCE: Final = 1e-3
"""Peak of a sentence under which it is no sound."""
CHECKPOINT_STEPS: Final = 12
HISTORY: Final = 16
MAX_PREFIXES: Final = 64
"""Voices whose prefilled part is kept; the one not used for longest goes."""
DEFAULT_SCHEDULE: Final = Schedule()
_EMPTY: Final = np.zeros(0, np.int16)


class ChatTTSModel:
    """Loads in the constructor. Raises `WeightsError`."""

    def __init__(
        self,
        checkpoint_dir: Path,
        *,
        slots: int = 8,
        voices: Path | None = None,
        dtype: torch.dtype = torch.float32,
        schedule: Schedule | None = DEFAULT_SCHEDULE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedule`: when sound is taken before it is certain; `None`: never, all of it is exact."""
        checkpoint = weights.load(checkpoint_dir)
        self._clock = clock
        self._gpt = Gpt(checkpoint, slots=slots, max_positions=PROMPT_POSITIONS + MAX_STEPS, dtype=dtype)
        vocoder = Vocoder.load(checkpoint.decoder, checkpoint.vocos, dtype=dtype)
        self._vocoder = StreamingVocoder(vocoder, slots=slots)
        self._schedule = schedule
        self._tokenizer = prompt.Tokenizer(checkpoint.tokenizer)
        self._voices = VoiceStore(voices, hidden=checkpoint.gpt_shape.hidden)
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()
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
        """Speak a word; seconds of one step at batch 1."""
        self.open(0, self.spec.default_voice, Parameters(), 0)
        self.begin(0, [Span("你好 hello", "zh", 0, 8)])
        self.rows[0].limit = 3
        spent: list[float] = []
        for _ in range(4):
            began = time.monotonic()
            if self.step([0])[0].finished:
                break
            spent.append(time.monotonic() - began)
        self.close(0)
        return (min(spent, default=0.0),)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Give the slot to an utterance. Raises `UnknownVoice`."""
        stored = self._voices.find(voice)
        if stored is None:
            raise UnknownVoice("ChatTTS has no such voice here")
        self.rows[slot] = Row(stored, parameters, Settings.choose(parameters), seed)

    def begin(self, slot: int, spans: Sequence[Span], resume: bytes = b"") -> None:
        """Start a sentence, or go on with one from a checkpoint: the codes it had, u16 [steps, 4].

        Raises `CannotSpeak` for text without a token, `EngineError` for a checkpoint that is none.
        """
        row = self.rows[slot]
        text = "".join(span.text for span in spans)[:MAX_CHARS]
        built = self._build(row, text)
        if built.text_tokens == 0:
            raise CannotSpeak("nothing in the sentence can be said by ChatTTS")
        row.codes = decode_checkpoint(resume)
        row.resumed = len(row.codes)
        row.embeddings = self._embed(row, built)
        row.sentence += 1
        row.hidden = None
        row.limit = min(MAX_STEPS, STEPS_EXTRA + STEPS_PER_CHAR * len(text))
        row.deadline = self._clock() + WALL_S
        row.retries = 0
        row.peak = 0.0
        row.seam = Seam()
        row.first_sound_at = None
        self._vocoder.reset(slot)

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[Output]:
        """Prefill the rows that begin, then one step of every row."""
        for slot in slots:
            if self.rows[slot].hidden is None:
                self._prefill(slot)
        drawn = self._draw(slots)
        ended = {slot: self._ending(self.rows[slot], codes) for slot, codes in zip(slots, drawn, strict=True)}
        going = [index for index, slot in enumerate(slots) if ended[slot] is None]
        pcm = self._advance([slots[index] for index in going], drawn[going]) if going else {}
        return [self._output(slot, pcm.get(slot), ended[slot]) for slot in slots]

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """A step takes tens of milliseconds, a prefill some; a machine that swaps takes longer."""
        return 5.0

    def close(self, slot: int) -> None:
        """Forget the slot's utterance."""
        self.rows.pop(slot, None)
        self._gpt.reset(slot)

    def interrupt(self, slot: int) -> None:
        """A step is over sooner than it could be stopped."""

    # --- one step -----------------------------------------------------------------------------------------

    def _build(self, row: Row, text: str) -> prompt.Prompt:
        return self._tokenizer.build(
            text,
            style=prompt.Style(
                speed=prompt.speed_tag(row.parameters.speed),
                oral=row.parameters.oral,
                laugh=row.parameters.laugh,
                pause=row.parameters.pause,
            ),
            speaker=row.voice.embedding is not None,
            sample_text=row.voice.sample_text or "",
            tags=row.parameters.tags,
        )

    @torch.inference_mode()
    def _embed(self, row: Row, built: prompt.Prompt) -> torch.Tensor:
        """Prompt [T, H]: text, the speaker over its token, a cloned voice's codes, the codes resumed from."""
        embeddings = self._gpt.embed_text(torch.tensor(built.ids))
        if row.voice.embedding is not None:
            assert built.speaker is not None
            speaker = row.voice.embedding.to(embeddings)
            embeddings[built.speaker] = torch.nn.functional.normalize(speaker, dim=0, eps=1e-12)
        parts = [embeddings]
        if row.voice.sample_codes is not None:
            parts.append(self._gpt.embed_codes(row.voice.sample_codes.T.long()))
        row.voice_prefix = built.prefix
        row.prefix = sum(len(part) for part in parts)
        if row.codes:
            parts.append(self._gpt.embed_codes(torch.tensor(row.codes)))
        return torch.cat(parts)

    def _prefill(self, slot: int) -> None:
        """The voice's part first, as a chunk of its own, from the cache where it is there: equal bits."""
        row = self.rows[slot]
        assert row.embeddings is not None
        self._gpt.reset(slot)
        split = row.voice_prefix
        if (prefix := self._prefixes.get(row.voice.digest)) is not None:
            self._gpt.restore_prefix(slot, prefix)
            self._prefixes.move_to_end(row.voice.digest)
        else:
            self._gpt.prefill(slot, row.embeddings[:split], 0)
            self._prefixes[row.voice.digest] = self._gpt.save_prefix(slot, split)
            if len(self._prefixes) > MAX_PREFIXES:
                self._prefixes.popitem(last=False)
        hidden = self._gpt.prefill(slot, row.embeddings[split:], split)
        row.embeddings = None
        row.hidden = hidden[-1]
        if row.resumed:
            (samples,) = self._vocoder.feed([slot], hidden[None, row.prefix - split - 1 : -1])
            row.seam.feed(samples)

    def _draw(self, slots: Sequence[int]) -> torch.Tensor:
        """Codes [B, 4]. A row that ends before its first step draws anew, at most `RETRIES` times."""
        rows = [self.rows[slot] for slot in slots]
        logits = self._gpt.code_logits(torch.stack([_state(row) for row in rows]))
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

    def _ending(self, row: Row, codes: torch.Tensor) -> Ending | None:
        """Whether the row is at its end, and how."""
        if not torch.isfinite(_state(row)).all():
            return Ending(error=BadAudio("the model made no number"))
        if bool((codes == EOS).any()):
            if row.step == 0:
                return Ending(error=BadAudio("the model ended the sentence before it began, three times"))
            return Ending()
        if row.step >= row.limit or self._clock() >= row.deadline:
            return Ending(truncated=True)
        return None

    def _advance(self, slots: Sequence[int], codes: torch.Tensor) -> dict[int, torch.Tensor]:
        """Accept these codes: sound for their hidden states, and the next hidden states."""
        rows = [self.rows[slot] for slot in slots]
        hidden = torch.stack([_state(row) for row in rows])
        samples = self._vocoder.feed(slots, hidden[:, None])
        following = self._gpt.decode(torch.tensor(slots), self._gpt.embed_codes(codes))
        for row, taken, state in zip(rows, codes.tolist(), following, strict=True):
            row.codes.append(taken)
            row.hidden = state
        for row, certain in zip(rows, samples, strict=True):
            row.seam.feed(certain)
        return {slot: self._take(slot, row) for slot, row in zip(slots, rows, strict=True)}

    def _take(self, slot: int, row: Row) -> torch.Tensor:
        """The sound to deliver after this step: what is certain, or earlier, by the schedule."""
        if self._schedule is None:
            return row.seam.take()
        now = self._clock()
        heard = 0 if row.first_sound_at is None else int((now - row.first_sound_at) * RATE)
        lookahead = self._schedule.lookahead(fed=row.step, delivered=row.seam.delivered, playhead=heard)
        if lookahead is None:
            return torch.zeros(0)
        estimate = None if lookahead == CONTEXT else self._vocoder.peek(slot, lookahead)
        samples = row.seam.take(estimate)
        if len(samples) and row.first_sound_at is None:
            row.first_sound_at = now
        return samples

    def _output(self, slot: int, samples: torch.Tensor | None, ending: Ending | None) -> Output:
        row = self.rows[slot]
        if ending is not None and ending.error is not None:
            return Output(slot=slot, pcm=_EMPTY, error=ending.error)
        if ending is not None:
            samples = row.seam.finish(self._vocoder.flush(slot))
            row.hidden = None
        assert samples is not None
        if len(samples):
            if not torch.isfinite(samples).all():
                return Output(slot=slot, pcm=_EMPTY, error=BadAudio("the sound is not a number"))
            row.peak = max(row.peak, float(samples.abs().max()))
        if ending is not None and row.peak < SILENCE:
            return Output(slot=slot, pcm=_EMPTY, error=BadAudio("the model made silence"))
        wanted = ending is None and row.step % CHECKPOINT_STEPS == 0
        return Output(
            slot=slot,
            pcm=to_pcm(samples),
            finished=ending is not None,
            truncated=ending is not None and ending.truncated,
            checkpoint=encode_checkpoint(row.codes) if wanted else None,
        )


def _state(row: Row) -> torch.Tensor:
    assert row.hidden is not None
    return row.hidden


def to_pcm(samples: torch.Tensor) -> NDArray[np.int16]:
    """[-1, 1] to int16, with the same gain for every chunk."""
    scaled = (samples.float() * 32767.0).round().clamp(-32768.0, 32767.0)
    return scaled.to(torch.int16).numpy()
