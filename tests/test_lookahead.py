"""When sound is taken early, and how its pieces are joined."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.chattts.lookahead import CONTEXT, FADE, Schedule, Seam
from engine.chattts.vocoder import STEP, StreamingVocoder, Vocoder
from tests import tiny_nets


def hidden(count: int) -> Tensor:
    return torch.randn(count, tiny_nets.HIDDEN, generator=torch.Generator().manual_seed(count))


def test_the_lookahead_grows_where_generation_outruns_playback() -> None:
    schedule = Schedule(first=6, chunk=6, low=12, least=6)
    delivered, used, first_at = 0, [], 0
    for fed in range(1, 400):
        # Two steps are made in the time of one, from the first sound on.
        playhead = min(delivered, STEP * (fed - first_at) // 2) if delivered else 0
        lookahead = schedule.lookahead(made=fed, delivered=delivered, lead=delivered - playhead)
        if lookahead is None:
            continue
        first_at = first_at or fed
        used.append(lookahead)
        assert delivered < STEP * (fed - lookahead), "something new each time"
        delivered = STEP * (fed - lookahead) - (FADE if lookahead < CONTEXT else 0)
    assert first_at == 12, "6 steps of sound and 6 of lookahead"
    assert used[0] == 6
    assert used == sorted(used)
    assert used[-1] == CONTEXT
    assert sum(lookahead < CONTEXT for lookahead in used) <= 10, "each is worth more than the one before"


def test_a_machine_just_in_time_keeps_a_short_lookahead_and_a_fast_one_waits_for_none() -> None:
    schedule = Schedule(first=6, chunk=6, low=12, least=6)

    def taken(made: int, delivered: int, lead: int) -> int | None:
        return schedule.lookahead(made=made, delivered=delivered, lead=lead)

    assert taken(11, 0, 0) is None
    assert taken(12, 0, 0) == 6
    assert taken(17, 3072, 0) is None
    assert taken(18, 3072, 0) == 6
    assert taken(40, 3072, 0) == 16, "and the rest is delivered"
    assert taken(40, 3072, 12 * STEP) is None
    assert taken(40, 3072, 12 * STEP - 1) == 16


def test_certain_sound_is_taken_when_it_is_worth_it() -> None:
    schedule = Schedule(first=6, chunk=6, low=12, least=6)
    assert schedule.lookahead(made=58, delivered=0, lead=0) == CONTEXT
    assert schedule.lookahead(made=57, delivered=0, lead=12 * STEP) is None


def test_the_more_streams_the_more_a_delivery_is_worth_until_it_is_urgent() -> None:
    schedule = Schedule(first=6, chunk=10, low=8, urgent=5, least=4, crowd=3, reserve=24)

    def first(streams: int, delivered: int, lead: int) -> int | None:
        """Steps beyond what was delivered at which a delivery comes."""
        started = delivered // STEP
        taken = (
            schedule.lookahead(made=made, delivered=delivered, lead=lead, streams=streams) is not None
            for made in range(started, started + 100)
        )
        return next((steps for steps, is_taken in enumerate(taken) if is_taken), None)

    assert [first(streams, 0, 0) for streams in (1, 2, 3, 8)] == [16, 36, 76, 76]
    assert [first(2, 24 * STEP, lead * STEP) for lead in (7, 4, 0)] == [36, 10, 10]
    assert schedule.lookahead(made=34, delivered=24 * STEP, lead=4 * STEP, streams=2) == 6
    assert schedule.lookahead(made=76, delivered=0, lead=0, streams=4) == CONTEXT
    assert first(4, 24 * STEP, 0) == CONTEXT + 16, "no small pieces, however late"


def test_a_sentence_after_another_needs_no_early_sound() -> None:
    """The listener has two seconds of the one before in hand."""
    schedule = Schedule(first=6, chunk=6, low=12, least=6)
    assert not any(schedule.lookahead(made=made, delivered=0, lead=48_000) for made in range(1, 100))


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="lookahead"):
        Schedule(first=53)
    with pytest.raises(ValueError, match="delivery"):
        Schedule(least=0)
    with pytest.raises(ValueError, match="delivery"):
        Schedule(urgent=9)


def test_estimates_are_joined_without_a_click() -> None:
    seam = Seam()
    first = seam.take(torch.ones(1000))
    assert first.shape == (1000 - FADE,)
    second = seam.take(torch.full((2000,), -1.0))
    third = seam.finish(torch.full((3000,), 0.5))
    sound = torch.cat((first, second, third))
    assert sound.shape == (3000,)
    assert float(sound.diff().abs().max()) < 2.1 / FADE, "a cut would be a step of 2"
    assert bool((sound[: 1000 - FADE] == 1).all())
    assert bool((sound[1000 : 2000 - FADE] == -1).all())
    assert bool((sound[2000:] == 0.5).all())


def test_equal_estimates_are_joined_unchanged() -> None:
    truth = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    seam = Seam()
    parts = [seam.take(truth[:700])]
    seam.feed(truth[:500])
    parts.append(seam.take())
    assert parts[-1].shape == (0,), "all of it was delivered before"
    seam.feed(truth[500:900])
    parts.append(seam.take(truth[900:1500]))
    seam.feed(truth[900:1300])
    parts.append(seam.take())
    assert parts[-1].shape == (0,), "too little to be joined to what went before"
    seam.feed(truth[1300:4000])
    parts.append(seam.take())
    assert seam.delivered == 4000, "certain samples are not held back"
    parts.append(seam.finish(truth[4000:]))
    assert torch.equal(torch.cat(parts), truth)


@pytest.mark.parametrize(("count", "pace"), [(3, 2), (40, 1), (60, 3), (300, 2), (300, 4)])
def test_early_sound_has_the_length_of_the_whole_and_becomes_it(count: int, pace: int) -> None:
    """`pace` steps are made in the time of one."""
    single = Vocoder.load(tiny_nets.decoder(), tiny_nets.vocos())
    steps = hidden(count)
    whole = single.decode(steps)
    state, seam, schedule = StreamingVocoder(single, slots=1), Seam(), Schedule()
    parts: list[Tensor] = []
    exact_from = None
    for fed in range(1, count + 1):
        seam.feed(state.feed([0], steps[None, fed - 1 : fed])[0])
        playhead = min(seam.delivered, STEP * (fed - 16) // pace)
        lead = seam.delivered - max(0, playhead)
        lookahead = schedule.lookahead(made=fed, delivered=seam.delivered, lead=lead)
        if lookahead is not None:
            parts.append(seam.take(state.peek(0, lookahead) if lookahead < CONTEXT else None))
            exact_from = seam.delivered if lookahead == CONTEXT and exact_from is None else exact_from
    parts.append(seam.finish(state.flush(0)))
    sound = torch.cat(parts)
    assert sound.shape == whole.shape
    if count > 16:
        assert parts[0].shape[0] == 10 * STEP - FADE
    if exact_from is not None:
        assert float((sound[exact_from:] - whole[exact_from:]).abs().max()) < 1e-4
    assert (exact_from is not None) == (count == 300)
