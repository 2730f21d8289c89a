"""The reference engine: upstream ChatTTS behind `SpeechModel`, one sentence at a time, faults included.

For comparison, and for those who want upstream's exact sound. It streams as upstream does: nothing for 72
steps, then 24 steps a chunk. What crosses requests upstream is kept out: parameters are new for each
sentence, and there is one slot, so that its one flag for interruption can meet one stream only.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.chattts import prompt, speaker, weights
from engine.chattts.voices import Voice, VoiceStore
from engine.errors import BadAudio, Busy, CannotSpeak, UnknownVoice
from engine.model import ModelSpec, Output
from engine.upstream import package
from engine.wire import Parameters, Span
from engine.wire import Voice as Listed

RATE: Final = 24_000
MAX_CHARS: Final = 80
MAX_STEPS: Final = 1024
STEP_LIMIT_S: Final = 300.0
"""The first call makes 72 steps; slow cores take over a second for one."""
_TAGS: Final = re.compile(r"(\[(?:uv_break|lbreak|laugh)\])")
_EMPTY: Final = np.zeros(0, np.int16)


class UpstreamModel:
    """See the module. Raises `ModelMissing` where the package or the weights are not there."""

    def __init__(self, root: Path, *, voices: Path | None = None) -> None:
        self._chat = package.load(root)
        header = weights.survey(root)
        self._voices = VoiceStore(voices, hidden=header.gpt_shape.hidden)
        self._open: tuple[Voice, Parameters, int] | None = None
        self._sentence: Iterator[NDArray[np.float32]] | None = None
        self._samples = 0
        listed = self._voices.list()
        self.spec = ModelSpec(
            name="chattts-upstream",
            sample_rate=RATE,
            slots=1,
            max_batch=1,
            max_steps=MAX_STEPS,
            max_chars=MAX_CHARS,
            voices=tuple(Listed(voice.id, voice.name, ("zh", "en")) for voice in listed),
            default_voice=listed[0].id,
        )

    def warm_up(self) -> tuple[float, ...]:
        """Twice, since the first call compiles upstream's text rules; seconds a step of the second."""
        spent = 0.0
        for _ in range(2):
            began = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _pcm in self._speak("hello", self._voices.list()[0], Parameters(), 0, steps=8):
                    pass
            spent = time.monotonic() - began
        return (spent / 8,)

    def open(self, slot: int, voice: str, parameters: Parameters, seed: int) -> None:
        """Give the one slot to an utterance."""
        if slot != 0:
            raise Busy("the reference engine speaks one utterance at a time")
        stored = self._voices.find(voice)
        if stored is None:
            raise UnknownVoice("ChatTTS has no such voice here")
        self._open = (stored, parameters, seed)

    def begin(self, slot: int, spans: Sequence[Span], *, number: int = 0, resume: bytes = b"") -> bool:
        """Start a sentence."""
        assert self._open is not None
        voice, parameters, seed = self._open
        text = harmless("".join(span.text for span in spans)[:MAX_CHARS], tags=parameters.tags)
        if not self._chat.normalizer(text).strip(" ，。、,."):
            raise CannotSpeak("nothing in it is left by upstream's text rules")
        self._sentence = self._speak(text, voice, parameters, seed, steps=None)
        self._samples = 0
        return False

    def prefill(self, slot: int) -> bool:
        """Nothing to do."""
        return True

    def step(self, slots: Sequence[int]) -> list[Output]:
        """The next chunk that upstream yields."""
        assert list(slots) == [0]
        assert self._sentence is not None
        # transformers warns of names that upstream uses. What upstream raises is the step loop's to catch.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chunk = next(self._sentence, None)
        if chunk is not None and not np.isfinite(chunk).all():
            return [Output(slot=0, pcm=_EMPTY, error=BadAudio("the ChatTTS package made no sound but NaN"))]
        if chunk is None:
            # Less one step: upstream deletes near-silent samples of the last chunk.
            truncated = self._samples >= 512 * (MAX_STEPS - 1)
            return [Output(slot=0, pcm=_EMPTY, finished=True, truncated=truncated)]
        self._samples += len(chunk)
        return [Output(slot=0, pcm=(np.clip(chunk, -1, 1) * 32767).astype(np.int16))]

    def step_limit_s(self, slots: Sequence[int]) -> float:
        """A chunk is many steps, and upstream promises nothing."""
        return STEP_LIMIT_S

    def close(self, slot: int) -> None:
        """Forget the utterance."""
        self._open = None
        self._sentence = None

    def interrupt(self, slot: int) -> None:
        """Upstream's flag, which it looks at after each step and clears when it starts."""
        self._chat.interrupt()

    def figures(self) -> dict[str, float]:
        """None."""
        return {}

    def _speak(
        self, text: str, voice: Voice, parameters: Parameters, seed: int, steps: int | None
    ) -> Iterator[NDArray[np.float32]]:
        """Chunks of samples; of exactly `steps` steps where these are given."""
        given = {
            "temperature": parameters.temperature,
            "top_P": parameters.top_p,
            "top_K": parameters.top_k,
            "min_new_token": steps,
        }
        codes, embedding = voice.sample_codes, voice.embedding
        chosen = self._chat.InferCodeParams(
            prompt=style(parameters),
            spk_emb=None if embedding is None else speaker.encode_embedding(embedding.numpy()),
            spk_smp=None if codes is None else speaker.encode_codes(codes.numpy()),
            txt_smp=voice.sample_text,
            manual_seed=seed,
            max_new_token=steps or MAX_STEPS,
            show_tqdm=False,
            **{name: value for name, value in given.items() if value is not None},
        )
        chunks: Iterator[Any] = self._chat.infer(
            [text], stream=True, skip_refine_text=True, split_text=False, params_infer_code=chosen
        )
        for chunk in chunks:
            yield np.asarray(chunk, np.float32).reshape(-1)


def harmless(text: str, *, tags: bool) -> str:
    """The text without brackets, which make upstream's own tokens; those of three tags stay if asked."""
    parts = _TAGS.split(text) if tags else [text]
    # Split keeps what it splits at, in every second place.
    return "".join(part if at % 2 else re.sub(r"[\[\]]", " ", part) for at, part in enumerate(parts))


def style(parameters: Parameters) -> str:
    """Upstream's tags for the way to speak."""
    speed = prompt.speed_tag(parameters.speed)
    given = prompt.Style(speed=speed, oral=parameters.oral, laugh=parameters.laugh, pause=parameters.pause)
    return "".join(given.tokens())
