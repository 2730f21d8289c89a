"""Steps to sound: a whole utterance at once, or many streams at a time as their steps are made.

The mel decoder's layers, Vocos' layers and the inverse transform are one chain. `StreamingVocoder` keeps, for
each slot, the frames that each layer will still look at: 2 radius of them. Each layer makes as many frames as
it is given, but late by its radius, so that all streams of a batch move in step wherever they are in their
utterances; what would lie before a stream's first frame is set to zero in front of each layer, as `run` has
it. At the end each layer is given its zeros beyond the end. Nothing is computed twice, and the result is that
of the whole decode. The chain is late by 104 frames: the sound of step t depends on steps t - 52 to t + 52.

Which samples are taken early, before those 52 steps are there, is decided in `lookahead`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.chattts.convnext import Weights, run
from engine.chattts.dvae import DvaeDecoder, HiddenDecoder, MelDecoder
from engine.chattts.vocos import FFT, HOP, PARTS, Vocos

SAMPLE_RATE: Final = 24_000
FRAMES: Final = 2
"""Mel frames of a step."""
STEP: Final = FRAMES * HOP
"""Samples of a step; an utterance of N steps has N STEP - HOP."""
_ISTFT_RADIUS: Final = PARTS // 2


class Vocoder:
    """The nets and the decode of a whole utterance. Holds no state: one serves all streams."""

    def __init__(
        self, decoder: MelDecoder, vocos: Vocos, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.decoder = decoder
        self.vocos = vocos
        self.dtype = dtype
        self.device = device
        self.layers = (*decoder.layers, *vocos.layers)
        delay = sum(layer.radius for layer in self.layers) + _ISTFT_RADIUS
        assert delay % FRAMES == 0, "the shapes of the checkpoint are those of the release"
        self.context = delay // FRAMES
        """Steps on either side of a step on which its sound depends: 52."""

    @classmethod
    def load(
        cls,
        mel: Mapping[str, Tensor],
        vocos: Mapping[str, Tensor],
        *,
        steps: Literal["hidden", "codes"] = "hidden",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Vocoder:
        """`mel`: the tensors of Decoder for hidden states, those of DVAE for codes."""
        weights = Weights(mel, dtype=dtype, device=device)
        decoder: MelDecoder = HiddenDecoder(weights) if steps == "hidden" else DvaeDecoder(weights)
        net = Vocos(Weights(vocos, dtype=dtype, device=device))
        return cls(decoder, net, dtype=dtype, device=weights.device)

    def decode(self, steps: Tensor) -> Tensor:
        """Samples `[512 N - 256]` of hidden states `[N, H]` or codes `[N, 4]`, N > 0."""
        frames = run(self.layers, self.decoder.frames(steps[None]))
        return self.vocos.sound(self.vocos.spectrum(frames))[0]

    def sound(self, mel: Tensor) -> Tensor:
        """Samples `[256 (T - 1)]` of log mel frames `[T, 100]`, T > 1."""
        return self.vocos.sound(self.vocos.spectrum(run(self.vocos.layers, mel[None])))[0]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a slot's row the frames of one layer lie."""

    at: int
    frames: int
    width: int

    def read(self, rows: Tensor) -> Tensor:
        """`[B, frames, width]` of rows `[B, R]`."""
        size = self.frames * self.width
        return rows[:, self.at : self.at + size].view(rows.shape[0], self.frames, self.width)


class StreamingVocoder:
    """The state of all slots, one row each, allocated once."""

    def __init__(self, vocoder: Vocoder, *, slots: int) -> None:
        self._net = vocoder
        self._places: list[_Place] = []
        at = 0
        for frames, width in (
            *((2 * layer.radius, layer.width) for layer in vocoder.layers),
            (PARTS - 1, FFT),
        ):
            self._places.append(_Place(at, frames, width))
            at += frames * width
        self._rows = torch.zeros(slots, at, dtype=vocoder.dtype, device=vocoder.device)
        self._fed = [0] * slots
        self._late = FRAMES * vocoder.context
        """Frames by which the sound follows the input."""

    def reset(self, slot: int) -> None:
        """Forget the slot's stream; the next `feed` starts one."""
        self._rows[slot].zero_()
        self._fed[slot] = 0

    def feed(self, slots: Sequence[int], steps: Tensor) -> list[Tensor]:
        """The next n steps `[B, n, ...]` of B different slots. Returns for each slot the samples that are now
        certain, 52 steps behind: 512 n of them in mid-stream, none or fewer at the start."""
        assert len(set(slots)) == len(slots) == steps.shape[0], "one row a slot"
        index = torch.tensor(slots, device=self._rows.device)
        fed = [self._fed[slot] for slot in slots]
        frames = self._net.decoder.frames(steps)
        blocks, rows = self._advance(self._rows[index], frames, fed)
        self._rows[index] = rows
        for slot in slots:
            self._fed[slot] += frames.shape[1]
        return [
            block[max(0, self._late - before) :].flatten() for block, before in zip(blocks, fed, strict=True)
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
        assert 0 <= lookahead < self._net.context, "beyond that the samples are certain"
        fed = self._fed[slot]
        # Blocks of the stream to make: the last frame has no block of its own.
        end = fed - (FRAMES * lookahead if lookahead else 1)
        first = fed - self._late
        if end <= max(0, first):
            return self._rows.new_zeros(0)
        unmade = max(0, -first)
        unwanted = min(unmade + skip // HOP, end - first - 1)
        blocks = self._close(self._rows[slot : slot + 1], fed, unwanted, end - first)
        return F.pad(blocks[0].flatten(), (HOP * (unwanted - unmade), 0))

    def _advance(self, rows: Tensor, x: Tensor, fed: Sequence[int]) -> tuple[Tensor, Tensor]:
        """T more frames `[B, T, C]` of streams that were fed `fed` frames before: the T blocks that are 104
        frames behind `[B, T, 256]` (where there is no such block its samples mean nothing), and new rows."""
        starts = _Starts(fed, x.device)
        late = 0
        kept: list[Tensor] = []
        for layer, place in zip(self._net.layers, self._places, strict=False):
            seen = torch.cat((place.read(rows), starts.clear(x, late)), 1) if layer.radius else x
            kept.append(seen[:, seen.shape[1] - place.frames :].flatten(1))
            x = layer(seen)
            late += layer.radius
        frames = starts.clear(self._net.vocos.windowed(self._net.vocos.spectrum(x)), late)
        seen = torch.cat((self._places[-1].read(rows), frames), 1)
        kept.append(seen[:, seen.shape[1] - PARTS + 1 :].flatten(1))
        real = starts.positions(seen.shape[1], late + PARTS - 1) >= 0
        return self._net.vocos.overlap_add(seen, real), torch.cat(kept, 1)

    def _close(self, rows: Tensor, fed: int, skip: int, stop: int) -> Tensor:
        """Of the blocks that follow those `_advance` gave, the ones from `skip` to `stop`
        `[1, stop - skip, 256]`, for a stream that ends after `fed` frames. A layer makes radius frames more
        than it is given: half the work of feeding zeros. Its k-th frame serves the blocks from k on to the
        k-th after all radii that follow, so that both ends of what it makes are cut to what is wanted."""
        starts = _Starts([fed], rows.device)
        late, begin = 0, 0
        after = self._late - _ISTFT_RADIUS
        x = rows.new_zeros(1, 0, self._net.layers[0].width)
        for layer, place in zip(self._net.layers, self._places, strict=False):
            after -= layer.radius
            x = starts.clear(x, late - begin)
            seen = torch.cat((place.read(rows), x), 1) if layer.radius and not begin else x
            # Where frames were cut off before, what is left starts with this layer's first input.
            origin = begin + 2 * layer.radius if begin else 0
            late += layer.radius
            begin = max(0, skip - (PARTS - 1) - 2 * after)
            padded = F.pad(seen, (0, 0, 0, layer.radius))
            x = layer(padded[:, begin - origin : stop + 2 * layer.radius - origin])
        frames = starts.clear(self._net.vocos.windowed(self._net.vocos.spectrum(x)), late - begin)
        before = frames[:, :0] if begin else self._places[-1].read(rows)[:, skip:]
        seen = F.pad(torch.cat((before, frames), 1), (0, 0, 0, 1))[:, : stop - skip + PARTS - 1]
        positions = starts.positions(seen.shape[1], late + PARTS - 1 - skip)
        return self._net.vocos.overlap_add(seen, (positions >= 0) & (positions < fed))


class _Starts:
    """Which frames of a batch lie before the start of their streams."""

    def __init__(self, fed: Sequence[int], device: torch.device) -> None:
        self._youngest = min(fed)
        self._fed = torch.tensor(fed, device=device)

    def positions(self, count: int, late: int) -> Tensor:
        """Places `[B, count]` in their streams of frames that begin `late` frames behind what was fed."""
        return self._fed[:, None] + torch.arange(-late, count - late, device=self._fed.device)

    def clear(self, x: Tensor, late: int) -> Tensor:
        """`x[B, T, C]`, which begins `late` frames behind, with zeros where a stream had not begun."""
        if self._youngest >= late:
            return x
        # Not a product with a mask: what comes from before the start may be anything, also not a number.
        return torch.where(self.positions(x.shape[1], late)[:, :, None] >= 0, x, x.new_zeros(()))
