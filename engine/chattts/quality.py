"""`sayflow weights quality`: how far each backend is from torch in fp32, by the same texts, voices and draws.

The reference speaks the texts. Every other backend is fed the codes that the reference drew, so that each
step is compared in the same place, and then speaks the texts itself. One language model is in memory at a
time. `quality_takes` drives it, `quality_score` has the arithmetic. Not part of serving.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from engine.chattts import backend as backends
from engine.chattts import fetch, layout, prompt, weights
from engine.chattts.backend import Backend, LanguageModel
from engine.chattts.embed import ROWS
from engine.chattts.model import MAX_CHARS, PROMPT_POSITIONS, STEPS_EXTRA, STEPS_PER_CHAR
from engine.chattts.prompt import Style, Tokenizer
from engine.chattts.quality_score import (
    Model,
    Report,
    Score,
    Take,
    mel_distance,
    noise_ratio,
    score_model,
    seconds,
)
from engine.chattts.quality_takes import Sentence, follow
from engine.chattts.row import MAX_STEPS
from engine.chattts.vocoder import Vocoder
from engine.chattts.voices import VoiceStore
from engine.errors import CannotSpeak

TEXTS: Final = (
    "今天天气很好，我们一起去公园走走吧。",
    "The train to the airport leaves from platform nine in ten minutes.",
    "请问您需要什么帮助？我可以为您查一下。",
    "Thank you for calling. How can I help you today?",
    "他说明天早上八点开会，大家不要迟到。",
    "I never said that she took the money, did I?",
    "这个问题我想了很久，还是没有好的办法。",
    "Well, you know, that is exactly what I was hoping to hear!",
)
MAX_TEXTS: Final = 64
"""The distributions of every step are kept: 10 kB a step."""
STEPS: Final = 240
REFERENCE: Final = Backend(kind="torch", precision="fp32")
_INT8: Final = Backend(kind="onnx", precision="int8")
_SEED: Final = 1000


Progress = Callable[[int, int], None]
"""Gets the units of work done, and those in all."""


def read_texts(path: Path) -> tuple[str, ...]:
    """A text a line, blank ones left out. Raises `CannotSpeak` for what cannot be compared."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise CannotSpeak(f"{path}: it is not UTF-8") from error
    texts = tuple(line.strip() for line in lines if line.strip())
    if not 0 < len(texts) <= MAX_TEXTS:
        raise CannotSpeak(f"{path}: 1 to {MAX_TEXTS} lines of text are wanted, and {len(texts)} are there")
    return texts


def available(root: Path) -> tuple[list[Backend], list[str]]:
    """What can be compared here with the reference, and what cannot and why. Raises `WeightsError` for a
    stale file of 8-bit weights."""
    found: list[Backend] = []
    notes: list[str] = []
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        notes.append("onnx: ONNX Runtime is not installed")
    else:
        from engine.chattts import quantise

        if quantise.find(root) is None:
            notes.append(f"onnx int8: no 8-bit weights here: run `sayflow weights quantise {root}`")
        else:
            found.append(_INT8)
        found.append(Backend(kind="onnx", precision="fp32"))
    if torch.cuda.is_available():
        found.append(Backend(kind="torch", precision="bf16"))
    else:
        notes.append("torch bf16: no GPU here")
    return found, notes


def compare(
    root: Path,
    texts: Sequence[str] = TEXTS,
    *,
    steps: int = STEPS,
    others: Sequence[Backend] | None = None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Hold `others`, or all that are available, against the reference, over at most `steps` steps a text.

    Raises `WeightsError`, `ModelMissing`, `CannotSpeak`, and `BadAudio` where a model makes no numbers.
    """
    notes: list[str] = []
    if others is None:
        others, notes = available(root)
    digests = weights.digests(root)
    sentences = prepare(root, texts, steps)
    work = _Work(progress, sum(sentence.limit for sentence in sentences), 1 + 2 * len(others))
    gpt = _load(root, REFERENCE, sentences)
    reference = follow(gpt, sentences, name=_name(REFERENCE), tick=work.tick)
    work.end_phase()
    del gpt
    ear = _Ear(root, reference)
    scores: list[Score] = []
    for other in others:
        gc.collect()
        gpt = _load(root, other, sentences)
        forced = follow(gpt, sentences, reference, name=_name(other), tick=work.tick)
        work.end_phase()
        free = follow(gpt, sentences, name=_name(other), tick=work.tick)
        work.end_phase()
        del gpt
        model = score_model(reference, forced, free)
        scores.append(ear.score(_name(other), forced, model=model))
        if other.precision == "int8":
            scores += ear.score_int8(other, forced)
    ended = sum(take.ended for take in reference)
    return Report(
        reference=_name(REFERENCE),
        fingerprint=weights.fingerprint(digests),
        steps=tuple(len(take.codes) for take in reference),
        lengths=tuple(seconds(len(take.codes)) for take in reference),
        ended=ended,
        # Random weights never draw the end code (see `random_weights`).
        real=ended > 0 or all(digests[file] == fetch.RELEASED[file] for file in layout.READ_FILES),
        example=ear.expected[0].numpy(),
        scores=tuple(scores),
        notes=tuple(notes),
    )


def prepare(root: Path, texts: Sequence[str], steps: int) -> list[Sentence]:
    """Prompts, the bundled voices in turn, seeds, and the engine's limits. Raises `CannotSpeak`."""
    tokenizer = Tokenizer(root / layout.TOKENIZER)
    voices = VoiceStore(None, hidden=weights.survey(root).gpt_shape.hidden).list()
    style = Style(speed=prompt.speed_tag(1.0))
    sentences: list[Sentence] = []
    for index, text in enumerate(texts):
        built = tokenizer.build(text, style=style)
        if len(text) > MAX_CHARS:
            raise CannotSpeak(f"text {index + 1} is longer than {MAX_CHARS} characters, a sentence's most")
        if built.text_tokens == 0:
            raise CannotSpeak(f"nothing in text {index + 1} can be said by ChatTTS")
        limit = min(steps, MAX_STEPS, STEPS_EXTRA + STEPS_PER_CHAR * len(text))
        sentences.append(Sentence(voices[index % len(voices)], built, _SEED + index, limit))
    return sentences


# --- the models ---


def _name(backend: Backend) -> str:
    return f"{backend.kind} {backend.precision}"


def _load(root: Path, backend: Backend, sentences: Sequence[Sentence]) -> LanguageModel:
    """The language model alone: ONNX Runtime reads the layers itself."""
    chosen = backend.choose(root)
    unused = (layout.DECODER, layout.DVAE, layout.VOCOS)
    checkpoint = weights.load(root, without=(*unused, layout.GPT) if chosen.kind == "onnx" else unused)
    longest = PROMPT_POSITIONS + max(sentence.limit for sentence in sentences)
    return backends.load(chosen, checkpoint, slots=min(ROWS, len(sentences)), max_positions=longest)


class _Ear:
    """The vocoder, and the sound of the reference's hidden states, which the others' are held against."""

    def __init__(self, root: Path, reference: Sequence[Take]) -> None:
        self._checkpoint = weights.load(root, without=(layout.GPT, layout.EMBED, layout.DVAE))
        self._vocoder = Vocoder.load(self._checkpoint.decoder, self._checkpoint.vocos)
        self._reference = reference
        self.expected = _decode(self._vocoder.decode, reference)

    def score(
        self, name: str, takes: Sequence[Take], *, model: Model | None, by: Decode | None = None
    ) -> Score:
        found = _decode(by or self._vocoder.decode, takes)
        return Score(
            name=name,
            model=model,
            mel_db=mel_distance(self.expected, found),
            snr_db=noise_ratio(self.expected, found),
            example=found[0].numpy(),
        )

    def score_int8(self, backend: Backend, forced: Sequence[Take]) -> list[Score]:
        """The vocoder in 8 bits: on the reference's states, and on those of the backend that it serves."""
        vocoder = backends.load_vocoder(backend, self._checkpoint, slots=1, steps="hidden")

        def decode(hidden: Tensor) -> Tensor:
            vocoder.reset(0)
            return torch.cat([*vocoder.feed([0], hidden[None]), vocoder.flush(0)])

        return [
            self.score("vocoder int8", self._reference, model=None, by=decode),
            self.score(f"{_name(backend)} + vocoder", forced, model=None, by=decode),
        ]


Decode = Callable[[Tensor], Tensor]
"""Hidden states [N, H] to samples."""


@torch.inference_mode()
def _decode(decode: Decode, takes: Sequence[Take]) -> list[Tensor]:
    return [decode(take.hidden) for take in takes]


class _Work:
    """How far the command is. A phase that ends early counts as whole."""

    def __init__(self, progress: Progress, phase: int, phases: int) -> None:
        self._progress = progress
        self._phase = phase
        self._total = phase * phases
        self._ended = 0
        self._done = 0

    def tick(self, rows: int) -> None:
        """So many rows made a step."""
        self._done = min(self._done + rows, self._ended + self._phase)
        self._progress(self._done, self._total)

    def end_phase(self) -> None:
        """All of its rows are over."""
        self._ended += self._phase
        self._done = self._ended
        self._progress(self._done, self._total)
