"""A sentence's prompt on its way into a slot's cache: the voice's part, the text, the codes resumed from.

Between `prompt` (token ids) and the decode steps of `model`. A prompt goes in piece by piece, so that the
streams that are speaking get their steps in between. The voice's part is a run of pieces of its own, from the
cache of prefixes where it is there: the same bits either way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from engine.chattts.backend import LanguageModel, Prefix
from engine.chattts.prompt import Prompt
from engine.chattts.voices import Voice

MAX_PREFIXES: Final = 64
"""Voices whose prefilled part is kept; the one not used for longest goes."""


class Prefixes:
    """The prefilled parts of voices, bounded: the one not used for longest goes."""

    def __init__(self, limit: int = MAX_PREFIXES) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Prefix] = OrderedDict()
        self.hits = 0
        self.misses = 0
        self.saved = 0
        """Positions that were copied and not computed."""

    def find(self, voice: str) -> Prefix | None:
        """The part of the voice with this digest."""
        found = self._kept.get(voice)
        if found is None:
            self.misses += 1
            return None
        self._kept.move_to_end(voice)
        self.hits += 1
        self.saved += found.length
        return found

    def keep(self, voice: str, prefix: Prefix) -> None:
        """Remember it."""
        self._kept[voice] = prefix
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)


class Prefill:
    """One prompt, which `step` takes into the cache. Made under `torch.inference_mode()`, like its steps."""

    def __init__(
        self,
        gpt: LanguageModel,
        prefixes: Prefixes,
        voice: Voice,
        prompt: Prompt,
        codes: Sequence[Sequence[int]],
    ) -> None:
        self._gpt = gpt
        self._prefixes = prefixes
        self._voice = voice.digest
        self._embeddings = embed(gpt, voice, prompt, codes)
        self._split = prompt.prefix
        self._resumed = len(codes)
        self._at = 0
        self._hidden: list[Tensor] = []

    def step(self, slot: int) -> bool:
        """One product's worth of the prompt; whether that was all."""
        if self._at == 0:
            self._gpt.reset(slot)
            if (prefix := self._prefixes.find(self._voice)) is not None:
                self._gpt.restore_prefix(slot, prefix)
                self._at = self._split
        end = self._split if self._at < self._split else len(self._embeddings)
        stop = min(end, self._at + self._gpt.chunk)
        hidden = self._gpt.prefill(slot, self._embeddings[self._at : stop], self._at)
        if self._at < self._split == stop:
            self._prefixes.keep(self._voice, self._gpt.save_prefix(slot, self._split))
        self._at = stop
        self._hidden.append(hidden)
        return stop == len(self._embeddings)

    @property
    def hidden(self) -> Tensor:
        """[H], which predicts the codes of the next step."""
        return self._hidden[-1][-1]

    @property
    def resumed(self) -> Tensor:
        """[n, H]: the states that predicted each of the n steps resumed from."""
        return torch.cat(self._hidden)[-self._resumed - 1 : -1]


def embed(gpt: LanguageModel, voice: Voice, prompt: Prompt, codes: Sequence[Sequence[int]]) -> Tensor:
    """Prompt [T, H]: text, the speaker over its token, a cloned voice's codes, the codes resumed from."""
    embeddings = gpt.embed_text(torch.tensor(prompt.ids))
    if voice.embedding is not None:
        assert prompt.speaker is not None
        speaker = voice.embedding.to(embeddings)
        embeddings[prompt.speaker] = functional.normalize(speaker, dim=0, eps=1e-12)
    parts = [embeddings]
    if voice.sample_codes is not None:
        parts.append(gpt.embed_codes(voice.sample_codes.T.long()))
    if codes:
        parts.append(gpt.embed_codes(torch.tensor(codes)))
    return torch.cat(parts)
