"""Ids, hidden states and codes against the ChatTTS package itself, on the same tiny random checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.chattts import prompt, sampler, weights
from engine.chattts.gpt import Gpt
from engine.chattts.weights import Checkpoint
from tests import upstream

pytestmark = upstream.needed

STEPS = 64
TEXTS = (
    "你好，世界。",
    "Hello world, is it THE year 2026? café naïve",
    "混合 mixed 文本 text，the end！",
    "x" * 120 + " ~`@#$%^&*()-=+\\|;:'\"<>/",
    " 　spaces\t and\nlines ",
    "😀 emoji 𠮷",
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return upstream.write_tiny(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def chat(root: Path) -> Any:
    return upstream.load(root)


@pytest.fixture(scope="module")
def checkpoint(root: Path) -> Checkpoint:
    return weights.load(root)


@pytest.fixture
def gpt(checkpoint: Checkpoint) -> Gpt:
    return Gpt(checkpoint, slots=2, max_positions=512)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> prompt.Tokenizer:
    return prompt.Tokenizer(checkpoint.tokenizer)


def upstream_ids(chat: Any, text: str) -> list[int]:
    ids, _, _ = chat.tokenizer.encode([text], 4, device=torch.device("cpu"))
    found: list[int] = ids[0, :, 0].tolist()
    return found


def settings(temperature: float) -> sampler.Parameters:
    return sampler.Parameters(
        temperature=torch.tensor([temperature]),
        top_p=torch.tensor([0.7]),
        top_k=torch.tensor([20]),
        penalty=torch.tensor([1.05]),
        min_steps=torch.tensor([STEPS]),
    )


def recent(codes: list[Tensor]) -> Tensor:
    history = torch.full((1, sampler.HISTORY, 4), sampler.PAD)
    for place, code in enumerate(codes[-sampler.HISTORY :]):
        history[0, place] = code
    return history


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("speaker", [True, False])
def test_token_ids_are_equal(chat: Any, tokenizer: prompt.Tokenizer, text: str, speaker: bool) -> None:
    style = prompt.Style(speed=5, oral=2, laugh=0, pause=6)
    built = tokenizer.build(text, style=style, speaker=speaker, sample_text="so said the clip")
    whole = (
        f"[Stts][{'spk_emb' if speaker else 'empty_spk'}]so said the clip"
        f"[speed_5][oral_2][laugh_0][break_6]{text}[Ptts]"
    )
    assert list(built.ids) == upstream_ids(chat, whole)


def test_tags_and_refine_ids_are_equal(chat: Any, tokenizer: prompt.Tokenizer) -> None:
    text = "hello[uv_break]the[laugh] world [lbreak]"
    built = tokenizer.build(text, tags=True, style=prompt.Style(speed=5))
    assert list(built.ids) == upstream_ids(chat, f"[Stts][spk_emb][speed_5]{text}[Ptts]")
    refined = tokenizer.build_refine("hello the world", style=prompt.Style(oral=2, laugh=0, pause=4))
    expected = upstream_ids(chat, "[Sbreak]hello the world[Pbreak][oral_2][laugh_0][break_4]")
    assert list(refined.ids) == expected


def test_hidden_states_and_codes_at_the_least_temperature(
    chat: Any, gpt: Gpt, tokenizer: prompt.Tokenizer
) -> None:
    """Ours goes its own way, step by step on its own codes."""
    text = TEXTS[1]
    codes, hidden = upstream.generate(chat, text, STEPS, prompt="[speed_5]")
    ids = tokenizer.build(text, style=prompt.Style(speed=5), speaker=False).ids
    state = gpt.prefill(0, gpt.embed_text(torch.tensor(ids)), 0)[-1:]
    taken: list[Tensor] = []
    for step in range(STEPS):
        error = (state[0] - hidden[step]).abs().max() / hidden[step].abs().max()
        assert float(error) < 1e-4
        at = torch.tensor([step])
        drawn = sampler.draw(gpt.code_logits(state), recent(taken), settings(1e-6), torch.tensor([1]), at)
        taken.append(drawn[0])
        state = gpt.decode(torch.tensor([0]), gpt.embed_codes(drawn))
    assert torch.equal(torch.stack(taken), codes)
    assert len(set(codes.flatten().tolist())) > 8


def test_codes_at_the_defaults_with_upstreams_own_draws(
    chat: Any, gpt: Gpt, tokenizer: prompt.Tokenizer
) -> None:
    """Upstream draws by `multinomial` from a generator seeded anew at each step; so do we here, from ours."""
    codes, _ = upstream.generate(
        chat, TEXTS[0], STEPS, prompt="[speed_5]", temperature=0.3, manual_seed=11, ensure_non_empty=False
    )
    ids = tokenizer.build(TEXTS[0], style=prompt.Style(speed=5), speaker=False).ids
    state = gpt.prefill(0, gpt.embed_text(torch.tensor(ids)), 0)[-1:]
    taken: list[Tensor] = []
    for step in range(STEPS):
        chances = sampler.probabilities(
            gpt.code_logits(state), recent(taken), settings(0.3), torch.tensor([step])
        )
        generator = torch.Generator().manual_seed(11)
        drawn = torch.multinomial(chances[0], 1, generator=generator)[:, 0]
        taken.append(drawn)
        state = gpt.decode(torch.tensor([0]), gpt.embed_codes(drawn[None]))
    found = torch.stack(taken)
    assert torch.equal(found, codes)
    assert len(set(codes.flatten().tolist())) > 8
