"""Sessions of ONNX Runtime. Whose threads wait for work by spinning loses little on an idle machine and much
where another process, or another session, wants the core; where they sleep, waking takes longer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnxruntime as ort

from engine.errors import ModelMissing

if TYPE_CHECKING:
    from engine.chattts.backend import Provider

_PROVIDERS: Final[dict[Provider, str]] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_FATAL_ONLY: Final = 4


def open_session(
    model: Path | bytes, *, threads: int, spinning: bool = False, provider: Provider = "cpu"
) -> ort.InferenceSession:
    """A graph in a file or in memory. `spinning`: worth it for many small products in a row. Raises
    `ModelMissing` where this ONNX Runtime lacks the provider."""
    name = _PROVIDERS[provider]
    if name not in ort.get_available_providers():
        raise ModelMissing(f"this ONNX Runtime has no {name}: the provider '{provider}' cannot be used here")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    return ort.InferenceSession(str(model) if isinstance(model, Path) else model, options, providers=[name])
