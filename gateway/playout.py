"""Pacing: how much sound may be on its way to a listener, and where the listener is. Pure arithmetic.

All times are milliseconds of the utterance's own timeline, all clocks seconds passed in. The playhead runs
with the clock while there is sound to hear, stands still while there is none, and follows the client's
`played` reports where it sends them.
"""

from __future__ import annotations

from typing import Final

from gateway.messages import FRAME_MS

BURST: Final = 12
"""Packets (240 ms) a stream may send at one tick: what fills a new lead is spread over ticks."""
FAST_BURST: Final = 50
"""The same for `pace: fast`: 50 times real time."""
REPORT_MS: Final = 1000.0
"""A playhead is not extrapolated further than this past the client's last report ..."""
REPORTS_S: Final = 5.0
"""... until the reports have stopped for so long; then the clock counts again."""


class Playout:
    """One track's lead and playhead."""

    def __init__(self, *, lead_ms: int, realtime: bool, bundle: int) -> None:
        self._lead_ms = lead_ms
        self._realtime = realtime
        # A bundle that the lead or a tick cannot hold would never be due.
        self._bundle = min(bundle, BURST, lead_ms // FRAME_MS // 2)
        self._played = 0.0
        self._at: float | None = None
        self._reported: float | None = None
        self._reported_at = 0.0
        self.sent = 0
        """Sound sent so far, ms."""
        self.resting_until = 0.0
        """Nothing can be due before, the lead being full: the pump need not look."""
        self.underruns = 0
        self._dry = False

    def played(self, now: float) -> float:
        """The playhead, ms."""
        if self._at is not None:
            ceiling = float(self.sent)
            if self._reported is not None and now - self._reported_at < REPORTS_S:
                ceiling = min(ceiling, self._reported + REPORT_MS)
            self._played = max(self._played, min(self._played + (now - self._at) * 1000.0, ceiling))
            self._at = now
        return self._played

    def lead(self, now: float) -> float:
        """Sound on its way or waiting at the client, ms."""
        return self.sent - self.played(now)

    def due(self, now: float) -> int:
        """Packets that may be sent now: none, or at least a whole bundle."""
        if not self._realtime:
            return FAST_BURST
        lead = self.lead(now)
        room = int((self._lead_ms - lead) // FRAME_MS)
        if room < self._bundle:
            self.resting_until = now + (self._bundle - room) * FRAME_MS / 1000.0
            return 0
        return min(room, BURST)

    def hold(self, now: float) -> bool:
        """Better wait for a whole bundle: the listener has enough."""
        return self.lead(now) > 2 * self._bundle * FRAME_MS

    def on_sent(self, packets: int, now: float) -> None:
        """These went out."""
        self.played(now)
        if self._at is None:
            self._at = now
        self.sent += packets * FRAME_MS
        self._dry = False

    def on_report(self, ms: float, now: float) -> None:
        """The client says where its listener is; it cannot be past what was sent, nor go back."""
        self.played(now)
        self._reported = max(self._reported or 0.0, min(ms, float(self.sent)))
        self._reported_at = now
        self.resting_until = 0.0
        self._played = self._reported

    def check_underrun(self, now: float, *, more: bool) -> bool:
        """True once for each gap: the listener has heard all there was, though `more` was there to speak."""
        if self._at is None or self._dry or not more or self.lead(now) > 0:
            return False
        self._dry = True
        self.underruns += 1
        return True
