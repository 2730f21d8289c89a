"""Mandarin text to phoneme words: cn2an reads numbers, jieba finds words, misaki writes them for Kokoro.

Imports jieba, cn2an, misaki. jieba's dictionary is read from its package on every start: its own cache is a
marshal file in the shared temporary folder, which anybody may have written.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from engine.embedded.clauses import Pace, Word
from engine.embedded.script import is_han

with warnings.catch_warnings():
    # jieba uses pkg_resources and unraw regular expressions.
    warnings.simplefilter("ignore")
    import cn2an  # type: ignore[import-untyped]
    import jieba  # type: ignore[import-untyped]
    from misaki.zh import ZHG2P  # type: ignore[import-untyped]
    from pypinyin.constants import PINYIN_DICT

PACE: Final = Pace(first=6, least=6, most=28, sound_s=0.2, cost_s=0.12, call_s=0.3)
"""Units are syllables; costs are those of two threads of a slow machine with other work on it."""

LONGEST_WORD: Final = 6
"""Syllables; a longer word is cut, so that no clause can be longer than Kokoro takes."""

_GROUPED: Final = re.compile(r"(?<=\d)[,，](?=\d{3}(?!\d))")
_NEGATIVE: Final = re.compile(r"(?<![\dA-Za-z])[-−](?=\d)")
_DIGITS: Final = re.compile(r"\d+")
_LONG_DIGITS: Final = re.compile(r"\d{13,}")
_PIECES: Final = re.compile(r"[\u4e00-\u9fff]+|[^\u4e00-\u9fff]+")
_SPOKEN_DIGITS: Final = str.maketrans("0123456789", "零一二三四五六七八九")
_MARKS: Final = str.maketrans({"~": "—", "～": "—", "·": " ", "\n": ","})
_STRENGTH: Final = ".!?…—;:,"


def load_dictionary() -> None:
    """Gives jieba its dictionary: the same entries as its own loader finds, in half the time."""
    with jieba.get_module_res("dict.txt") as file:
        fields = file.read().decode("utf-8").split()
    words, counts = fields[0::3], [int(count) for count in fields[1::3]]
    frequencies = dict(zip(words, counts, strict=True))
    # jieba wants every prefix of a word in the table, with frequency 0 where it is no word itself.
    length, longer = 1, [word for word in words if len(word) > 1]
    while longer:
        for prefix in {word[:length] for word in longer}:
            frequencies.setdefault(prefix, 0)
        length += 1
        longer = [word for word in longer if len(word) > length]
    jieba.dt.FREQ, jieba.dt.total, jieba.dt.initialized = frequencies, sum(counts), True


class MandarinReader:
    """Needs `load_dictionary` before. `vocabulary`: the characters that the voice has tokens for."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary

    def words(self, text: str) -> list[Word]:
        """The words of `text`, in order; empty where nothing can be said."""
        words: list[Word] = []
        for piece in _PIECES.findall(_readable(text)):
            if is_han(piece[0]):
                words += self._han(piece)
            elif words:
                words[-1] = _close(words[-1], piece)
        return words

    def _han(self, text: str) -> list[Word]:
        words: list[Word] = []
        for word in jieba.lcut("".join(char for char in text if ord(char) in PINYIN_DICT)):
            for at in range(0, len(word), LONGEST_WORD):
                part = word[at : at + LONGEST_WORD]
                phonemes: str = ZHG2P.word2ipa(part)
                known = "".join(char for char in phonemes if char in self._vocabulary)
                if known:
                    words.append(Word(known, len(part)))
        return words


def _readable(text: str) -> str:
    """Numbers as characters, marks as misaki writes them."""
    text = _GROUPED.sub("", text).replace("〇", "零")
    text = _NEGATIVE.sub("负", text)
    text = _LONG_DIGITS.sub(_digit_by_digit, text)
    try:
        text = cn2an.transform(text, "an2cn")
    except ValueError:
        text = _DIGITS.sub(_digit_by_digit, text)
    mapped: str = ZHG2P.map_punctuation(text.translate(_MARKS))
    return _DIGITS.sub(_digit_by_digit, mapped)


def _digit_by_digit(match: re.Match[str]) -> str:
    return match.group().translate(_SPOKEN_DIGITS)


def _close(word: Word, marks: str) -> Word:
    """The word with the strongest of the marks that follow it."""
    found = [mark for mark in marks if mark in _STRENGTH]
    if not found:
        return word
    mark = min(found, key=_STRENGTH.index)
    return Word(word.phonemes + mark, word.size, mark)
