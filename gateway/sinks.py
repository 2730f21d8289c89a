"""Where the sound goes that `sayflow say` receives: a file, the system's player, or nowhere.

Every sink takes the audio messages in order. Must not import `engine` or a server module.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import IO, Final, Protocol

import opuslib_next

from gateway.containers import PRE_SKIP_TICKS, OggOpusMuxer, wav_header
from gateway.messages import FRAME_MS, TICKS_PER_MS, AudioMessage, Format, Started

DRAIN_S: Final = 15.0
"""How long a player may go on after the last sound was handed over: it holds a few seconds at most."""
SAMPLE_BYTES: Final = 2

OPUS_SUFFIXES: Final = (".ogg", ".opus")
WAV_SUFFIX: Final = ".wav"


class PcmDecoder:
    """Packets of a stream to little-endian int16 mono PCM at the stream's own rate."""

    def __init__(self, *, format: Format, sample_rate: int) -> None:
        self._frame_samples = sample_rate * FRAME_MS // 1000
        self._decoder = opuslib_next.Decoder(sample_rate, 1) if format == "opus" else None
        delay_samples = PRE_SKIP_TICKS * sample_rate // (1000 * TICKS_PER_MS)
        self._skip_bytes = SAMPLE_BYTES * delay_samples if format == "opus" else 0

    def feed(self, message: AudioMessage) -> bytes:
        """The samples of a message; the encoder's delay is cut off the stream's start, as in Ogg Opus."""
        if self._decoder is None:
            return b"".join(message.packets)
        if message.reset:
            self._decoder.reset_state()
        pcm = b"".join(self._decoder.decode(packet, self._frame_samples) for packet in message.packets)
        kept = pcm[self._skip_bytes :]
        self._skip_bytes -= len(pcm) - len(kept)
        return kept


class Sink(Protocol):
    """Takes the sound of one utterance."""

    note: str
    """What there is to say to the person at the end; empty for nothing."""

    async def open(self, started: Started) -> None:
        """The sound will be of this format and rate."""

    async def write(self, message: AudioMessage) -> None:
        """Waits where the sink is slower than the stream."""

    async def close(self, *, keep: bool) -> None:
        """No more sound. `keep`: what was written is wanted; otherwise fall silent at once, leave no file."""


class Nowhere:
    """Drops the sound."""

    def __init__(self, note: str) -> None:
        self.note = note

    async def open(self, started: Started) -> None:
        """Nothing to prepare."""

    async def write(self, message: AudioMessage) -> None:
        """Nothing to do."""

    async def close(self, *, keep: bool) -> None:
        """Nothing to end."""


class SoundFile:
    """An Ogg Opus or WAV file, by its name. It appears under its name when it is whole.

    Written from the event loop: a page a second of sound, into the system's cache.
    """

    def __init__(self, path: Path) -> None:
        self.note = ""
        self._path = path
        self._part = path.with_name(path.name + ".part")
        # Opened before anything is spoken, so that a directory that is not there is known at once.
        self._file: IO[bytes] = self._part.open("wb")
        self._muxer: OggOpusMuxer | None = None
        self._decoder: PcmDecoder | None = None
        self._sample_rate = 0
        self._data_bytes = 0

    async def open(self, started: Started) -> None:
        """Write the header."""
        self._sample_rate = started.sample_rate
        if self._path.suffix.lower() == WAV_SUFFIX:
            self._decoder = PcmDecoder(format=started.format, sample_rate=started.sample_rate)
            self._file.write(wav_header(sample_rate=self._sample_rate, data_bytes=0))
        else:
            self._muxer = OggOpusMuxer(sample_rate=started.sample_rate)
            self._file.write(self._muxer.header())

    async def write(self, message: AudioMessage) -> None:
        """Append the sound of a message."""
        if self._muxer is not None:
            data = b"".join(self._muxer.feed(packet) for packet in message.packets)
        else:
            assert self._decoder is not None, "open comes first"
            data = self._decoder.feed(message)
        self._file.write(data)
        self._data_bytes += len(data)

    async def close(self, *, keep: bool) -> None:
        """Give the file its name, or remove it."""
        with self._file as file:
            if self._muxer is not None:
                file.write(self._muxer.flush())
            elif self._decoder is not None:
                file.seek(0)
                file.write(wav_header(sample_rate=self._sample_rate, data_bytes=self._data_bytes))
        if keep:
            self._part.replace(self._path)
        else:
            self._part.unlink()


class Player:
    """A program of the system that plays PCM from its standard input."""

    def __init__(self, name: str) -> None:
        self.note = ""
        self._name = name
        self._process: asyncio.subprocess.Process | None = None
        self._decoder: PcmDecoder | None = None

    async def open(self, started: Started) -> None:
        """Start the program."""
        self._decoder = PcmDecoder(format=started.format, sample_rate=started.sample_rate)
        self._process = await asyncio.create_subprocess_exec(
            *player_command(self._name, started.sample_rate),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # Ctrl-C reaches the whole group: here it is ours to say when the player stops.
            start_new_session=True,
        )

    async def write(self, message: AudioMessage) -> None:
        """Hand over the sound; waits while the player has enough."""
        assert self._decoder is not None, "open comes first"
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(self._decoder.feed(message))
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            code = await process.wait()
            self.note = f"{self._name} stopped (exit code {code}); the rest of the sound was dropped"
            self._process = None

    async def close(self, *, keep: bool) -> None:
        """Wait until all was played, or stop the program at once."""
        process = self._process
        if process is None or process.stdin is None:
            return
        if not keep and process.returncode is None:
            process.terminate()
        process.stdin.close()
        try:
            async with asyncio.timeout(DRAIN_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        if keep and code != 0:
            self.note = f"{self._name} could not play the sound (exit code {code})"


def player_command(name: str, sample_rate: int) -> list[str]:
    """The command that plays raw mono int16 from standard input."""
    rate = str(sample_rate)
    return {
        "ffplay": [
            "ffplay",
            "-nodisp",
            "-autoexit",
            "-loglevel",
            "quiet",
            "-f",
            "s16le",
            "-ar",
            rate,
            "-i",
            "-",
        ],
        "paplay": ["paplay", "--raw", "--format=s16le", "--channels=1", f"--rate={rate}"],
        "aplay": ["aplay", "-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", rate, "-"],
        "play": ["play", "-q", "-t", "raw", "-e", "signed", "-b", "16", "-c", "1", "-r", rate, "-"],
    }[name]


PLAYERS: Final = ("ffplay", "paplay", "aplay", "play")


def find_player(search: str | None = None) -> Sink:
    """The first player of `PLAYERS` on the search path (`PATH`)."""
    for name in PLAYERS:
        if shutil.which(name, path=search if search is not None else os.environ.get("PATH")):
            return Player(name)
    return Nowhere(f"no player found ({', '.join(PLAYERS)}): the sound was dropped. Use -o FILE to keep it")
