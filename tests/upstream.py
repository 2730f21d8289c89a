"""The ChatTTS package as the oracle of the parity tests, over a tiny random checkpoint. Import it anywhere:
the package itself is loaded on the first call only, and `needed` skips where it is not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.chattts.prompt import Tokenizer

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


# What people write, marks of upstream's own among it; fault 8 is told by these.
SAID = ("3", "50%", "what?", "it's", "a [b c", "a ] b", "[ 一", "[laugh]", "[Ptts] a", "1,5", "a-b")
SPECIAL = ("[Ptts]", "[laugh]", "[Stts]", "[spk_emb]", "[uv_break]")


def complaints(text: str, ids: list[int], path: Path) -> list[str]:
    """What is wrong with `ids` as those of "一 {text} 二": none where every piece of it became a token.

    Only tokens that begin a piece count, as one word may take many. `path` is that of `tokenizer.json`.
    """
    tokenizer = Tokenizer(path)
    vocabulary = json.loads(path.read_text("utf-8"))["model"]["vocab"]
    inner = {number for name, number in vocabulary.items() if name.startswith("##")}
    found: list[str] = []
    if ids[0] != tokenizer.encode("一")[0] or ids[-1] != tokenizer.encode("二")[0]:
        found.append("an end is missing")
    if sum(number not in inner for number in ids[1:-1]) < sum(map(len, map(split_marks, text.split()))):
        found.append("a piece is missing")
    if {tokenizer.special(name) for name in SPECIAL} & set(ids):
        found.append("a special token")
    return found


def split_marks(word: str) -> list[str]:
    """Runs of letters and digits, and single marks, as WordPiece cuts them."""
    pieces: list[str] = []
    for character in word:
        if character.isalnum() and pieces and pieces[-1].isalnum():
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces
