"""`sayflow text`: shows what becomes of a text, segment by segment, without speaking it.

Beside the flow: runs `sentences` and `rendition` as a session does. Imports nothing of the service.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click
from rich.console import Console
from rich.table import Table

from gateway.lexicon import EMPTY, Lexicon, LexiconError, parse
from gateway.markup import DEFAULT_POLICY, MarkupPolicy
from gateway.messages import Language
from gateway.normalize import MOST_CHARS
from gateway.rendition import Rendition, render, spans
from gateway.sentences import CHUNK_SIZE, Splitter

_SPAN: Final = ("text", "language", "start", "end")
_PLACE: Final = ("start", "end", "text")
MOST_TEXT: Final = 1 << 20
"""Characters of input."""


@dataclass(frozen=True, slots=True)
class Line:
    """A segment as it is shown. Places are those of the whole input, in code points."""

    index: int
    sentence: int
    start: int
    end: int
    source: str
    spoken: str
    language: str
    """`zh`, `en`, `mixed`, or "" where nothing is said."""
    spans: tuple[tuple[str, str, int, int], ...]
    """Text, language and place of each run of one language."""
    dropped: tuple[tuple[int, int, str], ...]
    """What is not said, with its place: of markup only what has letters, digits or pictures."""
    lag: int
    """Characters that were read past the end before the segment came out."""

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return {
            "index": self.index,
            "sentence": self.sentence,
            "start": self.start,
            "end": self.end,
            "source": self.source,
            "spoken": self.spoken,
            "language": self.language,
            "spans": [dict(zip(_SPAN, span, strict=True)) for span in self.spans],
            "dropped": [dict(zip(_PLACE, place, strict=True)) for place in self.dropped],
            "lag": self.lag,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """As of a session; see `config`."""

    max_chars: int = CHUNK_SIZE
    language: Language = "auto"
    lexicon: Lexicon = EMPTY
    markup: MarkupPolicy = DEFAULT_POLICY


def lines(text: str, *, pieces: int = 1, choices: Choices | None = None) -> Iterator[Line]:
    """Feed a text in pieces of so many characters, the last one followed by a flush."""
    chosen = choices or Choices()
    splitter = Splitter(max_chars=chosen.max_chars, chunk_size=chosen.max_chars, policy=chosen.markup)
    default: Literal["zh", "en"] = "en"
    fed = 0
    while fed < len(text) or fed == 0:
        piece = text[fed : fed + pieces]
        fed += max(len(piece), 1)
        segments = splitter.feed(piece) + (splitter.flush() if fed >= len(text) else [])
        for segment in segments:
            rendition = render(
                segment,
                text[segment.start : segment.end],
                max_chars=MOST_CHARS,
                language=chosen.language,
                lexicon=chosen.lexicon,
                default=default,
            )
            default = rendition.main_language if rendition.parts else default
            yield _line(text, rendition, fed)


def _line(text: str, rendition: Rendition, fed: int) -> Line:
    segment = rendition.segment
    return Line(
        index=segment.index,
        sentence=segment.sentence,
        start=segment.start,
        end=segment.end,
        source=text[segment.start : segment.end],
        spoken=rendition.text,
        language=rendition.language if rendition.parts else "",
        spans=tuple(
            (span.text, span.language, span.start, span.end)
            for part in rendition.parts
            for span in spans(part)
        ),
        dropped=tuple((start, end, text[start:end]) for start, end in rendition.dropped),
        lag=max(min(fed, len(text)) - segment.end, 0),
    )


@click.command()
@click.argument("text", required=False)
@click.option(
    "--pieces",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Characters that come at a time.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a segment.")
@click.option(
    "--language",
    type=click.Choice(["auto", "zh", "en"]),
    default="auto",
    show_default=True,
    help="What a number is read in where the text does not tell.",
)
@click.option(
    "--max-chars",
    type=click.IntRange(1, MOST_CHARS),
    default=CHUNK_SIZE,
    show_default=True,
    help="Most characters of a segment.",
)
@click.option("--code", type=click.Choice(["skip", "read"]), default="skip", show_default=True,
              help="Blocks of code.")  # fmt: skip
@click.option("--thoughts", type=click.Choice(["skip", "read"]), default="skip", show_default=True,
              help="<think> blocks.")  # fmt: skip
@click.option("--lexicon", "lexicon_file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A TOML file with a table [lexicon], such as sayflow.toml.")  # fmt: skip
def text(
    text: str | None,
    pieces: int,
    as_json: bool,
    language: Language,
    max_chars: int,
    code: Literal["skip", "read"],
    thoughts: Literal["skip", "read"],
    lexicon_file: Path | None,
) -> None:
    """Show how TEXT (or standard input) is cut into segments, and what is said of each."""
    content = sys.stdin.buffer.read().decode("utf-8", "replace") if text is None else text
    if len(content) > MOST_TEXT:
        raise click.ClickException(f"at most {MOST_TEXT} characters")
    choices = Choices(
        max_chars=max_chars,
        language=language,
        lexicon=EMPTY if lexicon_file is None else read_lexicon(lexicon_file),
        markup=MarkupPolicy(code=code, thoughts=thoughts),
    )
    shown = lines(content, pieces=pieces, choices=choices)
    if as_json:
        for line in shown:
            click.echo(json.dumps(line.as_json(), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    else:
        _print_table(shown)


def read_lexicon(path: Path) -> Lexicon:
    """The table `[lexicon]` of a settings file. Raises `click.ClickException` for one that is none."""
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("lexicon", {})
        if not isinstance(table, dict):
            raise LexiconError("lexicon must be a table")
        return parse(table)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from error


def _print_table(shown: Iterator[Line]) -> None:
    table = Table()
    for name in ("#", "sentence", "span", "source", "spoken", "language", "dropped", "lag"):
        table.add_column(name, overflow="fold")
    for line in shown:
        table.add_row(
            str(line.index),
            str(line.sentence),
            f"{line.start}-{line.end}",
            _printable(line.source),
            line.spoken,
            line.language,
            _printable(" ".join(text for _, _, text in line.dropped)),
            str(line.lag),
        )
    Console().print(table)


def _printable(text: str) -> str:
    """Without what a terminal would obey, and without rich's own markup."""
    safe = "".join(char if char.isprintable() else " " for char in text)
    return safe.replace("[", "\\[")
