"""The batched decode step against `Gpt.decode` and the sampler, row by row; on a GPU too where there is one.

Capturing a CUDA graph needs the GPU; all else is the same code on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs
from torch import Tensor

from engine.chattts import sampler, weights
from engine.chattts.cuda_step import CudaStep, Drawn, Replay, cuda_graphs
from engine.chattts.gpt import Gpt
from engine.chattts.row import Settings
from engine.chattts.weights import Checkpoint
from tests.upstream import write_tiny

pytestmark = pytest.mark.long

SLOTS = 10
POSITIONS = 300
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SETTINGS = Settings(temperature=0.9, top_p=0.9, top_k=40, min_steps=1000)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    root: Path = tmp_path_factory.mktemp("weights")
    return weights.load(write_tiny(root))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def make(checkpoint: Checkpoint, device: str, dtype: torch.dtype = torch.float32) -> Gpt:
    return Gpt(checkpoint, slots=SLOTS, max_positions=POSITIONS, dtype=dtype, device=device)


def stepper(gpt: Gpt) -> CudaStep:
    """Warmed up: with graphs where there is a GPU."""
    made = CudaStep(gpt, capture=cuda_graphs() if gpt.device.type == "cuda" else None)
    made.warm_up()
    return made


@dataclass
class Stream:
    """A request, and what came of it."""

    slot: int
    prompt: int
    """Positions."""
    seed: int
    begins: int = 0
    steps: int = 20
    settings: Settings = SETTINGS
    codes: list[list[int]] = field(default_factory=list)
    spoken: list[Tensor] = field(default_factory=list)

    def prefill(self, gpt: Gpt, slot: int) -> Tensor:
        gpt.reset(slot)
        return gpt.prefill(slot, gpt.embed_text((torch.arange(self.prompt) * 7 + self.prompt) % 60), 0)[-1]

    def join(self, gpt: Gpt, step: CudaStep) -> None:
        step.begin(self.slot, self.prefill(gpt, self.slot), self.settings, [])


def advance(step: CudaStep, streams: list[Stream]) -> list[Drawn]:
    drawn = step.step(
        [stream.slot for stream in streams],
        [stream.seed for stream in streams],
        [len(stream.codes) for stream in streams],
    )
    for stream, row in zip(streams, drawn, strict=True):
        stream.codes.append(row.codes)
        stream.spoken.append(step.spoken[stream.slot].clone())
    return drawn


def run(gpt: Gpt, step: CudaStep, streams: list[Stream]) -> None:
    """All of them, each joining at its time and leaving when it has its steps."""
    turn = 0
    while any(len(stream.codes) < stream.steps for stream in streams):
        for stream in streams:
            if stream.begins == turn:
                stream.join(gpt, step)
        if going := [each for each in streams if each.begins <= turn and len(each.codes) < each.steps]:
            advance(step, going)
        turn += 1


def draw(gpt: Gpt, hidden: Tensor, history: Tensor, stream: Stream, at: int) -> Tensor:
    """Codes [1, 4] of one row, from its state [1, H]."""
    chosen = stream.settings
    parameters = sampler.Parameters(
        temperature=torch.tensor([chosen.temperature]),
        top_p=torch.tensor([chosen.top_p]),
        top_k=torch.tensor([chosen.top_k]),
        penalty=torch.tensor([chosen.penalty]),
        min_steps=torch.tensor([chosen.min_steps]),
    )
    seeds, steps = torch.tensor([stream.seed]), torch.tensor([at])
    return sampler.draw(gpt.code_logits(hidden), history[None], parameters, seeds, steps)


def reference(gpt: Gpt, stream: Stream) -> tuple[list[list[int]], Tensor]:
    """Codes, and the states that predicted them, by `Gpt.decode` and the sampler, alone in slot 9."""
    hidden = stream.prefill(gpt, 9)[None]
    history = torch.full((sampler.HISTORY, 4), sampler.PAD, device=gpt.device)
    spoken = []
    for at in range(stream.steps):
        drawn = draw(gpt, hidden, history, stream, at)
        spoken.append(hidden[0])
        history = torch.cat([history, drawn])
        hidden = gpt.decode(torch.tensor([9]), gpt.embed_codes(drawn))
    codes: list[list[int]] = history[sampler.HISTORY :].tolist()
    return codes, torch.stack(spoken)


def test_joins_and_leaves_give_the_codes_of_decode(checkpoint: Checkpoint, device: str) -> None:
    """Lengths on both sides of a bucket of positions, batches in several buckets of rows."""
    gpt = make(checkpoint, device)
    streams = [
        Stream(0, 5, 1, steps=40),
        Stream(1, 250, 2, begins=3, steps=30),
        Stream(2, 33, 3, begins=3, steps=5),
        Stream(5, 64, 4, begins=6, settings=Settings(temperature=0.3, penalty=1.3, min_steps=1000)),
        Stream(2, 17, 5, begins=11, steps=12),
        Stream(8, 280, 6, begins=12, steps=20),
    ]
    run(gpt, stepper(gpt), streams)
    for stream in streams:
        codes, spoken = reference(gpt, stream)
        assert stream.codes == codes
        torch.testing.assert_close(torch.stack(stream.spoken), spoken, atol=1e-4, rtol=1e-4)
    assert streams[0].codes[:12] != streams[4].codes
    assert gpt.length(1) == 280
    assert gpt.length(8) == POSITIONS


def test_resumed_codes_go_on_as_they_were(checkpoint: Checkpoint, device: str) -> None:
    """In fp64, where a prefill of what was decoded cannot change a draw."""
    gpt = make(checkpoint, device, torch.float64)
    step = stepper(gpt)
    whole = Stream(0, 12, 7, steps=40)
    run(gpt, step, [whole])
    for at in (3, 25):
        rest = Stream(4, 12, 7, codes=whole.codes[:at])
        rest.prefill(gpt, 4)
        hidden = gpt.prefill(4, gpt.embed_codes(torch.tensor(rest.codes)), 12)[-1]
        step.begin(4, hidden, SETTINGS, rest.codes)
        while len(rest.codes) < whole.steps:
            advance(step, [rest])
        assert rest.codes == whole.codes


def test_a_step_is_the_same_each_time_and_whoever_is_beside(checkpoint: Checkpoint, device: str) -> None:
    """Bit for bit, in one bucket of rows; the neighbours' lengths stay in one bucket of positions."""
    gpt = make(checkpoint, device)
    step = stepper(gpt)

    def spoken(*neighbours: int) -> Tensor:
        stream = Stream(7, 40, 11)
        beside = [Stream(slot, 3 + 20 * slot, slot, steps=9 + slot) for slot in neighbours]
        run(gpt, step, [stream, *beside])
        return torch.stack([*stream.spoken, gpt.embed_codes(torch.tensor(stream.codes)).sum(0)])

    alone = spoken()
    assert torch.equal(spoken(), alone)
    assert torch.equal(spoken(0, 3), alone)
    assert torch.equal(spoken(6, 5, 4, 3, 2, 1, 0), alone)


def test_an_idle_row_keeps_its_slot_as_it_is(checkpoint: Checkpoint, device: str) -> None:
    """One that waits for its listener, and one in mid-prefill."""
    gpt = make(checkpoint, device)
    step = stepper(gpt)
    parked, busy = Stream(1, 20, 1), Stream(3, 50, 2)
    run(gpt, step, [parked])
    parked.steps = 40
    gpt.prefill(2, gpt.embed_text(torch.arange(40)), 0)
    before = [gpt.save_prefix(slot, gpt.length(slot)) for slot in (1, 2)]
    run(gpt, step, [busy])
    for slot, kept in zip((1, 2), before, strict=True):
        after = gpt.save_prefix(slot, gpt.length(slot))
        assert torch.equal(after.keys, kept.keys)
        assert torch.equal(after.values, kept.values)
    while len(parked.codes) < parked.steps:
        advance(step, [parked])
    assert parked.codes == reference(gpt, parked)[0]


def test_a_row_that_is_no_number_is_named_and_alone(checkpoint: Checkpoint, device: str) -> None:
    gpt = make(checkpoint, device)
    step = stepper(gpt)
    streams = [Stream(slot, 20 + slot, slot) for slot in range(3)]
    for stream in streams:
        stream.join(gpt, step)
    # A stream that fails in its prefill leaves its slot full of NaN, and is computed on as an idle row.
    gpt.reset(1)
    step.begin(1, gpt.prefill(1, gpt.embed_text(torch.arange(100) % 60) * torch.nan, 0)[-1], SETTINGS, [])
    drawn = advance(step, streams)
    assert [row.finite for row in drawn] == [True, False, True]
    assert gpt.length(1) == 100
    for _ in range(19):
        advance(step, [streams[0], streams[2]])
    for stream in (streams[0], streams[2]):
        assert stream.codes == reference(gpt, stream)[0]
    after = Stream(1, 5, 9)
    run(gpt, step, [after])
    assert after.codes == reference(gpt, after)[0]


def test_a_row_that_ended_can_draw_again(checkpoint: Checkpoint, device: str) -> None:
    """Its state stays; its neighbour goes on."""
    gpt = make(checkpoint, device)
    first, other = Stream(0, 20, 1, settings=Settings(temperature=1.0)), Stream(1, 25, 2)
    hidden = first.prefill(gpt, 0)[None]
    # The end becomes as likely as the likeliest other code of the first codebook.
    best = gpt.code_logits(hidden)[0, 0].max()
    gpt.head_codes[sampler.EOS] = hidden[0] * (best / hidden.square().sum())
    step = stepper(gpt)
    first.join(gpt, step)
    other.join(gpt, step)
    nothing = torch.full((sampler.HISTORY, 4), sampler.PAD, device=gpt.device)
    expected: dict[int, list[int]] = {}
    for first.seed in range(200):
        [expected[first.seed]] = draw(gpt, hidden, nothing, first, 0).tolist()
    ends = [seed for seed, codes in expected.items() if sampler.EOS in codes]
    goes_on = next(seed for seed in expected if seed not in ends)
    for turn, (first.seed, has_ended) in enumerate([(ends[0], True), (ends[1], True), (goes_on, False)]):
        first.codes.clear()
        row, _ = advance(step, [first, other])
        assert (row.codes, row.ended) == (expected[first.seed], has_ended)
        assert torch.equal(first.spoken[turn], first.spoken[0])
        assert gpt.length(0) == (20 if has_ended else 21)
        assert gpt.length(1) == 26 + turn
    # A sentence that must be longer cannot end there.
    first.settings = Settings(temperature=1.0, min_steps=1)
    first.seed = ends[0]
    first.codes.clear()
    first.join(gpt, step)
    assert not advance(step, [first])[0].ended


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_half_precision_is_close(
    checkpoint: Checkpoint, device: str, dtype: torch.dtype, bound: float
) -> None:
    """Teacher-forced, so that a code drawn otherwise does not part the ways."""
    exact, half = make(checkpoint, device), make(checkpoint, device, dtype)
    streams = [Stream(slot, 30 * slot + 4, slot) for slot in range(8)]
    states = []
    for gpt in (exact, half):
        for stream in streams:
            stream.prefill(gpt, stream.slot)
            gpt.clear_rest(stream.slot)
        codes = torch.arange(32).view(8, 4).to(gpt.device)
        places = torch.tensor([gpt.length(stream.slot) for stream in streams], device=gpt.device)
        states.append(gpt.decode_rows(gpt.embed_codes(codes), places, 256).double())
    assert states[1].isfinite().all()
    assert 0 < float((states[1] - states[0]).norm() / states[0].norm()) < bound
    step = stepper(half)
    assert step._heads.dtype == torch.float32
    run(half, step, streams)
    assert all(len(stream.codes) == stream.steps for stream in streams)


def test_nothing_in_a_step_waits_for_the_device(checkpoint: Checkpoint) -> None:
    """On tensors without data nothing can be read, no shape can follow from values, and what was left on
    the CPU does not mix."""
    step = CudaStep(make(checkpoint, "meta", torch.bfloat16))
    for batch in (1, 8, SLOTS):
        for reach in (256, POSITIONS + 16):
            step._work(batch, reach)()


# --- graphs, with something else in the place of CUDA's -----------------------------------------------------


def counting(calls: list[str]) -> Callable[[Callable[[], None]], Replay]:
    """A capture whose replays run the work, as those of a graph do."""

    def capture(work: Callable[[], None]) -> Replay:
        calls.append("captured")

        def replay() -> None:
            calls.append("replayed")
            work()

        return replay

    return capture


def test_every_bucket_is_captured_and_replayed(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint, "cpu")
    calls: list[str] = []
    step = CudaStep(gpt, capture=counting(calls))
    step.warm_up()
    # Rows 1, 2, 4, 8, 10; positions 256 and all.
    assert calls == ["captured"] * 10
    stream = Stream(3, 250, 1)
    run(gpt, step, [stream])
    assert calls[10:] == ["replayed"] * 20
    assert stream.codes == reference(gpt, stream)[0]


def test_without_graphs_it_goes_on_and_says_so_once(checkpoint: Checkpoint) -> None:
    gpt = make(checkpoint, "cpu")
    calls: list[str] = []
    captured = counting(calls)

    def capture(work: Callable[[], None]) -> Replay:
        if len(calls) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        return captured(work)

    step = CudaStep(gpt, capture=capture)
    with capture_logs() as logs:
        step.warm_up()
    assert [entry["log_level"] for entry in logs] == ["warning"]
    stream = Stream(3, 20, 1)
    run(gpt, step, [stream])
    assert calls == ["captured"] * 3
    assert stream.codes == reference(gpt, stream)[0]
