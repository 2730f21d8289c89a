"""The plots of a quality report: agreement over the steps, the divergences, one sentence's spectrograms.

After `quality_score`, whose report comes in; `quality_canvas` has the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.chattts.quality_canvas import BLACK, GREY, HEIGHT, Canvas, Colour, measure
from engine.chattts.quality_score import MAX_KL, MIN_TOP_1, Model, Report, mel_db, seconds

_SERIES: Final[tuple[Colour, ...]] = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167))
"""Told apart by those who do not see red and green, too."""
_LIMIT: Final[Colour] = (150, 150, 150)
_BIN: Final = 10
"""Steps that a point of the agreement is the mean of."""
_DECADES: Final = (-8, 2)
"""Of the divergences, log10 of nats; what lies outside is counted at the ends."""
_PARTS: Final = 4
"""Bars of a decade."""
_RANGE_DB: Final = 80.0
_PANEL: Final = (300, 200)
"""Pixels of a spectrogram."""
_COLUMNS: Final = 3
_HEAT: Final = ((0, 0, 8), (70, 12, 105), (170, 42, 95), (236, 105, 38), (250, 190, 60), (255, 255, 210))
"""From soft to loud."""


def draw(report: Report, folder: Path) -> list[Path]:
    """Write the files. Their names are always the same; what was there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    models = [(score.name, score.model) for score in report.scores if score.model is not None]
    plots = {"spectrograms.png": spectrograms(report)}
    if models:
        plots |= {"agreement.png": agreement(models), "divergence.png": divergence(models)}
    for name, canvas in plots.items():
        canvas.save(folder / name)
    return sorted(folder / name for name in plots)


def agreement(models: Sequence[tuple[str, Model]]) -> Canvas:
    """Top-1 agreement over the number of the step: mean of all sentences and codebooks."""
    curves = [(name, _over_steps(model)) for name, model in models]
    lowest = min(float(shares.min()) for _, shares in curves)
    bottom = max(0.0, np.floor((min(lowest, MIN_TOP_1) - 0.02) * 10) / 10)
    last = max(_BIN * len(shares) for _, shares in curves)
    axes = _Axes(0.0, float(last), float(bottom), 1.0)
    canvas = axes.canvas("Top-1 agreement with torch fp32, fed the same codes", "step", "share of codes")
    axes.across(canvas, [(float(at), f"{at}") for at in range(0, last + 1, _tick(last))])
    axes.up(canvas, [(share, f"{share:.2f}") for share in np.linspace(bottom, 1.0, 6)])
    axes.limit(canvas, MIN_TOP_1, f"limit {MIN_TOP_1}")
    for index, (name, shares) in enumerate(curves):
        points = [(_BIN * (place + 0.5), float(share)) for place, share in enumerate(shares)]
        axes.curve(canvas, points, index, name)
    return canvas


def divergence(models: Sequence[tuple[str, Model]]) -> Canvas:
    """Histogram of the divergence of every distribution, over its logarithm."""
    low, high = _DECADES
    edges = np.linspace(low, high, (high - low) * _PARTS + 1)
    counts: list[tuple[str, NDArray[np.float64]]] = []
    for name, model in models:
        nats = np.concatenate(model.divergence).ravel().astype(np.float64)
        places = np.clip(np.log10(np.maximum(nats, 1e-30)), low, high)
        counts.append((name, np.histogram(places, edges)[0] / len(nats)))
    highest = max(float(count.max()) for _, count in counts)
    top = np.ceil(highest * 10 + 0.2) / 10
    axes = _Axes(float(low), float(high), 0.0, float(top))
    canvas = axes.canvas("KL(torch fp32 || backend) of the code distributions", "nats", "share")
    axes.across(canvas, [(float(at), f"1E{at}") for at in range(low, high + 1, 2)])
    axes.up(canvas, [(share, f"{share:.2f}") for share in np.linspace(0, top, 6)])
    axes.mark(canvas, float(np.log10(MAX_KL)), f"limit of the mean {MAX_KL}")
    for index, (name, count) in enumerate(counts):
        axes.curve(canvas, _outline(edges, count), index, name)
    return canvas


def spectrograms(report: Report) -> Canvas:
    """The first sentence, log mel bands, as the reference and each row of the report have it."""
    clips = [(f"{report.reference} (reference)", report.example)]
    clips += [(score.name, score.example) for score in report.scores]
    bands = [(name, mel_db(torch.from_numpy(samples)).numpy().T[::-1]) for name, samples in clips]
    loudest = float(bands[0][1].max())
    width, height = _PANEL
    cell_w, cell_h, left, top = width + 34, height + 66, 70, 74
    columns = min(_COLUMNS, len(bands))
    rows = -(-len(bands) // columns)
    canvas = Canvas(left + columns * cell_w + 110, top + rows * cell_h)
    canvas.text(20, 14, "Mel bands of one sentence, fed the same codes", scale=2)
    length = f"{seconds(report.steps[0]):.1f} s"
    for index, (name, values) in enumerate(bands):
        x, y = left + index % columns * cell_w, top + index // columns * cell_h
        canvas.text(x, y - 20, name, scale=2)
        canvas.image(x, y, _heat(_resize(values, height, width), loudest))
        canvas.frame(x, y, x + width, y + height)
        canvas.text(x, y + height + 8, "0 s", scale=1)
        canvas.text(x + width, y + height + 8, length, scale=1, anchor="right")
        if index % columns == 0:
            canvas.text(x - 6, y, "12 kHz", scale=1, anchor="right")
            canvas.text(x - 6, y + height - HEIGHT, "0 Hz", scale=1, anchor="right")
    bar = left + columns * cell_w
    scale = np.linspace(loudest, loudest - _RANGE_DB, height)[:, None].repeat(16, 1)
    canvas.image(bar, top, _heat(scale, loudest))
    canvas.frame(bar, top, bar + 16, top + height)
    canvas.text(bar + 22, top, "0 dB", scale=1)
    canvas.text(bar + 22, top + height - HEIGHT, f"-{_RANGE_DB:.0f} dB", scale=1)
    return canvas


# --- values ---------------------------------------------------------------------------------------------


def _over_steps(model: Model) -> NDArray[np.float64]:
    """The mean of each run of `_BIN` steps over the sentences that got there."""
    longest = max(len(agreed) for agreed in model.agreed)
    right = np.zeros(-(-longest // _BIN))
    count = np.zeros_like(right)
    for agreed in model.agreed:
        bins = np.arange(len(agreed)) // _BIN
        np.add.at(right, bins, agreed.mean(1))
        np.add.at(count, bins, 1)
    return right / count


def _outline(edges: NDArray[np.float64], count: NDArray[np.float64]) -> list[tuple[float, float]]:
    """The upper edge of the bars."""
    points = [(float(edges[0]), 0.0)]
    for (begin, end), share in zip(pairwise(edges), count, strict=True):
        points += [(float(begin), float(share)), (float(end), float(share))]
    return [*points, (float(edges[-1]), 0.0)]


def _tick(last: int) -> int:
    """A round number of steps, of which at most eight fit."""
    return next(step for step in (10, 20, 50, 100, 200) if step * 8 >= last)


def _resize(values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """[bands, frames] to [height, width] by the nearest."""
    down = np.arange(height) * values.shape[0] // height
    across = np.arange(width) * values.shape[1] // width
    found: NDArray[np.float32] = values[down][:, across]
    return found


def _heat(values: NDArray[np.floating], loudest: float) -> NDArray[np.uint8]:
    """Colours [..., 3] of levels in dB."""
    place = np.clip((values - loudest) / _RANGE_DB + 1, 0, 1) * (len(_HEAT) - 1)
    knots = np.arange(len(_HEAT))
    return np.stack([np.interp(place, knots, channel) for channel in zip(*_HEAT, strict=True)], -1).astype(
        np.uint8
    )


# --- axes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Axes:
    """The plane of a plot, and where it lies on the canvas."""

    left: float
    right: float
    bottom: float
    top: float
    size: tuple[int, int] = (900, 520)
    margin: tuple[int, int, int, int] = (80, 90, 30, 64)
    """Pixels to the left, above, to the right, below."""

    def canvas(self, title: str, across: str, up: str) -> Canvas:
        width, height = self.size
        before, _, _, _ = self.margin
        canvas = Canvas(width, height)
        canvas.text(20, 14, title)
        canvas.text(20, 44, up, scale=1)
        canvas.text((before + width) // 2, height - 22, across, scale=2, anchor="middle")
        self._frame(canvas)
        return canvas

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        width, height = self.size
        before, above, after, below = self.margin
        across = (x - self.left) / (self.right - self.left)
        up = (y - self.bottom) / (self.top - self.bottom)
        return before + across * (width - before - after), height - below - up * (height - above - below)

    def across(self, canvas: Canvas, ticks: Sequence[tuple[float, str]]) -> None:
        """Grid lines and their numbers."""
        _, above, _, below = self.margin
        for value, label in ticks:
            x = round(self.place(value, self.bottom)[0])
            canvas.box(x, above + 1, x + 1, self.size[1] - below - 1, GREY)
            canvas.text(x, self.size[1] - below + 10, label, scale=2, anchor="middle")
        self._frame(canvas)

    def up(self, canvas: Canvas, ticks: Sequence[tuple[float, str]]) -> None:
        """Grid lines and their numbers."""
        before, _, after, _ = self.margin
        for value, label in ticks:
            y = round(self.place(self.left, value)[1])
            canvas.box(before + 1, y, self.size[0] - after - 1, y + 1, GREY)
            canvas.text(before - 8, y - HEIGHT, label, scale=2, anchor="right")
        self._frame(canvas)

    def limit(self, canvas: Canvas, value: float, words: str) -> None:
        """A line across."""
        canvas.line([self.place(self.left, value), self.place(self.right, value)], _LIMIT, width=1)
        x, y = self.place(self.left, value)
        canvas.text(int(x) + 6, int(y) + 5, words, _LIMIT, scale=1)

    def mark(self, canvas: Canvas, value: float, words: str) -> None:
        """A line upright."""
        canvas.line([self.place(value, self.bottom), self.place(value, self.top)], _LIMIT, width=1)
        x, y = self.place(value, self.top)
        canvas.text(int(x) - 4, int(y) + 6, words, _LIMIT, scale=1, anchor="right")

    def curve(self, canvas: Canvas, points: Sequence[tuple[float, float]], index: int, name: str) -> None:
        """The `index`-th curve, and its name above the plot."""
        colour = _SERIES[index % len(_SERIES)]
        canvas.line([self.place(*point) for point in points], colour)
        x = self.margin[0] + index * 200
        canvas.box(x, 68, x + 24, 72, colour)
        assert measure(name) <= 170, "the names of backends are short"
        canvas.text(x + 30, 63, name)

    def _frame(self, canvas: Canvas) -> None:
        before, above, after, below = self.margin
        canvas.frame(before, above, self.size[0] - after, self.size[1] - below, BLACK)
