"""Logits to codes, a row a stream: ChatTTS's order of warpers, and draws that a counter decides.

Between `gpt` (whose logits come in) and `model` (which accepts the codes). Every operation works along the
last axis or element by element, so that a row's codes never depend on its neighbours. Imports torch alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

HISTORY: Final = 16
"""Steps that the repetition penalty looks back."""
KEEP: Final = 3
"""Codes that top-P and top-K each leave at least."""
EOS: Final = 625
"""Code that ends a row."""
PAD: Final = -1
"""In a history: there was no such step."""

# splitmix64: its increment and the two multipliers of its finaliser, as int64, whose products wrap.
_GAMMA: Final = 0x9E37_79B9_7F4A_7C15 - (1 << 64)
_MULTIPLY_1: Final = 0xBF58_476D_1CE4_E5B9 - (1 << 64)
_MULTIPLY_2: Final = 0x94D0_49BB_1331_11EB - (1 << 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How each row samples; every tensor is [B].

    `temperature` > 0; `top_p` in (0, 1]; `top_k` >= 1, and under `KEEP` it counts as `KEEP`; `penalty` > 0,
    and 1 is none; `min_steps`: the steps before which a row cannot end.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    penalty: Tensor
    min_steps: Tensor


def draw(
    logits: Tensor, history: Tensor, parameters: Parameters, seeds: Tensor, steps: Tensor, *, eos: int = EOS
) -> Tensor:
    """Codes [B, C] for logits [B, C, V], where C is the number of codebooks.

    `history` [B, n, C]: the last `HISTORY` codes, `PAD` where there was none. `seeds`, `steps`: int64 [B].
    A row of NaN gives codes without meaning, in range; the other rows keep theirs.
    """
    weights = probabilities(logits, history, parameters, steps, eos=eos)
    return pick(weights, uniform(seeds, steps, logits.shape[1]))


def probabilities(
    logits: Tensor, history: Tensor, parameters: Parameters, steps: Tensor, *, eos: int = EOS
) -> Tensor:
    """What `draw` draws from, [B, C, V]; 0 for what the warpers removed."""
    scores = logits / _wide(parameters.temperature, logits)
    scores = _penalise(scores, history, _wide(parameters.penalty, logits))
    scores = _truncate(scores, _wide(parameters.top_p, logits), parameters.top_k)
    early = (steps < parameters.min_steps).to(scores.device)
    ends = torch.arange(scores.shape[-1], device=scores.device) == eos
    return scores.masked_fill(early[:, None, None] & ends, -torch.inf).softmax(-1)


def pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The code at which the running sum of `weights` [B, C, V] passes `uniforms` [B, C] of the whole."""
    running = weights.double().cumsum(-1)
    target = uniforms.to(running.device) * running[..., -1]
    chosen = (running <= target[..., None]).sum(-1)
    # The product may round up to the whole sum, past the last code that can be drawn.
    places = torch.arange(weights.shape[-1], device=weights.device)
    last = torch.where(weights > 0, places, 0).amax(-1)
    return torch.minimum(chosen, last)


def uniform(seeds: Tensor, steps: Tensor, codebooks: int = 4) -> Tensor:
    """Numbers in [0, 1), float64 [B, codebooks], each a function of (seed, step, codebook) alone."""
    state = _mix(_mix(seeds + _GAMMA) + steps * _GAMMA)
    books = torch.arange(1, codebooks + 1, device=state.device)
    bits = _mix(state[:, None] + books * _GAMMA)
    # 53 bits are what a float64 holds, so the largest is 1 - 2^-53 and nothing rounds to 1.
    return _shift(bits, 11).double() * 2.0**-53


# --- warpers --------------------------------------------------------------------------------------------


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like)[:, None, None]


def _penalise(scores: Tensor, history: Tensor, penalty: Tensor) -> Tensor:
    """Divide a positive score, multiply a negative one, by the penalty for each time its code was taken."""
    seen = history[:, -HISTORY:].transpose(1, 2).to(scores.device)
    counts = torch.zeros_like(scores).scatter_add_(-1, seen.clamp_min(0), (seen >= 0).to(scores))
    factor = penalty.pow(counts)
    return torch.where(scores < 0, scores * factor, scores / factor)


def _truncate(scores: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Top-P, then top-K of what it left; removed scores become -inf."""
    size = scores.shape[-1]
    kept = min(KEEP, size)
    count = top_k.to(scores.device).clamp(kept, size)[:, None, None]
    # Where asking would wait for a GPU, all are sorted.
    most = int(count.max()) if scores.device.type == "cpu" else size
    best, order = scores.topk(most, dim=-1)
    likely = (best - scores.logsumexp(-1, keepdim=True)).exp()
    before = likely.cumsum(-1) - likely
    places = torch.arange(most, device=scores.device)
    # A sum of all but the last may round up to 1.
    removed = ((before >= top_p) & (top_p < 1) & (places >= kept)) | (places >= count)
    return torch.full_like(scores, -torch.inf).scatter_(-1, order, best.masked_fill(removed, -torch.inf))


# --- 64-bit hash ----------------------------------------------------------------------------------------


def _shift(value: Tensor, bits: int) -> Tensor:
    """Shift right without the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _MULTIPLY_1
    value = (value ^ _shift(value, 27)) * _MULTIPLY_2
    return value ^ _shift(value, 31)
