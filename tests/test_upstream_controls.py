"""The controls of `test_upstream_faults`: each fault, shown on upstream itself.

What fails here is mended there. The gain of the seventh is in upstream's tools, which the package has not.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests import upstream

pytestmark = upstream.needed

STEPS = 40


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return upstream.load(upstream.write_tiny(tmp_path_factory.mktemp("weights")))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """transformers warns of names that upstream uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def exactly(chat: Any, steps: int, **changes: Any) -> Any:
    """Parameters of a sentence of so many steps: random weights end at no good place."""
    return upstream.parameters(chat, min_new_token=steps, max_new_token=steps, **changes)


def infer(chat: Any, text: str | list[str], parameters: Any, **changes: Any) -> Any:
    return chat.infer(text, skip_refine_text=True, params_infer_code=parameters, **changes)


def test_1_upstream_leaks_the_first_voice(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the one default object of all calls."""
    defaults = type(chat).infer.__defaults__[-1]
    for name, value in {"min_new_token": STEPS, "max_new_token": STEPS, "show_tqdm": False}.items():
        monkeypatch.setattr(defaults, name, value)
    for name in ("spk_smp", "txt_smp"):
        monkeypatch.setattr(defaults, name, None)
    chat.infer(["你好", "一二三"], skip_refine_text=True)
    assert defaults.spk_smp is not None
    assert defaults.txt_smp == "你好"


def test_2_upstream_cancels_everybody(chat: Any) -> None:
    def stream(text: str) -> Iterator[Any]:
        parameters = exactly(chat, 400, stream_batch=8, pass_first_n_batches=0)
        found: Iterator[Any] = infer(chat, [text], parameters, stream=True, split_text=False)
        return found

    whole = sum(1 for _ in stream("你好"))
    first, second = stream("你好"), stream("一二三")
    next(first)
    next(second)
    chat.interrupt()  # meant for the first
    assert whole > 50
    assert sum(1 for _ in second) <= 3


def test_3_upstream_makes_the_first_sentence_twice(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    real = chat.gpt.generate

    def counted(emb: Any, inputs_ids: Any, *rest: Any, **named: Any) -> Any:
        rows.append(int(inputs_ids.shape[0]))
        return real(emb, inputs_ids, *rest, **named)

    monkeypatch.setattr(chat.gpt, "generate", counted)
    next(infer(chat, "一二三。四五六。", exactly(chat, 96), stream=True))
    assert rows == [1, 2], "the first alone and to its end, then both, before anything is heard"


def test_4_upstream_loses_the_start_of_the_second_group(chat: Any) -> None:
    steps = 96
    chunks = list(infer(chat, ["你好", "一二三"], exactly(chat, steps), stream=True, max_split_batch=1))
    lost = 2 * (512 * steps - 256) - sum(chunk.shape[-1] for chunk in chunks)
    assert lost >= 12_032


def test_5_upstream_begins_anew_without_end(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.multinomial

    def ended(weights: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        return torch.full_like(real(weights, *rest, **named), 625)

    monkeypatch.setattr(torch, "multinomial", ended)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        with pytest.raises(RecursionError):
            infer(chat, ["你好"], upstream.parameters(chat), split_text=False)
    finally:
        sys.setrecursionlimit(before)


def test_6_upstream_pads_short_rows(chat: Any) -> None:
    draw = torch.Generator().manual_seed(3)
    long, short = (torch.randn(steps, 32, generator=draw) for steps in (90, 40))
    together = chat._decode_to_wavs([long.clone(), short.clone()], True)
    alone = chat._decode_to_wavs([short.clone()], True)
    tail = slice(512 * 30, alone.shape[1])
    apart = np.abs(together[1, tail] - alone[0, tail]).max() / np.abs(alone).max()
    assert apart > 0.01


def test_7_upstream_deletes_silence(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = np.full((1, 3000), 0.5, np.float32)
    sound[0, 1000:2000] = 0.0
    monkeypatch.setattr(chat, "_decode_to_wavs", lambda hidden, use_decoder: sound.copy())
    (heard,) = infer(chat, ["你好"], exactly(chat, 4), split_text=False)
    assert len(heard) == 2000


def test_8_upstream_swallows_what_it_does_not_know(chat: Any) -> None:
    normal = type(chat)().normalizer
    assert normal("50% of it's? 3") == " of its "
    assert "rest" not in normal("one! [two the rest")


def test_9_upstream_counts_positions_in_half_precision(chat: Any) -> None:
    inputs = chat.gpt._GenerationInputs(
        position_ids=torch.arange(2047, 2053)[None],
        cache_position=torch.arange(2047, 2053),
        attention_mask=torch.ones(1, 6, dtype=torch.bool),
    )
    inputs.to(torch.device("cpu"), torch.float16)
    assert inputs.position_ids.dtype == torch.float16
    assert len(set(inputs.position_ids[0].tolist())) < 6
