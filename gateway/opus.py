"""From the engine's samples to packets: resampling, framing, Opus. One encoder a track, one thread at a time.

`feed` takes samples cut anywhere and returns the packets that are full; `flush` ends a sentence: what is held
comes out, zero-padded to a whole frame, and the encoder starts anew. So sentences splice in any order, and
the packets do not depend on how the samples were cut.
"""

from __future__ import annotations

import ctypes
from typing import Final, Protocol

import numpy as np
import opuslib_next
import soxr
from opuslib_next.api.encoder import libopus_encode

from gateway.messages import FRAME_MS, Format

BITRATE: Final = 32_000
"""Bits a second: transparent for one voice at 24 kHz."""
COMPLEXITY: Final = 5
MAX_PACKET: Final = 1275
"""Bytes of the largest Opus frame (RFC 6716, 3.2.1)."""
_SAMPLE_BYTES: Final = 2


class _Codec(Protocol):
    tail: int
    """Samples that must follow the last one, so that it comes out of a decoder."""

    def encode(self, frame: memoryview) -> bytes:
        """A packet of exactly one frame."""

    def reset(self) -> None:
        """Start anew."""


class _Opus:
    """libopus through the library's own binding, with buffers that are made once: a seventh less a packet."""

    def __init__(self, sample_rate: int) -> None:
        self._frame = sample_rate * FRAME_MS // 1000
        self._encoder = opuslib_next.Encoder(sample_rate, 1, opuslib_next.APPLICATION_AUDIO)
        self._encoder.bitrate = BITRATE
        self._encoder.complexity = COMPLEXITY
        self.tail = int(self._encoder.lookahead)
        self._input = (ctypes.c_int16 * self._frame)()
        self._output = ctypes.create_string_buffer(MAX_PACKET)
        self._input_bytes = memoryview(self._input).cast("B")
        self._output_bytes = memoryview(self._output)

    def encode(self, frame: memoryview) -> bytes:
        self._input_bytes[:] = frame  # of exactly this size: libopus would read past a shorter one
        size = libopus_encode(self._encoder.encoder_state, self._input, self._frame, self._output, MAX_PACKET)
        if size < 0:
            raise opuslib_next.OpusError(size)
        return bytes(self._output_bytes[:size])

    def reset(self) -> None:
        self._encoder.reset_state()


class _Pcm:
    tail = 0

    def encode(self, frame: memoryview) -> bytes:
        return bytes(frame)

    def reset(self) -> None:
        pass


class PacketEncoder:
    """Samples at `engine_rate` in, packets of `FRAME_MS` at `sample_rate` out."""

    def __init__(self, *, format: Format, engine_rate: int, sample_rate: int) -> None:
        self._frame_bytes = sample_rate * FRAME_MS // 1000 * _SAMPLE_BYTES
        self._codec: _Codec = _Opus(sample_rate) if format == "opus" else _Pcm()
        self._rates = (engine_rate, sample_rate)
        self._resampler = self._new_resampler()
        self._held = bytearray()
        self._fed = False
        """The sentence has sound."""

    def feed(self, samples: bytes) -> list[bytes]:
        """Little-endian int16 samples; returns the packets that they complete."""
        self._hold(samples, last=False)
        return self._cut()

    def flush(self) -> list[bytes]:
        """The end of a sentence; nothing if nothing was fed since the last one."""
        self._hold(b"", last=True)
        if self._fed:
            self._held += bytes(self._codec.tail * _SAMPLE_BYTES)
            self._held += bytes(-len(self._held) % self._frame_bytes)
        packets = self._cut()
        self._codec.reset()
        self._resampler = self._new_resampler()
        self._fed = False
        return packets

    def _hold(self, samples: bytes, *, last: bool) -> None:
        out = self._resample(samples, last=last)
        self._fed = self._fed or bool(out)
        self._held += out

    def _cut(self) -> list[bytes]:
        whole = len(self._held) - len(self._held) % self._frame_bytes
        with memoryview(self._held) as held:
            packets = [
                self._codec.encode(held[at : at + self._frame_bytes])
                for at in range(0, whole, self._frame_bytes)
            ]
        del self._held[:whole]
        return packets

    def _new_resampler(self) -> soxr.ResampleStream | None:
        engine_rate, sample_rate = self._rates
        if engine_rate == sample_rate:
            return None
        return soxr.ResampleStream(engine_rate, sample_rate, 1, dtype="float32")

    def _resample(self, samples: bytes, *, last: bool) -> bytes:
        if self._resampler is None:
            return samples
        # As floats: soxr dithers integers, by a noise that depends on how the samples were cut.
        wave = np.frombuffer(samples, "<i2").astype(np.float32)
        out = np.rint(self._resampler.resample_chunk(wave, last=last))
        return bytes(np.clip(out, -32768, 32767).astype("<i2").tobytes())
