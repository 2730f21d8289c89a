"""The embedded engine: its pure stages, then the model itself through the `SpeechModel` interface."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from engine.embedded import english, joins, kokoro, mandarin, styles
from engine.embedded.clauses import CUT_PAUSE_MS, PAUSE_MS, Cutter, Pace, Word
from engine.embedded.model import MAX_CHARS, EmbeddedModel, load_styles
from engine.embedded.script import clean, runs
from engine.errors import BadAudio, CannotSpeak, ModelFault, ModelMissing, UnknownVoice
from engine.model import Output
from engine.wire import Parameters, Span

STYLES = Path(__file__).parent.parent / "assets" / "styles"
RATE = 24000
LONG_ZH = "人工智能正在改变我们的生活和工作方式而且没有人知道以后会怎么样"
LONGEST_JUMP = 1000
"""From one sample to the next at a join: 3 % of full scale."""


def span(text: str, language: str) -> Span:
    return Span(text, language, 0, len(text))


# --- script -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("你好，世界。", "zh", [("你好，世界。", "zh")]),
        ("Hello, world.", "en", [("Hello, world.", "en")]),
        ("请打开 Settings 页面", "zh", [("请打开 ", "zh"), ("Settings ", "en"), ("页面", "zh")]),
        ("The price is 99元.", "en", [("The price is 99", "en"), ("元.", "zh")]),
        ("我买了2台iPhone 15 Pro", "zh", [("我买了2台", "zh"), ("iPhone 15 Pro", "en")]),
        ("3.14", "zh", [("3.14", "zh")]),
        ("3.14", "en", [("3.14", "en")]),
        ("一共 25 个", "fr", [("一共 25 个", "zh")]),
        ("bonjour", "fr", [("bonjour", "en")]),
        ("住A101室", "zh", [("住", "zh"), ("A101", "en"), ("室", "zh")]),
        ("", "zh", []),
    ],
)
def test_runs_follow_the_script(text: str, language: str, expected: list[tuple[str, str]]) -> None:
    assert [(run.text, run.language) for run in runs([span(text, language)])] == expected


def test_neighbouring_spans_of_one_language_are_one_run() -> None:
    (run,) = runs([span("Hello ", "en"), span("there.", "en")])
    assert (run.text, run.language) == ("Hello there.", "en")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("１２３", "123"),
        ("a\u200bb", "ab"),
        ("a\x00b", "a b"),
        ("½", "1/2"),
        ("，。", "，。"),
        ("\ud83d", " "),
    ],
)
def test_clean_text(text: str, expected: str) -> None:
    assert clean(text) == expected


# --- clauses ----------------------------------------------------------------------------------------------

PACE = Pace(first=4, least=3, most=12, sound_s=0.2, cost_s=0.1, call_s=0.1)


def sizes(words: list[Word], speed: float = 1.0) -> list[int]:
    return [clause.size for clause in Cutter(speed).feed(words, PACE)]


def phrase(count: int, mark: str = "") -> list[Word]:
    return [Word("a", 1) for _ in range(count - 1)] + [Word("a" + mark, 1, mark)]


def test_first_clause_is_short_and_later_ones_grow() -> None:
    found = sizes(phrase(60))
    assert found[0] <= PACE.first
    assert max(found) > 2 * PACE.first
    assert max(found) <= PACE.most
    assert sum(found) == 60


def test_every_clause_is_made_before_the_ones_before_it_are_played() -> None:
    lead = 0.0
    for index, clause in enumerate(Cutter(1.0).feed(phrase(80), PACE)):
        cost = PACE.call_s + clause.size * PACE.cost_s
        if index:
            assert cost <= lead
            lead -= cost
        lead += clause.size * PACE.sound_s


def test_a_cut_prefers_punctuation_and_takes_its_pause() -> None:
    clauses = Cutter(1.0).feed(phrase(3, ",") + phrase(9, "."), PACE)
    assert clauses[0].size == 3
    assert clauses[0].pause_ms == PAUSE_MS[","]
    assert clauses[0].marked
    assert clauses[-1].pause_ms == PAUSE_MS["."]


def test_a_cut_inside_a_phrase_has_hardly_a_pause() -> None:
    first = Cutter(1.0).feed(phrase(20), PACE)[0]
    assert first.pause_ms == CUT_PAUSE_MS <= 60
    assert not first.marked


def test_no_orphan_is_left_at_the_end_of_a_phrase() -> None:
    assert min(sizes(phrase(PACE.first + 2, "."))) >= 3


def test_a_slow_speaker_starts_as_early() -> None:
    assert sizes(phrase(40), speed=0.5)[0] <= PACE.first // 2 + 1
    assert sizes(phrase(40), speed=2.0)[0] > PACE.first


def test_words_longer_than_the_limit_are_taken_whole() -> None:
    assert sizes([Word("a", 50), Word("b", 50)]) == [50, 50]


# --- joins ------------------------------------------------------------------------------------------------


def tone(seconds: float, before: float = 0.3, after: float = 0.5) -> NDArray[np.float32]:
    at = np.arange(round(seconds * RATE)) / RATE
    sound = 0.3 * np.cos(2 * np.pi * 200 * at)
    return np.concatenate([np.zeros(round(before * RATE)), sound, np.zeros(round(after * RATE))]).astype(
        np.float32
    )


def test_join_trims_the_silence_and_adds_the_pause() -> None:
    pcm = joins.join(tone(1.0), 1.0, 200, 1.0)
    assert 1.0 + 0.2 <= pcm.size / RATE <= 1.0 + 0.2 + 0.1
    assert not pcm[-RATE * 200 // 1000 :].any()
    assert joins.join(tone(1.0), 1.0, 200, 2.0).size == pcm.size - RATE * 100 // 1000


def test_joins_do_not_click() -> None:
    # A cosine starts at its peak: without a fade the first sample would jump by a third of full scale.
    joined = np.concatenate([joins.join(tone(0.5, 0.0, 0.0), 1.0, 0, 1.0) for _ in range(3)]).astype(int)
    steady = 0.3 * 32767 * 2 * np.pi * 200 / RATE
    assert np.abs(np.diff(joined, prepend=0, append=0)).max() <= steady * 1.2


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e-4])
def test_audio_that_is_no_sound_is_refused(value: float) -> None:
    with pytest.raises(BadAudio):
        joins.check(np.full(RATE, value, np.float32))
    with pytest.raises(BadAudio):
        joins.check(np.zeros(0, np.float32))


# --- readers and styles -----------------------------------------------------------------------------------


def test_token_speeds_hurry_the_padding_only() -> None:
    speeds = kokoro.speeds("ni↓xau↓,", 1.5)
    assert speeds[0] > 1.5 < speeds[-1]
    assert (speeds[1:-2] == 1.5).all()


def test_a_style_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "zf_xiaobei.bin"
    np.zeros(7, np.float32).tofile(path)
    with pytest.raises(ModelMissing, match="zf_xiaobei"):
        kokoro.read_style(path)


def test_without_mandarin_styles_the_packaged_one_serves(tmp_path: Path) -> None:
    assert list(load_styles(None)) == list(load_styles(tmp_path)) == ["alpha"]


def test_set_up_keeps_right_styles_and_replaces_damaged_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {name: name.encode() * 10 for name in styles.SHA256}
    monkeypatch.setattr(styles, "SHA256", {name: hashlib.sha256(d).hexdigest() for name, d in data.items()})
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/npm")
    calls: list[list[str]] = []

    def pack(command: list[str], *, cwd: str, **_: Any) -> subprocess.CompletedProcess[bytes]:
        calls.append(command)
        with tarfile.open(Path(cwd) / "kokoro-js.tgz", "w:gz") as archive:
            for name, content in data.items():
                info = tarfile.TarInfo(f"package/voices/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pack)
    folder = tmp_path / "new" / "styles"
    assert styles.main([str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == data
    assert styles.main([str(folder)]) == 0
    assert len(calls) == 1
    (folder / "zf_xiaobei.bin").write_bytes(b"damaged")
    assert styles.main([str(folder)]) == 0
    assert len(calls) == 2
    assert (folder / "zf_xiaobei.bin").read_bytes() == data["zf_xiaobei.bin"]
    data["zf_xiaobei.bin"] = b"another file"
    (folder / "zf_xiaobei.bin").unlink()
    assert styles.main([str(folder)]) == 0
    assert not (folder / "zf_xiaobei.bin").exists()
    assert "not fetched" in capsys.readouterr().out


def test_set_up_without_npm_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert styles.main([str(tmp_path)]) == 0
    assert "npm is not installed" in capsys.readouterr().out


def test_the_fast_dictionary_loader_finds_what_the_slow_one_finds() -> None:
    mandarin.load_dictionary()
    # Imported here, after `mandarin` has done it without the warnings that are errors in tests.
    import jieba  # type: ignore[import-untyped]

    with jieba.get_module_res("dict.txt") as file:
        frequencies, total = jieba.Tokenizer.gen_pfdict(file)
    assert total == jieba.dt.total
    assert frequencies == jieba.dt.FREQ


# --- the model --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    loaded = EmbeddedModel(slots=4, styles=STYLES)
    assert loaded.warm_up()[0] > 0
    return loaded


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "model" in request.fixturenames:
        loaded: EmbeddedModel = request.getfixturevalue("model")
        for slot in range(4):
            loaded.close(slot)


def outputs(model: EmbeddedModel, slot: int) -> list[Output]:
    found: list[Output] = []
    while not found or not found[-1].finished:
        found += model.step([slot])
    return found


def speak(model: EmbeddedModel, text: str, language: str, speed: float = 1.0) -> NDArray[np.int16]:
    model.open(0, model.spec.default_voice, Parameters(speed=speed), 1)
    model.begin(0, [span(text, language)])
    made = outputs(model, 0)
    assert [one.error for one in made] == [None] * len(made)
    return np.concatenate([one.pcm for one in made])


def test_unknown_voice(model: EmbeddedModel) -> None:
    with pytest.raises(UnknownVoice):
        model.open(0, "../alpha", Parameters(), 0)


def test_each_voice_reads_both_languages(model: EmbeddedModel) -> None:
    assert [voice.id for voice in model.spec.voices][-1] == "alpha"
    assert model.spec.default_voice == model.spec.voices[0].id
    for voice in model.spec.voices:
        assert voice.languages == ("zh", "en")
        model.open(0, voice.id, Parameters(), 0)
        model.begin(0, [span("你好。", "zh")])
        assert outputs(model, 0)[-1].pcm.size > RATE * 0.3


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        (" \n", "zh"),
        ("😀👨‍👩‍👧", "en"),
        ("...", "en"),
        ("，。！", "zh"),
        ("——", "zh"),
        ("\ud83d", "zh"),
    ],
)
def test_what_cannot_be_said(model: EmbeddedModel, text: str, language: str) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 0)
    with pytest.raises(CannotSpeak):
        model.begin(0, [span(text, language)])
    # The slot is as good as before.
    model.begin(0, [span("Yes.", "en")])
    assert outputs(model, 0)[-1].pcm.any()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hi 🎉", "en"),
        ("嗯", "zh"),
        ("A", "en"),
        ("3.14", "en"),
        ("１２３", "zh"),
        ("½ ① ㎏", "en"),
        ("[x](/pˈæɹɪs/)", "en"),
        ("a\x00b", "en"),
        ("\x1b[31mred", "en"),
        ("\u202eabc", "en"),
        ("naïve façade Ωmega", "en"),
        ("〇", "zh"),
        ("12345678901234567890个", "zh"),
    ],
)
def test_what_is_odd_but_can_be_said(model: EmbeddedModel, text: str, language: str) -> None:
    assert speak(model, text, language).any()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("3.14", "三点一四"),
        ("25个", "二十五个"),
        ("1,234元", "一千二百三十四元"),
        ("-3度", "负三度"),
        ("１２３", "一百二十三"),
        ("12345678901234", "一二三四五六七八九零一二三四"),
    ],
)
def test_mandarin_numbers_are_read(model: EmbeddedModel, text: str, spoken: str) -> None:
    reader = mandarin.MandarinReader(model._kokoro.vocabulary)

    def phonemes(written: str) -> str:
        return "".join(word.phonemes for word in reader.words(clean(written)))

    assert phonemes(text).replace(" ", "") == phonemes(spoken).replace(" ", "")


def test_english_numbers_are_read(model: EmbeddedModel) -> None:
    reader = english.EnglishReader(model._hibari.hibari)

    def phonemes(written: str) -> str:
        return "".join(word.phonemes for word in reader.words(written)).translate(
            {ord("ˈ"): None, ord("ˌ"): None}
        )

    assert phonemes("3.14") == phonemes("three point one four")
    assert phonemes("42") == phonemes("forty two")


@pytest.mark.parametrize(("text", "language"), [("今天好。", "zh"), ("The weather is fine today.", "en")])
def test_speed_changes_duration(model: EmbeddedModel, text: str, language: str) -> None:
    slow, plain, fast = (speak(model, text, language, speed).size for speed in (0.5, 1.0, 2.0))
    assert 1.5 < slow / plain < 2.8
    assert 0.4 < fast / plain < 0.75


def test_equal_requests_give_equal_audio_and_chinese_joins_do_not_click(model: EmbeddedModel) -> None:
    text = "我们一起去公园散步吧，请打开 Settings 页面。"
    first, second = speak(model, text, "zh"), speak(model, text, "zh")
    assert (first == second).all()
    model.open(0, model.spec.default_voice, Parameters(), 1)
    model.begin(0, [span(text, "zh")])
    made = outputs(model, 0)
    assert len(made) >= 4
    for one in made:
        assert one.pcm[0] == one.pcm[-1] == 0
        # Inside a clause a fricative may jump further; its faded ends may not.
        sound = np.trim_zeros(one.pcm.astype(int))
        for end in (sound[:48], sound[-48:]):
            assert np.abs(np.diff(end, prepend=0, append=0)[1:-1]).max() < LONGEST_JUMP
        assert abs(sound[0]) < LONGEST_JUMP > abs(sound[-1])


def test_two_slots_interleaved_sound_as_each_alone(model: EmbeddedModel) -> None:
    texts = {1: ("今天天气很好，我们去散步吧。", "zh", 1.0), 2: ("Hello there, my old friend.", "en", 1.3)}
    alone = {}
    for slot, (text, language, speed) in texts.items():
        model.open(slot, model.spec.default_voice, Parameters(speed=speed), slot)
        model.begin(slot, [span(text, language)])
        alone[slot] = np.concatenate([one.pcm for one in outputs(model, slot)])
        model.close(slot)
    together: dict[int, list[NDArray[np.int16]]] = {1: [], 2: []}
    for slot, (text, language, speed) in texts.items():
        model.open(slot, model.spec.default_voice, Parameters(speed=speed), slot)
        model.begin(slot, [span(text, language)])
    running = {1, 2}
    while running:
        for slot in sorted(running):
            (made,) = model.step([slot])
            assert made.slot == slot
            together[slot].append(made.pcm)
            if made.finished:
                running.discard(slot)
    for slot, expected in alone.items():
        assert (np.concatenate(together[slot]) == expected).all()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("好" * 400, "zh"),
        ("1" * 400, "zh"),
        ("x" * 400, "en"),
        ("word " * 100, "en"),
        ("a一" * 100, "zh"),
        ("支付宝" + "，" * 300, "zh"),
    ],
)
def test_long_text_is_cut_and_safe(model: EmbeddedModel, text: str, language: str) -> None:
    model.open(0, model.spec.default_voice, Parameters(speed=2.0), 0)
    model.begin(0, [span(text, language)])
    parts = list(model._slots[0].parts)
    assert 0 < len(parts) <= model.spec.max_steps
    for part in parts:
        if part.language == "zh":
            assert len(part.clause.phonemes) < kokoro.MAX_TOKENS // 2
        else:
            assert len(part.clause.phonemes) <= 2 * english.PACE.most
    # Every clause would take minutes here: the longest one stands for them, as the last of its sentence.
    longest = max(parts, key=lambda part: part.clause.size)
    model._slots[0].parts.clear()
    model._slots[0].parts.append(longest)
    (made,) = model.step([0])
    assert made.error is None
    assert made.pcm.any()
    assert made.finished
    assert made.truncated == (len(text) > MAX_CHARS)


# --- interruption -----------------------------------------------------------------------------------------


def open_long(model: EmbeddedModel, slot: int) -> None:
    """A sentence whose next call takes seconds: the first clauses are passed over."""
    model.open(slot, model.spec.default_voice, Parameters(speed=0.5), 0)
    model.begin(slot, [span(LONG_ZH, "zh")])
    longest = max(model._slots[slot].parts, key=lambda part: part.clause.size)
    model._slots[slot].parts.clear()
    model._slots[slot].parts.append(longest)


def test_interrupt_ends_a_running_call(model: EmbeddedModel) -> None:
    open_long(model, 0)
    at: list[float] = []

    def interrupt() -> None:
        at.append(time.monotonic())
        model.interrupt(0)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    (made,) = model.step([0])
    took = time.monotonic() - at[0]
    timer.join()
    print(f"interrupted in {took * 1000:.0f} ms")
    assert took < 0.5
    assert made.pcm.size == 0
    assert made.error is None
    assert not made.finished


@pytest.mark.parametrize(("text", "language"), [("你好。", "zh"), ("Hello.", "en")])
def test_interrupt_before_the_call_counts_once(model: EmbeddedModel, text: str, language: str) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 0)
    model.begin(0, [span(text, language)])
    model.interrupt(0)
    assert model.step([0])[0].pcm.size == 0
    # Nothing was lost for a slot that goes on.
    assert model.step([0])[0].pcm.any()


def test_interrupt_does_not_outlive_the_utterance(model: EmbeddedModel) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 0)
    model.interrupt(0)
    model.close(0)
    assert speak(model, "Hello.", "en").any()


def test_interrupt_of_another_slot_stops_nothing(model: EmbeddedModel) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 0)
    model.begin(0, [span("你好。", "zh")])
    timer = threading.Timer(0.1, model.interrupt, [1])
    timer.start()
    (made,) = model.step([0])
    timer.join()
    assert made.pcm.any()
    assert made.finished


def test_a_terminated_english_call_raises(model: EmbeddedModel) -> None:
    options = ort.RunOptions()
    options.terminate = True
    options.log_severity_level = 4
    with pytest.raises(Exception, match="terminate"):
        model._hibari.run("həlˈO.", 1.0, np.random.default_rng(0), options)


# --- a voice that fails -----------------------------------------------------------------------------------


class BadSession:
    """Stands for ONNX Runtime: returns what it was given, or raises it."""

    def __init__(self, result: NDArray[np.float32] | Exception) -> None:
        self.result = result

    def run(self, *_: object) -> list[NDArray[np.float32]]:
        if isinstance(self.result, Exception):
            raise self.result
        return [self.result]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (np.full(RATE, np.nan, np.float32), BadAudio),
        (np.zeros(RATE, np.float32), BadAudio),
        (np.zeros(0, np.float32), BadAudio),
        (RuntimeError("out of memory"), ModelFault),
    ],
)
def test_a_failing_voice_fails_its_slot_alone(
    model: EmbeddedModel,
    monkeypatch: pytest.MonkeyPatch,
    result: NDArray[np.float32] | Exception,
    expected: type[Exception],
) -> None:
    model.open(0, model.spec.default_voice, Parameters(), 0)
    model.begin(0, [span("机密。", "zh")])
    model.open(1, model.spec.default_voice, Parameters(), 0)
    model.begin(1, [span("Hello.", "en")])
    monkeypatch.setattr(model._kokoro, "_session", BadSession(result))
    failed, fine = model.step([0, 1])
    assert type(failed.error) is expected
    assert failed.pcm.size == 0
    assert "机密" not in str(failed.error)
    assert fine.error is None
    assert fine.pcm.any()


def test_a_text_rule_that_raises_fails_the_sentence(
    model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> list[Word]:
        raise IndexError("list index out of range")

    model.open(0, model.spec.default_voice, Parameters(), 0)
    monkeypatch.setattr(model._english, "words", broken)
    with pytest.raises(ModelFault):
        model.begin(0, [span("Hello.", "en")])
