"""What becomes of an utterance's text on its way to the engine, and what the client is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from engine.wire import Ready, Span, Voice
from gateway import script
from gateway.config import Config
from gateway.engine_stream import EngineStream
from gateway.errors import SpeechError
from gateway.lines import Lines
from gateway.messages import MAX_CHUNK, MIN_CHUNK, Start, schema
from gateway.options import Options
from gateway.script import Script
from gateway.transcript import Transcript
from tests.checks import check_marks, check_order
from tests.inside import EngineProcess, Inside, engine, gateway
from tests.listener import Heard, Json, Listener, Said, listening

MS_A_CHAR = 60
MAX_CHARS = 200
RELEASE_S = 0.2


@pytest.fixture(scope="module")
def engine_process() -> Iterator[EngineProcess]:
    with engine() as process:
        yield process


@pytest.fixture
async def inside(engine_process: EngineProcess) -> AsyncIterator[Inside]:
    settings: dict[str, Any] = {
        "release_ms": RELEASE_S * 1000,
        "lexicon": {"nginx": "engine x", "zh": {"AI": "人工智能"}},
    }
    async with gateway(engine_process, **settings) as inside:
        yield inside


@pytest.fixture
async def listener(inside: Inside) -> AsyncIterator[Listener]:
    async with listening(inside.ws_url) as listener:
        yield listener


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[Span, ...]]]:
    """What goes to the engine."""
    seen: list[tuple[int, tuple[Span, ...]]] = []
    submit = EngineStream.submit

    def record(self: EngineStream, sentence: int, spans: tuple[Span, ...]) -> None:
        seen.append((sentence, spans))
        submit(self, sentence, spans)

    monkeypatch.setattr(EngineStream, "submit", record)
    return seen


def events(heard: Heard, kind: str) -> list[Json]:
    return [entry.message for entry in heard.log if isinstance(entry, Said) and entry.type == kind]


def said(submitted: list[tuple[int, tuple[Span, ...]]]) -> list[str]:
    return ["".join(span.text for span in spans) for _, spans in submitted]


def check_whole(heard: Heard) -> None:
    """Every place of the text is in one sentence or reported as in none."""
    places = [(event["start"], event["end"]) for event in events(heard, "sentence")]
    places += [(start, end) for start, end in heard.terminal["dropped"]]
    places.sort()
    at = 0
    for start, end in places:
        assert start == at, f"{heard.text[at:start]!r} is in no sentence, or in two"
        at = end
    assert at == len(heard.text)


async def whole(listener: Listener, text: str, **options: Any) -> Heard:
    """Say it, and check what holds of all."""
    heard = await listener.say(f"u{len(listener.heard)}", text, **options)
    await listener.wait(heard)
    check_order(heard)
    assert heard.terminal["type"] == "done"
    check_whole(heard)
    return heard


# --- what is said -------------------------------------------------------------------------------------------


async def test_the_engine_gets_the_spoken_text_with_places_in_the_clients(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    text = "**Dr.** Li paid $5 &amp; left.\n他花了2万元买`iPhone`。"
    heard = await whole(listener, text)
    assert said(submitted) == ["Doctor Li paid five dollars and left.", "他花了两万元买iPhone."]
    assert [number for number, _ in submitted] == [0, 1]
    spans = [span for _, part in submitted for span in part]
    assert [(span.language, text[span.start : span.end]) for span in spans] == [
        ("en", "Dr.** Li paid $5 &amp; left."),
        ("zh", "他花了2万元买"),
        ("en", "iPhone`。"),
    ]
    assert check_marks(heard) * 10 == MS_A_CHAR * sum(map(len, said(submitted)))
    first, second = events(heard, "sentence")
    assert (first["language"], second["language"]) == ("en", "mixed")
    assert (first["sentence"], second["sentence"]) == (0, 1)
    assert first["dropped"] == []


async def test_a_spoken_text_that_is_too_long_for_the_engine_goes_in_parts(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    """One sentence for the client, several requests to the engine; nothing is cut off by its limit."""
    text = "Numbers: " + ", ".join(["1,234,567,890"] * 8) + "."
    heard = await whole(listener, text, alignment="chars")
    parts = said(submitted)
    assert len(parts) > len(events(heard, "sentence"))
    assert max(map(len, parts)) <= MAX_CHARS
    assert "".join(parts).count("ninety") == "".join(parts).count("million") == 8
    assert check_marks(heard) * 10 == MS_A_CHAR * sum(map(len, parts))
    assert [number for number, _ in submitted] == list(range(len(parts)))
    last = events(heard, "alignment")[-1]["chars"][-1]
    assert abs(last[3] - heard.milliseconds) <= 20


async def test_sentences_stay_in_order_when_long_ones_are_read_on_another_thread(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    long = "It was said by somebody that " * 5 + f"{7} is enough"
    assert len(long) > script.INLINE_CHARS
    text = "".join(f"Word{number} begins. {long}, {number}. " for number in range(4))
    await whole(listener, text, chunk_size=MAX_CHUNK)
    joined = " ".join(said(submitted))
    places = [joined.index(f"Word {word} begins") for word in ("zero", "one", "two", "three")]
    assert places == sorted(places)
    assert joined.count("seven is enough") == 4


async def test_what_has_nothing_to_say_is_reported_and_costs_nothing(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    text = "Hello. Привет мир. Still 🎉 here.\n<think>not this</think>\n```\ncode\n```\n"
    heard = await whole(listener, text)
    assert said(submitted) == ["Hello.", "Still here."]
    still = events(heard, "sentence")[-1]
    told = [text[start:end] for start, end in [*heard.terminal["dropped"], *still["dropped"]]]
    assert " Привет мир." in told
    assert "🎉" in "".join(told)
    assert "not this" in "".join(told), "with the last sentence, or after it where that was told before"


@pytest.mark.parametrize("text", ["Привет мир.", "```\nx = 1\n```", "🎉🎉", "... \n\n!"])
async def test_an_utterance_without_a_word_is_dropped_whole(listener: Listener, text: str) -> None:
    heard = await whole(listener, text)
    assert heard.terminal["dropped"] == [[0, len(text)]]
    assert heard.terminal["duration_ms"] == 0


async def test_the_language_goes_on_from_the_sentence_before(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    await whole(listener, "42\n今天很好。\n42\nFine weather.\n42")
    assert said(submitted) == ["forty two", "今天很好。", "四十二", "Fine weather.", "forty two"]
    assert [spans[0].language for _, spans in submitted] == ["en", "zh", "zh", "en", "en"]


# --- a pause of the writer ----------------------------------------------------------------------------------


async def sentences_come(heard: Heard, count: int) -> None:
    async with asyncio.timeout(5):
        while len(events(heard, "sentence")) < count:  # noqa: ASYNC110, a test may poll
            await asyncio.sleep(0.01)


async def test_a_pause_lets_out_what_can_be_said(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    heard = await listener.start("a")
    await listener.text(heard, "Hello there. One thing that I think, is that ")
    began = asyncio.get_running_loop().time()
    await sentences_come(heard, 2)
    assert RELEASE_S - 0.1 < asyncio.get_running_loop().time() - began < RELEASE_S + 1
    await asyncio.sleep(2 * RELEASE_S)
    assert said(submitted) == ["Hello there.", "One thing that I think,"]
    await listener.text(heard, "it rains.")
    await listener.end(heard)
    await listener.wait(heard)
    check_order(heard)
    check_whole(heard)
    assert said(submitted)[2:] == ["is that it rains."]
    assert [event["sentence"] for event in events(heard, "sentence")] == [0, 1, 1]


async def test_no_pause_lets_out_a_number_that_may_go_on(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    heard = await listener.start("a")
    await listener.text(heard, "Pi is 3.")
    await asyncio.sleep(3 * RELEASE_S)
    assert not heard.sounds
    await listener.text(heard, "14 or so.")
    await listener.end(heard)
    await listener.wait(heard)
    assert said(submitted) == ["Pi is three point one four or so."]


async def test_text_that_keeps_coming_is_no_pause(listener: Listener) -> None:
    heard = await listener.start("a")
    for piece in [
        "and",
        "so",
        "it",
        "goes",
        "on",
        "and",
        "on",
        "and",
        "on",
        "and",
        "on",
        "without",
        "a",
        "single",
        "mark",
    ]:
        await listener.text(heard, f"{piece} ")
        await asyncio.sleep(RELEASE_S / 4)
        assert not heard.sounds
    await listener.cancel(heard)
    await listener.wait(heard)


async def test_no_release_where_it_is_off(engine_process: EngineProcess) -> None:
    async with gateway(engine_process, release_ms=0) as inside, listening(inside.ws_url) as listener:
        heard = await listener.start("a")
        await listener.text(heard, "Hello there. One thing that I think, is that ")
        await asyncio.sleep(0.7)
        assert len(events(heard, "sentence")) == 1
        await listener.cancel(heard)
        await listener.wait(heard)


# --- choices ------------------------------------------------------------------------------------------------


async def test_words_are_said_as_the_settings_and_the_session_want(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    await whole(listener, "Use nginx.")
    await whole(listener, "Use nginx, k8s.", lexicon={"nginx": "N ginx", "en": {"k8s": "kubernetes"}})
    await whole(listener, "我用AI写作。")
    assert said(submitted) == ["Use engine x.", "Use N ginx, kubernetes.", "我用人工智能写作。"]


async def test_code_is_read_where_it_is_asked_for(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    text = "See:\n```\nprint me\n```\nDone."
    await whole(listener, text)
    assert "print" not in " ".join(said(submitted))
    submitted.clear()
    await whole(listener, text, code="read")
    assert "print me" in " ".join(said(submitted))


async def test_the_chunk_size_is_that_of_the_segments(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    text = "we go on and on " * 12
    await whole(listener, text, chunk_size=MIN_CHUNK)
    assert max(map(len, said(submitted))) <= MIN_CHUNK
    submitted.clear()
    await whole(listener, text)
    assert MIN_CHUNK < max(map(len, said(submitted))) <= 150


async def test_tags_are_silent_where_the_engine_has_none(
    listener: Listener, submitted: list[tuple[int, tuple[Span, ...]]]
) -> None:
    await whole(listener, "He said [laugh] so.", tags=True)
    assert said(submitted) == ["He said so."]


def ready(model: str) -> Ready:
    voice = Voice("v", "V", ("en",))
    return Ready(model, 24_000, 1, 1024, 80, "v", (voice,), (0.01,), 1)


async def rendered(text: str, start: Start, model: str) -> list[str]:
    """What a session would have the engine say."""
    options = Options.choose(start, ready(model), Config())
    work = Script(options, Transcript(), max_chars=80, release_s=None)
    work.feed(text, 0.0)
    work.end(0.0)
    await work.read_ahead(100)
    out = []
    while work.is_ready:
        out.append(work.take().text)
    return out


@pytest.mark.parametrize("model", ["chattts 0123456789ab", "chattts-upstream"])
async def test_tags_reach_an_engine_that_knows_them(model: str) -> None:
    text = "Well [uv_break] I laugh. Ha [laugh] ha."
    assert await rendered(text, Start(utterance="a", tags=True), model) == [
        "Well [uv_break] I laugh.",
        "Ha [laugh] ha.",
    ]
    assert "[" not in "".join(await rendered(text, Start(utterance="a"), model))


@pytest.mark.parametrize(
    ("field", "fits", "past"),
    [
        ("chunk_size", MIN_CHUNK, MIN_CHUNK - 1),
        ("chunk_size", MAX_CHUNK, MAX_CHUNK + 1),
        ("lexicon", {f"w{n}": "x" for n in range(100)}, {f"w{n}": "x" for n in range(101)}),
        ("lexicon", {"zh": {f"w{n}": "x" for n in range(100)}}, {"zh": {f"w{n}": "x" for n in range(101)}}),
        ("lexicon", {"w" * 64: "x"}, {"w" * 65: "x"}),
        ("lexicon", {"w": "x" * 256}, {"w": "x" * 257}),
        ("lexicon", {"w": "x"}, {"w": ""}),
        ("lexicon", {"w": "x"}, {"w": 1}),
        ("code", "read", "speak"),
        ("alignment", "chars", "words"),
    ],
)
async def test_each_limit_and_one_past_it(listener: Listener, field: str, fits: Any, past: Any) -> None:
    await whole(listener, "It fits.", **{field: fits})
    heard = await listener.start("past", **{field: past})
    refused = await listener.next_stray("error")
    assert (refused["code"], refused["about"]) == ("bad_field", "past")
    assert not heard.log


@pytest.mark.parametrize("lexicon", [{"...": "x"}, {"w": "?"}, {"fr": {"w": "x"}}])
async def test_a_lexicon_that_makes_no_sense_ends_the_utterance(listener: Listener, lexicon: Json) -> None:
    heard = await listener.start("a", lexicon=lexicon)
    await listener.wait(heard)
    assert heard.terminal["code"] == "bad_lexicon"
    await whole(listener, "The session goes on.")


def test_the_settings_and_the_session_share_a_limit_of_words() -> None:
    config = Config(lexicon={f"w{n}": "x" for n in range(999)})
    fits = Options.choose(Start(utterance="a", lexicon={"v": "x"}), ready("synthetic"), config)
    assert len(fits.lexicon.entries) == 1000
    with pytest.raises(SpeechError, match="at most 1000"):
        Options.choose(Start(utterance="a", lexicon={"v": "x", "u": "x"}), ready("synthetic"), config)


def test_equal_lexicons_are_made_once() -> None:
    config = Config()
    first, second = (
        Options.choose(Start(utterance=name, lexicon={"v": "x"}), ready("synthetic"), config).lexicon
        for name in "ab"
    )
    assert first is second


def test_the_schema_knows_the_limits() -> None:
    start = schema()["$defs"]["Start"]["properties"]
    assert any(each.get("maximum") == MAX_CHUNK for each in start["chunk_size"]["anyOf"])
    msgspec.json.encode(start["lexicon"])


# --- alignment ----------------------------------------------------------------------------------------------


async def test_alignment_tells_when_each_character_is_heard(listener: Listener) -> None:
    text = "Dr. Li has 12 cats.\n今天花了20元。 **OK** then?"
    heard = await whole(listener, text, alignment="chars")
    sentences, alignments = events(heard, "sentence"), events(heard, "alignment")
    assert [each["index"] for each in alignments] == [each["index"] for each in sentences]
    kinds = [entry.type for entry in heard.log if isinstance(entry, Said)]
    for sentence, alignment in zip(sentences, alignments, strict=True):
        assert alignment["estimated"] is True
        chars = alignment["chars"]
        assert chars[0][2] == sentence["start_ms"]
        assert all(sentence["start"] <= start < end <= sentence["end"] for start, end, _, _ in chars)
        assert all(before[1] <= after[0] and before[3] == after[2] for before, after in pairwise(chars))
        place = heard.log.index(next(e for e in heard.log if isinstance(e, Said) and e.message is alignment))
        assert any(isinstance(e, Said) and e.message is sentence for e in heard.log[:place])
    ends = [*(sentence["start_ms"] for sentence in sentences[1:]), heard.milliseconds]
    for alignment, end in zip(alignments, ends, strict=True):
        assert 0 <= end - alignment["chars"][-1][3] <= 20, "a packet is filled up at most"
    assert kinds[-1] == "done"
    timed = {text[start:end]: over - begun for start, end, begun, over in alignments[1]["chars"]}
    assert timed["20"] > timed["今"], "it is said in two characters"
    assert "*" not in "".join(text[start:end] for start, end, _, _ in alignments[2]["chars"])


async def test_no_alignment_that_was_not_asked_for(listener: Listener) -> None:
    heard = await whole(listener, "Hello there. And here.")
    none = await whole(listener, "Hello there. And here.", alignment="none")
    assert events(heard, "alignment") == events(none, "alignment") == []


async def test_a_cancel_cuts_where_the_alignment_says(listener: Listener) -> None:
    text = "I paid $1,234.50 for it, you know. " * 6
    heard = await listener.say("a", text, alignment="chars", pace="realtime")
    await sentences_come(heard, 1)
    while not events(heard, "alignment"):  # noqa: ASYNC110, a test may poll
        await asyncio.sleep(0.01)
    chars = events(heard, "alignment")[0]["chars"]
    price = next(each for each in chars if text[each[0] : each[1]] == "$1,234.50")
    await listener.cancel(heard, played_ms=price[2] + 0.9 * (price[3] - price[2]))
    await listener.wait(heard)
    check_order(heard)
    spoken = heard.terminal["text_spoken"]
    limit = heard.terminal["played_ms"]
    assert spoken == (text[: price[1]] if limit > (price[2] + price[3]) / 2 else text[: price[0]].rstrip())


async def test_alignment_of_a_stream_that_is_cancelled_comes_before_its_end(listener: Listener) -> None:
    heard = await listener.say("a", "Short one. " * 30, alignment="chars", pace="realtime")
    await heard.first_sound.wait()
    await asyncio.sleep(0.3)
    await listener.cancel(heard)
    await listener.wait(heard)
    check_order(heard)


# --- the end of a text --------------------------------------------------------------------------------------


async def test_an_end_without_a_word_is_reported_where_the_last_sentence_was_told(listener: Listener) -> None:
    heard = await listener.start("told")
    await listener.text(heard, "Hello there.\n")
    await sentences_come(heard, 1)
    await listener.text(heard, "\n🎉")
    await listener.end(heard)
    await listener.wait(heard)
    check_order(heard)
    check_whole(heard)
    assert heard.terminal["dropped"] == [[12, 15]]


async def test_the_end_reaches_a_segment_wherever_it_waits() -> None:
    """Not read yet; read; on its way; and gone."""
    options = Options.choose(Start(utterance="a"), ready("synthetic"), Config())
    for stage in ("waiting", "ready", "in the engine", "told"):
        transcript, lines = Transcript(), Lines(rate=1000)
        work = Script(options, transcript, max_chars=80, release_s=None)
        work.feed("Hello there.\n", 0.0)
        if stage != "waiting":
            await work.read_ahead(3)
        if stage in ("in the engine", "told"):
            lines.put(work.take())
        if stage == "told":
            lines.start(0)
        work.feed("<think>x</think>", 0.0)
        rest = work.end(0.0)
        if stage in ("waiting", "ready"):
            assert rest is None
            await work.read_ahead(3)
            assert (work.take().segment.end, work.dropped) == (29, ())
        else:
            assert rest == (12, 29)
            assert lines.extend(rest[0], transcript.slice(*rest)) == (stage == "in the engine")
            if stage == "in the engine":
                found = lines.start(0).rendition
                assert (found.segment.end, found.dropped) == (29, (rest,))


async def test_the_end_may_come_while_the_last_segment_is_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "INLINE_CHARS", 0)
    options = Options.choose(Start(utterance="a"), ready("synthetic"), Config())
    work = Script(options, Transcript(), max_chars=80, release_s=None)
    work.feed("Hello there.\n", 0.0)
    reading = asyncio.create_task(work.read_ahead(3))
    await asyncio.sleep(0)
    work.feed("🎉", 0.0)
    assert work.end(0.0) is None
    await reading
    assert work.take().segment.end == 14
    assert not work.has_more
