"""`sayflow voices`: list the voices of the ChatTTS engine, add to the operator's own. Run by `engine.cli`."""

from __future__ import annotations

from pathlib import Path

import av
import click
import numpy as np
from numpy.typing import NDArray

from engine.chattts import layout, weights
from engine.chattts import voices as store
from engine.chattts.speaker import MAX_SAMPLE_STEPS, BadVoice
from engine.chattts.voices import Voice, VoiceStore

RATE = 24_000
MAX_CLIP = 512 * MAX_SAMPLE_STEPS
"""Samples at 24 kHz."""
MAX_STRING = 64 << 10
"""Bytes of a file with a voice's text form, which has under 20 KiB."""

folder_option = click.option(
    "--voices",
    "folder",
    type=click.Path(path_type=Path),
    envvar="SAYFLOW_ENGINE__VOICES",
    help="Folder of your own voices.  [env: SAYFLOW_ENGINE__VOICES]",
)
weights_option = click.option(
    "--weights",
    "root",
    type=click.Path(path_type=Path),
    envvar="SAYFLOW_ENGINE__WEIGHTS",
    help="Folder of weights, for their hidden size.  [env: SAYFLOW_ENGINE__WEIGHTS; default: as released]",
)


@click.group()
def voices() -> None:
    """Voices of the ChatTTS engine."""


@voices.command(name="list")
@folder_option
@weights_option
def list_(folder: Path | None, root: Path | None) -> None:
    """Key, name, where from, kind and digest of every voice."""
    opened = _open(folder, root)
    for voice in opened.list():
        kind = "speaker" if voice.embedding is not None else "sample"
        click.echo(f"{voice.id:<24} {voice.name:<24} {voice.source:<9} {kind:<8} {voice.digest[:12]}")
    for key, reason in opened.faults.items():
        click.echo(f"{key}: left out: {reason}", err=True)


@voices.command(name="random")
@click.argument("name")
@click.option("--seed", type=click.IntRange(0, 2**53 - 1), default=0, show_default=True)
@folder_option
@weights_option
def random_(name: str, seed: int, folder: Path | None, root: Path | None) -> None:
    """Add a random speaker; the same seed is the same speaker everywhere."""
    opened = _open(folder, root)
    _add(opened, store.random_voice(store.check_key(name), seed=seed, hidden=opened.hidden))


@voices.command(name="import")
@click.argument("name")
@click.argument("string")
@click.option("--text", default="", help="What is said in it, for a voice that is a sample.")
@folder_option
@weights_option
def import_(name: str, string: str, text: str, folder: Path | None, root: Path | None) -> None:
    """Add a voice from its text form (base16384), or from a file that holds it."""
    opened = _open(folder, root)
    key = store.check_key(name)
    _add(opened, store.imported_voice(key, _string(string), hidden=opened.hidden, sample_text=text))


@voices.command()
@click.argument("name")
@click.argument("audio", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--text", required=True, help="Exactly what is said in it.")
@folder_option
@weights_option
def clone(name: str, audio: Path, text: str, folder: Path | None, root: Path | None) -> None:
    """Add a voice from a clip of at most 8 s. Only with the consent of whose voice it is."""
    if root is None:
        raise BadVoice("to clone a voice takes weights (--weights DIR): they hold the encoder")
    opened = _open(folder, root)
    key = store.check_key(name)
    _add(opened, store.cloned_voice(key, _encode(root, read_clip(audio)), text))


def _open(folder: Path | None, root: Path | None) -> VoiceStore:
    released = layout.RELEASED.gpt.hidden
    return VoiceStore(folder, hidden=released if root is None else weights.survey(root).gpt_shape.hidden)


def _add(opened: VoiceStore, voice: Voice) -> None:
    opened.add(voice)
    click.echo(f"{voice.id} {voice.digest[:12]}")


def _string(given: str) -> str:
    """The argument, or what the file of that name holds. No text form is a path: it has no ASCII in it."""
    if not given.isascii():
        return given
    path = Path(given)
    with path.open("rb") as file:
        data = file.read(MAX_STRING + 1)
    if len(data) > MAX_STRING:
        raise BadVoice(f"{path} has more than {MAX_STRING} bytes; no voice is that long")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadVoice(f"{path} is no UTF-8 text") from None


def read_clip(path: Path) -> NDArray[np.float32]:
    """Mono samples at 24 kHz of any audio file, decoded no further than a clip may last."""
    parts: list[NDArray[np.float32]] = []
    length = 0
    try:
        with av.open(str(path)) as container:
            if not container.streams.audio:
                raise BadVoice(f"{path} has no sound in it")
            resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
            for frame in container.decode(audio=0):
                for made in resampler.resample(frame):
                    parts.append(_flat(made))
                    length += len(parts[-1])
                if length > MAX_CLIP:
                    raise BadVoice(f"the clip is longer than {MAX_CLIP / RATE:.1f} s")
            parts += [_flat(made) for made in resampler.resample(None)]
    except av.FFmpegError as error:
        raise BadVoice(f"{path} cannot be read as audio: {error}") from error
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _flat(frame: av.AudioFrame) -> NDArray[np.float32]:
    return np.asarray(frame.to_ndarray(), np.float32).reshape(-1)


def _encode(root: Path, samples: NDArray[np.float32]) -> NDArray[np.int64]:
    """Codes [4, T] of a clip."""
    import torch

    from engine.chattts.convnext import Weights
    from engine.chattts.dvae import DvaeEncoder

    if len(samples) < RATE // 2:
        raise BadVoice("the clip is shorter than half a second")
    encoder = DvaeEncoder(Weights(weights.load(root).dvae))
    with torch.inference_mode():
        codes = encoder.encode(torch.from_numpy(samples))
    found: NDArray[np.int64] = codes.T.contiguous().numpy()[:, :MAX_SAMPLE_STEPS]
    return found
