"""The sampler against a slow reference of ChatTTS's rules, and its counter-based draws."""

from __future__ import annotations

import math

import pytest
import torch

from engine.chattts import sampler
from engine.chattts.sampler import EOS, HISTORY, PAD, Parameters

V = 626


def parameters(
    rows: int,
    *,
    temperature: float = 0.3,
    top_p: float = 0.7,
    top_k: int = 20,
    penalty: float = 1.05,
    min_steps: int = 0,
) -> Parameters:
    return Parameters(
        temperature=torch.full((rows,), temperature, dtype=torch.float64),
        top_p=torch.full((rows,), top_p, dtype=torch.float64),
        top_k=torch.full((rows,), top_k),
        penalty=torch.full((rows,), penalty, dtype=torch.float64),
        min_steps=torch.full((rows,), min_steps),
    )


def random_logits(rows: int, seed: int, scale: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, 4, V, generator=generator, dtype=torch.float64)


def reference(
    logits: list[float],
    past: list[int],
    *,
    temperature: float,
    top_p: float,
    top_k: int,
    penalty: float,
    may_end: bool,
) -> dict[int, float]:
    """One codebook of one row, in plain Python: the codes that may be drawn, and their probabilities."""
    scores = [value / temperature for value in logits]
    for code in past[-HISTORY:]:
        scores[code] = scores[code] * penalty if scores[code] < 0 else scores[code] / penalty
    best = sorted(range(len(scores)), key=lambda code: scores[code], reverse=True)
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    nucleus: list[int] = []
    mass = 0.0
    for code in best:
        # It stays while those before it have less than top_p, and the first three always do.
        if len(nucleus) >= 3 and mass >= top_p < 1:
            break
        nucleus.append(code)
        mass += weights[code] / total
    kept = [code for code in nucleus[: max(3, top_k)] if may_end or code != EOS]
    mass = math.fsum(weights[code] for code in kept)
    return {code: weights[code] / mass for code in kept}


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 20), (0.7, 5), (0.05, 1), (1.0, 626), (0.95, 40)])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_probabilities_follow_the_order_of_warpers(top_p: float, top_k: int, temperature: float) -> None:
    rows = 3
    logits = random_logits(rows, 1)
    history = torch.randint(0, 625, (rows, HISTORY, 4), generator=torch.Generator().manual_seed(2))
    # The penalty counts how often, so some codes come many times, and the best ones among them.
    history[:, 8:] = logits.argmax(-1)[:, None]
    history[1, :14] = PAD
    logits[2, :, EOS] = 50.0
    settings = parameters(rows, temperature=temperature, top_p=top_p, top_k=top_k, penalty=1.3, min_steps=5)
    found = sampler.probabilities(logits, history, settings, torch.tensor([9, 4, 4]))
    for row in range(rows):
        for book in range(4):
            expected = torch.zeros(V, dtype=torch.float64)
            past = [code for code in history[row, :, book].tolist() if code != PAD]
            options = reference(
                logits[row, book].tolist(),
                past,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                penalty=1.3,
                may_end=row == 0,
            )
            for code, probability in options.items():
                expected[code] = probability
            torch.testing.assert_close(found[row, book], expected, atol=1e-10, rtol=0)


def test_only_the_last_steps_are_penalised() -> None:
    logits = random_logits(1, 3)
    recent = torch.randint(0, 625, (1, HISTORY, 4), generator=torch.Generator().manual_seed(4))
    older = logits.argmax(-1)[:, None].expand(1, 5, 4)
    settings = parameters(1, penalty=2.0)
    steps = torch.tensor([30])
    alone = sampler.probabilities(logits, recent, settings, steps)
    assert torch.equal(alone, sampler.probabilities(logits, torch.cat([older, recent], 1), settings, steps))
    assert not torch.equal(
        alone, sampler.probabilities(logits, torch.cat([recent, older], 1), settings, steps)
    )


def test_the_least_temperature_takes_the_best() -> None:
    logits = random_logits(8, 5).float()
    history = torch.full((8, HISTORY, 4), PAD)
    codes = sampler.draw(
        logits, history, parameters(8, temperature=1e-6, penalty=1.0), torch.arange(8), torch.arange(8)
    )
    assert torch.equal(codes, logits.argmax(-1))


def test_rows_do_not_depend_on_the_batch() -> None:
    logits = random_logits(8, 6).float()
    history = torch.randint(-1, 625, (8, HISTORY, 4), generator=torch.Generator().manual_seed(7))
    mixed = Parameters(
        temperature=torch.linspace(0.2, 1.0, 8),
        top_p=torch.linspace(0.5, 1.0, 8),
        top_k=torch.arange(1, 9) * 7,
        penalty=torch.linspace(1.0, 1.5, 8),
        min_steps=torch.arange(8) * 4,
    )
    seeds, steps = torch.arange(8) * 1_000_003, torch.arange(8) * 5
    together = sampler.draw(logits, history, mixed, seeds, steps)
    for row in range(8):
        one = slice(row, row + 1)
        own = Parameters(
            temperature=mixed.temperature[one],
            top_p=mixed.top_p[one],
            top_k=mixed.top_k[one],
            penalty=mixed.penalty[one],
            min_steps=mixed.min_steps[one],
        )
        alone = sampler.draw(logits[one], history[one], own, seeds[one], steps[one])
        assert torch.equal(alone[0], together[row])


def test_a_row_of_nan_stays_in_range_and_alone() -> None:
    logits = random_logits(2, 8)
    history = torch.full((2, HISTORY, 4), PAD)
    arguments = (history, parameters(2), torch.tensor([1, 2]), torch.tensor([0, 0]))
    healthy = sampler.draw(logits, *arguments)
    logits[0] = torch.nan
    codes = sampler.draw(logits, *arguments)
    assert torch.equal(codes[1], healthy[1])
    assert bool(((codes >= 0) & (codes < V)).all())


def test_frequencies_match_the_probabilities() -> None:
    rows = 20_000
    logits = random_logits(1, 9, 1.0).expand(rows, 4, V)[:, :, :20].contiguous()
    history = torch.full((rows, 1, 4), PAD)
    settings = parameters(rows, temperature=1.0, top_p=0.9, top_k=12)
    steps = torch.arange(rows)
    expected = sampler.probabilities(
        logits[:1], history[:1], parameters(1, temperature=1.0, top_p=0.9, top_k=12), steps[:1]
    )
    codes = sampler.draw(logits, history, settings, torch.full((rows,), 42), steps)
    for book in range(4):
        counts = torch.bincount(codes[:, book], minlength=20).double()
        options = expected[0, book] > 0
        assert counts[~options].sum() == 0
        wanted = expected[0, book, options] * rows
        surprise = float(((counts[options] - wanted) ** 2 / wanted).sum())
        # Chi-square of at most 11 degrees of freedom: over 40 once in 30,000 tries.
        assert surprise < 40


def test_uniform_numbers_are_a_function_of_seed_step_and_codebook() -> None:
    seeds = torch.tensor([0, 0, 1, -1, 2**62])
    steps = torch.tensor([0, 1, 0, 0, 2047])
    found = sampler.uniform(seeds, steps)
    assert len(set(found.flatten().tolist())) == 20
    for row in range(5):
        assert torch.equal(sampler.uniform(seeds[row : row + 1], steps[row : row + 1])[0], found[row])
    many = sampler.uniform(torch.arange(5000), torch.zeros(5000, dtype=torch.int64))
    assert 0 <= float(many.min()) < 0.001
    assert 0.999 < float(many.max()) < 1
    correlation = torch.corrcoef(many.T) - torch.eye(4, dtype=torch.float64)
    assert float(correlation.abs().max()) < 0.06
    assert abs(float(many.mean()) - 0.5) < 0.01


def test_uniform_numbers_never_change() -> None:
    """A session resumed by another version must draw the same codes: splitmix64 in Python integers."""
    mask = (1 << 64) - 1

    def mix(value: int) -> int:
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    gamma = 0x9E3779B97F4A7C15
    for seed, step in [(0, 0), (1234567, 89), (2**63 - 1, 2047), (-5, 3)]:
        state = mix((mix((seed + gamma) & mask) + step * gamma) & mask)
        expected = [(mix((state + book * gamma) & mask) >> 11) / 2**53 for book in range(1, 5)]
        assert sampler.uniform(torch.tensor([seed]), torch.tensor([step]))[0].tolist() == expected


@pytest.mark.parametrize("value", [0.0, 1 - 2**-53])
def test_extreme_draws_take_codes_that_may_be_drawn(value: float) -> None:
    weights = torch.zeros(1, 4, V)
    weights[..., 5] = 0.3
    weights[..., 9] = 0.7
    codes = sampler.pick(weights, torch.full((1, 4), value, dtype=torch.float64))
    assert codes.tolist() == [[5 if value == 0 else 9] * 4]
