"""A decode step of a whole batch, draws included, without a turn of Python for each row: for a GPU.

Between `prefill`, which hands over the state that predicts a sentence's first codes, and `model`, which gets
the codes of each step. Imports of the engine `gpt` and `sampler`.

Row i of a batch is slot i, so that keys and values are read where they lie; a batch is cut to a bucket of
rows, and attention to a bucket of positions. For each pair of buckets the step is captured once, as a CUDA
graph, and then replayed: up goes a small table (place, step, seed of each row), down comes another (codes,
ended, finite). The same code runs without a graph, on a CPU too. A row's numbers are independent of its
neighbours; they depend on the bucket only as far as the library picks other kernels for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.chattts import sampler
from engine.chattts.embed import CODEBOOKS

if TYPE_CHECKING:
    from engine.chattts.gpt import Gpt
    from engine.chattts.row import Settings

log = structlog.get_logger(__name__)

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
REACHES: Final = (256, 512, 1024)
"""Positions that attention looks at; the last bucket is all that a slot has."""
_IDLE: Final = -1
_KERNELS: Final = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which plans anew for each shape. On a GPU the first takes no mask, so that the second runs."""

Replay = Callable[[], None]
Capture = Callable[[Callable[[], None]], Replay]
"""Takes work that was never run, returns what runs it again. Raises `RuntimeError`."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a step drew for a row. Not `finite`: its state was no number, and the codes mean nothing."""

    codes: list[int]
    ended: bool
    finite: bool


class CudaStep:
    """The state of every slot's sentence on the device, allocated once. Call it like its `Gpt`."""

    def __init__(self, gpt: Gpt, *, capture: Capture | None = None) -> None:
        """`capture`: `cuda_graphs()` on a GPU; `None`: every step is launched piece by piece."""
        self._gpt = gpt
        self._capture = capture
        self._replays: dict[tuple[int, int], Replay] = {}
        self._batches = [*(size for size in BATCHES if size < gpt.slots), gpt.slots]
        self._reaches = [*(reach for reach in REACHES if reach < gpt.full_reach), gpt.full_reach]
        slots, device, hidden = gpt.slots, gpt.device, gpt.shape.hidden
        self._heads = gpt.head_codes.to(torch.promote_types(gpt.dtype, torch.float32))
        self._plan = torch.full((slots, 3), _IDLE, device=device)
        self._hidden = torch.zeros(slots, hidden, dtype=gpt.dtype, device=device)
        self._spoken = torch.zeros_like(self._hidden)
        self._history = torch.full((slots, sampler.HISTORY, CODEBOOKS), sampler.PAD, device=device)
        self._drawn = torch.zeros((slots, CODEBOOKS + 2), dtype=torch.int64, device=device)

        def row(value: float) -> Tensor:
            return torch.full((slots,), value, dtype=self._heads.dtype, device=device)

        self._settings = sampler.Parameters(
            temperature=row(1.0),
            top_p=row(1.0),
            top_k=row(1.0).long(),
            penalty=row(1.0),
            min_steps=row(0.0).long(),
        )

    @property
    def spoken(self) -> Tensor:
        """[slots, H]: the states that predicted the codes last drawn. The next step overwrites them."""
        return self._spoken

    def warm_up(self) -> None:
        """Capture every pair of buckets; where one cannot be, all steps go without."""
        if self._capture is None:
            return
        try:
            # The largest first: the smaller ones find room in the memory that it took.
            for batch in reversed(self._batches):
                for reach in reversed(self._reaches):
                    self._replays[batch, reach] = self._capture(self._work(batch, reach))
        except RuntimeError:
            self._replays.clear()
            log.warning("no CUDA graphs here, steps are launched piece by piece", exc_info=True)

    def begin(self, slot: int, hidden: Tensor, settings: Settings, codes: Sequence[Sequence[int]]) -> None:
        """The slot's cache holds a prompt and `codes` [n, 4] resumed from; `hidden` [H] predicts the next."""
        self._gpt.clear_rest(slot)
        self._hidden[slot] = hidden
        recent = [[sampler.PAD] * CODEBOOKS] * sampler.HISTORY + [list(step) for step in codes]
        self._history[slot] = torch.tensor(recent[-sampler.HISTORY :])
        self._settings.temperature[slot] = settings.temperature
        self._settings.top_p[slot] = settings.top_p
        self._settings.top_k[slot] = settings.top_k
        self._settings.penalty[slot] = settings.penalty
        self._settings.min_steps[slot] = settings.min_steps

    def step(self, slots: Sequence[int], seeds: Sequence[int], steps: Sequence[int]) -> list[Drawn]:
        """Draw the codes of `steps` for these slots, all different, and go on from them. A row that ended or
        is not finite stays where it was, so that it can be drawn again with another seed."""
        lengths = [self._gpt.length(slot) for slot in slots]
        batch = next(size for size in self._batches if size > max(slots))
        reach = next(size for size in self._reaches if size > max(lengths))
        plan = torch.full((batch, 3), _IDLE)
        plan[list(slots)] = torch.tensor([lengths, list(steps), list(seeds)]).T
        self._plan[:batch] = plan
        self._replays.get((batch, reach), self._work(batch, reach))()
        rows = self._drawn[:batch].tolist()
        drawn = [Drawn(rows[slot][:CODEBOOKS], *map(bool, rows[slot][CODEBOOKS:])) for slot in slots]
        self._gpt.grow([slot for slot, row in zip(slots, drawn, strict=True) if row.finite and not row.ended])
        return drawn

    def _work(self, batch: int, reach: int) -> Callable[[], None]:
        def work() -> None:
            with sdpa_kernel(_KERNELS):
                self._run(batch, reach)

        return work

    def _run(self, batch: int, reach: int) -> None:
        """The step itself, from buffers to buffers. No shape depends on data, nothing waits."""
        places, steps, seeds = self._plan[:batch].unbind(1)
        hidden, history = self._hidden[:batch], self._history[:batch]
        logits = functional.linear(hidden.to(self._heads.dtype), self._heads).view(batch, CODEBOOKS, -1)
        codes = sampler.draw(logits, history, self._sampling(batch), seeds, steps)
        finite = hidden.isfinite().all(-1)
        ended = (codes == sampler.EOS).any(-1)
        going = (places >= 0) & finite & ~ended
        following = self._gpt.decode_rows(self._gpt.embed_codes(codes), places, reach)
        self._spoken[:batch] = hidden
        hidden.copy_(torch.where(going[:, None], following, hidden))
        longer = torch.cat([history[:, 1:], codes[:, None]], 1)
        history.copy_(torch.where(going[:, None, None], longer, history))
        self._drawn[:batch] = torch.cat([codes, ended[:, None], finite[:, None]], 1)

    def _sampling(self, batch: int) -> sampler.Parameters:
        every = self._settings
        return sampler.Parameters(
            temperature=every.temperature[:batch],
            top_p=every.top_p[:batch],
            top_k=every.top_k[:batch],
            penalty=every.penalty[:batch],
            min_steps=every.min_steps[:batch],
        )


def cuda_graphs() -> Capture:
    """Captures work as CUDA graphs that share their memory: one runs at a time."""
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Callable[[], None]) -> Replay:
        # Libraries make their workspaces and choose their kernels on the first run, which no graph may hold.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            work()
        return graph.replay

    return capture
