"""The quality report: right figures, the steps of serving, plots that can be read, a verdict or none."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray

from engine.chattts import fetch, layout, quality, quality_plots, quality_takes, random_weights, weights
from engine.chattts import quantise as quantises
from engine.chattts.backend import Backend
from engine.chattts.gpt import Gpt
from engine.chattts.model import ChatTTSModel
from engine.chattts.quality_canvas import _FONT, Canvas
from engine.chattts.quality_score import (
    Report,
    Score,
    Take,
    as_json,
    mel_distance,
    noise_ratio,
    score_model,
    table,
    verdict,
)
from engine.chattts.weights import WeightsError
from engine.cli import main
from engine.errors import BadAudio, CannotSpeak
from engine.wire import Parameters, Span

TEXTS = ("你好 hello", "the world and you", "今天天气很好")
STEPS = 24
ITSELF, FP32, INT8, BF16 = "torch fp32", "onnx fp32", "onnx int8", "torch bf16"
OTHERS = (
    Backend(kind="torch", precision="fp32"),
    Backend(kind="onnx", precision="fp32"),
    Backend(kind="onnx", precision="int8"),
    Backend(kind="torch", precision="bf16"),
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    random_weights.write(folder, size="tiny", seed=7)
    quantises.quantise(folder)
    return folder


@pytest.fixture(scope="module")
def report(root: Path) -> Report:
    return quality.compare(root, TEXTS, steps=STEPS, others=OTHERS)


def row(report: Report, name: str) -> Score:
    (found,) = (score for score in report.scores if score.name == name)
    return found


def gpt(root: Path) -> Gpt:
    return Gpt(weights.load(root), slots=8, max_positions=400)


# --- figures --------------------------------------------------------------------------------------------


def test_the_reference_agrees_with_itself(report: Report) -> None:
    score = row(report, ITSELF)
    assert score.model is not None
    assert (score.model.top_1, score.model.kl, score.model.draws, score.model.hidden) == (1, 0, 1, 0)
    assert (score.mel_db, score.snr_db) == (0, 200)
    assert score.model.lengths == report.lengths
    assert report.steps == (STEPS,) * 3
    assert report.lengths[0] == pytest.approx((512 * STEPS - 256) / 24_000)


def test_less_precision_is_seen(report: Report) -> None:
    fp32, int8, bf16 = (row(report, name) for name in (FP32, INT8, BF16))
    assert fp32.model is not None
    assert int8.model is not None
    assert bf16.model is not None
    assert fp32.model.hidden < 1e-5 < 1e-3 < int8.model.hidden < 0.1
    assert 0 < bf16.model.hidden < 0.1
    assert fp32.model.kl < int8.model.kl < 0.05
    assert 0.5 < int8.model.top_1 < 1
    assert int8.model.top_1 == pytest.approx(np.mean(int8.model.by_codebook))
    assert fp32.snr_db > int8.snr_db + 20
    assert fp32.mel_db < int8.mel_db < 3


def test_the_vocoder_in_8_bits_has_rows_of_its_own(report: Report) -> None:
    vocoder, both = row(report, "vocoder int8"), row(report, "onnx int8 + vocoder")
    assert vocoder.model is None
    assert 0 < vocoder.mel_db < both.mel_db
    assert vocoder.snr_db > both.snr_db


def take(logits: list[list[float]], codes: list[int], hidden: float = 1.0) -> Take:
    """Steps of one codebook."""
    logs = torch.tensor(logits)[:, None].log_softmax(-1)
    drawn = torch.tensor(codes)[:, None]
    return Take(torch.zeros(len(logits), 1).long(), drawn, torch.full((len(logits), 2), hidden), logs, False)


def test_the_measures_of_a_model_by_hand() -> None:
    even, uneven = [0.0, 0.0], [float(np.log(3)), 0.0]
    expected = take([uneven, even], [0, 0])
    found = take([[0.0, 0.1], even], [0, 1], hidden=1.1)
    model = score_model([expected], [found], [expected])
    shares = np.exp([0.0, 0.1]) / np.exp([0.0, 0.1]).sum()
    assert model.kl == pytest.approx(np.sum([0.75, 0.25] * np.log([0.75, 0.25] / shares)) / 2, rel=1e-5)
    assert [agreed.tolist() for agreed in model.agreed] == [[[False], [True]]]
    assert (model.top_1, model.draws) == (0.5, 0.5)
    assert model.hidden == pytest.approx(0.1, rel=1e-5)


def test_the_measures_of_sound_by_hand() -> None:
    clip = torch.randn(24_000, generator=torch.Generator().manual_seed(0)) * 0.1
    assert mel_distance([clip], [2 * clip]) == pytest.approx(20 * np.log10(2), abs=1e-3)
    assert noise_ratio([clip], [1.1 * clip]) == pytest.approx(20, abs=1e-3)
    assert noise_ratio([clip], [clip]) == 200
    # What is 80 dB below the loudest is not heard.
    tone = 0.1 * torch.sin(torch.arange(24_000) * 0.2)
    assert mel_distance([tone], [tone + 1e-5 * clip]) < 0.1
    assert mel_distance([tone], [tone + 0.1 * clip]) > 10


# --- the run --------------------------------------------------------------------------------------------


def test_the_steps_are_those_of_the_engine(root: Path) -> None:
    model = ChatTTSModel(root, slots=1, backend=quality.REFERENCE)
    model.open(0, "aspen", Parameters(), 5)
    model.begin(0, [Span(TEXTS[0], "zh", 0, len(TEXTS[0]))])
    while not model.prefill(0):
        pass
    for _ in range(STEPS):
        model.step([0])
    (sentence,) = quality.prepare(root, TEXTS[:1], STEPS)
    sentence = replace(sentence, seed=model.rows[0].sentence_seed())
    (found,) = quality_takes.follow(gpt(root), [sentence], name="")
    assert found.codes.tolist() == model.rows[0].codes


def test_a_sentence_is_the_same_among_others(root: Path) -> None:
    sentences = quality.prepare(root, TEXTS * 3, 5)
    together = quality_takes.follow(gpt(root), sentences, name="")
    assert len({str(each.codes.tolist()) for each in together}) == 9, "each has a seed of its own"
    (alone,) = quality_takes.follow(gpt(root), sentences[8:], name="")
    assert torch.equal(together[8].codes, alone.codes)
    assert torch.equal(together[8].logs, alone.logs)


def test_others_follow_the_codes_of_the_reference(root: Path) -> None:
    sentences = quality.prepare(root, TEXTS, STEPS)
    none = torch.zeros(0)
    strange = [Take(torch.full((n, 4), 6 + n), none, none, none, False) for n in (3, 9, 1)]
    found = quality_takes.follow(gpt(root), sentences, strange, name="")
    assert [each.codes.tolist() for each in found] == [[[9] * 4] * 3, [[15] * 4] * 9, [[7] * 4]]
    assert any(not torch.equal(each.codes, each.drawn) for each in found)


def test_what_is_no_number_is_said(root: Path) -> None:
    model = gpt(root)
    model.head_codes[5, 0] = torch.nan
    with pytest.raises(BadAudio, match="torch fp32 made no number at step 0"):
        quality_takes.follow(model, quality.prepare(root, TEXTS[:1], 3), name=ITSELF)


def test_progress_never_falls_and_ends_at_the_end(root: Path) -> None:
    seen: list[tuple[int, int]] = []
    quality.compare(root, TEXTS, steps=3, others=OTHERS[:1], progress=lambda *each: seen.append(each))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (27, 27)


def test_what_can_be_compared(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found, notes = quality.available(root)
    assert [(each.kind, each.precision) for each in found] == [("onnx", "int8"), ("onnx", "fp32")]
    assert notes == ["torch bf16: no GPU here"]
    random_weights.write(tmp_path, size="tiny", seed=1)
    found, notes = quality.available(tmp_path)
    assert [(each.kind, each.precision) for each in found] == [("onnx", "fp32")]
    assert "sayflow weights quantise" in notes[0]
    (tmp_path / quantises.FOLDER).mkdir()
    for file in (root / quantises.FOLDER).iterdir():
        (tmp_path / quantises.FOLDER / file.name).write_bytes(file.read_bytes())
    with pytest.raises(WeightsError, match="other weights"):
        quality.available(tmp_path)


# --- texts ----------------------------------------------------------------------------------------------


def test_texts_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "texts"
    path.write_bytes("\ufeff你好\r\n\n  hello you \n".encode())
    assert quality.read_texts(path) == ("你好", "hello you")
    path.write_text("\n \n")
    with pytest.raises(CannotSpeak, match="1 to 64 lines"):
        quality.read_texts(path)
    path.write_text("a\n" * 65)
    with pytest.raises(CannotSpeak, match="65 are there"):
        quality.read_texts(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CannotSpeak, match="not UTF-8"):
        quality.read_texts(path)


def test_a_text_that_cannot_be_spoken_is_named(root: Path) -> None:
    with pytest.raises(CannotSpeak, match="text 2 is longer than 80"):
        quality.prepare(root, ["a", "b" * 81], 10)
    with pytest.raises(CannotSpeak, match="nothing in text 1"):
        quality.prepare(root, ["\u2603"], 10)


def test_our_own_texts_are_of_both_languages_and_fit(root: Path) -> None:
    assert len(quality.prepare(root, quality.TEXTS, 10)) == 8
    assert sum(text.isascii() for text in quality.TEXTS) == 4


# --- the verdict ----------------------------------------------------------------------------------------


def test_random_weights_get_no_verdict(report: Report) -> None:
    assert not report.real
    assert not report.failed
    assert list(verdict(report)) == [
        "verdict: none: the weights are random, and the limits are for trained ones"
    ]
    assert as_json(report)["verdict"] is None


def test_trained_weights_get_one(report: Report) -> None:
    good, bad = row(report, ITSELF), replace(row(report, "vocoder int8"), mel_db=1.5)
    real = replace(report, real=True, scores=(good, bad))
    assert real.failed
    assert list(verdict(real)) == [
        "verdict: torch fp32: within the limits",
        "verdict: vocoder int8: mel distance 1.50 dB is over 1.0",
    ]
    assert good.model is not None
    off = replace(good.model, agreed=tuple(~each for each in good.model.agreed))
    far = replace(good.model, divergence=tuple(each + 0.06 for each in good.model.divergence))
    assert replace(good, model=off).excess() == ("top-1 agreement 0.000 is under 0.9",)
    assert replace(good, model=far).excess() == ("KL 0.0600 nats is over 0.05",)
    assert not replace(real, scores=(good,)).failed


def test_weights_are_trained_if_a_sentence_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = quality.prepare(root, TEXTS[:1], STEPS)
    (found,) = quality_takes.follow(gpt(root), sentences, name="")
    end = next(int(code) for code in found.codes[5] if code not in found.codes[:5])
    monkeypatch.setattr(quality_takes, "EOS", end)
    report = quality.compare(root, TEXTS[:1], steps=STEPS, others=OTHERS[:1])
    assert (report.real, report.ended, report.steps) == (True, 1, (5,))
    assert report.scores[0].model is not None
    assert report.scores[0].model.ended == 1


def test_weights_are_trained_if_they_are_the_release(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "RELEASED", weights.digests(root))
    assert quality.compare(root, TEXTS[:1], steps=2, others=()).real


def test_the_table_lines_up(report: Report) -> None:
    lines = list(table(report))
    assert "3 sentences, 72 steps" in lines[0]
    head, rows = lines[1], lines[2 : 2 + len(report.scores)]
    assert [line[: head.index("top-1")].strip() for line in rows] == [score.name for score in report.scores]
    mel = [line[head.index("mel dB") :].split()[0] for line in rows]
    assert mel == [f"{score.mel_db:.3f}" for score in report.scores]


# --- plots ----------------------------------------------------------------------------------------------


def pixels(data: bytes) -> NDArray[np.uint8]:
    """An image of 8-bit RGB without filters, its checksums held against its content."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert checksum == zlib.crc32(kind + body)
        parts[kind] = body
        at += 12 + size
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert form == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_a_canvas_is_the_image_that_is_written() -> None:
    canvas = Canvas(40, 30)
    canvas.box(-5, 25, 4, 99, (1, 2, 3))
    canvas.line([(10, 10), (20, 10), (99, 10)], (9, 0, 0), width=1)
    canvas.text(0, 0, "L", (0, 9, 0), scale=1)
    found = pixels(canvas.png())
    assert np.array_equal(found, canvas.pixels)
    assert (found[25:, :4] == (1, 2, 3)).all()
    assert (found[10, 10:] == (9, 0, 0)).all()
    letter = (found[:7, :5] == (0, 9, 0)).all(-1)
    assert letter[:, 0].all()
    assert letter[6].all()
    assert letter.sum() == 11


def test_every_sign_has_seven_rows_and_its_own_look() -> None:
    assert all(len(rows) == 7 and any(rows) for rows in _FONT.values())
    assert len({tuple(rows) for rows in _FONT.values()}) == len(_FONT)
    assert set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:-+/()%=|>") == set(_FONT)


def test_the_plots_show_each_backend(report: Report, tmp_path: Path) -> None:
    paths = quality_plots.draw(report, tmp_path / "new" / "plots")
    assert [path.name for path in paths] == ["agreement.png", "divergence.png", "spectrograms.png"]
    agreement, divergence, spectrograms = (pixels(path.read_bytes()) for path in paths)
    for image in (agreement, divergence):
        inside = image[91:455, 81:869]
        # Lines may lie upon each other, and upon the frame.
        assert any((inside == colour).all(-1).sum() > 50 for colour in quality_plots._SERIES)
    panel = spectrograms[76:272, 72:368]
    assert len(np.unique(panel.reshape(-1, 3), axis=0)) > 20, "a spectrogram and no plain area"
    (quality_plots.draw(replace(report, scores=()), tmp_path / "none"))
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["spectrograms.png"]


def test_agreement_is_drawn_where_it_is(report: Report) -> None:
    model = row(report, ITSELF).model
    assert model is not None
    half = replace(model, agreed=(np.array([[True, True, False, False]] * 20),))
    image = quality_plots.agreement([("half", half)]).pixels
    down, across = np.nonzero((image[91:455, 81:869] == quality_plots._SERIES[0]).all(-1))
    # 366 pixels from 0.4 to 1; steps 5 and 15 of 20.
    assert down.mean() == pytest.approx(366 * 5 / 6, abs=3)
    assert np.ptp(down) <= 1
    assert across.min() == pytest.approx(790 * 5 / 20, abs=3)
    assert across.max() == pytest.approx(790 * 15 / 20, abs=3)


# --- the command ----------------------------------------------------------------------------------------


def test_the_command(root: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("hello\nthe world\n")
    arguments = [
        "--text",
        tmp_path / "texts",
        "--steps",
        6,
        "--plots",
        tmp_path / "plots",
        "--json",
        tmp_path / "q",
    ]
    result = CliRunner().invoke(main, ["weights", "quality", str(root), *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "verdict: none" in result.stdout
    assert result.stdout.endswith("ok\n")
    assert "hello" not in result.output
    figures = json.loads((tmp_path / "q").read_text())
    assert figures["steps"] == [6, 6]
    assert set(figures["backends"]) >= {FP32, INT8, "vocoder int8"}
    assert f"{figures['backends'][INT8]['top_1']:.4f}" in result.stdout
    assert len(list((tmp_path / "plots").glob("*.png"))) == 3


def test_the_command_fails_plainly(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["weights", "quality", str(root), "--text", str(tmp_path / "none")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "fault:" in result.stderr
    assert "ok" not in result.stdout
    monkeypatch.setattr(fetch, "RELEASED", {file: weights.digests(root)[file] for file in layout.READ_FILES})
    monkeypatch.setattr("engine.chattts.quality_score.MAX_MEL_DB", 0.0)
    (tmp_path / "texts").write_text("hello\n")
    arguments = ["weights", "quality", str(root), "--text", str(tmp_path / "texts"), "--steps", "3"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "mel distance" in result.stdout
