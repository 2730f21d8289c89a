"""English text to phoneme words: hibari's own rules, which also read numbers, dates and money.

Imports hibari, which loads its dictionaries on first use (`load`). Says nothing; `hibari_voice` speaks.
"""

from __future__ import annotations

import re
from typing import Any, Final

from engine.embedded.clauses import MARKS, Pace, Word

PACE: Final = Pace(first=80, least=60, most=150, sound_s=0.06, cost_s=0.0025, call_s=0.03)
"""Units are phonemes. One call at `most` runs about 0.2 s, of which 0.07 s cannot be interrupted."""

_TAIL: Final = re.compile(r"([,;:.!?—…]+)[\"”’)\]]*$")
_STRENGTH: Final = ".!?…—;:,"
_LINK: Final = re.compile(r"[\[\]]")
"""hibari reads `[word](/phonemes/)` as an instruction; users' text must not give any."""


class EnglishReader:
    """Wraps hibari's grapheme-to-phoneme rules."""

    def __init__(self, hibari: Any) -> None:
        self._hibari = hibari
        self._g2p = hibari.g2p
        # The net for unknown words is loaded lazily; a listener must not wait for it.
        self._g2p.oov("warm")

    def words(self, text: str) -> list[Word]:
        """The words of `text`, in order; empty where nothing can be said."""
        phonemes: list[str] = self._hibari.phonemize(_LINK.sub(" ", text))
        vocabulary: dict[str, int] = self._hibari.vocab
        words: list[Word] = []
        for token in " ".join(phonemes).split():
            known = "".join(char for char in token if char in vocabulary)
            tail = _TAIL.search(known)
            mark = min(tail.group(1), key=_STRENGTH.index) if tail else ""
            size = sum(char.isalpha() for char in known)
            if size:
                words.append(Word(known, size, mark))
            elif words and mark:
                # A dash that stands alone closes the word before it.
                last = words[-1]
                words[-1] = Word(f"{last.phonemes} {known}", last.size, last.mark or mark)
        return words


assert set(_STRENGTH) == set(MARKS)
