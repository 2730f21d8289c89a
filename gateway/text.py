"""`sayflow text`: shows what becomes of a text, segment by segment, without speaking it.

Beside the flow: runs `sentences` and `normalize` as a session does. Imports nothing of the service.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click
from rich.console import Console
from rich.table import Table

from gateway.lexicon import EMPTY, Lexicon, LexiconError, parse
from gateway.normalize import MOST_CHARS, Spoken, normalize
from gateway.sentences import Segment, Splitter

DEFAULT_MAX_CHARS: Final = 150
_SPAN: Final = ("text", "language", "start", "end")
_PLACE: Final = ("start", "end", "text")
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
"""Of HTML: itself markup, not something left unsaid."""
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


def lines(
    text: str,
    *,
    pieces: int = 1,
    max_chars: int = DEFAULT_MAX_CHARS,
    language: Literal["auto", "zh", "en"] = "auto",
    lexicon: Lexicon = EMPTY,
) -> Iterator[Line]:
    """Feed a text in pieces of so many characters, the last one followed by a flush."""
    splitter = Splitter(max_chars=max_chars)
    fed = 0
    while fed < len(text):
        piece = text[fed : fed + pieces]
        fed += len(piece)
        for segment in splitter.feed(piece):
            yield _line(text, segment, fed, language, lexicon)
    for segment in splitter.flush():
        yield _line(text, segment, fed, language, lexicon)


def _line(
    text: str, segment: Segment, fed: int, language: Literal["auto", "zh", "en"], lexicon: Lexicon
) -> Line:
    spoken = normalize(segment.text, language=language, lexicon=lexicon)
    spans = tuple(
        (span.text, span.language, *_source(text, segment, span.start, span.end)) for span in spoken.spans()
    )
    languages = {span[1] for span in spans}
    return Line(
        index=segment.index,
        sentence=segment.sentence,
        start=segment.start,
        end=segment.end,
        source=text[segment.start : segment.end],
        spoken=spoken.text,
        language="mixed" if len(languages) > 1 else "".join(languages),
        spans=spans,
        dropped=tuple(_dropped(text, segment, spoken)),
        lag=max(fed - segment.end, 0),
    )


def _source(text: str, segment: Segment, start: int, end: int) -> tuple[int, int]:
    """The place in the client's text of `[start, end)` in the segment's; not of what was left out before."""
    return _start(text, segment, start), segment.ends[end - 1]


def _start(text: str, segment: Segment, at: int) -> int:
    """Where a character of the segment starts in the client's text: one before its end, but for `&amp;`."""
    low = segment.ends[at - 1] if at else segment.start
    end = segment.ends[at]
    entity = text.rfind("&", low, end - 1) if text[end - 1] == ";" and segment.text[at] != ";" else -1
    return end - 1 if entity < 0 else entity


def _dropped(text: str, segment: Segment, spoken: Spoken) -> Iterator[tuple[int, int, str]]:
    """What the splitter left out, and what cannot be said, in order."""
    places: list[tuple[int, int]] = []
    before = segment.start
    for at, end in enumerate(segment.ends):
        places.append((before, _start(text, segment, at)))
        before = end
    places.append((before, segment.end))
    places = [place for place in places if any(map(_means_something, _TAG.sub("", text[slice(*place)])))]
    places += [_source(text, segment, start, end) for start, end in spoken.dropped]
    for start, end in sorted(places):
        yield start, end, text[start:end]


def _means_something(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char) in ("So", "Sc", "Sm", "Cs", "Co", "Cn")


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
    default=DEFAULT_MAX_CHARS,
    show_default=True,
    help="Most characters of a segment.",
)
@click.option("--lexicon", "lexicon_file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A TOML file with a table [lexicon], such as sayflow.toml.")  # fmt: skip
def text(
    text: str | None,
    pieces: int,
    as_json: bool,
    language: Literal["auto", "zh", "en"],
    max_chars: int,
    lexicon_file: Path | None,
) -> None:
    """Show how TEXT (or standard input) is cut into segments, and what is said of each."""
    content = sys.stdin.buffer.read().decode("utf-8", "replace") if text is None else text
    if len(content) > MOST_TEXT:
        raise click.ClickException(f"at most {MOST_TEXT} characters")
    lexicon = EMPTY if lexicon_file is None else read_lexicon(lexicon_file)
    shown = lines(content, pieces=pieces, max_chars=max_chars, language=language, lexicon=lexicon)
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
