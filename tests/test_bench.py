"""The arithmetic of the bench; the measurements themselves are not tests."""

from __future__ import annotations

import dataclasses
import math

import pytest

from bench.load import PlayoutClock
from bench.report import Row, judge
from bench.server import percentile_of_buckets

ROW = Row(
    streams=128,
    cpu_ms_per_stream_s=4.0,
    opus_ms_per_stream_s=3.0,
    idle_opus_ms_per_stream_s=2.8,
    ratio=1.33,
    lag_ms_p99=2.0,
    ttfa_ms_p50=10.0,
    ttfa_ms_p95=20.0,
    ttfa_ms_p99=30.0,
    underruns=0,
    delivered=1.0,
    machine_busy=0.5,
)


def test_sound_in_time_is_no_underrun() -> None:
    clock = PlayoutClock()
    for n in range(50):
        clock.feed(100.0 + n * 0.059, 60)
    assert (clock.underruns, clock.received_ms) == (0, 3000)


def test_a_gap_is_counted_once_and_playout_goes_on_from_it() -> None:
    clock = PlayoutClock()
    clock.feed(0.0, 60)
    clock.feed(0.05, 60)  # Enough until 0.12.
    clock.feed(0.20, 60)  # 80 ms of silence: enough until 0.26 now.
    assert clock.underruns == 1
    clock.feed(0.255, 60)
    assert clock.underruns == 1
    clock.feed(0.33, 60)
    assert clock.underruns == 2


def test_a_percentile_of_what_came_between_two_scrapes() -> None:
    before = {0.001: 50.0, 0.005: 50.0, 0.01: 50.0, math.inf: 50.0}
    after = {0.001: 50.0, 0.005: 140.0, 0.01: 150.0, math.inf: 150.0}
    assert percentile_of_buckets(before, after, 0.99) == pytest.approx(0.0095)
    assert percentile_of_buckets(before, after, 0.45) == pytest.approx(0.003)
    assert percentile_of_buckets({}, after, 0.2) == pytest.approx(0.0006)


def test_a_percentile_past_the_last_bound_or_of_nothing() -> None:
    after = {0.001: 0.0, 2.0: 0.0, math.inf: 5.0}
    assert percentile_of_buckets({}, after, 0.99) == 2.0
    assert percentile_of_buckets(after, after, 0.99) is None
    assert percentile_of_buckets({}, {}, 0.99) is None


def test_promises_are_judged_at_their_number_of_streams() -> None:
    def verdicts(*rows: Row) -> list[bool | None]:
        return [kept for _, kept in judge(list(rows))]

    assert verdicts(ROW) == [True, True]
    assert verdicts(dataclasses.replace(ROW, ratio=1.51)) == [False, True]
    assert verdicts(dataclasses.replace(ROW, lag_ms_p99=5.1)) == [True, False]
    assert verdicts(dataclasses.replace(ROW, lag_ms_p99=None)) == [True, None]
    assert verdicts(dataclasses.replace(ROW, streams=64)) == [None, None]
