"""`sayflow weights quantise`: the language model's layers in 8 bits, made once and kept beside the weights.

The file says which weights and which version of the graph it was made of; one that does not fit is never
used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from safetensors import safe_open

from engine.chattts import calibrate, layout, weights
from engine.chattts.onnx_graph import VERSION, Floats, Ranges, build
from engine.chattts.weights import WeightsError

FOLDER: Final = "sayflow"
FILE: Final = "gpt.int8.onnx"
_DATA: Final = "gpt.int8.data"
_KEY: Final = "sayflow.source"
_EXTERNAL: Final = 1024
"""Bytes from which a tensor lies in the data file, which is mapped and not parsed."""


def source(root: Path) -> str:
    """What the file is made of: the layers' digest and shape, and the graph's version."""
    digest = hashlib.sha256(f"{VERSION}\n".encode())
    for file in (layout.GPT_CONFIG, layout.GPT):
        with (root / file).open("rb") as data:
            digest.update(hashlib.file_digest(data, "sha256").digest())
    return digest.hexdigest()


def quantise(root: Path, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Write the file; the one that was there serves until the new one is whole. Raises `WeightsError`."""
    folder = root / FOLDER
    steps = calibrate.STEPS

    def calibrating(done: int) -> None:
        progress(done, 2 * steps)

    ranges = calibrate.ranges(root, progress=calibrating)
    model = graph(root, ranges, lambda done, total: progress(steps + steps * done // total, 2 * steps))
    entry = model.metadata_props.add()
    entry.key, entry.value = _KEY, source(root)
    scratch = Path(tempfile.mkdtemp(prefix=".quantise-", dir=root))
    try:
        onnx.save_model(
            model,
            str(scratch / FILE),
            save_as_external_data=True,
            location=_DATA,
            size_threshold=_EXTERNAL,
        )
        _replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder / FILE


def exists(root: Path) -> bool:
    """There is a file, if only a stale one: `find` tells, for the price of reading the weights."""
    return (root / FOLDER / FILE).is_file()


def find(root: Path) -> Path | None:
    """The file, where there is one of these very weights. Raises `WeightsError` for one that is stale."""
    if not exists(root):
        return None
    path = root / FOLDER / FILE
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # A damaged file raises whatever the protobuf library does.
        raise WeightsError(f"{path}: not readable ({type(error).__name__}); {_AGAIN}") from error
    made_of = {entry.key: entry.value for entry in model.metadata_props}.get(_KEY)
    if made_of != source(root):
        raise WeightsError(f"{path}: it was made of other weights or by another version; {_AGAIN}")
    return path


_AGAIN: Final = "run `sayflow weights quantise` on the folder again"


def graph(
    root: Path,
    ranges: Ranges | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> onnx.ModelProto:
    """The graph of the folder's layers, in memory; with `ranges` in 8 bits. Raises `WeightsError`."""
    header = weights.survey(root)
    total = len(header.tensors[layout.GPT]) - 1
    with safe_open(root / layout.GPT, framework="np") as tensors:
        done = 0

        def take(name: str) -> Floats:
            nonlocal done
            value: Floats = tensors.get_tensor(name)
            if not np.isfinite(value).all():
                raise WeightsError(f"{layout.GPT}: {name}: it holds values that are no finite numbers")
            done += 1
            progress(done, total)
            return value

        return build(header.gpt_shape, take, ranges)


def _replace(scratch: Path, folder: Path) -> None:
    """Put the new folder in the old one's place."""
    old = scratch / "old"
    new = scratch / "new"
    new.mkdir()
    # The library makes it readable by its owner alone.
    shutil.copymode(scratch / FILE, scratch / _DATA)
    for name in (FILE, _DATA):
        os.rename(scratch / name, new / name)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
