"""Codes, features and mel frames: GFSQ against its definition, the encoder's lengths and the mel scale."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.chattts.convnext import Weights
from engine.chattts.dvae import DvaeDecoder, DvaeEncoder, HiddenDecoder, Quantizer
from tests import tiny_nets

DIGITS = range(4)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights(tiny_nets.dvae(), dtype=torch.float64)


@pytest.fixture(scope="module")
def quantizer(weights: Weights) -> Quantizer:
    return Quantizer(weights.under("vq_layer"))


@pytest.fixture(scope="module")
def encoder(weights: Weights) -> DvaeEncoder:
    return DvaeEncoder(weights)


def digit(code: int, place: int) -> int:
    return code // int(5**place) % 5


def projection(weights: Weights, group: int, side: str) -> tuple[Tensor, Tensor]:
    part = weights.under(f"vq_layer.quantizer.rvqs.{group}")
    return part[f"project_{side}.weight"], part[f"project_{side}.bias"]


def test_features_of_codes_by_the_definition(weights: Weights, quantizer: Quantizer) -> None:
    codes = [[0, 624, 1, 5], [312, 7, 130, 499], [624, 0, 25, 125]]
    features = quantizer.embed(torch.tensor(codes))
    for row, step in enumerate(codes):
        expected: list[Tensor] = []
        for group in (0, 1):
            coarse, fine = step[2 * group], step[2 * group + 1]
            values = [(digit(coarse, i) - 2) / 2 + (digit(fine, i) - 2) / 8 for i in DIGITS]
            weight, bias = projection(weights, group, "out")
            expected.append(weight @ torch.tensor(values, dtype=torch.float64) + bias)
        assert torch.allclose(features[row], torch.cat(expected), atol=1e-12)


def test_codes_of_features_by_the_definition(weights: Weights, quantizer: Quantizer) -> None:
    features = 2 * torch.randn(200, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    codes = quantizer.encode(features)
    assert codes.shape == (200, 4)
    seen = set()
    for row in range(200):
        for group in (0, 1):
            weight, bias = projection(weights, group, "in")
            numbers = (weight @ features[row, 8 * group : 8 * group + 8] + bias).tolist()
            for i, number in enumerate(numbers):
                coarse = round(math.tanh(number) * 2.002)
                fine = round(math.tanh((number - coarse / 2) * 4) * 2.002)
                assert digit(int(codes[row, 2 * group]), i) == coarse + 2
                assert digit(int(codes[row, 2 * group + 1]), i) == fine + 2
                seen.add((coarse, fine))
    assert len(seen) > 15, "few digits would prove little"


def test_the_largest_features_are_codes_of_the_book(quantizer: Quantizer) -> None:
    codes = quantizer.encode(torch.tensor([[1e9] * 16, [-1e9] * 16], dtype=torch.float64))
    assert int(codes.min()) >= 0
    assert int(codes.max()) <= 624


@pytest.mark.parametrize("code", [-1, 625, 626, 2**31])
def test_a_code_out_of_range_is_refused(weights: Weights, code: int) -> None:
    codes = torch.zeros(3, 4, dtype=torch.int64)
    codes[1, 2] = code
    with pytest.raises(ValueError, match="codes are 0 to 624"):
        DvaeDecoder(weights).decode(codes)


def test_two_mel_frames_a_step(weights: Weights) -> None:
    assert DvaeDecoder(weights).decode(torch.zeros(7, 4, dtype=torch.int64)).shape == (14, 100)
    decoder = HiddenDecoder(Weights(tiny_nets.decoder()))
    assert decoder.decode(torch.zeros(7, tiny_nets.HIDDEN)).shape == (14, 100)


def test_the_first_half_of_a_step_is_its_first_frame() -> None:
    decoder = HiddenDecoder(Weights(tiny_nets.decoder()))
    steps = torch.arange(2 * tiny_nets.HIDDEN, dtype=torch.float32).view(1, 2, tiny_nets.HIDDEN)
    frames = decoder.frames(steps)[0]
    half = tiny_nets.HIDDEN // 2
    assert frames[:, 0].tolist() == [0, half, 2 * half, 3 * half]


@pytest.mark.parametrize("samples", [513, 767, 768, 5000, 24_000])
def test_a_clip_has_a_code_for_512_samples(encoder: DvaeEncoder, samples: int) -> None:
    clip = 0.3 * torch.randn(samples, generator=torch.Generator().manual_seed(samples))
    codes = encoder.encode(clip)
    assert codes.shape == ((1 + samples // 256) // 2, 4)
    assert codes.dtype == torch.int64


@pytest.mark.parametrize("shape", [(0,), (512,), (1, 5000)])
def test_what_is_no_clip_is_refused(encoder: DvaeEncoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a clip is one channel of more than 512 samples"):
        encoder.encode(torch.zeros(shape))


def test_codes_follow_the_sound(encoder: DvaeEncoder) -> None:
    noise = torch.randn(24_000, generator=torch.Generator().manual_seed(9))
    tone = torch.sin(torch.arange(24_000) * (2 * torch.pi * 440 / 24_000))
    of_noise, of_tone = encoder.encode(0.3 * noise), encoder.encode(0.3 * tone)
    assert len(set(of_noise.flatten().tolist())) > 20
    assert float((of_noise != of_tone).double().mean()) > 0.3


def test_mel_frames_of_a_tone_and_of_silence(encoder: DvaeEncoder) -> None:
    """A tone in the middle of bin 200: its magnitude is half the window's sum, and other bins are empty."""
    tone = torch.cos(torch.arange(24_000, dtype=torch.float64) * (2 * torch.pi * 200 / 1024))
    mel = encoder.mel(tone)
    assert mel.shape == (94, 100)
    # The filters of the tiny nets: triangles at 1..100 on a scale of 101 over the 513 bins.
    place = 200 * 101 / 512
    below, above = math.floor(place), math.ceil(place)
    bins = [(199, 128.0), (200, 256.0), (201, 128.0)]
    for filter_place in (below, above):
        expected = sum(size * max(0.0, 1 - abs(b * 101 / 512 - filter_place)) for b, size in bins)
        assert float(mel[40, filter_place - 1]) == pytest.approx(math.log(expected), abs=1e-4)
    silence = encoder.mel(torch.zeros(2000, dtype=torch.float64))
    assert torch.equal(silence, torch.full_like(silence, math.log(1e-5)))
