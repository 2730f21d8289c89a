"""The store of voices and its command: stable, checked, and never a path."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from engine.chattts import speaker, voices
from engine.chattts.speaker import BadVoice
from engine.chattts.voices import BUNDLED, VoiceStore
from engine.chattts.voices_cli import read_clip
from engine.chattts.voices_cli import voices as command
from tests import upstream

HIDDEN = 32


def open_store(folder: Path | None) -> VoiceStore:
    return VoiceStore(folder, hidden=HIDDEN)


def random(key: str, seed: int = 5) -> voices.Voice:
    return voices.random_voice(key, seed=seed, hidden=HIDDEN)


def values(voice: voices.Voice) -> torch.Tensor:
    assert voice.embedding is not None
    return voice.embedding


# --- the bundled set ------------------------------------------------------------------------------------


def test_the_bundled_voices_are_there_and_differ() -> None:
    listed = open_store(None).list()
    assert tuple(voice.id for voice in listed) == BUNDLED
    assert len({voice.digest for voice in listed}) == len(BUNDLED)


def test_the_bundled_voices_never_change() -> None:
    """Who uses a voice keeps it: over versions, machines and libraries."""
    aspen = VoiceStore(None, hidden=768).list()[0]
    assert aspen.embedding is not None
    assert aspen.embedding[:4].tolist() == [-0.9794921875, -5.890625, -2.099609375, -3.71484375]
    assert aspen.digest == "514ddd7b9f67969e30e41f0afaf60ca306d8b485daca74152172c6682203bde6"


def test_random_speakers_are_normal() -> None:
    drawn = voices.random_voice("x", seed=1, hidden=20_000).embedding
    assert drawn is not None
    values = drawn.double() / voices.DEVIATION
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert abs((values.abs() < 1).double().mean() - 0.6827) < 0.015


def test_seeds_and_sizes_differ() -> None:
    assert random("a", 1).digest == random("b", 1).digest
    assert len({random("a", seed).digest for seed in range(50)}) == 50


# --- the folder -----------------------------------------------------------------------------------------


def test_a_speaker_is_stored_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "voices"
    open_store(folder).add(random("my-voice"))
    found = open_store(folder).find("my-voice")
    assert found is not None
    assert found.embedding is not None
    assert found.embedding.tolist() == values(random("x")).tolist()
    assert (found.name, found.source, found.digest) == ("My voice", "random", random("x").digest)
    assert sorted(path.name for path in folder.iterdir()) == ["my-voice.json", "my-voice.safetensors"]


def test_a_sample_is_stored_and_read(tmp_path: Path) -> None:
    codes = np.arange(40).reshape(4, 10)
    open_store(tmp_path).add(voices.cloned_voice("me", codes, "  你好，\n world "))
    found = open_store(tmp_path).find("me")
    assert found is not None
    assert found.embedding is None
    assert found.sample_codes is not None
    assert found.sample_codes.tolist() == codes.tolist()
    assert found.sample_text == "你好， world"


@pytest.mark.parametrize(
    "key",
    ["", "../x", "a/b", "A", ".x", "-x", "x.json", "é", "x\n", "x" * 49, "a b", "x\0", "..", "/etc/passwd"],
)
def test_keys_that_are_none(tmp_path: Path, key: str) -> None:
    store = open_store(tmp_path / "voices")
    with pytest.raises(BadVoice, match="key"):
        store.add(random(key))
    assert store.find(key) is None
    assert list(tmp_path.rglob("*")) == []


def test_a_voice_is_never_replaced(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add(random("x", 1))
    for again in (store, open_store(tmp_path)):
        with pytest.raises(BadVoice, match="already"):
            again.add(random("x", 2))
    with pytest.raises(BadVoice, match="already"):
        store.add(random(BUNDLED[0], 2))
    kept = open_store(tmp_path).find("x")
    assert kept is not None
    assert kept.digest == random("x", 1).digest


def test_a_client_cannot_reach_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "voices"
    open_store(folder).add(random("inside"))
    open_store(tmp_path).add(random("outside"))
    store = open_store(folder)
    assert store.find("../outside") is None
    assert store.find(str(tmp_path / "outside")) is None
    assert store.find("inside") is not None


def break_json(folder: Path) -> None:
    (folder / "x.json").write_text("{")


def break_field(folder: Path) -> None:
    record = json.loads((folder / "x.json").read_text())
    (folder / "x.json").write_text(json.dumps(record | {"surprise": 1}))


def break_digest(folder: Path) -> None:
    record = json.loads((folder / "x.json").read_text())
    (folder / "x.json").write_text(json.dumps(record | {"digest": "0" * 64}))


def lose_tensors(folder: Path) -> None:
    (folder / "x.safetensors").unlink()


def cut_tensors(folder: Path) -> None:
    data = (folder / "x.safetensors").read_bytes()
    (folder / "x.safetensors").write_bytes(data[:-1])


def pickle_tensors(folder: Path) -> None:
    torch.save({"embedding": torch.ones(HIDDEN)}, folder / "x.safetensors")


def other_values(folder: Path) -> None:
    save_file({"embedding": torch.ones(HIDDEN)}, folder / "x.safetensors")


def other_size(folder: Path) -> None:
    save_file({"embedding": torch.ones(HIDDEN + 1)}, folder / "x.safetensors")


def not_a_number(folder: Path) -> None:
    save_file({"embedding": torch.full((HIDDEN,), torch.nan)}, folder / "x.safetensors")


def code_out_of_range(folder: Path) -> None:
    save_file({"codes": torch.full((4, 3), 625)}, folder / "x.safetensors")


def codes_of_floats(folder: Path) -> None:
    save_file({"codes": torch.zeros(4, 3, dtype=torch.bfloat16)}, folder / "x.safetensors")


def another_tensor(folder: Path) -> None:
    save_file({"weights": torch.ones(HIDDEN)}, folder / "x.safetensors")


def huge(folder: Path) -> None:
    save_file({"embedding": torch.ones(voices.MAX_FILE // 4)}, folder / "x.safetensors")


@pytest.mark.parametrize(
    "spoil",
    [
        *(break_json, break_field, break_digest, lose_tensors, cut_tensors, pickle_tensors, other_values),
        *(other_size, not_a_number, code_out_of_range, codes_of_floats, another_tensor, huge),
    ],
)
def test_a_spoilt_voice_is_left_out(tmp_path: Path, spoil: object) -> None:
    """And only that one: the engine starts, and the others speak."""
    open_store(tmp_path).add(random("x"))
    open_store(tmp_path).add(random("y", 6))
    assert callable(spoil)
    spoil(tmp_path)
    store = open_store(tmp_path)
    assert store.find("x") is None
    assert store.find("y") is not None
    assert list(store.faults) == ["x"]


def test_a_file_with_a_name_that_is_no_key_is_left_out(tmp_path: Path) -> None:
    open_store(tmp_path).add(random("x"))
    for end in ("json", "safetensors"):
        (tmp_path / f"x.{end}").rename(tmp_path / f"X Y.{end}")
    store = open_store(tmp_path)
    assert store.find("X Y") is None
    assert list(store.faults) == ["X Y"]


def test_a_voice_of_other_weights_is_not_added(tmp_path: Path) -> None:
    with pytest.raises(BadVoice, match="shape"):
        open_store(tmp_path).add(voices.random_voice("x", seed=1, hidden=16))
    assert list(tmp_path.iterdir()) == []


# --- import ---------------------------------------------------------------------------------------------


def test_a_speaker_is_imported() -> None:
    given = values(random("x"))
    voice = voices.imported_voice("x", f" {speaker.encode_embedding(given.numpy())}\n", hidden=HIDDEN)
    assert torch.equal(values(voice), given)


def test_a_sample_is_imported_with_its_text() -> None:
    text = speaker.encode_codes(np.ones((4, 20), np.int64))
    voice = voices.imported_voice("x", text, hidden=HIDDEN, sample_text="hello")
    assert voice.sample_codes is not None
    assert voice.sample_codes.shape == (4, 20)
    for none in ("", " ", "x" * (voices.MAX_TEXT + 1)):
        with pytest.raises(BadVoice, match="text"):
            voices.imported_voice("x", text, hidden=HIDDEN, sample_text=none)


# --- the command ----------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return upstream.write_tiny(tmp_path_factory.mktemp("weights"))


def test_random_list_and_import(tmp_path: Path, weights: Path) -> None:
    options = ("--voices", tmp_path / "voices", "--weights", weights)
    assert run("random", "mine", "--seed", "5", *options).exit_code == 0
    given = values(random("x"))
    string = speaker.encode_embedding(given.numpy())
    (tmp_path / "friend.txt").write_text(string + "\n", encoding="utf-8")
    assert run("import", "from-string", string, *options).exit_code == 0
    assert run("import", "from-file", tmp_path / "friend.txt", *options).exit_code == 0
    listed = run("list", *options)
    assert listed.exit_code == 0
    rows = [line.split() for line in listed.output.splitlines()]
    assert [row[0] for row in rows] == [*BUNDLED, "from-file", "from-string", "mine"]
    assert {row[-1] for row in rows[-3:]} == {random("x").digest[:12]}
    store = open_store(tmp_path / "voices")
    assert store.faults == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("random", "../up"),
        ("random", BUNDLED[0]),
        ("import", "x", "一" * (1 << 20)),
        ("import", "x", "不是"),
        ("import", "x", "/dev/zero"),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, weights: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--voices", tmp_path / "voices", "--weights", weights)
    assert isinstance(result.exception, BadVoice)
    assert list(tmp_path.rglob("*")) == []


def test_no_folder_named() -> None:
    assert isinstance(run("random", "x").exception, BadVoice)


def write_clip(path: Path, seconds: float, rate: int = 16_000) -> Path:
    t = np.arange(int(seconds * rate)) / rate
    sound = 0.3 * np.sin(2 * np.pi * 220 * t) * (1 + np.sin(2 * np.pi * 3 * t))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat((sound * 16_000).astype("<i2"), 2).tobytes())
    return path


def test_clone(tmp_path: Path, weights: Path) -> None:
    clip = write_clip(tmp_path / "clip.wav", 2.0)
    options = ("--text", "hello world", "--voices", tmp_path / "voices", "--weights", weights)
    result = run("clone", "me", clip, *options)
    assert result.exit_code == 0, result.exception
    found = open_store(tmp_path / "voices").find("me")
    assert found is not None
    assert found.sample_codes is not None
    assert found.sample_codes.shape == (4, (1 + 48_000 // 256) // 2)
    assert found.sample_text == "hello world"
    assert len(set(found.sample_codes.flatten().tolist())) > 4


def test_a_clip_keeps_its_pitch_and_length(tmp_path: Path) -> None:
    samples = read_clip(write_clip(tmp_path / "clip.wav", 1.0))
    assert abs(len(samples) - 24_000) <= 64
    peak = np.abs(np.fft.rfft(samples[:24_000], 24_000)).argmax()
    assert abs(int(peak) - 220) <= 1


@pytest.mark.parametrize("seconds", [0.2, 8.4, 60.0])
def test_clips_of_a_wrong_length(tmp_path: Path, weights: Path, seconds: float) -> None:
    clip = write_clip(tmp_path / "clip.wav", seconds)
    options = ("--text", "x", "--voices", tmp_path / "voices", "--weights", weights)
    assert isinstance(run("clone", "me", clip, *options).exception, BadVoice)


def test_a_clip_that_is_no_sound(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "clip.wav").write_bytes(b"not audio" * 100)
    options = ("--text", "x", "--voices", tmp_path / "voices", "--weights", weights)
    assert isinstance(run("clone", "me", tmp_path / "clip.wav", *options).exception, BadVoice)
