"""The command line: `sayflow serve`, `say`, `text`, and the engine's own `weights` and `voices`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from gateway import logs, supervisor
from gateway.config import ConfigError, load
from gateway.say import say
from gateway.text import text

ENGINES: Final = ["embedded", "chattts", "chattts-upstream", "synthetic"]
ENGINE_OPTIONS: Final = {
    "engine": "kind",
    "slots": "slots",
    "weights": "weights",
    "voices": "voices",
    "backend": "backend",
    "precision": "precision",
    "provider": "provider",
    "threads": "threads",
}
"""Options of the command line that belong to the engine: by their names in `EngineSettings`."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sayflow")
def main() -> None:
    """Sayflow, a real-time voice gateway: text in over a WebSocket, speech out."""


@main.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.  [default: 8080]")
@click.option("--ops-port", type=int, help="A port of its own for /healthz, /readyz and /metrics.")
@click.option("--engine", type=click.Choice(ENGINES), help="The engine that speaks.  [default: embedded]")
@click.option("--weights", type=click.Path(path_type=Path), help="Folder of ChatTTS weights.")
@click.option("--voices", type=click.Path(path_type=Path), help="Folder of your own ChatTTS voices.")
@click.option("--backend", type=click.Choice(["auto", "torch", "onnx"]), help="What computes ChatTTS.")
@click.option("--precision", type=click.Choice(["auto", "fp32", "bf16", "fp16", "int8"]), help="Its numbers.")
@click.option(
    "--provider", type=click.Choice(["cpu", "cuda", "tensorrt"]), help="Where it computes.  [default: cpu]"
)
@click.option("--threads", type=int, help="CPU threads of the engine.  [default: 2]")
@click.option("--slots", type=int, help="Utterances that may be in the engine at once.")
@click.option("--voice", help="The voice of those who ask for none.")
@click.option("--config", "path", type=click.Path(path_type=Path), help="A settings file (TOML).")
def serve(path: Path | None, **options: Any) -> None:
    """Start the gateway and its engine."""
    try:
        config = load(path, overrides(options))
        logs.configure(config.log_level)
        code = asyncio.run(supervisor.supervise(config, announce))
    except (ConfigError, supervisor.StartError) as error:
        click.echo(f"sayflow: {error}", err=True)
        sys.exit(supervisor.EXIT_CONFIG)
    sys.exit(code)


def overrides(options: dict[str, Any]) -> dict[str, Any]:
    """The command line's settings, those that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    main_engine = {key: given.pop(option) for option, key in ENGINE_OPTIONS.items() if option in given}
    return given | ({"engines": {"main": main_engine}} if main_engine else {})


def announce(address: str) -> None:
    """Tell the person where the demo page is."""
    click.echo(f"Sayflow speaks at {address}", err=True)


def pass_on(name: str, help: str) -> click.Command:
    """A command of `engine.cli`: run in a process of its own, since this one never imports torch."""

    @click.command(name, help=help, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "engine.cli", name, *arguments])

    return command


main.add_command(say)
main.add_command(text)
main.add_command(pass_on("weights", "ChatTTS weights: check, fetch, quantise, random."))
main.add_command(pass_on("voices", "ChatTTS voices: list, random, import, clone."))

if __name__ == "__main__":
    main()
