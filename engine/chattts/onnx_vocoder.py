"""The streaming vocoder on ONNX Runtime: `vocoder.StreamingVocoder`'s work, by the graph of
`onnx_vocoder_graph`.

The layers run on ONNX Runtime's threads; the inverse transform, little work, in NumPy on the caller's. A
frame's result depends on its own window alone, bit for bit, so that sound is the same however its steps came
and whoever is beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chattts.convnext import Weights
from engine.chattts.dvae import Quantizer
from engine.chattts.onnx_graph import Floats, Precision
from engine.chattts.onnx_session import open_session
from engine.chattts.onnx_vocoder_graph import build, inputs, kept
from engine.chattts.vocoder import FRAMES
from engine.chattts.vocos import FFT, HOP, PARTS

_MAX_MAGNITUDE: Final = np.float32(1e2)
_BINS: Final = FFT // 2 + 1
_TINY: Final = np.finfo(np.float32).tiny
_ALL_REAL: Final = np.ones((1, 1, 1), np.bool_)


class OnnxVocoder:
    """The nets, and the state of all slots, allocated once. One thread calls it."""

    def __init__(
        self,
        mel: Mapping[str, Tensor],
        vocos: Mapping[str, Tensor],
        *,
        slots: int,
        threads: int,
        precision: Precision,
        steps: Literal["hidden", "codes"] = "hidden",
    ) -> None:
        """`mel`: the tensors of Decoder for hidden states, those of DVAE for codes."""
        model, self._windows = build(_arrays(mel), _arrays(vocos), precision)
        self._session = open_session(model.SerializeToString(), threads=threads)
        self._quantizer = Quantizer(Weights(mel).under("vq_layer")) if steps == "codes" else None
        self._istft = _Istft(vocos["head.istft.window"].numpy())
        self._states = [_zeros(slots, 1, 2 * window.radius, window.width) for window in self._windows]
        self._ending = _zeros(slots, PARTS - 1, FFT)
        """The last frames of samples."""
        self._names = ["spectrum", *map(kept, range(len(self._windows)))]
        self._fed: NDArray[np.int64] = np.zeros(slots, np.int64)
        self._radii = sum(window.radius for window in self._windows)
        self._late = self._radii + PARTS // 2
        """Frames by which the sound follows the input."""
        self.context = self._late // FRAMES
        """Steps on either side of a step on which its sound depends: 52."""

    # --- as `StreamingVocoder` has it -----------------------------------------------------------------------

    def reset(self, slot: int) -> None:
        """Forget the slot's stream; the next `feed` starts one."""
        for state in (*self._states, self._ending):
            state[slot] = 0.0
        self._fed[slot] = 0

    def feed(self, slots: Sequence[int], steps: Tensor) -> list[Tensor]:
        """The next n steps `[B, n, ...]` of B different slots. Returns for each slot the samples that are now
        certain, 52 steps behind: 512 n of them in mid-stream, none or fewer at the start."""
        assert len(set(slots)) == len(slots) == steps.shape[0], "one row a slot"
        frames = self._frames(steps)
        fed = self._fed[list(slots)]
        blocks = self._advance(_index(slots), frames, fed)
        self._fed[list(slots)] += frames.shape[1]
        return [
            torch.from_numpy(block[max(0, self._late - int(before)) :].reshape(-1))
            for block, before in zip(blocks, fed, strict=True)
        ]

    def flush(self, slot: int) -> Tensor:
        """The stream ends with the last step fed: its remaining samples. The slot is reset."""
        samples = self.peek(slot, 0)
        self.reset(slot)
        return samples

    def peek(self, slot: int, lookahead: int, *, skip: int = 0) -> Tensor:
        """The samples that follow the certain ones, up to those which have `lookahead` steps on their right
        (0 to 51; 0: all there are), as if the stream ended with the last step fed. Changes nothing. The
        first `skip` samples, rounded down to blocks, are not wanted: they come as zeros, at less work."""
        assert 0 <= lookahead < self.context, "beyond that the samples are certain"
        fed = int(self._fed[slot])
        # Blocks of the stream to make: the last frame has no block of its own.
        end = fed - (FRAMES * lookahead if lookahead else 1)
        first = fed - self._late
        if end <= max(0, first):
            return torch.zeros(0)
        unmade = max(0, -first)
        unwanted = min(unmade + skip // HOP, end - first - 1)
        found = np.zeros((end - first - unmade, HOP), np.float32)
        found[unwanted - unmade :] = self._close(slot, fed, unwanted, end - first)
        return torch.from_numpy(found.reshape(-1))

    # --- the layers -----------------------------------------------------------------------------------------

    def _frames(self, steps: Tensor) -> Floats:
        """The first layer's input `[B, 2n, C]`: the first half of a step's channels is its first frame."""
        values = steps if self._quantizer is None else self._quantizer.embed(steps)
        batch, count, _ = values.shape
        frames: Floats = values.reshape(batch, FRAMES * count, -1).numpy()
        return frames

    def _advance(self, slots: slice | list[int], x: Floats, fed: NDArray[np.int64]) -> Floats:
        """T more frames `[B, T, C]` of streams that were fed `fed` frames before: the T blocks that are 104
        frames behind `[B, T, 256]`. Where there is no such block its samples mean nothing."""
        batch, count, _ = x.shape
        feeds: dict[str, NDArray[np.generic]] = {"x": x[:, None]}
        late = 0
        for index, (window, states) in enumerate(zip(self._windows, self._states, strict=True)):
            state, tail, real = inputs(index)
            feeds[real] = _mask(fed, late, count)
            feeds[state] = states[slots]
            feeds[tail] = _zeros(batch, 1, 0, window.width)
            late += window.radius
        spectrum, *states = self._session.run(self._names, feeds)
        for place, made in zip(self._states, states, strict=True):
            place[slots] = made
        frames = self._istft.frames(spectrum[:, 0], _real(fed, late, count))
        seen = np.concatenate((self._ending[slots], frames), 1)
        self._ending[slots] = seen[:, seen.shape[1] - PARTS + 1 :]
        positions = _positions(fed, late + PARTS - 1, seen.shape[1])
        return self._istft.overlap_add(seen, positions >= 0)

    def _close(self, slot: int, fed: int, skip: int, stop: int) -> Floats:
        """Of the blocks that follow those `_advance` gave, the ones from `skip` to `stop`
        `[stop - skip, 256]`, for a stream that ends after `fed` frames. A layer makes radius frames more
        than it is given: half the work of feeding zeros. Its k-th frame serves the blocks from k on to the
        k-th after all radii that follow, so that both ends of what it makes are cut to what is wanted."""
        begun: NDArray[np.int64] = np.array([fed])
        late, begin, after = 0, 0, self._radii
        count = 0
        feeds: dict[str, NDArray[np.generic]] = {"x": _zeros(1, 1, 0, self._windows[0].width)}
        for index, (window, states) in enumerate(zip(self._windows, self._states, strict=True)):
            state, tail, real = inputs(index)
            feeds[real] = _mask(begun, late - begin, count)
            after -= window.radius
            late += window.radius
            made_from = begin
            begin = max(0, skip - (PARTS - 1) - 2 * after)
            # Where frames were cut off before, what is left starts with this layer's first input.
            seen_before = states[slot : slot + 1, :, states.shape[2] if made_from else begin :]
            made = min(stop, late) - begin
            missing = made + 2 * window.radius - seen_before.shape[2] - count
            feeds[state], feeds[tail] = seen_before, _zeros(1, 1, missing, window.width)
            count = made
        spectrum = self._session.run(self._names[:1], feeds)[0]
        frames = self._istft.frames(spectrum[:, 0], _real(begun, late - begin, count))
        seen = np.zeros((1, stop - skip + PARTS - 1, FFT), np.float32)
        ending = self._ending[slot : slot + 1, skip:] if not begin else self._ending[:1, :0]
        both = np.concatenate((ending, frames), 1)[:, : seen.shape[1]]
        seen[:, : both.shape[1]] = both
        positions = _positions(begun, late + PARTS - 1 - skip, seen.shape[1])
        blocks: Floats = self._istft.overlap_add(seen, (positions >= 0) & (positions < fed))[0]
        return blocks


class _Istft:
    """The inverse transform, as `Vocos` has it."""

    def __init__(self, window: Floats) -> None:
        self._window = window
        self._squares = np.square(window).reshape(PARTS, HOP)

    def frames(self, spectrum: Floats, real: NDArray[np.bool_]) -> Floats:
        """Log magnitudes and phases `[B, T, 1026]` to windowed frames of samples `[B, T, 1024]`; zeros for
        those that are not real."""
        size = np.minimum(np.exp(spectrum[..., :_BINS]), _MAX_MAGNITUDE)
        phase = spectrum[..., _BINS:]
        bins = np.empty(size.shape, np.complex64)
        bins.real = size * np.cos(phase)
        bins.imag = size * np.sin(phase)
        # NumPy's types do not say that it stays in single precision.
        frames: Floats = np.fft.irfft(bins, FFT).astype(np.float32, copy=False)
        frames *= self._window
        return frames if real is _ALL_REAL else np.where(real, frames, np.float32(0))

    def overlap_add(self, frames: Floats, real: NDArray[np.bool_]) -> Floats:
        """Blocks `[B, T, 256]` of frames `[B, T + 3, 1024]`, of which those that are not `real` `[B, T + 3]`
        lie beyond the ends of the clip. A block without any real one is zero."""
        count = frames.shape[1] - PARTS + 1
        parts = frames.reshape(*frames.shape[:2], PARTS, HOP)
        weights = real[:, :, None, None] * self._squares
        # The newest frame of a block gives its first part.
        sound: Floats = np.zeros((frames.shape[0], count, HOP), np.float32)
        envelope = np.zeros_like(sound)
        for part in range(PARTS):
            newest = PARTS - 1 - part
            sound += parts[:, newest : newest + count, part]
            envelope += weights[:, newest : newest + count, part]
        sound /= np.maximum(envelope, _TINY)
        return sound


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Floats]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _zeros(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


def _index(slots: Sequence[int]) -> slice | list[int]:
    """A slice where the slots lie side by side: their state is read without a copy."""
    first = slots[0]
    together = list(slots) == list(range(first, first + len(slots)))
    return slice(first, first + len(slots)) if together else list(slots)


def _positions(fed: NDArray[np.int64], late: int, count: int) -> NDArray[np.int64]:
    """Places `[B, count]` in their streams of frames that begin `late` frames behind what was fed."""
    return fed[:, None] + np.arange(-late, count - late)


def _mask(fed: NDArray[np.int64], late: int, count: int) -> Floats:
    """`_real` as the graph takes it."""
    return _real(fed, late, count)[:, None].astype(np.float32)


def _real(fed: NDArray[np.int64], late: int, count: int) -> NDArray[np.bool_]:
    """Which frames `[B, count, 1]` lie after their streams' starts."""
    if fed.min() >= late:
        return _ALL_REAL
    real: NDArray[np.bool_] = (_positions(fed, late, count) >= 0)[:, :, None]
    return real
