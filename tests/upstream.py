"""The ChatTTS package as the oracle of the parity tests, over a tiny random checkpoint. Import it anywhere:
the package itself is loaded on the first call only, and `needed` skips where it is not installed."""

from __future__ import annotations

import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

# Upstream compiles its text rules, which takes longer than running them as they are.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

PRESENT = importlib.util.find_spec("ChatTTS") is not None
needed = pytest.mark.skipif(
    not PRESENT, reason="the ChatTTS package is not installed (requirements-upstream.txt)"
)


def write_tiny(root: Path, seed: int = 7) -> Path:
    """A tiny random checkpoint; returns `root`."""
    from engine.chattts import random_weights

    random_weights.write(root, size="tiny", seed=seed)
    return root


def load(root: Path) -> Any:
    """Upstream's `Chat`, loaded, on the CPU in fp32."""
    from engine.upstream import package

    torch.set_num_threads(1)
    return package.load(root)


def parameters(chat: Any, **changes: Any) -> Any:
    """`InferCodeParams` of a call that shows no progress bar."""
    return chat.InferCodeParams(show_tqdm=False, **changes)


def generate(chat: Any, text: str, steps: int, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [steps, 4] and the hidden states [steps, H] that predicted them, of exactly so many steps.

    `text` goes to the tokenizer as it is. At the default temperature no draw is left to chance.
    """
    changes = {"temperature": 1e-6, **changes}
    chosen = parameters(chat, min_new_token=steps, max_new_token=steps, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers, of names that upstream uses
        [result] = list(chat._infer_code([text], False, torch.device("cpu"), True, chosen))
    return result.ids[0].clone(), result.hiddens[0].clone()
