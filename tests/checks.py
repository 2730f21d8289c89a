"""What must hold of an utterance, as its client heard it: order, numbers, times, and whose sound it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.synthetic.model import BLOCK, MARK_BITS, RATE, TONES, tone_hz
from tests.listener import PACKET_MS, TERMINAL, TICKS_A_PACKET, Heard, Json, Said, Sound


def check_order(heard: Heard, *, complete: bool = True) -> None:
    """Legal order, exactly one terminal event and nothing after it, no gap in numbers or times.

    `complete=False`: the connection ended before the terminal event, so there need not be one.
    """
    kinds = [entry.type if isinstance(entry, Said) else "sound" for entry in heard.log]
    ends = [place for place, kind in enumerate(kinds) if kind in TERMINAL]
    if complete or ends:
        assert ends == [len(kinds) - 1], f"{heard.name}: not one terminal event at the end: {kinds[-8:]}"
    if not kinds:
        return
    assert kinds[0] == "started", f"{heard.name}: begins with {kinds[0]}"
    assert kinds.count("started") == 1
    _check_sounds(heard)
    _check_sentences(heard)
    if ends and heard.terminal["type"] == "done":
        promised = heard.terminal["duration_ms"]
        assert promised == heard.milliseconds, f"{heard.name}: {heard.milliseconds} of {promised} ms came"
        assert not heard.sounds or heard.sounds[-1].is_last, f"{heard.name}: no last flag"
    if ends and heard.terminal["type"] == "cancelled":
        spoken, remaining = heard.terminal["text_spoken"], heard.terminal["text_remaining"]
        assert spoken + remaining == heard.text, f"{heard.name}: {spoken!r} + {remaining!r}"
        assert 0 <= heard.terminal["played_ms"] <= heard.milliseconds


def _check_sounds(heard: Heard) -> None:
    packets = 0
    for place, sound in enumerate(heard.sounds):
        assert sound.sequence == place, f"{heard.name}: message {sound.sequence} where {place} was due"
        assert sound.timestamp == packets * TICKS_A_PACKET, f"{heard.name}: time {sound.timestamp}"
        assert len(sound.packets) <= heard.bundle
        assert not sound.is_last or place == len(heard.sounds) - 1, f"{heard.name}: sound after the last"
        assert sound.packets or sound.is_last, f"{heard.name}: an empty message"
        packets += len(sound.packets)
    if heard.format == "pcm":
        size = heard.sample_rate * PACKET_MS // 1000 * 2
        assert all(len(packet) == size for packet in heard.packets)


def _check_sentences(heard: Heard) -> None:
    index, place = 0, 0
    due: Json | None = None
    for entry in heard.log:
        if isinstance(entry, Sound):
            assert entry.resets == (due is not None), f"{heard.name}: a reset without its sentence"
            if due is not None:
                assert entry.timestamp == due["start_ms"] * 48
            due = None
        elif entry.type == "sentence":
            due = entry.message
            assert due["index"] >= index, f"{heard.name}: sentence {due['index']} after {index - 1}"
            assert place <= due["start"] < due["end"] <= len(heard.text)
            index, place = due["index"] + 1, due["end"]
        elif entry.type in TERMINAL:
            assert due is None or entry.type != "done", f"{heard.name}: a sentence without sound"


def check_marks(heard: Heard) -> int:
    """Every 10 ms of PCM at the engine's rate is this seed's, no block is missing and none comes twice.

    A sentence's last packet may be filled up with zeros. Returns the number of blocks.
    """
    assert (heard.format, heard.sample_rate) == ("pcm", RATE)
    due = 0
    sentences: list[list[bytes]] = []
    for sound in heard.sounds:
        if sound.resets:
            sentences.append([])
        if sound.packets:
            sentences[-1].extend(sound.packets)
    for sentence in sentences:
        blocks = np.frombuffer(b"".join(sentence), "<i2").reshape(-1, BLOCK)
        if not blocks[-1].any():
            blocks = blocks[:-1]
        bits = (blocks[:, :MARK_BITS] & 1).astype(np.uint8)
        marks = np.packbits(bits, axis=1, bitorder="little").view("<u4")
        foreign = np.flatnonzero(marks[:, 0] != heard.seed)
        assert not len(foreign), f"{heard.name}: sound of {marks[foreign[0], 0]}, not of {heard.seed}"
        wrong = np.flatnonzero(marks[:, 1] != np.arange(due, due + len(marks)))
        assert not len(wrong), f"{heard.name}: block {marks[wrong[0], 1]} where {due + wrong[0]} was due"
        due += len(blocks)
    return due


def loudest_tone(samples: NDArray[np.int16], rate: int = RATE) -> float:
    """The pitch (Hz) of the synthetic engine's tones that is strongest, by Goertzel's projections."""
    times = np.arange(len(samples)) / rate
    pitches = np.array([tone_hz(seed) for seed in range(TONES)])
    waves = np.exp(-2j * np.pi * np.outer(pitches, times))
    return float(pitches[np.argmax(np.abs(waves @ samples.astype(np.float64)))])


def check_tone(samples: NDArray[np.int16], seed: int, rate: int = RATE) -> None:
    """Each 40 ms of decoded sound, but for its very beginning and end, has the seed's pitch and no other."""
    step = rate // 25
    for at in range(step, len(samples) - 2 * step + 1, step):
        found = loudest_tone(samples[at : at + step], rate)
        assert found == tone_hz(seed), f"{found} Hz at sample {at}, expected {tone_hz(seed)} Hz"
