"""How users want words to be said: entries of `sayflow.toml` and of a session, found in text by `normalize`.

An entry without a capital letter is found in any case; one that has capitals only as it is written, and wins
where both fit. Of several at one place the longest is taken. A word that begins or ends with a Latin letter
or a digit is found only where no such character goes on; Han words are found anywhere.

    [lexicon]            in any text
    nginx = "engine x"
    [lexicon.zh]         where the text is mainly Chinese
    AI = "人工智能"

Pure; of the gateway it imports `fold` only.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.fold import fold

MOST_ENTRIES: Final = 1000
LONGEST_WORD: Final = 64
LONGEST_SPOKEN: Final = 256
_LANGUAGES: Final = ("zh", "en")


class LexiconError(ValueError):
    """An entry or a table that cannot be used; the words are for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One word. `language`: that of the text in which it is found; `None`: any."""

    word: str
    spoken: str
    language: Literal["zh", "en"] | None = None

    @property
    def exact(self) -> bool:
        """Found only as it is written."""
        return any(char.isupper() for char in self.word)


class Lexicon:
    """Entries, immutable; looks one up at a place in constant time for a given longest word."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """A later entry replaces an earlier one of the same word and language. Raises `LexiconError`."""
        known = {(_plain(entry.word), entry.language): _checked(entry) for entry in entries}
        if len(known) > MOST_ENTRIES:
            raise LexiconError(f"a lexicon has at most {MOST_ENTRIES} entries")
        self.entries: tuple[Entry, ...] = tuple(known.values())
        self._found: dict[tuple[str, str | None], Entry] = {
            (word if entry.exact else _lower(word), language): entry
            for (word, language), entry in known.items()
        }
        self._lengths: dict[str, tuple[int, ...]] = {}
        """For each first character, lower, the lengths of words that begin with it, the longest first."""
        for word, _ in known:
            first = _lower(word[0])
            lengths = {*self._lengths.get(first, ()), len(word)}
            self._lengths[first] = tuple(sorted(lengths, reverse=True))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def joined(self, other: Lexicon) -> Lexicon:
        """Both; where they differ, `other` holds. Raises `LexiconError` when that is too many."""
        return Lexicon((*self.entries, *other.entries)) if other else self

    def find(self, text: str, at: int, language: Literal["zh", "en"]) -> tuple[Entry, int] | None:
        """The longest entry that stands at a place of plain text in the given language, and its end."""
        for length in self._lengths.get(_lower(text[at]), ()):
            word = text[at : at + length]
            if len(word) < length or not _is_whole(text, at, at + length):
                continue
            for key in (word, _lower(word)):
                entry = self._found.get((key, language)) or self._found.get((key, None))
                if entry is not None and (not entry.exact or _plain(entry.word) == word):
                    return entry, at + length
        return None


EMPTY: Final = Lexicon()


def parse(table: Mapping[str, object]) -> Lexicon:
    """From a table of `sayflow.toml` or of a message: words, and under `zh` and `en` tables of words.

    Raises `LexiconError`. A word `zh` or `en` itself goes into one of these tables.
    """
    entries: list[Entry] = []
    for word, spoken in table.items():
        if isinstance(spoken, Mapping):
            if word not in _LANGUAGES:
                raise LexiconError(f"a lexicon's tables are zh and en, not {_shown(word)}")
            language: Literal["zh", "en"] = "zh" if word == "zh" else "en"
            entries += [_entry(inner, value, language) for inner, value in spoken.items()]
        else:
            entries.append(_entry(word, spoken, None))
        if len(entries) > MOST_ENTRIES:
            raise LexiconError(f"a lexicon has at most {MOST_ENTRIES} entries")
    return Lexicon(entries)


def _entry(word: object, spoken: object, language: Literal["zh", "en"] | None) -> Entry:
    if not isinstance(word, str) or not isinstance(spoken, str):
        raise LexiconError(f"the spoken form of {_shown(word)} must be text")
    return Entry(word=word, spoken=spoken, language=language)


def _checked(entry: Entry) -> Entry:
    word = _plain(entry.word)
    if not any(char.isalnum() or unicodedata.category(char)[0] == "S" for char in word):
        raise LexiconError(f"{_shown(entry.word)} is no word")
    if len(word) > LONGEST_WORD or len(entry.word) > LONGEST_WORD:
        raise LexiconError(f"a word of a lexicon has at most {LONGEST_WORD} characters")
    if not any(char.isalnum() for char in entry.spoken):
        raise LexiconError(f"the spoken form of {_shown(entry.word)} says nothing")
    if len(entry.spoken) > LONGEST_SPOKEN:
        raise LexiconError(f"a spoken form has at most {LONGEST_SPOKEN} characters")
    return entry


def _plain(word: str) -> str:
    """As the text is in which it is looked for; blanks are one, and none at the ends."""
    return " ".join(fold(word).chars.split())


def _lower(text: str) -> str:
    """Lower case of the same length: İ would become two characters."""
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _is_whole(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return not (_joins(before) and _joins(text[start])) and not (_joins(text[end - 1]) and _joins(after))


def _joins(char: str) -> bool:
    """Whether a character goes on in a word of letters; Han characters do not."""
    return bool(char) and char.isalnum() and char < "\u2e80"


def _shown(word: object) -> str:
    return repr(str(word)[:LONGEST_WORD])
