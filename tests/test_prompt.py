"""Prompts: what is in them, in which order, and that a text cannot write a special token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chattts import layout, prompt
from engine.chattts.prompt import Style, Tokenizer
from engine.errors import ModelMissing
from tests.upstream import write_tiny


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("weights")) / layout.TOKENIZER


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(path)


def test_the_parts_come_in_their_order(tokenizer: Tokenizer) -> None:
    special = tokenizer.special
    sample, said = tokenizer.encode("and you"), tokenizer.encode("hello world")
    assert len(sample) == len(said) == 2
    built = tokenizer.build(
        "hello world", style=Style(speed=3, oral=9, laugh=2, pause=7), sample_text="and you"
    )
    style = [special(f"[{name}]") for name in ("speed_3", "oral_9", "laugh_2", "break_7")]
    voice = [special("[Stts]"), special("[spk_emb]"), *sample]
    assert list(built.ids) == [*voice, *style, *said, special("[Ptts]")]
    assert built.speaker is not None
    assert built.ids[built.speaker] == special("[spk_emb]")
    assert built.prefix == len(voice)
    assert built.text_tokens == 2


def test_without_a_voice_the_speaker_is_empty(tokenizer: Tokenizer) -> None:
    built = tokenizer.build("hello", speaker=False)
    assert built.speaker is None
    assert built.ids[1] == tokenizer.special("[empty_spk]")
    assert tokenizer.special("[spk_emb]") not in built.ids


def test_long_texts_are_neither_cut_nor_padded(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("hello " * 600)) == 600
    assert len(tokenizer.encode("hello")) == 1
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("name", [*layout.SPECIAL_TOKENS, "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"])
def test_no_special_token_of_a_text_is_special(tokenizer: Tokenizer, name: str) -> None:
    number = tokenizer.special(name) if name in layout.SPECIAL_TOKENS else None
    for text in (name, f"hello{name}world", f"[{name}]", name.upper()):
        ids = tokenizer.encode(text)
        assert number not in ids
        assert len(ids) >= 3
    if name not in ("[uv_break]", "[lbreak]", "[laugh]"):
        assert number not in tokenizer.encode(name, tags=True)


@given(text=st.text(alphabet="[]_ abSstPplkurgev0123\u200b\x00", max_size=30), tags=st.booleans())
def test_no_text_writes_a_control_token(tokenizer: Tokenizer, text: str, tags: bool) -> None:
    allowed = {tokenizer.special(f"[{name}]") for name in ("uv_break", "lbreak", "laugh")} if tags else set()
    forbidden = {tokenizer.special(name) for name in layout.SPECIAL_TOKENS} - allowed
    assert forbidden.isdisjoint(tokenizer.encode(text, tags=tags))


def test_tags_act_where_asked_for(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello[laugh]world[uv_break][lbreak]", tags=True)
    names = ("[laugh]", "[uv_break]", "[lbreak]")
    laugh, uv_break, lbreak = map(tokenizer.special, names)
    (hello,), (world,) = tokenizer.encode("hello"), tokenizer.encode("world")
    assert ids == [hello, laugh, world, uv_break, lbreak]
    assert tokenizer.special("[laugh]") not in tokenizer.encode("[LAUGH] [ laugh ]", tags=True)


def test_what_the_model_cannot_read_is_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.build("😀 😀").text_tokens == 0
    assert tokenizer.build(" \n ").text_tokens == 0
    assert tokenizer.build("😀 hello").text_tokens == 1


def test_refine_prompt_and_its_text(tokenizer: Tokenizer) -> None:
    special = tokenizer.special
    built = tokenizer.build_refine("hello world", style=Style(oral=1))
    said = tokenizer.encode("hello world")
    assert list(built.ids) == [special("[Sbreak]"), *said, special("[Pbreak]"), special("[oral_1]")]
    made = [said[0], special("[uv_break]"), special("[speed_5]"), said[1], special("[Ebreak]")]
    assert tokenizer.refined(made) == [said[0], special("[uv_break]"), said[1]]


@pytest.mark.parametrize(
    ("speed", "level"), [(0.5, 0), (0.1, 0), (0.7, 2), (1.0, 5), (1.25, 6), (2.0, 9), (9.0, 9)]
)
def test_speed_is_a_level(speed: float, level: int) -> None:
    assert prompt.speed_tag(speed) == level


@pytest.mark.parametrize("levels", [{"speed": 10}, {"oral": -1}, {"laugh": 3}, {"pause": 8}])
def test_levels_have_bounds(levels: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be 0 to"):
        Style(**levels)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"added_tokens": [], "model": {}}', b"\x80\x04"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelMissing, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer(path)


def test_a_missing_special_token_is_named(path: Path, tmp_path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[Stts]"]
    changed = tmp_path / "tokenizer.json"
    changed.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ModelMissing, match=r"\[Stts\]"):
        Tokenizer(changed).build("hello")
