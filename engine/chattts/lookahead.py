"""When a stream's sound is taken early, with how many steps on its right, and how its pieces are joined.

The vocoder is certain of the sound of a step 52 steps later. A slow machine cannot wait so long for the first
word: it takes estimates, which know fewer steps of what follows. `Schedule` decides; `Seam` holds the samples
of one stream and cross-fades where two estimates meet. Neither knows the vocoder or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

CONTEXT: Final = 52
"""Steps after which samples are certain."""
STEP: Final = 512
"""Samples of a step."""
FADE: Final = 256
"""Samples of a cross-fade: 10.7 ms. An estimate's last ones are held back for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """As much right context as the listener's lead leaves time for.

    A stream by itself has its sound taken only when the lead runs low. So where generation outruns playback
    there are more steps each
    time: to look ahead to, up to `enough`, then to deliver, so that the lead grows, until it is so long that
    all is certain before it is wanted. Where it does not, the lookahead stays short, and never below `first`.
    An estimate costs as much as making several steps, so that the more streams share the machine, the more
    each must be worth: from `crowd` streams on all sound is certain, a sentence starts later, and what is
    certain goes out at once.
    """

    first: int = 6
    """Steps of right context of the first sound, and the least ever."""
    enough: int = 16
    """Steps of right context over which a larger delivery is worth more than a better one."""
    chunk: int = 10
    """Steps that a delivery of estimates is worth to a stream by itself: with another one each waits for the
    other's estimates too, and 3 times as many keep both ahead."""
    low: int = 8
    """Steps of lead under which more is delivered."""
    urgent: int = 5
    """Steps of lead under which a delivery of `least` steps is worth it."""
    least: int = 8
    crowd: int = 2
    reserve: int = 24
    """Certain steps with which a sentence starts in a crowd."""
    piece: int = 16
    """Certain steps that a delivery is worth in a crowd: small ones would cost what they are to save."""

    def __post_init__(self) -> None:
        if not (0 <= self.first <= CONTEXT and 0 < self.least <= self.chunk and 0 <= self.urgent <= self.low):
            raise ValueError(f"a lookahead is 0 to {CONTEXT} steps, and a delivery at least one")

    def lookahead(self, *, made: int, delivered: int, lead: int, streams: int = 1) -> int | None:
        """What the listener needs now: `CONTEXT` = what is certain, less = a peek with this lookahead,
        `None` = nothing yet.

        `made`: steps of the sentence so far; `delivered`: samples of it that were taken; `lead`: samples that
        the listener has yet to hear, also of the sentences before; `streams`: how many are being made.
        """
        ahead = made - -(-delivered // STEP)
        if streams >= self.crowd:
            worth = self.piece if delivered or lead else self.reserve
            return CONTEXT if ahead >= CONTEXT + worth else None
        if lead >= self.low * STEP:
            return None
        # With nothing in hand yet the listener does not wait for this: a start that holds is worth more.
        runs_out = delivered and lead < self.urgent * STEP
        worth = self.least if runs_out else self.chunk
        if ahead >= CONTEXT + worth:
            return CONTEXT
        lookahead = ahead - self.chunk * streams * (streams + 1) // 2
        if lookahead >= self.first:
            return min(lookahead, self.enough)
        return self.first if runs_out and ahead - worth >= self.first else None


class Seam:
    """The samples of one stream on their way out. Each sample is delivered once, in order."""

    def __init__(self) -> None:
        self.delivered = 0
        """Samples that `take` and `finish` have returned."""
        self._certain = 0
        self._waiting: list[Tensor] = []
        """Certain samples; the last one is the stream's sample `_certain` - 1."""
        self._tail: Tensor | None = None
        """An older estimate of the samples from `delivered` on."""

    def feed(self, samples: Tensor) -> None:
        """The next certain samples."""
        self._certain += samples.shape[0]
        self._waiting.append(samples)

    @property
    def ahead(self) -> int:
        """Samples that were delivered and are not certain yet: the next estimate need not have them."""
        return max(0, self.delivered - self._certain)

    def take(self, estimate: Tensor | None = None) -> Tensor:
        """What can be delivered: certain samples, and with `estimate`, which follows them, all of it but for
        the end, which waits to be faded out of. May be empty."""
        samples = self._pending(estimate)
        if estimate is None:
            # Fewer than a fade takes could not be joined to what was delivered.
            enough = self._tail is None or samples.shape[0] >= self._tail.shape[0]
            return self._deliver(samples, None) if enough else samples[:0]
        if samples.shape[0] <= FADE:
            return samples[:0]
        return self._deliver(samples[:-FADE], samples[-FADE:])

    def finish(self, rest: Tensor) -> Tensor:
        """The stream ends with `rest`, which follows the certain samples: all that was not delivered."""
        return self._deliver(self._pending(rest), None)

    def _pending(self, estimate: Tensor | None) -> Tensor:
        """The stream from `delivered` on."""
        parts = self._waiting if estimate is None else [*self._waiting, estimate]
        samples = torch.cat(parts) if parts else torch.zeros(0)
        waiting = sum(part.shape[0] for part in self._waiting)
        start = self._certain - waiting
        assert start <= self.delivered, "no sample is dropped before it was delivered"
        return samples[self.delivered - start :]

    def _deliver(self, samples: Tensor, tail: Tensor | None) -> Tensor:
        if self._tail is not None:
            count = min(self._tail.shape[0], samples.shape[0])
            # Neither end of the ramp is reached: the samples at both sides of the fade are those weights.
            ramp = torch.arange(1, count + 1).to(samples) / (count + 1)
            joined = torch.lerp(self._tail[:count], samples[:count], ramp)
            samples = torch.cat((joined, samples[count:]))
        self._tail = tail
        self.delivered += samples.shape[0]
        self._drop_delivered()
        return samples

    def _drop_delivered(self) -> None:
        keep = max(0, self._certain - self.delivered)
        self._waiting = [torch.cat(self._waiting)[-keep:]] if keep else []
