"""Pacing is arithmetic: lead and playhead under any order of clock, sending and reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import FRAME_MS
from gateway.playout import BURST, FAST_BURST, REPORT_MS, Playout

LEAD_MS = 2000


def playout(*, lead_ms: int = LEAD_MS, realtime: bool = True, bundle: int = 3) -> Playout:
    return Playout(lead_ms=lead_ms, realtime=realtime, bundle=bundle)


# --- the playhead -----------------------------------------------------------------------------------------


def test_nothing_is_heard_before_something_is_sent() -> None:
    track = playout()
    assert track.played(5.0) == 0.0
    track.on_sent(3, 10.0)
    assert track.played(10.0) == 0.0
    assert track.played(10.02) == pytest.approx(20.0)


def test_the_playhead_runs_with_the_clock_and_stands_where_sound_ends() -> None:
    track = playout()
    track.on_sent(5, 0.0)
    assert track.played(0.06) == pytest.approx(60.0)
    assert track.played(3.0) == 100.0
    assert track.lead(3.0) == 0.0
    # The gap is not caught up: what is sent now is heard from now on.
    track.on_sent(5, 10.0)
    assert track.played(10.0) == 100.0
    assert track.played(10.05) == pytest.approx(150.0)


def test_a_report_sets_the_playhead() -> None:
    track = playout()
    track.on_sent(50, 0.0)
    track.on_report(30.0, 0.5)
    assert track.played(0.5) == 30.0
    assert track.played(0.6) == pytest.approx(130.0)
    track.on_report(400.0, 0.6)
    assert track.lead(0.6) == 600.0


def test_a_report_of_more_than_was_sent_is_cut() -> None:
    track = playout()
    track.on_report(500.0, 0.0)
    track.on_sent(5, 0.0)
    track.on_report(500.0, 0.0)
    assert track.played(0.0) == 100.0


def test_reports_do_not_go_back() -> None:
    track = playout()
    track.on_sent(50, 0.0)
    track.on_report(600.0, 0.0)
    track.on_report(100.0, 0.0)
    assert track.played(0.0) == 600.0


def test_between_reports_the_playhead_runs_so_far_and_no_further() -> None:
    track = playout()
    track.on_sent(100, 0.0)
    track.on_report(100.0, 0.1)
    assert track.played(5.0) == 100.0 + REPORT_MS


# --- what is due ------------------------------------------------------------------------------------------


def test_a_burst_fills_the_lead_and_then_the_clock_paces() -> None:
    track = playout()
    sent = []
    for tick in range(200):
        now = tick * 0.02
        count = track.due(now)
        if count:
            track.on_sent(count, now)
        sent.append(count)
    assert sent[0] == BURST
    assert set(sent[:8]) == {BURST}
    # Afterwards a bundle each third tick.
    assert sum(sent[50:]) == pytest.approx(150, abs=3)
    assert set(sent[50:]) <= {0, 3, 4}


def test_a_part_of_a_bundle_is_not_due() -> None:
    track = playout(lead_ms=200, bundle=3)
    track.on_sent(8, 0.0)
    assert track.due(0.0) == 0
    assert track.due(0.019) == 0
    assert track.due(0.021) == 3


@pytest.mark.parametrize("bundle", [1, 3, BURST - 1, BURST, BURST + 1, 25])
@pytest.mark.parametrize("lead_ms", [200, 250, 500, 2000])
def test_every_lead_and_bundle_that_may_be_set_plays_in_time(lead_ms: int, bundle: int) -> None:
    """Also where a bundle is longer than the lead: sound must go on, and never more than the lead."""
    track = playout(lead_ms=lead_ms, bundle=bundle)
    for tick in range(500):
        now = tick * 0.02
        if count := track.due(now):
            track.on_sent(count, now)
        assert track.lead(now) <= lead_ms
    assert track.sent >= 500 * FRAME_MS - FRAME_MS
    assert track.played(499 * 0.02) == pytest.approx(499 * 20.0)


@pytest.mark.parametrize("bundle", [1, 3, BURST, 25])
def test_what_is_due_is_nothing_or_a_whole_bundle(bundle: int) -> None:
    track = playout(bundle=bundle)
    for tick in range(300):
        count = track.due(tick * 0.02)
        assert count == 0 or count >= min(bundle, BURST)
        track.on_sent(count, tick * 0.02)


def test_fast_pace_knows_no_lead() -> None:
    track = playout(realtime=False)
    for _ in range(1000):
        assert track.due(0.0) == FAST_BURST
        track.on_sent(FAST_BURST, 0.0)
    assert track.lead(0.0) == 1000 * FAST_BURST * FRAME_MS


def test_a_listener_with_enough_may_wait_for_a_whole_bundle() -> None:
    track = playout(bundle=3)
    assert not track.hold(0.0)
    track.on_sent(7, 0.0)
    assert track.hold(0.0)
    assert not track.hold(0.05)


# --- underruns --------------------------------------------------------------------------------------------


def test_an_underrun_counts_once_a_gap() -> None:
    track = playout()
    assert not track.check_underrun(0.0, more=True)  # nothing was heard yet: that is the time to first audio
    track.on_sent(5, 0.0)
    assert not track.check_underrun(0.09, more=True)
    assert not track.check_underrun(0.5, more=False)  # the text is at its end, or its writer thinks
    assert track.check_underrun(0.6, more=True)
    assert not track.check_underrun(0.7, more=True)
    track.on_sent(5, 1.0)
    assert not track.check_underrun(1.05, more=True)
    assert track.check_underrun(1.2, more=True)
    assert track.underruns == 2


# --- any order --------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 3)),
        st.tuples(st.just("tick"), st.just(0.0)),
        st.tuples(st.just("report"), st.floats(0, 10_000)),
        st.tuples(st.just("underrun"), st.just(0.0)),
    ),
    max_size=60,
)


@given(ACTIONS, st.integers(200, 4000), st.integers(1, 25), st.booleans())
def test_any_order_of_events(
    actions: list[tuple[str, float]], lead_ms: int, bundle: int, realtime: bool
) -> None:
    track = playout(lead_ms=lead_ms, bundle=bundle, realtime=realtime)
    now = played = reported = 0.0
    gaps = sends = 0
    for action, value in actions:
        if action == "wait":
            now += value
        elif action == "tick":
            count = track.due(now)
            assert 0 <= count <= (BURST if realtime else FAST_BURST)
            if realtime and count:
                # What is sent keeps within the lead.
                assert track.lead(now) + count * FRAME_MS <= lead_ms
            if count:
                track.on_sent(count, now)
                sends += 1
        elif action == "report":
            track.on_report(value, now)
            reported = max(reported, min(value, float(track.sent)))
            assert track.played(now) == reported
            played = reported
        elif track.check_underrun(now, more=True):
            gaps += 1
            assert track.lead(now) <= 0
        # Never past what was sent, and never back but for a report.
        assert played <= track.played(now) + 1e-9
        assert track.played(now) <= track.sent
        played = track.played(now)
    assert track.underruns == gaps <= sends


@given(st.lists(st.floats(0, 0.1), max_size=50))
def test_looking_at_the_playhead_does_not_move_it(looks: list[float]) -> None:
    watched, other = playout(), playout()
    for track in (watched, other):
        track.on_sent(BURST, 0.0)
    now = 0.0
    for step in looks:
        now += step
        watched.played(now)
        watched.lead(now)
        watched.hold(now)
    assert watched.played(now) == pytest.approx(other.played(now), abs=1e-6)
