"""Containers for sound that a client keeps: Ogg Opus (RFC 3533, RFC 7845) and WAV, written as bytes come.

Packets go in as they came from the server; nothing is encoded again. Pure: bytes in, bytes out, no file, no
clock. Must not import a codec, `engine` or a server module.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from gateway.messages import FRAME_MS, TICKS_PER_MS

PRE_SKIP_TICKS: Final = 312
"""Delay of the Opus encoder, in 48 kHz ticks: a player drops so much from the start."""
PACKET_TICKS: Final = FRAME_MS * TICKS_PER_MS
PAGE_PACKETS: Final = 50
"""A page holds at most a second: RFC 7845 asks for no more, so that seeking and streaming stay fine."""

_PAGE: Final = struct.Struct("<4sBBqIIIB")
"""Capture pattern, version u8, flags u8, granule i64, serial u32, sequence u32, CRC u32, segments u8."""
_FIRST: Final = 0x02
_LAST: Final = 0x04
_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def ogg_crc(data: bytes) -> int:
    """Ogg's CRC-32: polynomial 0x04c11db7, nothing reflected, no inversion at either end.

    zlib computes the same polynomial reflected and inverted, so its bits are turned round and its inversions
    undone: one C call for the page where a loop over its bytes would cost more than decoding them.
    """
    reflected = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)


class OggOpusMuxer:
    """Packets of 20 ms to the bytes of an Ogg Opus file: `header`, then `feed` each packet, then `flush`.

    A player does not reset its decoder between sentences, as a live client does. A sentence ends in silence,
    so what the old state adds to the first frames of the next is too little to hear (a test measures it).
    """

    def __init__(self, *, sample_rate: int, serial: int = 1) -> None:
        self._sample_rate = sample_rate
        self._serial = serial
        self._sequence = 0
        self._granule = 0
        self._packets: list[bytes] = []
        self._segments = bytearray()

    def header(self) -> bytes:
        """The two header pages; `sample_rate` only says what the sound was before it was encoded."""
        head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, PRE_SKIP_TICKS, self._sample_rate, 0, 0)
        vendor, comment = b"sayflow", b"ENCODER=sayflow"
        tags = b"OpusTags" + struct.pack("<I", len(vendor)) + vendor
        tags += struct.pack("<II", 1, len(comment)) + comment
        return self._page(_FIRST, head, _lacing(len(head))) + self._page(0, tags, _lacing(len(tags)))

    def feed(self, packet: bytes) -> bytes:
        """The page that this packet completes, else nothing. The latest packet is always held back."""
        if not packet:
            raise ValueError("an Opus packet has at least one byte")
        lacing = _lacing(len(packet))
        page = b""
        if len(self._packets) == PAGE_PACKETS or len(self._segments) + len(lacing) > 255:
            page = self._flush_page(0)
        self._packets.append(packet)
        self._segments += lacing
        self._granule += PACKET_TICKS
        return page

    def flush(self) -> bytes:
        """The last page, marked as such."""
        return self._flush_page(_LAST)

    def _flush_page(self, flags: int) -> bytes:
        page = self._page(flags, b"".join(self._packets), bytes(self._segments))
        self._packets.clear()
        self._segments.clear()
        return page

    def _page(self, flags: int, body: bytes, segments: bytes) -> bytes:
        """A page; its granule is the number of ticks, pre-skip included, up to its end."""
        fields = (self._granule, self._serial, self._sequence)
        unsigned = _PAGE.pack(b"OggS", 0, flags, *fields, 0, len(segments)) + segments + body
        signed = _PAGE.pack(b"OggS", 0, flags, *fields, ogg_crc(unsigned), len(segments)) + segments + body
        self._sequence += 1
        return signed


def _lacing(size: int) -> bytes:
    """A packet's entries in the segment table: 255 as often as it fits, then the rest, which may be 0."""
    lacing = b"\xff" * (size // 255) + bytes([size % 255])
    if len(lacing) > 255:
        raise ValueError(f"a packet of {size} bytes does not fit a page")
    return lacing


def wav_header(*, sample_rate: int, data_bytes: int) -> bytes:
    """The 44 bytes before `data_bytes` of mono 16-bit PCM."""
    riff = struct.pack("<4sI4s", b"RIFF", 36 + data_bytes, b"WAVE")
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    return riff + layout + struct.pack("<4sI", b"data", data_bytes)
