"""`sayflow say`: speak a text, or standard input as it arrives, through a running gateway.

A command over `client`; the sound goes to a `sinks.Sink`. Must not import `engine` or a server module.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.client import CannotConnect, Client, StartOptions, connect
from gateway.client_utterance import ClientError, Ended, Utterance, is_terminal, outcome_of
from gateway.messages import (
    FRAME_MS,
    AudioMessage,
    Cancelled,
    Done,
    Error,
    Format,
    Hello,
    Language,
    SampleRate,
)
from gateway.sinks import OPUS_SUFFIXES, WAV_SUFFIX, Sink, SoundFile, find_player
from gateway.stdin import read_pieces

DEFAULT_URL: Final = "ws://127.0.0.1:8080/v1/stream"
CANCEL_S: Final = 3.0
"""How long Ctrl-C waits for the server to confirm that the utterance was cancelled."""

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class Report(msgspec.Struct, kw_only=True):
    """What `--json` prints. Times by this client's clock; `None` where there is nothing to measure."""

    outcome: str
    """`done`, `cancelled`, `interrupted`, `cannot_connect`, `connection_lost`, or a server's error code."""
    message: str | None = None
    ttfa_ms: float | None = None
    """From the first piece of text sent to the first binary message with sound."""
    audio_s: float = 0.0
    wall_s: float = 0.0
    """From the first piece of text sent to the end. Played live it is about `audio_s`: the server paces."""
    rtf: float | None = None
    """`wall_s` / `audio_s`."""
    sentences: int = 0
    packets: int = 0
    bytes: int = 0
    """Of sound, as received."""
    voice: str | None = None
    format: str | None = None
    sample_rate: int | None = None
    file: str | None = None
    truncated: bool = False
    dropped: tuple[tuple[int, int], ...] = ()
    """Spans of the text that could not be spoken, as `done` names them."""

    @property
    def exit_code(self) -> int:
        """0 done, 1 failed on the way, 2 no connection, 130 Ctrl-C."""
        return {
            "done": EXIT_DONE,
            "interrupted": EXIT_INTERRUPTED,
            "cannot_connect": EXIT_USAGE,
            "unreadable_input": EXIT_USAGE,
        }.get(self.outcome, EXIT_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to speak and how. `text` is `None` for standard input."""

    text: str | None
    url: str
    token: str | None
    options: StartOptions
    path: Path | None


class Speaking:
    """One run of the command."""

    def __init__(self, request: Request, sink: Sink, console: Console) -> None:
        self.report = Report(outcome="interrupted")
        self._request = request
        self._sink = sink
        self._utterance: Utterance | None = None
        self._interrupted = False
        self._sent: list[str] = []
        self._cancelling: asyncio.Task[None] | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} characters, {task.fields[audio_s]:.1f} s"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    async def run(self) -> None:
        """Speak; the report says how it went, whatever happened."""
        main = asyncio.current_task()
        assert main is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, main)
        try:
            await self._converse()
            await self._sink.close(keep=self._keeps())
        except asyncio.CancelledError:
            self.report.outcome = "interrupted"
            await self._sink.close(keep=self._keeps())
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _converse(self) -> None:
        try:
            async with connect(self._request.url, token=self._request.token) as client:
                await self._speak(client)
        except CannotConnect as error:
            self.report.outcome, self.report.message = "cannot_connect", _with_hint(error)
        except ClientError as error:
            self.report.outcome, self.report.message = "connection_lost", str(error)

    def _keeps(self) -> bool:
        """A file of nothing helps nobody; a file up to where Ctrl-C struck was asked for."""
        report = self.report
        keeps = report.packets > 0 and (
            report.outcome == "done" or (report.outcome == "interrupted" and self._request.path is not None)
        )
        if keeps and self._request.path is not None:
            report.file = str(self._request.path)
        return keeps

    def _interrupt(self, main: asyncio.Task[None]) -> None:
        """The first Ctrl-C cancels the utterance, the next one the command."""
        utterance = self._utterance
        if self._interrupted or utterance is None or utterance.ended is not None:
            main.cancel()
            return
        self._interrupted = True
        played_ms = None
        if self._request.path is None and utterance.first_audio_at is not None:
            received_ms = float(self.report.packets * FRAME_MS)
            played_ms = min(
                received_ms, 1000 * (asyncio.get_running_loop().time() - utterance.first_audio_at)
            )
        self._cancelling = asyncio.create_task(utterance.cancel(played_ms))
        asyncio.get_running_loop().call_later(CANCEL_S, main.cancel)

    async def _speak(self, client: Client) -> None:
        utterance = self._utterance = await client.start(**self._request.options)
        feeder = asyncio.create_task(self._feed(utterance))
        try:
            with self._progress:
                ended = await self._receive(utterance)
        finally:
            feeder.cancel()
            leftovers = [feeder] if self._cancelling is None else [feeder, self._cancelling]
            # A lost connection fails all three in the same way; the receiving side tells it.
            await asyncio.gather(*leftovers, return_exceptions=True)
            self._measure(utterance)
        if self.report.outcome == "unreadable_input":
            return
        self.report.outcome = "interrupted" if self._interrupted else outcome_of(ended)
        if isinstance(ended, Error):
            self.report.message = _explain(ended, client.hello)
        elif isinstance(ended, Done):
            text = "".join(self._sent)
            self.report.truncated = ended.truncated
            self.report.dropped = tuple(  # of blanks and marks nobody expects a sound
                (start, end) for start, end in ended.dropped if any(map(str.isalnum, text[start:end]))
            )

    async def _feed(self, utterance: Utterance) -> None:
        """Send the text. A lost connection is told by the receiving side."""
        if self._request.text is not None:
            self._sent.append(self._request.text)
            await utterance.send_all(self._request.text)
            return
        try:
            async for piece in read_pieces(sys.stdin.fileno()):
                self._sent.append(piece)
                await utterance.send_text(piece)
        except OSError as error:
            self.report.outcome = "unreadable_input"
            self.report.message = f"cannot read standard input: {error.strerror}"
            await utterance.cancel()
        else:
            await utterance.end()

    async def _receive(self, utterance: Utterance) -> Ended:
        report = self.report
        bar = self._progress.add_task("speaking", total=0, audio_s=0.0)
        async for event in utterance.events():
            match event:
                case AudioMessage():
                    if report.packets == 0 and event.packets:
                        assert utterance.started is not None, (
                            "sound is found by the stream that `started` names"
                        )
                        await self._sink.open(utterance.started)
                    if not self._interrupted or self._request.path is not None:
                        await self._sink.write(event)
                    report.packets += len(event.packets)
                    report.bytes += sum(map(len, event.packets))
                case Done() | Cancelled() | Error() if is_terminal(event):
                    return event
                case _:
                    pass
            self._progress.update(
                bar,
                completed=utterance.spoken_chars,
                total=utterance.sent_chars,
                audio_s=report.packets * FRAME_MS / 1000,
            )
        raise AssertionError("events end with a terminal event or an exception")

    def _measure(self, utterance: Utterance) -> None:
        report, started = self.report, utterance.started
        report.sentences = utterance.sentences
        report.audio_s = report.packets * FRAME_MS / 1000
        report.wall_s = round(utterance.wall_s, 3)
        report.ttfa_ms = round(utterance.ttfa_ms, 1) if utterance.ttfa_ms is not None else None
        report.rtf = round(report.wall_s / report.audio_s, 3) if report.audio_s > 0 else None
        if started is not None:
            report.voice, report.format, report.sample_rate = (
                started.voice,
                started.format,
                started.sample_rate,
            )


def _with_hint(error: CannotConnect) -> str:
    match error.status:
        case None:
            return f"{error}\nIs the gateway running? `sayflow serve` starts it."
        case 401 | 403:
            return f"{error}\nA key is needed: --token, or SAYFLOW_TOKEN in the environment."
        case _:
            return str(error)


def _explain(error: Error, hello: Hello) -> str:
    if error.code == "unknown_voice":
        return f"{error.message} ({error.code}): {', '.join(voice.id for voice in hello.voices)}"
    later = f"; try again in {error.retry_after_ms / 1000:g} s" if error.retry_after_ms is not None else ""
    return f"{error.message} ({error.code}){later}"


def _summary(report: Report) -> str:
    """One line for a person."""
    if report.ttfa_ms is None:
        return "nothing was spoken: no sound came back"
    line = (
        f"first audio after {report.ttfa_ms:.0f} ms, {report.audio_s:.2f} s of audio in {report.wall_s:.2f} s"
    )
    line += f" (RTF {report.rtf:.2f}), {report.sentences} sentences, {report.packets} packets"
    return line + (f", written to {report.file}" if report.file is not None else "")


def _make_sink(path: Path | None, format: Format | None) -> Sink:
    """Raises `click.ClickException` with what is wrong with the path."""
    if path is None:
        return find_player()
    suffix = path.suffix.lower()
    if suffix not in (*OPUS_SUFFIXES, WAV_SUFFIX):
        raise click.BadParameter("the name must end in .ogg, .opus or .wav", param_hint="'-o'")
    if suffix in OPUS_SUFFIXES and format == "pcm":
        raise click.BadParameter(f"a {suffix} file holds Opus; use .wav with --format pcm", param_hint="'-o'")
    try:
        return SoundFile(path)
    except OSError as error:
        raise click.BadParameter(f"cannot write {path}: {error.strerror}", param_hint="'-o'") from error


def _run(request: Request, sink: Sink, *, as_json: bool) -> int:
    speaking = Speaking(request, sink, Console(stderr=True))
    asyncio.run(speaking.run())
    report = speaking.report
    if report.message is not None:
        click.echo(report.message, err=True)
    if report.dropped:
        places = ", ".join(f"{start}-{end}" for start, end in report.dropped)
        click.echo(f"the voice could not say the text at characters {places}", err=True)
    if report.truncated:
        click.echo("a sentence outran the engine's limit and was cut", err=True)
    if sink.note and report.packets:
        click.echo(sink.note, err=True)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    elif report.outcome in ("done", "interrupted"):
        click.echo(_summary(report))
    return report.exit_code


@click.command(short_help="Speak a text, or standard input as it arrives.")
@click.argument("text")
@click.option("--url", default=DEFAULT_URL, show_default=True, envvar="SAYFLOW_URL", help="The gateway.")
@click.option("--token", envvar="SAYFLOW_TOKEN", help="Key of the gateway; better given as SAYFLOW_TOKEN.")
@click.option("--voice", help="Id of a voice; the gateway's default without.")
@click.option("--lang", type=click.Choice(["auto", "zh", "en"]), help="Language of the text.")
@click.option("--speed", type=click.FloatRange(0.5, 2.0), help="1 is the voice's own.")
@click.option("--format", type=click.Choice(["opus", "pcm"]), help="How the sound travels; opus without.")
@click.option("--sample-rate", type=click.Choice([8000, 16000, 24000, 48000]), help="Hz; 24000 without.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write .ogg, .opus or .wav, not play.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON on standard output.")
@click.pass_context
def say(
    context: click.Context,
    text: str,
    url: str,
    token: str | None,
    voice: str | None,
    lang: Language | None,
    speed: float | None,
    format: Format | None,
    sample_rate: SampleRate | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Speak TEXT; with "-" standard input, piece by piece as it arrives.

    Exit code: 0 spoken, 1 the gateway reported an error, 2 wrong usage or no connection, 130 Ctrl-C.
    """
    pace: Literal["realtime", "fast"] = "realtime" if output is None else "fast"
    options = StartOptions(
        voice=voice, language=lang, format=format, sample_rate=sample_rate, speed=speed, pace=pace
    )
    # An argument that is no UTF-8 holds lone surrogates, which JSON cannot carry.
    spoken = None if text == "-" else text.encode("utf-8", "replace").decode()
    request = Request(text=spoken, url=url, token=token, options=options, path=output)
    context.exit(_run(request, _make_sink(output, format), as_json=as_json))
