"""How well texts are cut and read: ours beside sentencex, pysbd, stream2sentence and wetext.

    python bench/text.py [--json FILE]

All get the cases of `tests/cases`. The others are optional, and left out with a note where they are missing:

    pip install sentencex==1.0.32 pysbd==0.3.4 stream2sentence==1.1.0 wetext==0.1.8

stream2sentence runs as it comes (its rules; no NLTK or Stanza models) and is fed one character at a time, as
ours is. sentencex and pysbd do not stream: they get the text whole; for the lag, all that is not out yet anew
at each character, a sentence being out once another follows it. None of the three removes markup, so they are
judged by sentences only (`ends`, `whole`, `count`), ours also by what is spoken (`gone`, `kept`).
"""

from __future__ import annotations

import importlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import click
from rich.console import Console
from rich.table import Table

# Run as a script, this file's own folder comes first, where `import gateway` would find this file.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gateway.normalize import normalize  # noqa: E402
from gateway.sentences import Splitter  # noqa: E402

Case = dict[str, Any]
Found = tuple[int, int]
"""The end of a sentence, and how many characters had been read when it came out."""
HOME: Final = Path(__file__).resolve().parent.parent / "tests" / "cases"
SENTENCES: Final = ("shared/sentences.jsonl", "sentences.jsonl")
MARKUP: Final = ("markup.jsonl",)
READINGS: Final = ("shared/normalisation.jsonl", "normalisation.jsonl")
CHARS: Final = 160
COST: Final = """
import time
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before, start = resident(), time.perf_counter()
import wetext
for lang in ("zh", "en"):
    wetext.Normalizer(lang=lang, operator="tn").normalize("2024")
print(time.perf_counter() - start, resident() - before)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One tool. `None`: it does not do that."""

    tool: str
    shared_sentences: str | None = None
    own_sentences: str | None = None
    markup: str | None = None
    shared_readings: str | None = None
    own_readings: str | None = None
    lag_median: float | None = None
    lag_most: int | None = None
    """Characters read past a sentence's end before it came out. The last one of a text does not count."""
    us_a_char: float | None = None


def read(name: str) -> list[Case]:
    """The cases of a file."""
    return [json.loads(line) for line in (HOME / name).read_text("utf-8").splitlines() if line]


# --- cutting ------------------------------------------------------------------------------------------------


def ours(text: str) -> tuple[list[Found], str]:
    """One character at a time. The sentences, and what is spoken."""
    splitter = Splitter(max_chars=CHARS, chunk_size=CHARS)
    found: dict[int, Found] = {}
    spoken: list[str] = []
    for fed in range(len(text) + 1):
        for segment in splitter.feed(text[fed]) if fed < len(text) else splitter.flush():
            found[segment.sentence] = (segment.end, min(fed + 1, len(text)))
            spoken.append(segment.text)
    return list(found.values()), " ".join(spoken)


def located(text: str, sentences: Sequence[str], read_to: Sequence[int]) -> list[Found]:
    """Where sentences end in the text, blanks aside, which a tool may change."""
    found: list[Found] = []
    at = 0
    for sentence, fed in zip(sentences, read_to, strict=True):
        for char in sentence:
            if not char.isspace():
                place = text.find(char, at)
                at = place + 1 if place >= 0 else at
        found.append((at, fed))
    return found


def stream2sentence(text: str) -> list[Found]:
    """By its own streaming interface, one character at a time."""
    tool = importlib.import_module("stream2sentence")
    fed = 0

    def characters() -> Iterator[str]:
        nonlocal fed
        for char in text:
            fed += 1
            yield char

    language = "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else "en"
    sentences, read_to = [], []
    for sentence in tool.generate_sentences(characters(), language=language):
        sentences.append(sentence)
        read_to.append(fed)
    return located(text, sentences, read_to)


def resplitting(split: Callable[[str], list[str]]) -> Callable[[str], list[Found]]:
    """A tool that takes whole texts, as one would stream with it: the rest anew at each character."""

    def run(text: str) -> list[Found]:
        whole = [sentence for sentence in split(text) if sentence.strip()]
        released: list[int] = []
        start = 0
        for fed in range(1, len(text) + 1):
            parts = [part for part in split(text[start:fed]) if part.strip()]
            while len(parts) > 1:
                released.append(fed)
                start = text.index(parts[0], start) + len(parts[0])
                parts = parts[1:]
        released = (released + [len(text)] * len(whole))[: len(whole)]
        return located(text, whole, released)

    return run


def sentencex(text: str) -> list[str]:
    """Its sentences; `zh` where there is a Han character."""
    language = "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else "en"
    return list(importlib.import_module("sentencex").segment(language, text))


def pysbd(text: str) -> list[str]:
    """Its sentences."""
    language = "zh" if any("\u4e00" <= char <= "\u9fff" for char in text) else "en"
    return list(importlib.import_module("pysbd").Segmenter(language=language, clean=False).segment(text))


def is_cut_right(case: Case, found: Sequence[Found]) -> bool:
    """As `tests/test_cases.py` judges sentences."""
    starts = [0, *(end for end, _ in found)]
    sentences = [case["text"][start:end] for start, (end, _) in zip(starts, found, strict=False)]
    return (
        ("count" not in case or len(sentences) == case["count"])
        and all(any(each.rstrip().endswith(end) for each in sentences) for end in case.get("ends", ()))
        and all(any(whole in each for each in sentences) for whole in case.get("whole", ()))
    )


def is_spoken_right(case: Case, spoken: str) -> bool:
    """As `tests/test_cases.py` judges what is left of markup."""
    return all(gone not in spoken for gone in case.get("gone", ())) and all(
        kept in spoken for kept in case.get("kept", ())
    )


def cutter_row(tool: str, run: Callable[[str], list[Found]], spoken: Callable[[str], str] | None) -> Row:
    """Right ones of each file, and the lag."""
    scores: list[str] = []
    lags: list[int] = []
    chars, began = 0, time.perf_counter()
    for name in (*SENTENCES, *MARKUP):
        cases, right = read(name), 0
        for case in cases:
            text = case["text"]
            found = run(text)
            chars += len(text)
            right += is_cut_right(case, found) and (spoken is None or is_spoken_right(case, spoken(text)))
            lags += [fed - len(text[:end].rstrip()) for end, fed in found[:-1] if fed < len(text)]
        scores.append(f"{right}/{len(cases)}")
    took = time.perf_counter() - began
    return Row(
        tool,
        scores[0],
        scores[1],
        scores[2] if spoken else None,
        lag_median=statistics.median(lags),
        lag_most=max(lags),
        us_a_char=round(took / chars * 1e6, 1),
    )


# --- reading ------------------------------------------------------------------------------------------------


def is_read_right(case: Case, spoken: str) -> bool:
    """As `tests/test_normalize.py` judges a reading."""
    return all(re.search(pattern, spoken) for pattern in case.get("spoken_matches", ())) and not any(
        absent in spoken for absent in case.get("lacks", ())
    )


def reader_scores(say: Callable[[str, str], str]) -> tuple[str, str]:
    """Right ones of both files; `say` takes a text and `zh`, `en` or `mixed`."""
    scores = []
    for name in READINGS:
        cases = read(name)
        right = sum(is_read_right(case, say(case["text"], case["lang"])) for case in cases)
        scores.append(f"{right}/{len(cases)}")
    return scores[0], scores[1]


def say_ours(text: str, language: str) -> str:
    """By `normalize`, with the case's language as the hint, as it is for wetext."""
    hints: dict[str, Literal["auto", "zh", "en"]] = {"zh": "zh", "en": "en"}
    return normalize(text, language=hints.get(language, "auto")).text


def wetext_sayer() -> Callable[[str, str], str]:
    """Its normaliser of the case's language; for a mixed one its own choice."""
    tool = importlib.import_module("wetext")
    sayers = {name: tool.Normalizer(lang=name, operator="tn") for name in ("zh", "en", "auto")}

    def say(text: str, language: str) -> str:
        try:
            return str(sayers.get(language, sayers["auto"]).normalize(text))
        except Exception:  # Some texts trip an assertion of its own; that is a wrong reading.
            return ""

    return say


# --- all ----------------------------------------------------------------------------------------------------


def rows(note: Callable[[str], None]) -> Iterator[Row]:
    """A row a tool that is there."""
    own = cutter_row("sayflow", lambda text: ours(text)[0], lambda text: ours(text)[1])
    shared_readings, own_readings = reader_scores(say_ours)
    yield Row(**asdict(own) | {"shared_readings": shared_readings, "own_readings": own_readings})
    others: dict[str, Callable[[str], list[Found]]] = {
        "sentencex": resplitting(sentencex),
        "pysbd": resplitting(pysbd),
        "stream2sentence": stream2sentence,
    }
    for name, run in others.items():
        if has(name, note):
            yield cutter_row(f"{name} {version(name)}", run, None)
    if has("wetext", note):
        shared_readings, own_readings = reader_scores(wetext_sayer())
        yield Row(f"wetext {version('wetext')}", shared_readings=shared_readings, own_readings=own_readings)
        cost = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, cost.stdout.split())
        note(f"wetext: {seconds:.1f} s to load and {megabytes:.0f} MB")


def has(package: str, note: Callable[[str], None]) -> bool:
    """Whether it is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        note(f"{package} is not installed: left out")
        return False
    return True


def show(found: Sequence[Row]) -> Table:
    """For people."""
    table = Table()
    for name in (
        "tool",
        "sentences",
        "ours",
        "markup",
        "readings",
        "ours",
        "lag",
        "at most",
        "µs a character",
    ):
        table.add_column(name, justify="left" if name == "tool" else "right")
    for row in found:
        table.add_row(*("-" if value is None else f"{value}" for value in asdict(row).values()))
    return table


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the rows.")
def main(json_path: Path | None) -> None:
    """Compare on this project's cases."""
    console = Console()
    found = list(rows(lambda words: console.print(words)))
    (console if console.is_terminal else Console(width=120)).print(show(found))
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
