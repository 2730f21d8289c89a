"""Text to token ids: the prompt that tells ChatTTS what to say, in which voice and style.

Before `gpt`. Special tokens are written by this module only: the text is encoded by a tokenizer that does not
know them, and `[uv_break]`, `[lbreak]`, `[laugh]` in it act where the request says `tags`. Imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tokenizers

from engine.errors import ModelMissing

_TAG: Final = re.compile(r"(\[(?:uv_break|lbreak|laugh)\])")
_NORMAL_SPEED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Levels of the style tokens; `None` leaves one out. Raises `ValueError` out of range."""

    speed: int | None = None
    """0..9; 5 is ordinary."""
    oral: int | None = None
    """0..9: filler words and hesitations."""
    laugh: int | None = None
    """0..2."""
    pause: int | None = None
    """0..7: breaks between words."""

    def __post_init__(self) -> None:
        for name, level, top in (
            ("speed", self.speed, 9),
            ("oral", self.oral, 9),
            ("laugh", self.laugh, 2),
            ("pause", self.pause, 7),
        ):
            if level is not None and not 0 <= level <= top:
                raise ValueError(f"{name} must be 0 to {top}")

    def tokens(self) -> tuple[str, ...]:
        """Their names, in the order in which a prompt has them."""
        levels = {"speed": self.speed, "oral": self.oral, "laugh": self.laugh, "break": self.pause}
        return tuple(f"[{name}_{level}]" for name, level in levels.items() if level is not None)


NO_STYLE: Final = Style()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Token ids, and what lies where in them."""

    ids: tuple[int, ...]
    speaker: int | None
    """Index of `[spk_emb]`, over whose embedding the voice's is written."""
    prefix: int
    """Tokens that depend on the voice alone."""
    text_tokens: int
    """Tokens of the text that mean something: 0 where there is nothing to say."""


def speed_tag(speed: float) -> int:
    """The level nearest to a factor: 0.5 is level 0, 1 is level 5, 2 is level 9."""
    steps = 10.0 if speed < 1 else 4.0
    return min(9, max(0, _NORMAL_SPEED + round(steps * (speed - 1))))


class Tokenizer:
    """WordPiece for text, and the special tokens by name. Raises `ModelMissing` for a file that is none."""

    def __init__(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text("utf-8"))
            self._special = {str(token["content"]): int(token["id"]) for token in content["added_tokens"]}
            # Without them, no text can spell one. Truncation and padding would cut or fill a prompt.
            content |= {"added_tokens": [], "truncation": None, "padding": None}
            unknown = content["model"].get("unk_token", "[UNK]")
            content["post_processor"] = None
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(content))
        except Exception as error:  # The library raises bare `Exception` for a file that it cannot read.
            raise ModelMissing(f"{path}: not a tokenizer: {error}") from error
        self._unknown = self._plain.token_to_id(unknown)
        # The unknown token is among the added ones, and is what a text may well become.
        self._special_ids = frozenset(self._special.values()) - {self._unknown}

    def special(self, name: str) -> int:
        """The id of a special token. Raises `ModelMissing` where the tokenizer has none of that name."""
        if name not in self._special:
            raise ModelMissing(f"the tokenizer has no token {name}")
        return self._special[name]

    def encode(self, text: str, *, tags: bool = False) -> list[int]:
        """Ids of a text; with `tags`, the three in-text tags act."""
        if not tags:
            return self._encode_plain(text)
        found: list[int] = []
        for index, piece in enumerate(_TAG.split(text)):
            # `split` puts what the group matched at the odd places.
            found += [self.special(piece)] if index % 2 else self._encode_plain(piece)
        return found

    def refined(self, ids: Sequence[int]) -> list[int]:
        """What of the ids that a refine pass made may be said: words and the in-text tags."""
        allowed = {number for name, number in self._special.items() if _TAG.fullmatch(name)}
        return [number for number in ids if number not in self._special_ids or number in allowed]

    def build(
        self,
        text: str,
        *,
        style: Style = NO_STYLE,
        speaker: bool = True,
        sample_text: str = "",
        tags: bool = False,
    ) -> Prompt:
        """`[Stts][spk_emb]` and a cloned voice's `sample_text`, then the style, the text, `[Ptts]`."""
        said = self.encode(text, tags=tags)
        return self.compose(said, style=style, speaker=speaker, sample_text=sample_text)

    def compose(
        self, said: Sequence[int], *, style: Style = NO_STYLE, speaker: bool = True, sample_text: str = ""
    ) -> Prompt:
        """`build` for the ids of a text."""
        voice = self.special("[spk_emb]" if speaker else "[empty_spk]")
        prefix = [self.special("[Stts]"), voice, *self.encode(sample_text)]
        ids = [*prefix, *map(self.special, style.tokens()), *said, self.special("[Ptts]")]
        return Prompt(
            ids=tuple(ids),
            speaker=1 if speaker else None,
            prefix=len(prefix),
            text_tokens=self._spoken(said),
        )

    def build_refine(self, text: str, *, style: Style = NO_STYLE) -> Prompt:
        """The prompt of the optional pass that writes breaks and laughs into a text, until `[Ebreak]`."""
        said = self.encode(text)
        ids = [self.special("[Sbreak]"), *said, self.special("[Pbreak]"), *map(self.special, style.tokens())]
        return Prompt(ids=tuple(ids), speaker=None, prefix=1, text_tokens=self._spoken(said))

    def _spoken(self, ids: Sequence[int]) -> int:
        return sum(number != self._unknown for number in ids)

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        # A vocabulary that spells a special token as an ordinary word would let text through to it.
        return [number for number in ids if number not in self._special_ids]
