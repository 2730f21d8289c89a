"""Drive one language model through a quality report's sentences: speak them, or follow codes that are given.

Between `quality`, which loads the model, and `quality_score`, which compares what comes out. As `model` does,
but without sound, and with every step's distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from engine.chattts import sampler
from engine.chattts.backend import LanguageModel
from engine.chattts.embed import CODEBOOKS, ROWS
from engine.chattts.prefill import Prefill, Prefixes
from engine.chattts.prompt import Prompt
from engine.chattts.quality_score import Take
from engine.chattts.row import EOS, Settings
from engine.chattts.voices import Voice
from engine.errors import BadAudio

SETTINGS: Final = Settings(min_steps=1)
"""The defaults; the engine, too, draws anew where a sentence would end before it began."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """What is said, and all that decides how."""

    voice: Voice
    prompt: Prompt
    seed: int
    limit: int
    """Steps."""


@dataclass(slots=True)
class _Row:
    """A sentence under way."""

    slot: int
    sentence: Sentence
    given: Tensor | None
    """[N, 4]: the codes to take, in place of those drawn."""
    state: Tensor
    """[H], which predicts the codes of the next step."""
    codes: list[Tensor] = field(default_factory=list)
    drawn: list[Tensor] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    logs: list[Tensor] = field(default_factory=list)
    ended: bool = False

    def over(self) -> bool:
        limit = self.sentence.limit if self.given is None else len(self.given)
        return self.ended or len(self.codes) >= limit

    def accept(self, drawn: Tensor, logits: Tensor) -> Tensor | None:
        """Take the codes of this step [4]; none where the sentence is over instead."""
        taken = drawn if self.given is None else self.given[len(self.codes)]
        if bool((taken == EOS).any()):
            self.ended = True
            return None
        self.codes.append(taken)
        self.drawn.append(drawn)
        self.hidden.append(self.state.float().cpu())
        self.logs.append((logits / SETTINGS.temperature).log_softmax(-1))
        return taken

    def take(self) -> Take:
        codes, drawn, hidden, logs = map(torch.stack, (self.codes, self.drawn, self.hidden, self.logs))
        return Take(codes, drawn, hidden, logs, self.ended)


@torch.inference_mode()
def follow(
    gpt: LanguageModel,
    sentences: Sequence[Sentence],
    reference: Sequence[Take] | None = None,
    *,
    name: str,
    tick: Callable[[int], None] = lambda rows: None,
) -> list[Take]:
    """Speak them, each with its own seed; or follow the codes of `reference`. `tick` gets the rows of every
    step. Raises `BadAudio`."""
    takes: list[Take] = []
    prefixes = Prefixes()
    for at in range(0, len(sentences), ROWS):
        rows: list[_Row] = []
        for slot, sentence in enumerate(sentences[at : at + ROWS]):
            given = None if reference is None else reference[at + slot].codes
            rows.append(_Row(slot, sentence, given, _prefill(gpt, prefixes, slot, sentence)))
        step = 0
        while going := [row for row in rows if not row.over()]:
            _advance(gpt, going, step, name)
            tick(len(going))
            step += 1
        takes += [row.take() for row in rows]
    return takes


def _prefill(gpt: LanguageModel, prefixes: Prefixes, slot: int, sentence: Sentence) -> Tensor:
    prefill = Prefill(gpt, prefixes, sentence.voice, sentence.prompt, [])
    while not prefill.step(slot):
        pass
    return prefill.hidden


def _advance(gpt: LanguageModel, rows: Sequence[_Row], step: int, name: str) -> None:
    """One step of all rows, which are at the same step."""
    # On the CPU and in fp32 whatever computed them: the backend is compared, not its arithmetic of draws.
    logits = gpt.code_logits(torch.stack([row.state for row in rows])).float().cpu()
    if not torch.isfinite(logits).all():
        raise BadAudio(f"{name} made no number at step {step}")
    drawn = _draw(rows, logits, step)
    taken = [row.accept(drawn[index], logits[index]) for index, row in enumerate(rows)]
    going = [(row, codes) for row, codes in zip(rows, taken, strict=True) if codes is not None]
    if not going:
        return
    slots = torch.tensor([row.slot for row, _ in going])
    following = gpt.decode(slots, gpt.embed_codes(torch.stack([codes for _, codes in going])))
    for (row, _), state in zip(going, following, strict=True):
        row.state = state


def _draw(rows: Sequence[_Row], logits: Tensor, step: int) -> Tensor:
    """Codes [B, 4] by the default settings."""
    count = len(rows)
    history = torch.full((count, sampler.HISTORY, CODEBOOKS), sampler.PAD)
    for index, row in enumerate(rows):
        if recent := row.codes[-sampler.HISTORY :]:
            history[index, -len(recent) :] = torch.stack(recent)
    parameters = sampler.Parameters(
        temperature=torch.full((count,), SETTINGS.temperature),
        top_p=torch.full((count,), SETTINGS.top_p),
        top_k=torch.full((count,), SETTINGS.top_k),
        penalty=torch.full((count,), SETTINGS.penalty),
        min_steps=torch.full((count,), SETTINGS.min_steps),
    )
    seeds = torch.tensor([row.sentence.seed for row in rows])
    return sampler.draw(logits, history, parameters, seeds, torch.full((count,), step))
