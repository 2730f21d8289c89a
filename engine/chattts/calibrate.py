"""What keys and values the model makes when it speaks: the ranges that an 8-bit cache must hold.

For `quantise`. The model says a few sentences in fp32, by its own draws, as it will when it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from engine.chattts import sampler, weights
from engine.chattts.gpt import Gpt, Prefix
from engine.chattts.onnx_graph import Ranges
from engine.chattts.prefill import embed
from engine.chattts.prompt import Style, Tokenizer
from engine.chattts.voices import VoiceStore

TEXTS: Final = (
    "你好，今天天气很好，我们一起去公园走走吧。",
    "会议在下午两点半开始，请大家提前十分钟到场。",
    "Hello there, how are you doing today?",
    "The quick brown fox jumps over the lazy dog.",
)
STEPS: Final = 64
MARGIN: Final = 1.25
"""Of the range over the largest that was seen; what is larger still is cut."""


@torch.inference_mode()
def ranges(
    root: Path, texts: Sequence[str] = TEXTS, *, progress: Callable[[int], None] = lambda done: None
) -> Ranges:
    """Of the folder's weights, with each text in a voice of its own. `progress`: of `STEPS`. Raises
    `WeightsError`."""
    checkpoint = weights.load(root)
    tokenizer = Tokenizer(checkpoint.tokenizer)
    gpt = Gpt(checkpoint, slots=len(texts), max_positions=256)
    voices = VoiceStore(None, hidden=checkpoint.gpt_shape.hidden).list()
    states: list[torch.Tensor] = []
    for slot, text in enumerate(texts):
        prompt = tokenizer.build(text, style=Style(speed=5))
        states.append(gpt.prefill(slot, embed(gpt, voices[slot % len(voices)], prompt, ()), 0)[-1])
    slots = torch.arange(len(texts))
    hidden = torch.stack(states)
    codes = torch.full((len(texts), sampler.HISTORY, 4), sampler.PAD)
    settings = sampler.Parameters(
        temperature=torch.full((len(texts),), 0.3),
        top_p=torch.full((len(texts),), 0.7),
        top_k=torch.full((len(texts),), 20),
        penalty=torch.full((len(texts),), 1.05),
        min_steps=torch.full((len(texts),), STEPS),
    )
    for step in range(STEPS):
        drawn = sampler.draw(gpt.code_logits(hidden), codes, settings, slots, torch.full_like(slots, step))
        codes = torch.cat((codes[:, 1:], drawn[:, None]), 1)
        hidden = gpt.decode(slots, gpt.embed_codes(drawn))
        progress(step + 1)
    return _largest([gpt.save_prefix(slot, int(gpt.lengths[slot])) for slot in slots.tolist()])


def _largest(caches: Sequence[Prefix]) -> Ranges:
    keys = torch.stack([cache.keys.abs().amax(2) for cache in caches]).amax(0)
    values = torch.stack([cache.values.abs().amax(2) for cache in caches]).amax(0)
    # A channel and the one half a head away turn into each other with the position.
    turned = torch.maximum(keys, keys.roll(keys.shape[-1] // 2, -1))
    return Ranges((turned * MARGIN).numpy(), (values * MARGIN).numpy())
