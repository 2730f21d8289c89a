"""Sessions of ONNX Runtime that share one pool of threads: threads wait for work by spinning, and those of
idle pools would take the cores from the one that works.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, Literal

import onnxruntime as ort

from engine.errors import ModelMissing

Provider = Literal["cpu", "cuda", "tensorrt"]
_PROVIDERS: Final[dict[Provider, str]] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_FATAL_ONLY: Final = 4


@cache
def use_threads(count: int) -> None:
    """The pool's size, for the process's life: the first call decides."""
    if use_threads.cache_info().currsize == 0:
        ort.set_global_thread_pool_sizes(count, 1)


def open_session(model: Path | bytes, *, provider: Provider = "cpu") -> ort.InferenceSession:
    """A graph in a file or in memory. Raises `ModelMissing` where this ONNX Runtime lacks the provider."""
    name = _PROVIDERS[provider]
    if name not in ort.get_available_providers():
        raise ModelMissing(f"this ONNX Runtime has no {name}: the provider '{provider}' cannot be used here")
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return ort.InferenceSession(str(model) if isinstance(model, Path) else model, options, providers=[name])
