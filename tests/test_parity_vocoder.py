"""Our mel decoders, encoder and vocoder against those of the ChatTTS 0.2.5 package, with the same tensors.

Upstream's modules load the tensors strictly, so the names and shapes of `tiny_nets` are checked as well.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.chattts.convnext import Weights
from engine.chattts.dvae import DvaeDecoder, DvaeEncoder, HiddenDecoder
from engine.chattts.vocoder import StreamingVocoder, Vocoder
from tests import tiny_nets

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ChatTTS") is None,
    reason="the ChatTTS package (extra `upstream`) is not installed",
)


def hide_torchaudio_extension() -> None:
    """Its native library wants CUDA beside some builds of torch; the mel spectrogram is plain torch."""
    stand_in: Any = types.ModuleType("torchaudio._extension")
    stand_in._IS_TORCHAUDIO_EXT_AVAILABLE = False
    stand_in._IS_ALIGN_AVAILABLE = False
    stand_in.fail_if_no_align = lambda function: function
    sys.modules.setdefault("torchaudio._extension", stand_in)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def upstream() -> Any:
    """The classes of upstream that the tests build."""
    hide_torchaudio_extension()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return types.SimpleNamespace(
            dvae=importlib.import_module("ChatTTS.model.dvae"),
            heads=importlib.import_module("vocos.heads"),
            models=importlib.import_module("vocos.models"),
            features=importlib.import_module("vocos.feature_extractors"),
            pretrained=importlib.import_module("vocos.pretrained"),
        )


@pytest.fixture(scope="module")
def their_decoder(upstream: Any) -> Any:
    half = tiny_nets.HIDDEN // 2
    config = {"idim": half, "odim": half, "hidden": 16, "n_layer": 12, "bn_dim": 8}
    net = upstream.dvae.DVAE(decoder_config=config, dim=half).eval()
    net.load_state_dict(tiny_nets.decoder(), strict=True)
    return net


@pytest.fixture(scope="module")
def their_dvae(upstream: Any) -> Any:
    net = upstream.dvae.DVAE(
        decoder_config={"idim": 8, "odim": 8, "hidden": 16, "n_layer": 12, "bn_dim": 8},
        encoder_config={"idim": 8, "odim": 16, "hidden": 16, "n_layer": 12, "bn_dim": 8},
        vq_config={"dim": 16, "levels": (5, 5, 5, 5), "G": 2, "R": 2},
        dim=8,
    ).eval()
    net.load_state_dict(tiny_nets.dvae(), strict=True)
    return net


@pytest.fixture(scope="module")
def their_vocos(upstream: Any) -> Any:
    net = upstream.pretrained.Vocos(
        feature_extractor=upstream.features.MelSpectrogramFeatures(padding="center"),
        backbone=upstream.models.VocosBackbone(input_channels=100, dim=16, intermediate_dim=48, num_layers=8),
        head=upstream.heads.ISTFTHead(dim=16, n_fft=1024, hop_length=256, padding="center"),
    ).eval()
    net.load_state_dict(tiny_nets.vocos(), strict=True)
    return net


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(ours: Tensor, theirs: Tensor) -> bool:
    assert ours.shape == theirs.shape
    assert float(theirs.abs().max()) > 0.05, "next to nothing would prove nothing"
    return float((ours - theirs).abs().max()) < 1e-4


@pytest.mark.parametrize("count", [1, 2, 24, 60])
def test_mel_frames_of_hidden_states(their_decoder: Any, count: int) -> None:
    hidden = normal(count, tiny_nets.HIDDEN)
    ours = HiddenDecoder(Weights(tiny_nets.decoder())).decode(hidden)
    assert close(ours.T, their_decoder(hidden.T[None].clone())[0])


@pytest.mark.parametrize("count", [1, 2, 24, 60])
def test_mel_frames_of_codes(their_dvae: Any, count: int) -> None:
    codes = torch.randint(0, 625, (count, 4), generator=torch.Generator().manual_seed(count))
    ours = DvaeDecoder(Weights(tiny_nets.dvae())).decode(codes)
    assert close(ours.T, their_dvae(codes.T[None].clone())[0])


@pytest.mark.parametrize("count", [2, 3, 48, 120])
def test_sound_of_mel_frames(their_vocos: Any, count: int) -> None:
    mel = normal(count, 100)
    vocoder = Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos())
    with torch.inference_mode():
        theirs = their_vocos.decode(mel.T[None].clone())[0]
    assert close(vocoder.sound(mel), theirs)


def test_streamed_sound_of_hidden_states(their_decoder: Any, their_vocos: Any) -> None:
    hidden = normal(120, tiny_nets.HIDDEN, seed=5)
    with torch.inference_mode():
        theirs = their_vocos.decode(their_decoder(hidden.T[None].clone()))[0]
    state = StreamingVocoder(Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos()), slots=1)
    parts = [state.feed([0], hidden[None, at : at + 8])[0] for at in range(0, 120, 8)]
    assert close(torch.cat([*parts, state.flush(0)]), theirs)


@pytest.mark.parametrize("samples", [6000, 12_345, 24_000])
def test_codes_of_a_clip(their_dvae: Any, samples: int) -> None:
    clip = 0.2 * normal(samples, seed=samples) + 0.3 * torch.sin(torch.arange(samples) * 0.1)
    encoder = DvaeEncoder(Weights(tiny_nets.dvae()))
    assert close(encoder.mel(clip).T, their_dvae.preprocessor_mel(clip))
    codes = encoder.encode(clip)
    assert len(set(codes.flatten().tolist())) > 10
    assert torch.equal(codes.T, their_dvae(clip.clone(), "encode")[0].long())
