"""Loads the ChatTTS package over a folder of weights, as it is and without its downloads.

`Chat.load` renames or deletes files whose hashes it does not know, and runs a downloaded program; `_load`
takes paths and does none of it. The sizes that upstream keeps as constants are set to those of the folder, so
that a tiny random checkpoint loads as well as the release. The tests use this as their oracle.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.chattts import base16384, layout, weights
from engine.chattts.layout import Sizes, StackSize
from engine.errors import ModelMissing

__all__ = ["load", "module"]

_quiet = logging.getLogger("engine.upstream.chattts")
# Upstream logs users' texts; the level of the engine's own log must not turn that on.
_quiet.setLevel(logging.CRITICAL)


def hide_torchaudio_extension() -> None:
    """torchaudio's native library wants CUDA, and fails beside a torch for CPUs; nothing here needs it."""
    stand_in: Any = types.ModuleType("torchaudio._extension")
    stand_in._IS_TORCHAUDIO_EXT_AVAILABLE = False
    stand_in._IS_ALIGN_AVAILABLE = False
    stand_in.fail_if_no_align = lambda function: function
    sys.modules.setdefault("torchaudio._extension", stand_in)


def module(name: str = "ChatTTS") -> Any:
    """A module of the package. Raises `ModelMissing` where it, or what it needs, is not installed."""
    hide_torchaudio_extension()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise ModelMissing(
            f"the ChatTTS package cannot be imported ({error}); install requirements-upstream.txt"
        ) from error


def load(root: Path) -> Any:
    """A loaded `Chat`. Raises `ModelMissing`, and `WeightsError` for a folder not in the released layout."""
    package = module()
    config = module("ChatTTS.config.config")
    header = weights.survey(root)
    sizes = layout.infer(header.gpt_shape, header.tensors)
    chat = package.Chat(logger=_quiet)
    _fit(chat.config, config, sizes)
    transformers_log = module("transformers.utils.logging")
    transformers_log.disable_progress_bar()
    transformers_log.set_verbosity_error()
    paths = {name: str(root / path) for name, path in asdict(config.Path()).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not chat._load(device=torch.device("cpu"), **paths):
            raise ModelMissing(f"the ChatTTS package did not load {root}")
    return chat


def _fit(config: Any, classes: Any, sizes: Sizes) -> None:
    """Set the sizes. New objects throughout: upstream's defaults are shared by every `Config`."""
    gpt = sizes.gpt

    def stack(size: StackSize) -> Any:
        return classes.Decoder(
            idim=size.entry, odim=size.exit, hidden=size.hidden, n_layer=12, bn_dim=size.bottleneck
        )

    config.gpt = classes.GPT(
        hidden_size=gpt.hidden,
        intermediate_size=gpt.intermediate,
        num_attention_heads=gpt.heads,
        num_hidden_layers=gpt.layers,
        num_text_tokens=sizes.text_tokens,
    )
    config.embed = classes.Embed(hidden_size=gpt.hidden, num_text_tokens=sizes.text_tokens)
    config.decoder = stack(sizes.decoder)
    config.dvae = classes.DVAE(
        encoder=stack(sizes.dvae_encoder),
        decoder=stack(sizes.dvae_decoder),
        vq=classes.VQ(dim=sizes.dvae_encoder.exit),
    )
    width, inner = sizes.vocos_hidden, sizes.vocos_inner
    config.vocos = classes.Vocos(
        backbone=classes.Backbone(init_args=classes.BackboneInitArgs(dim=width, intermediate_dim=inner)),
        head=classes.FourierHead(init_args=classes.FourierHeadInitArgs(dim=width)),
    )
    if gpt.hidden != layout.RELEASED.gpt.hidden:
        # Deviations of 1 about means of 0, in place of those of the released speakers.
        statistics = np.repeat(np.array([1, 0], np.float16), gpt.hidden)
        config.spk_stat = base16384.encode(statistics.tobytes())
