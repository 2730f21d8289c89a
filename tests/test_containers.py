"""The containers, read back by an independent reader (FFmpeg, through PyAV) and by the rules of the RFCs."""

from __future__ import annotations

import io
import struct
import wave

import av
import numpy as np
import opuslib_next
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.containers import PRE_SKIP_TICKS, OggOpusMuxer, ogg_crc, wav_header
from gateway.messages import AudioMessage
from gateway.sinks import PcmDecoder

RATE = 24_000
FRAME = RATE // 50


def make_tone(hz: float, seconds: float, *, rate: int = RATE) -> NDArray[np.int16]:
    return (9000 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)).astype("<i2")


def encode(pcm: NDArray[np.int16], *, rate: int = RATE) -> list[bytes]:
    """20 ms packets of a fresh encoder, its delay flushed: as the gateway makes them for a sentence."""
    encoder, frame = opuslib_next.Encoder(rate, 1, "audio"), rate // 50
    padded = np.concatenate(
        [pcm, np.zeros(encoder.lookahead + -(len(pcm) + encoder.lookahead) % frame, "<i2")]
    )
    return [encoder.encode(padded[at : at + frame].tobytes(), frame) for at in range(0, len(padded), frame)]


def mux(packets: list[bytes]) -> bytes:
    muxer = OggOpusMuxer(sample_rate=RATE)
    return muxer.header() + b"".join(map(muxer.feed, packets)) + muxer.flush()


def read_back(data: bytes) -> tuple[NDArray[np.float32], int]:
    with av.open(io.BytesIO(data), "r") as container:
        [stream] = container.streams.audio
        assert stream.codec_context.name in ("opus", "libopus")
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(stream)]
        return np.concatenate(frames), stream.codec_context.sample_rate


def pitch_of(sound: NDArray[np.float32], rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
    return float(np.argmax(spectrum) * rate / len(sound))


def pages_of(data: bytes) -> list[tuple[int, int, int, bytes, bytes]]:
    """(flags, granule, sequence, segment table, body) of each page; its checksum is verified bit by bit."""
    pages = []
    while data:
        capture, version, flags, granule, _, sequence, crc, count = struct.unpack_from("<4sBBqIIIB", data)
        assert (capture, version) == (b"OggS", 0)
        table = data[27 : 27 + count]
        size = 27 + count + sum(table)
        assert slow_crc(data[:22] + bytes(4) + data[26:size]) == crc
        pages.append((flags, granule, sequence, table, data[27 + count : size]))
        data = data[size:]
    return pages


def slow_crc(data: bytes) -> int:
    """Ogg's checksum by its definition."""
    register = 0
    for byte in data:
        register ^= byte << 24
        for _ in range(8):
            register = (register << 1) ^ (0x104C11DB7 if register & 0x80000000 else 0)
    return register


def packets_of(pages: list[tuple[int, int, int, bytes, bytes]]) -> list[bytes]:
    """The packets after the two headers, by the segment tables."""
    packets = []
    for _, _, _, table, body in pages[2:]:
        size = 0
        for lacing in table:
            size += lacing
            if lacing < 255:
                packets.append(body[:size])
                body, size = body[size:], 0
        assert (body, size) == (b"", 0), "no packet goes on in the next page"
    return packets


@given(st.binary(max_size=600))
def test_the_checksum_is_oggs(data: bytes) -> None:
    assert ogg_crc(data) == slow_crc(data)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 1400) | st.sampled_from([254, 255, 256, 510]), max_size=120))
def test_any_packets_come_back_from_the_pages(sizes: list[int]) -> None:
    packets = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    pages = pages_of(mux(packets))
    assert packets_of(pages) == packets
    assert [sequence for _, _, sequence, _, _ in pages] == list(range(len(pages)))
    assert [flags for flags, *_ in pages] == [2, *[0] * (len(pages) - 2), 4]
    granules = [granule for _, granule, *_ in pages]
    assert granules == sorted(granules)
    assert granules[:2] == [0, 0]
    assert granules[-1] == 960 * len(packets)


def test_the_headers_say_what_rfc_7845_wants() -> None:
    head, tags, _ = pages_of(mux([b"x"]))
    assert head[4] == b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 312, RATE, 0, 0)
    assert tags[4].startswith(b"OpusTags" + struct.pack("<I", 7) + b"sayflow")


def test_a_page_holds_at_most_a_second() -> None:
    pages = pages_of(mux([b"x" * 60] * 125))
    assert [len(table) for _, _, _, table, _ in pages[2:]] == [50, 50, 25]


@pytest.mark.parametrize("bad", [b"", bytes(65_025)])
def test_what_is_no_packet_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="packet"):
        OggOpusMuxer(sample_rate=RATE).feed(bad)


def test_ffmpeg_hears_the_tone_for_its_duration() -> None:
    packets = encode(make_tone(700, 3.0))
    sound, rate = read_back(mux(packets))
    assert rate == 48_000
    assert len(sound) == 960 * len(packets) - PRE_SKIP_TICKS
    assert abs(len(sound) / rate - 3.0) < 0.02
    assert abs(pitch_of(sound[4800:-4800], rate) - 700) < 2
    # Pre-skip was honoured: the tone is there from the first millisecond on, and not a packet late.
    assert np.max(np.abs(sound[: rate // 1000 * 2])) > 0.05


def test_sentences_of_fresh_encoders_play_on_in_one_file() -> None:
    pitches = (400, 900, 1700)
    sentences = [encode(make_tone(hz, 0.5)) for hz in pitches]
    sound, rate = read_back(mux([packet for sentence in sentences for packet in sentence]))
    length = 960 * len(sentences[0])
    heard = [pitch_of(sound[at + 4800 : at + 19_200], rate) for at in range(0, 3 * length - 960, length)]
    assert heard == pytest.approx(pitches, abs=4)


def test_a_player_that_keeps_its_decoders_state_hears_the_same() -> None:
    """It plays the file's sentences one after the other; a live client resets its decoder at each."""
    keeping, resetting = opuslib_next.Decoder(48_000, 1), opuslib_next.Decoder(48_000, 1)
    kept, reset = bytearray(), bytearray()
    for hz in (400, 900, 1700):
        resetting.reset_state()
        for packet in encode(make_tone(hz, 0.5)):
            kept += keeping.decode(packet, 960)
            reset += resetting.decode(packet, 960)
    wanted = np.frombuffer(reset, "<i2").astype(np.float64)
    error = np.frombuffer(kept, "<i2") - wanted
    assert 10 * np.log10(np.mean(error**2) / np.mean(wanted**2)) < -40, "dB"


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
def test_opus_is_decoded_in_place_at_each_rate(rate: int) -> None:
    pcm = make_tone(500, 0.5, rate=rate)
    packets = encode(pcm, rate=rate)
    decoder = PcmDecoder(format="opus", sample_rate=rate)
    messages = [
        AudioMessage(stream=1, sequence=n, timestamp=0, packets=packets[at : at + 3], reset=n == 0)
        for n, at in enumerate(range(0, len(packets), 3))
    ]
    decoded = np.frombuffer(b"".join(map(decoder.feed, messages)), "<i2")
    assert len(decoded) == len(packets) * rate // 50 - PRE_SKIP_TICKS * rate // 48_000
    middle = slice(rate // 10, 4 * rate // 10)
    scale = np.corrcoef(decoded[middle], pcm[middle])[0, 1]
    assert scale > 0.98, "the same wave at the same place: the delay was cut off exactly"


def test_a_reset_starts_the_decoder_afresh() -> None:
    first, second = encode(make_tone(400, 0.3)), encode(make_tone(1000, 0.3))
    alone = opuslib_next.Decoder(RATE, 1)
    wanted = b"".join(alone.decode(packet, FRAME) for packet in second)
    decoder = PcmDecoder(format="opus", sample_rate=RATE)
    decoder.feed(AudioMessage(stream=1, sequence=0, timestamp=0, packets=first, reset=True))
    assert decoder.feed(AudioMessage(stream=1, sequence=1, timestamp=0, packets=second, reset=True)) == wanted


def test_pcm_passes_as_it_is() -> None:
    decoder = PcmDecoder(format="pcm", sample_rate=RATE)
    message = AudioMessage(stream=1, sequence=0, timestamp=0, packets=[b"ab", b"cd"], reset=True)
    assert decoder.feed(message) == b"abcd"


def test_a_wav_is_read_by_the_standard_library() -> None:
    pcm = make_tone(440, 0.25).tobytes()
    with wave.open(io.BytesIO(wav_header(sample_rate=RATE, data_bytes=len(pcm)) + pcm)) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (1, 2, RATE)
        assert reader.readframes(reader.getnframes()) == pcm
