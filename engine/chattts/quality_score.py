"""The figures of a quality report, from what two backends made of the same codes; and what they are worth.

After `quality`, which drives the models, and before `quality_plots`. Arithmetic alone: no model, no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chattts.random_weights import mel_filters
from engine.chattts.vocos import FFT, HOP

MIN_TOP_1: Final = 0.9
MAX_KL: Final = 0.05
"""Nats."""
MAX_MEL_DB: Final = 1.0
# The limits are our own choice and no standard's: at these, one step in ten has another likeliest code and a
# draw hardly notices, and the spectrum's error is about the smallest change of level that is heard.
_DEPTH_DB: Final = 80.0
"""Below the reference's loudest band: what is softer counts as this, as nobody hears it."""
_MAX_SNR_DB: Final = 200.0
"""Beyond what fp64 resolves; equal sounds get this rather than infinity, which JSON cannot say."""
_COLUMNS: Final = (
    ("backend", 24),
    ("top-1", 7),
    ("by codebook", 25),
    ("draws", 7),
    ("KL nats", 9),
    ("hidden", 9),
    ("mel dB", 8),
    ("SNR dB", 8),
    ("length", 9),
    ("ended", 7),
)


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """A sentence of N steps as one backend saw it."""

    codes: Tensor
    """[N, 4]: what it was fed."""
    drawn: Tensor
    """[N, 4]: what it would have taken, with the same random numbers."""
    hidden: Tensor
    """[N, H], fp32: the states that predicted the steps."""
    logs: Tensor
    """[N, 4, 626], fp32: logarithms of the probabilities at the default temperature, before any warper."""
    ended: bool
    """By the end code, and not by the limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What a language model's distributions are worth."""

    agreed: tuple[NDArray[np.bool_], ...]
    """For each sentence [N, 4]: whether the likeliest code is the reference's."""
    divergence: tuple[NDArray[np.float32], ...]
    """For each sentence [N, 4]: KL(reference || backend), nats."""
    draws: float
    """Share of draws that the same random number decides in the same way."""
    hidden: float
    """RMS of the error of the hidden states, relative to theirs."""
    lengths: tuple[float, ...]
    """Seconds of each sentence when the backend follows its own codes."""
    ended: int
    """Sentences that ended by themselves then."""

    @property
    def by_codebook(self) -> tuple[float, ...]:
        """Top-1 agreement of each codebook."""
        return tuple(float(share) for share in np.concatenate(self.agreed).mean(0))

    @property
    def top_1(self) -> float:
        """Of all codebooks."""
        return float(np.concatenate(self.agreed).mean())

    @property
    def kl(self) -> float:
        """Mean, nats."""
        return float(np.concatenate(self.divergence).mean(dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """One row of the report. `model` is none where the row is of a vocoder alone."""

    name: str
    model: Model | None
    mel_db: float
    """RMS of the difference of the log mel spectra."""
    snr_db: float
    example: NDArray[np.float32]
    """Samples of the first sentence."""

    def excess(self) -> tuple[str, ...]:
        """What is beyond the limits."""
        found: list[str] = []
        if self.model is not None and self.model.top_1 < MIN_TOP_1:
            found.append(f"top-1 agreement {self.model.top_1:.3f} is under {MIN_TOP_1}")
        if self.model is not None and self.model.kl > MAX_KL:
            found.append(f"KL {self.model.kl:.4f} nats is over {MAX_KL}")
        if self.mel_db > MAX_MEL_DB:
            found.append(f"mel distance {self.mel_db:.2f} dB is over {MAX_MEL_DB}")
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """All rows, against one reference."""

    reference: str
    fingerprint: str
    steps: tuple[int, ...]
    """Compared, of each sentence."""
    lengths: tuple[float, ...]
    """Seconds of the reference's sentences."""
    ended: int
    """Of the reference's sentences, by themselves."""
    real: bool
    """The weights are trained ones."""
    example: NDArray[np.float32]
    scores: tuple[Score, ...]
    notes: tuple[str, ...]
    """Backends that are not compared, and why."""

    @property
    def failed(self) -> bool:
        """A row is beyond a limit, on weights for which that means something."""
        return self.real and any(score.excess() for score in self.scores)


# --- measures -------------------------------------------------------------------------------------------


def score_model(reference: Sequence[Take], forced: Sequence[Take], free: Sequence[Take]) -> Model:
    """`forced`: fed with the reference's codes; `free`: with its own."""
    agreed: list[NDArray[np.bool_]] = []
    divergence: list[NDArray[np.float32]] = []
    same: list[Tensor] = []
    error = power = 0.0
    for expected, found in zip(reference, forced, strict=True):
        assert torch.equal(expected.codes, found.codes), "the same codes, or the steps are not comparable"
        agreed.append((expected.logs.argmax(-1) == found.logs.argmax(-1)).numpy())
        # In fp32 a sum of 626 differences may be a little below nothing.
        each = (expected.logs.double().exp() * (expected.logs.double() - found.logs.double())).sum(-1)
        divergence.append(each.clamp_min(0).float().numpy())
        same.append(expected.codes == found.drawn)
        error += float((found.hidden - expected.hidden).double().square().sum())
        power += float(expected.hidden.double().square().sum())
    return Model(
        agreed=tuple(agreed),
        divergence=tuple(divergence),
        draws=float(torch.cat(same).double().mean()),
        hidden=math.sqrt(error / power) if power else math.nan,
        lengths=tuple(seconds(len(take.codes)) for take in free),
        ended=sum(take.ended for take in free),
    )


def seconds(steps: int) -> float:
    """Of sound, as `Vocoder.decode` makes it of this many steps."""
    return max(0, 2 * HOP * steps - HOP) / 24_000


def mel_distance(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """RMS over all frames and bands, dB. Clips of equal lengths in pairs."""
    pairs = zip(map(mel_db, expected), map(mel_db, found), strict=True)
    differences: list[Tensor] = []
    for first, second in pairs:
        floor = float(first.max()) - _DEPTH_DB
        differences.append((first.clamp_min(floor) - second.clamp_min(floor)).square().flatten())
    return math.sqrt(float(torch.cat(differences).double().mean()))


def mel_db(samples: Tensor) -> Tensor:
    """Mel bands `[1 + L // 256, 100]` of L samples, dB."""
    spectrum = torch.stft(
        samples,
        FFT,
        HOP,
        window=torch.hann_window(FFT),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    bands = spectrum.abs().T @ mel_filters()
    return 20 * bands.clamp_min(1e-7).log10()


def noise_ratio(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """Signal to noise of all clips together, dB."""
    first, second = torch.cat(list(expected)).double(), torch.cat(list(found)).double()
    signal, noise = float(first.square().sum()), float((second - first).square().sum())
    if signal == 0.0:
        return math.nan
    return min(_MAX_SNR_DB, -10 * math.log10(max(noise / signal, 1e-30)))


# --- words ----------------------------------------------------------------------------------------------


def table(report: Report) -> Iterator[str]:
    """Lines of text."""
    compared = sum(report.steps)
    yield (
        f"reference {report.reference}: {len(report.steps)} sentences, {compared} steps,"
        f" {sum(report.lengths):.1f} s of sound, {report.ended} ended by themselves"
    )
    yield "".join(f"{name:<{width}}" for name, width in _COLUMNS).rstrip()
    for score in report.scores:
        cells = _cells(score, sum(report.lengths))
        yield "".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()
    for note in report.notes:
        yield f"not compared: {note}"
    yield from verdict(report)


def verdict(report: Report) -> Iterator[str]:
    """What the figures mean."""
    if not report.scores:
        return
    if not report.real:
        yield "verdict: none: the weights are random, and the limits are for trained ones"
        return
    for score in report.scores:
        yield f"verdict: {score.name}: {'; '.join(score.excess()) or 'within the limits'}"


def _cells(score: Score, length: float) -> tuple[str, ...]:
    model = score.model
    heard = (f"{score.mel_db:.3f}", f"{score.snr_db:.1f}")
    if model is None:
        return (score.name, *["-"] * 5, *heard, "-", "-")
    return (
        score.name,
        f"{model.top_1:.4f}",
        " ".join(f"{share:.3f}" for share in model.by_codebook),
        f"{model.draws:.3f}",
        f"{model.kl:.2e}",
        f"{model.hidden:.2e}",
        *heard,
        f"{sum(model.lengths) / length:.1%}" if length else "-",
        f"{model.ended}",
    )


def as_json(report: Report) -> dict[str, object]:
    """Every figure, for `json.dumps`."""
    return {
        "reference": report.reference,
        "fingerprint": report.fingerprint,
        "steps": list(report.steps),
        "lengths_s": list(report.lengths),
        "ended": report.ended,
        "limits": {"top_1": MIN_TOP_1, "kl_nats": MAX_KL, "mel_db": MAX_MEL_DB},
        "verdict": None if not report.real else not report.failed,
        "backends": {score.name: _figures(score, judged=report.real) for score in report.scores},
        "not_compared": list(report.notes),
    }


def _figures(score: Score, *, judged: bool) -> dict[str, object]:
    figures: dict[str, object] = {"mel_db": score.mel_db, "snr_db": _finite(score.snr_db)}
    if (model := score.model) is not None:
        figures |= {
            "top_1": model.top_1,
            "top_1_by_codebook": list(model.by_codebook),
            "same_draws": model.draws,
            "kl_nats": model.kl,
            "hidden_error": _finite(model.hidden),
            "lengths_s": list(model.lengths),
            "ended": model.ended,
        }
    if judged:
        figures["excess"] = list(score.excess())
    return figures


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
