"""The engine's own commands: `sayflow weights` and `sayflow voices`, which run as `python -m engine.cli`.

A process of their own, since the gateway's never imports torch. Heavy imports are inside the commands.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from engine.errors import EngineError, ModelMissing

FAULT = 1
"""Exit status where the weights cannot be used."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Sayflow's speech engines: weights and voices."""


@contextmanager
def faults() -> Iterator[None]:
    """A fault of the weights ends the command with one plain line."""
    try:
        yield
    except (ModelMissing, EngineError, OSError) as error:
        click.echo(f"fault: {error}", err=True)
        sys.exit(FAULT)
    except ModuleNotFoundError as error:
        click.echo(f'fault: {error.name} is not installed: pip install "sayflow[torch]"', err=True)
        sys.exit(FAULT)


@main.group()
def weights() -> None:
    """ChatTTS weights: check a folder, fetch the release, write random ones."""


directory = click.argument("directory", type=click.Path(path_type=Path))


@weights.command()
@directory
@click.option("--speak/--no-speak", default=True, help="Say two words with them.  [default: speak]")
@click.option("--stream-error", is_flag=True, help="Offline against streaming decode, by lookahead.")
def check(directory: Path, *, speak: bool, stream_error: bool) -> None:
    """Hold a folder of weights against the layout, and try them."""
    with faults():
        from engine.chattts import weights

        for line in describe(directory):
            click.echo(line)
        checkpoint = weights.load(directory)
        click.echo(f"values      ok, all finite\nfingerprint {checkpoint.fingerprint}")
        if stream_error:
            from engine.chattts.check import random_hidden, stream_errors

            click.echo("lookahead (steps)  peak error, relative (random hidden states; 52: committed)")
            for lookahead, error in stream_errors(checkpoint, random_hidden(checkpoint)).items():
                click.echo(f"{lookahead:>17}  {error:.1e}")
        if speak:
            from engine.chattts.check import speak as spoken

            # The model loads the folder itself; two copies of the release are 2.3 GB.
            del checkpoint
            sound = spoken(directory, time.monotonic)
            level = 20 * math.log10(sound.rms) if sound.rms > 0 else -math.inf
            click.echo(f"speech      {sound.seconds:.2f} s at {level:.1f} dBFS in {sound.took_s:.1f} s")
    click.echo("ok")


def describe(directory: Path) -> Iterator[str]:
    """Files, shapes and digests, line by line. Raises `WeightsError`."""
    from engine.chattts import fetch, layout, weights

    header = weights.survey(directory)
    digests = weights.digests(directory)
    gpt = header.gpt_shape
    yield (
        f"gpt         hidden {gpt.hidden}, {gpt.layers} layers, {gpt.heads} heads ({gpt.kv_heads} of keys),"
        f" intermediate {gpt.intermediate}"
    )
    for file in layout.READ_FILES:
        size = (directory / file).stat().st_size
        released = "released" if digests[file] == fetch.RELEASED[file] else "not the release's"
        kind = f"{len(header.tensors[file])} tensors, fp32" if file in header.tensors else "JSON"
        yield f"{file!s:<36} {size:>12,} B  {kind}, sha256 {digests[file][:12]} ({released})"
        for name, shape in sorted(header.tensors.get(file, {}).items()):
            yield f"  {name} [{', '.join(map(str, shape))}]"


@weights.command()
@directory
@click.option("--repository", default="2Noise/ChatTTS", show_default=True)
@click.option("--revision", default="main", show_default=True)
@click.option("--endpoint", help="Of the hub or a mirror.  [default: HF_ENDPOINT, else the hub]")
def fetch(directory: Path, *, repository: str, revision: str, endpoint: str | None) -> None:
    """Download the released weights, verified by their SHA-256. They are CC BY-NC 4.0."""
    with faults():
        from engine.chattts import fetch

        click.echo(fetch.LICENCE, err=True)
        fetch.fetch(directory, repository=repository, revision=revision, endpoint=endpoint, report=click.echo)
    click.echo("ok")


@weights.command()
@directory
def quantise(directory: Path) -> None:
    """Make the 8-bit form of the language model, for CPUs: once, beside the weights."""
    with faults():
        from engine.chattts import quantise

        with click.progressbar(length=100, label="quantising", file=sys.stderr) as bar:
            path = quantise.quantise(
                directory, progress=lambda done, total: bar.update(done * 100 // total - bar.pos)
            )
        click.echo(path)
    click.echo("ok")


@weights.command()
@directory
@click.option("--text", type=click.Path(path_type=Path), help="A text a line.  [default: eight of our own]")
@click.option(
    "--steps", type=click.IntRange(1, 1024), default=240, show_default=True, help="At most, a text."
)
@click.option("--plots", type=click.Path(path_type=Path), help="Draw plots into this folder.")
@click.option("--json", "figures", type=click.Path(path_type=Path), help="Write every figure to this file.")
def quality(
    directory: Path, *, text: Path | None, steps: int, plots: Path | None, figures: Path | None
) -> None:
    """Compare each backend with torch in fp32, step by step. Status 1 where one is beyond the limits."""
    with faults():
        from engine.chattts import quality, quality_plots, quality_score

        texts = quality.TEXTS if text is None else quality.read_texts(text)
        with click.progressbar(length=100, label="comparing", file=sys.stderr) as bar:
            report = quality.compare(
                directory,
                texts,
                steps=steps,
                progress=lambda done, total: bar.update(done * 100 // total - bar.pos),
            )
        for line in quality_score.table(report):
            click.echo(line)
        if figures is not None:
            figures.write_text(json.dumps(quality_score.as_json(report), indent=2) + "\n", "utf-8")
        if plots is not None:
            for path in quality_plots.draw(report, plots):
                click.echo(path)
    if report.failed:
        sys.exit(FAULT)
    click.echo("ok")


@weights.command(name="random")
@directory
@click.option("--size", type=click.Choice(["tiny", "full"]), default="tiny", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def random_(directory: Path, *, size: str, seed: int) -> None:
    """Write random weights in the released layout: tiny (2 MB) or full (1.2 GB). They babble."""
    with faults():
        from engine.chattts import random_weights

        with click.progressbar(length=100, label="writing", file=sys.stderr) as bar:
            random_weights.write(
                directory,
                size="full" if size == "full" else "tiny",
                seed=seed,
                progress=lambda done, total: bar.update(done * 100 // total - bar.pos),
            )
    click.echo("ok")


@main.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def voices(arguments: tuple[str, ...]) -> None:
    """ChatTTS voices: list, random, import, clone."""
    with faults():
        from engine.chattts.voices_cli import voices

        voices.main(args=list(arguments), prog_name="sayflow voices")


if __name__ == "__main__":
    main(prog_name="sayflow")
