"""`sayflow say` as a command: a child process against a fake gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import pytest

from gateway import messages
from gateway.messages import Cancelled, Done, Error, SentenceEvent
from tests.fake_gateway import FakeGateway, Peer
from tests.test_containers import encode, make_tone

ROOT = Path(__file__).parent.parent
COMMAND = "from gateway.say import say; say(prog_name='sayflow say')"


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """The one line of `--json`."""
        [line] = self.out.splitlines()
        return json.loads(line)


@asynccontextmanager
async def running(*arguments: str, search: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": search, "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        COMMAND,
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def finish(process: asyncio.subprocess.Process) -> Outcome:
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


async def run(*arguments: str, search: str = "") -> Outcome:
    async with running(*arguments, search=search) as process:
        return await finish(process)


def speaking(hz: float, seconds: float) -> tuple[list[bytes], list[messages.ClientMessage], Any]:
    """Packets of a tone, and a script that speaks them and keeps what it received."""
    packets = encode(make_tone(hz, seconds))
    received: list[messages.ClientMessage] = []

    async def script(peer: Peer) -> None:
        peer.received = received
        await peer.receive()
        await peer.started("u1", 4)
        text = await peer.receive_text("u1")
        await peer.send(SentenceEvent(utterance="u1", index=0, start=0, end=len(text), start_ms=0))
        for sequence, at in enumerate(range(0, len(packets), 3)):
            await peer.audio(4, packets[at : at + 3], sequence=sequence, reset=at == 0)
        await peer.send(Done(utterance="u1", duration_ms=20 * len(packets), dropped=((2, 3),)))
        await peer.receive_close()

    return packets, received, script


@pytest.mark.parametrize("name", ["out.ogg", "out.opus"])
async def test_writes_an_ogg_and_one_line_of_json(tmp_path: Path, name: str) -> None:
    packets, received, script = speaking(600, 1.0)
    path = tmp_path / name
    async with FakeGateway(script) as gateway:
        outcome = await run(
            "Hello.", "--url", gateway.url, "-o", str(path), "--json", "--voice", "tone", "--speed", "1.25"
        )
    assert outcome.code == 0, outcome.err
    start = received[0]
    assert isinstance(start, messages.Start)
    assert (start.pace, start.voice, start.speed, start.format) == ("fast", "tone", 1.25, None)
    report = outcome.report
    assert report["outcome"] == "done"
    assert (report["packets"], report["sentences"]) == (len(packets), 1)
    assert report["bytes"] == sum(map(len, packets))
    assert report["audio_s"] == pytest.approx(len(packets) * 0.02)
    assert 0 < report["ttfa_ms"] <= 1000 * report["wall_s"] + 1
    assert report["rtf"] == pytest.approx(report["wall_s"] / report["audio_s"], abs=0.001)
    assert report["file"] == str(path)
    assert "characters 2-3" in outcome.err
    with av.open(str(path), "r") as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == 960 * len(packets) - 312
    assert os.listdir(tmp_path) == [name]


async def test_writes_a_wav_and_a_line_for_people(tmp_path: Path) -> None:
    packets, _, script = speaking(600, 1.0)
    path = tmp_path / "out.WAV"
    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "-o", str(path))
    assert outcome.code == 0, outcome.err
    assert f"{len(packets) * 0.02:.2f} s of audio" in outcome.out
    assert "RTF" in outcome.out
    with wave.open(str(path)) as reader:
        assert reader.getframerate() == 24_000
        assert reader.getnframes() == 480 * len(packets) - 156


async def test_standard_input_is_sent_as_it_arrives(tmp_path: Path) -> None:
    pieces: asyncio.Queue[messages.ClientMessage] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        while not isinstance(peer.received[-1], messages.End):
            await pieces.put(await peer.receive())
        await peer.send(Done(utterance="u1", duration_ms=0))
        await peer.receive_close()

    async with FakeGateway(script) as gateway, running("-", "--url", gateway.url, "--json") as process:
        assert process.stdin is not None
        received = []
        # The second piece ends inside a character.
        for data in (b"Once ", "好".encode()[:2], "好".encode()[2:] + b" upon"):
            process.stdin.write(data)
            await process.stdin.drain()
            if data != "好".encode()[:2]:
                async with asyncio.timeout(20):
                    received.append(await pieces.get())
            else:
                await asyncio.sleep(0.05)
        process.stdin.close()
        outcome = await finish(process)
    assert received == [messages.Text(utterance="u1", text="Once "), messages.Text("u1", "好 upon")]
    assert outcome.code == 0
    assert outcome.report["ttfa_ms"] is None


async def test_a_file_as_standard_input(tmp_path: Path) -> None:
    _, received, script = speaking(600, 0.1)
    source = tmp_path / "text"
    source.write_text("From a file.")
    async with FakeGateway(script) as gateway:
        with source.open("rb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", COMMAND, "-", "--url", gateway.url),
                env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": ""},
                stdin=file,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert await process.wait() == 0
    assert messages.Text(utterance="u1", text="From a file.") in received


async def test_an_error_of_the_server_is_told_plainly(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(
            Error(code="overloaded", message="no voice is free", utterance="u1", retry_after_ms=1500)
        )
        await peer.receive_close()

    path = tmp_path / "out.ogg"
    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "-o", str(path), "--json")
    assert outcome.code == 1
    assert outcome.err.strip() == "no voice is free (overloaded); try again in 1.5 s"
    assert outcome.report["outcome"] == "overloaded"
    assert os.listdir(tmp_path) == []


async def test_a_lost_connection_leaves_no_file(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        await peer.receive()
        await peer.audio(1, encode(make_tone(500, 0.1)))
        await asyncio.sleep(0.05)
        peer.drop()

    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "-o", str(tmp_path / "out.wav"), "--json")
    assert outcome.code == 1
    assert outcome.report["outcome"] == "connection_lost"
    assert outcome.report["packets"] == 6
    assert "Traceback" not in outcome.err
    assert os.listdir(tmp_path) == []


async def test_no_gateway_there() -> None:
    outcome = await run("Hello.", "--url", "ws://127.0.0.1:9/v1/stream")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "sayflow serve" in outcome.err
    assert "Traceback" not in outcome.err


async def test_a_key_is_wanted() -> None:
    _, _, script = speaking(600, 0.1)
    async with FakeGateway(script, token="k") as gateway:
        outcome = await run("Hello.", "--url", gateway.url)
        assert outcome.code == 2
        assert "--token" in outcome.err
        assert (await run("Hello.", "--url", gateway.url, "--token", "k")).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("Hi.", "-o", "out.mp3"),
        ("Hi.", "-o", "out.ogg", "--format", "pcm"),
        ("Hi.", "-o", "/no/such/directory/out.ogg"),
        ("Hi.", "--speed", "9"),
        ("Hi.", "--sample-rate", "44100"),
        (),
    ],
)
async def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    outcome = await run(*arguments)
    assert outcome.code == 2
    assert "Usage" in outcome.err


async def test_ctrl_c_cancels_and_keeps_what_was_said(tmp_path: Path) -> None:
    cancelled: list[messages.ClientMessage] = []

    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.started("u1", 1)
        await peer.receive_text("u1")
        await peer.audio(1, encode(make_tone(500, 0.5)), reset=True)
        spoken.set()
        cancelled.append(await peer.receive())
        await peer.send(Cancelled(utterance="u1", played_ms=500, text_spoken="He", text_remaining="llo."))
        await peer.receive_close()

    spoken = asyncio.Event()
    path = tmp_path / "out.wav"
    async with (
        FakeGateway(script) as gateway,
        running("Hello.", "--url", gateway.url, "-o", str(path), "--json") as process,
    ):
        async with asyncio.timeout(20):
            await spoken.wait()
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        outcome = await finish(process)
    assert outcome.code == 130
    assert cancelled == [messages.Cancel(utterance="u1")]
    assert outcome.report["outcome"] == "interrupted"
    assert "Traceback" not in outcome.err
    with wave.open(str(path)) as reader:
        assert reader.getnframes() == 480 * 26 - 156


async def test_ctrl_c_does_not_wait_for_a_silent_server() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.receive()
        asked.set()
        await peer.receive_close()

    async with FakeGateway(script) as gateway, running("Hello.", "--url", gateway.url) as process:
        async with asyncio.timeout(20):
            await asked.wait()
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(2):
            outcome = await finish(process)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


async def test_without_a_player_the_figures_are_still_printed() -> None:
    packets, received, script = speaking(600, 0.4)
    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "--json")
    assert outcome.code == 0
    assert "no player found" in outcome.err
    assert outcome.report["packets"] == len(packets)
    start = received[0]
    assert isinstance(start, messages.Start)
    assert start.pace == "realtime"


def fake_player(folder: Path, body: str) -> None:
    player = folder / "aplay"
    player.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    player.chmod(0o755)


async def test_a_player_gets_the_sound(tmp_path: Path) -> None:
    packets, _, script = speaking(600, 2.0)
    heard = tmp_path / "heard"
    fake_player(tmp_path, f"open({str(heard)!r}, 'wb').write(sys.stdin.buffer.read())\nprint(sys.argv)")
    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, search=str(tmp_path))
    assert outcome.code == 0
    assert outcome.err.strip() == "the voice could not say the text at characters 2-3"
    assert heard.stat().st_size == 2 * (480 * len(packets) - 156)


async def test_a_player_that_fails_is_told(tmp_path: Path) -> None:
    packets, _, script = speaking(600, 4.0)
    fake_player(tmp_path, "sys.exit(3)")
    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "--json", search=str(tmp_path))
    assert outcome.code == 0
    assert "exit code 3" in outcome.err
    assert outcome.report["packets"] == len(packets)


async def test_an_unknown_voice_names_those_there_are() -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        await peer.send(Error(code="unknown_voice", message="no such voice", utterance="u1"))
        await peer.receive_close()

    async with FakeGateway(script) as gateway:
        outcome = await run("Hello.", "--url", gateway.url, "--voice", "nobody")
    assert outcome.code == 1
    assert outcome.err.strip() == "no such voice (unknown_voice): tone"


async def test_ctrl_c_stops_a_player_that_still_plays(tmp_path: Path) -> None:
    _, _, script = speaking(600, 0.5)
    running_player = tmp_path / "pid"
    fake_player(
        tmp_path,
        f"import os, time\nsys.stdin.buffer.read()\n"
        f"open({str(running_player)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)",
    )
    async with (
        FakeGateway(script) as gateway,
        running("Hello.", "--url", gateway.url, search=str(tmp_path)) as process,
    ):
        async with asyncio.timeout(20):
            while not (running_player.exists() and running_player.stat().st_size):  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # Another process's file tells nobody.
        process.send_signal(signal.SIGINT)
        outcome = await finish(process)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    with pytest.raises(ProcessLookupError):
        os.kill(int(running_player.read_text()), 0)


async def test_being_ended_leaves_no_half_file(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.receive()
        asked.set()
        await peer.receive_close()

    asked = asyncio.Event()
    async with (
        FakeGateway(script) as gateway,
        running("Hello.", "--url", gateway.url, "-o", str(tmp_path / "out.ogg")) as process,
    ):
        async with asyncio.timeout(20):
            await asked.wait()
        process.terminate()
        await asyncio.sleep(0.1)
        process.terminate()
        outcome = await finish(process)
    assert outcome.code == 130
    assert os.listdir(tmp_path) == []
