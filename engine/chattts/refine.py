"""The optional pass before a sentence: the model writes breaks, laughs and fillers into the text itself.

Before `prefill`, whose prompt it makes, in the same slot. A few tokens a call, so that others are not kept
waiting. Off unless the request asks: it takes as long again as the text is.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from engine.chattts import sampler
from engine.chattts.backend import LanguageModel
from engine.chattts.prompt import Style, Tokenizer

TOKENS_A_STEP: Final = 4
_GROWTH: Final = 2
_EXTRA: Final = 16
"""A refined text has at most this many tokens more than `_GROWTH` times those of the text."""
_TEMPERATURE: Final = 0.7
_TOP_P: Final = 0.7
_TOP_K: Final = 20


class Refine:
    """One text's pass. Use under `torch.inference_mode()`."""

    def __init__(self, gpt: LanguageModel, tokenizer: Tokenizer, text: str, style: Style, seed: int) -> None:
        self._gpt = gpt
        self._tokenizer = tokenizer
        self._said = tokenizer.encode(text)
        built = tokenizer.build_refine(text, style=style)
        self._embeddings = gpt.embed_text(torch.tensor(built.ids))
        self._limit = _GROWTH * len(self._said) + _EXTRA
        self._end = tokenizer.special("[Ebreak]")
        self._seed = seed
        self._at = 0
        self._ids: list[int] = []
        self._hidden: Tensor | None = None

    def step(self, slot: int) -> bool:
        """A product's worth of the prompt, or a few tokens; whether the pass is over."""
        if self._at < len(self._embeddings):
            if self._at == 0:
                self._gpt.reset(slot)
            stop = min(len(self._embeddings), self._at + self._gpt.chunk)
            self._hidden = self._gpt.prefill(slot, self._embeddings[self._at : stop], self._at)[-1]
            self._at = stop
            return False
        return any(self._draw(slot) for _ in range(TOKENS_A_STEP))

    @property
    def ids(self) -> list[int]:
        """The text's ids as the pass left them; where it left none, as they were."""
        return self._tokenizer.refined(self._ids) or self._said

    def _draw(self, slot: int) -> bool:
        assert self._hidden is not None
        logits = self._gpt.text_logits(self._hidden[None])[:, None]
        drawn = sampler.draw(
            logits,
            torch.full((1, 1, 1), sampler.PAD),
            sampler.Parameters(
                temperature=torch.tensor([_TEMPERATURE]),
                top_p=torch.tensor([_TOP_P]),
                top_k=torch.tensor([_TOP_K]),
                penalty=torch.tensor([1.0]),
                min_steps=torch.tensor([0]),
            ),
            torch.tensor([self._seed]),
            torch.tensor([len(self._ids)]),
            eos=self._end,
        )
        token = int(drawn)
        if token == self._end or len(self._ids) >= self._limit:
            return True
        self._ids.append(token)
        self._hidden = self._gpt.decode(torch.tensor([slot]), self._gpt.embed_text(drawn[0]))[0]
        return False
