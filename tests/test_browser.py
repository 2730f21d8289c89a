"""The demo page in a real Chromium: its modules alone, then against the real server with real voices.

The content security policy stays on, so waiting is done with `evaluate`: Playwright's own `wait_for_function`
needs `unsafe-eval`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, async_playwright

import web_demo
from gateway import messages
from gateway.http import CSP
from gateway.messages import AudioMessage, encode_audio

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser for all: it takes seconds to start
]

DEMO = Path(web_demo.__file__).parent
ARTEFACTS = Path(__file__).parent.parent / "artefacts"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]
STOP_GOAL_MS = 100
MARGIN = 5
"""Times are asserted at this multiple of their goal, since test machines are shared; figures are printed."""

ENGLISH = "The kettle is on the stove. Please pour the tea into the two blue cups."
CHINESE = "今天的天气很好。"
"""One clause: on a busy machine the Chinese voice may take longer for the next one than this one sounds."""


class Server(Protocol):
    """The real server's address."""

    url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@dataclass
class Visit:
    """A loaded page, and what it complained about."""

    page: Page
    errors: list[str] = field(default_factory=list)

    async def counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = await self.page.evaluate("window.sayflow.counters")
        return counters

    async def until(self, expression: str, limit_s: float = 60.0) -> None:
        """Wait until the JavaScript expression is true. `c` stands for the counters."""
        script = f"""new Promise((resolve) => {{
            const look = () => {{
                const c = window.sayflow?.counters;
                if (c && ({expression})) resolve();
                else setTimeout(look, 10);
            }};
            look();
        }})"""
        try:
            async with asyncio.timeout(limit_s):
                await self.page.evaluate(script)
        except TimeoutError:
            pytest.fail(f"never came true: {expression}; {await self.counters()}; {self.errors}")

    async def say(self, text: str) -> None:
        await self.page.fill("#text", text)
        await self.page.click("#speak")


class Visitor(Protocol):
    """Opens the page in a profile of its own."""

    async def __call__(self, url: str, *, language: str = "en-US") -> Visit: ...


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncIterator[Visitor]:
    pages: list[Page] = []

    async def visit(url: str, *, language: str = "en-US") -> Visit:
        page = await browser.new_page(locale=language, viewport={"width": 1280, "height": 860})
        pages.append(page)
        here = Visit(page)
        page.on("console", lambda said: here.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: here.errors.append(str(error)))
        await page.goto(url)
        return here

    yield visit
    for page in pages:
        await page.close()


# --- the modules alone ------------------------------------------------------------------------------------


class Door:
    """A stand-in for the gateway that does to each connection what the test planned for it."""

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.url = ""
        self.tokens: list[str] = []

    async def stream(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[messages.SUBPROTOCOL])
        await socket.prepare(request)
        step = self.plan.pop(0) if self.plan else "stay"
        if step == "token":
            token = json.loads(await socket.receive_str())["token"]
            self.tokens.append(token)
            if token != "right":
                await socket.close(code=1008, message=b"unauthorized")
                return socket
        elif step == "overload":
            await socket.close(code=1013, message=b"later")
            return socket
        await socket.send_str(messages.encode(hello()))
        if step == "restart":
            await socket.close(code=1012, message=b"restart")
            return socket
        async for message in socket:
            await self.answer(socket, json.loads(message.data))
        return socket

    async def answer(self, socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        if message["type"] == "start":
            error = messages.Error(
                code="overloaded", message="no slot", utterance=message["utterance"], retry_after_ms=2100
            )
            await socket.send_str(messages.encode(error))


def hello() -> messages.Hello:
    limits = messages.Limits(
        message_bytes=65_536,
        text_chars=10_000,
        pending_chars=100_000,
        utterances=8,
        lead_ms=2000,
        write_deadline_s=10.0,
        sentence_chars=160,
    )
    voice = messages.VoiceInfo(id="v", name="Voice", languages=("zh", "en"))
    return messages.Hello(
        session="s", limits=limits, voices=(voice,), default_voice="v", engines={"main": "ready"}
    )


@pytest_asyncio.fixture(loop_scope="module")
async def door() -> AsyncIterator[Door]:
    door = Door()

    async def page(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(DEMO / "index.html", headers={"Content-Security-Policy": CSP})

    app = web.Application()
    # Behind a prefix, as a reverse proxy may put it: the page's addresses are relative.
    app.add_routes(
        [web.get("/voice/", page), web.get("/voice/v1/stream", door.stream), web.static("/voice/demo", DEMO)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    door.url = f"http://127.0.0.1:{runner.addresses[0][1]}/voice/"
    yield door
    await runner.cleanup()


async def test_the_header_is_read_as_it_is_written(visit: Visitor, door: Door) -> None:
    here = await visit(door.url)
    sent = [
        AudioMessage(stream=1, sequence=0, timestamp=0, packets=[b"abc", b"", b"\xff" * 300], reset=True),
        AudioMessage(stream=65_535, sequence=2**32 - 1, timestamp=2**31 + 5, packets=[], last=True),
        AudioMessage(
            stream=7, sequence=9, timestamp=960, packets=[b"x"], source=messages.CACHE, reset=True, last=True
        ),
        AudioMessage(stream=7, sequence=9, timestamp=960, packets=[b"x"], source=messages.FALLBACK),
    ]
    read = await here.page.evaluate(
        """async (all) => {
            const { decodeAudio } = await import("./demo/messages.js");
            return all.map((bytes) => {
                const message = decodeAudio(new Uint8Array(bytes).buffer);
                return { ...message, packets: message.packets.map((packet) => [...packet]) };
            });
        }""",
        [list(encode_audio(message)) for message in sent],
    )
    sources = {messages.LIVE: "live", messages.CACHE: "cache", messages.FALLBACK: "fallback"}
    assert read == [
        {
            "stream": message.stream,
            "sequence": message.sequence,
            "timestamp": message.timestamp,
            "source": sources[message.source],
            "reset": message.reset,
            "last": message.last,
            "packets": [list(packet) for packet in message.packets],
        }
        for message in sent
    ]


async def test_a_broken_header_is_refused(visit: Visitor, door: Door) -> None:
    here = await visit(door.url)
    good = encode_audio(AudioMessage(stream=1, sequence=0, timestamp=0, packets=[b"abc", b"de"]))
    broken = [good[:15], b"\x02" + good[1:], good + b"x", *(good[:cut] for cut in range(16, len(good)))]
    refused = await here.page.evaluate(
        """async (all) => {
            const { AudioMessageError, decodeAudio } = await import("./demo/messages.js");
            return all.map((bytes) => {
                try {
                    decodeAudio(new Uint8Array(bytes).buffer);
                    return false;
                } catch (error) {
                    return error instanceof AudioMessageError;
                }
            });
        }""",
        [list(data) for data in broken],
    )
    assert refused == [True] * len(broken)


async def test_offsets_and_pieces_keep_code_points_whole(visit: Visitor, door: Door) -> None:
    here = await visit(door.url)
    texts = [
        "",
        "plain",
        "你好🙂世界𠮷。",
        "👩‍👩‍👧 family, naïve café\n\n two  spaces",
        "The internationalization of iPhone 手机订单.",
    ]
    result = await here.page.evaluate(
        """async (texts) => {
            const { codePointLength, pieces, utf16Index } = await import("./demo/text.js");
            return texts.map((text) => ({
                length: codePointLength(text),
                heads: Array.from({ length: codePointLength(text) + 1 },
                    (_, n) => text.slice(0, utf16Index(text, n))),
                pieces: [...pieces(text)],
            }));
        }""",
        texts,
    )
    for text, found in zip(texts, result, strict=True):
        assert found["length"] == len(text)
        assert found["heads"] == [text[:n] for n in range(len(text) + 1)]
        assert "".join(found["pieces"]) == text
        assert all(len(piece.strip()) <= 21 for piece in found["pieces"])
    assert len(result[2]["pieces"]) >= 5


JITTER = """async ({ rate, sourceRate, stopAtQuantum, starveMs }) => {
    const { JitterBuffer } = await import("./demo/jitter.js");
    const buffer = new JitterBuffer({ rate });
    const tone = (n) => 0.5 * Math.sin((2 * Math.PI * 200 * n) / sourceRate);
    let position = 0;
    const push = (ms) => {
        const frames = (sourceRate * ms) / 1000;
        const samples = Float32Array.from({ length: frames }, (_, n) => tone(position + n));
        buffer.handle({ type: "push", stream: 1, samples, position });
        position += frames;
    };
    buffer.handle({ type: "open", stream: 1, sourceRate });
    push(80);
    const output = [];
    const quantum = new Float32Array(128);
    const reports = [];
    for (let n = 0; n < 400; n += 1) {
        if (n === 10) push(400);
        const starved = 10 + ((480 + starveMs) * rate) / 1000 / 128;
        if (starveMs > 0 && n === Math.round(starved)) { push(300); }
        if (n === 250) buffer.handle({ type: "finish", stream: 1 });
        if (n === stopAtQuantum) buffer.handle({ type: "stop", frame: n * 128 });
        buffer.pull(quantum, n * 128);
        output.push(...quantum);
        reports.push(buffer.report((n + 1) * 128));
    }
    let step = 0;
    for (let n = 1; n < output.length; n += 1) step = Math.max(step, Math.abs(output[n] - output[n - 1]));
    return {
        step,
        sound: output.findLastIndex((value) => value !== 0) + 1,
        firstAudible: reports.at(-1).firstAudibleFrame,
        gaps: reports.flatMap((report) => report.gaps),
        stops: reports.flatMap((report) => report.stops),
        state: reports.at(-1).state,
        peaks: Math.max(...reports.flatMap((report) => report.peaks)),
        positions: reports.map((report) => report.position),
    };
}"""
SLOPE = 0.5 * 2 * 3.1416 * 200
"""The tone's steepest rise a second; with a ramp over 5 ms on top, 0.5 / 0.005 more."""


@pytest.mark.parametrize(("rate", "source_rate"), [(48_000, 48_000), (44_100, 48_000), (48_000, 24_000)])
async def test_the_jitter_buffer_plays_all_and_never_clicks(
    visit: Visitor, door: Door, rate: int, source_rate: int
) -> None:
    here = await visit(door.url)

    async def run(stop_at: int = -1, starve_ms: int = 0) -> dict[str, Any]:
        options = {"rate": rate, "sourceRate": source_rate, "stopAtQuantum": stop_at, "starveMs": starve_ms}
        outcome: dict[str, Any] = await here.page.evaluate(JITTER, options)
        assert outcome["step"] <= 1.05 * (SLOPE + 100) / rate, "a click"
        assert outcome["peaks"] == pytest.approx(0.5, abs=0.01)
        return outcome

    whole = await run()
    assert whole["firstAudible"] >= 10 * 128, "80 ms are under the target, so that nothing plays yet"
    assert whole["sound"] - whole["firstAudible"] == pytest.approx(0.480 * rate, abs=0.006 * rate)
    assert whole["positions"][-1] == pytest.approx(0.480 * source_rate, abs=2)
    assert (whole["gaps"], whole["stops"], whole["state"]) == ([], [], "ended")

    starved = await run(starve_ms=60)
    (gap,) = starved["gaps"]
    assert gap["position"] == pytest.approx(0.480 * source_rate, abs=2)
    assert (gap["endFrame"] - gap["startFrame"]) / rate == pytest.approx(0.060, abs=0.004)

    stopped = await run(stop_at=60)
    (stop,) = stopped["stops"]
    assert stopped["sound"] <= stop["silentFrame"] <= stop["frame"] + 0.006 * rate
    assert stopped["state"] == "idle"


async def test_a_late_start_is_not_for_ever(visit: Visitor, door: Door) -> None:
    here = await visit(door.url)
    state = await here.page.evaluate(
        """async () => {
            const { JitterBuffer } = await import("./demo/jitter.js");
            const buffer = new JitterBuffer({ rate: 48000 });
            const tone = (frames, level) => new Float32Array(frames).fill(level);
            buffer.handle({ type: "open", stream: 1, sourceRate: 48000 });
            buffer.handle({ type: "push", stream: 1, samples: tone(960, 0.5), position: 0 });
            buffer.handle({ type: "push", stream: 2, samples: tone(9600, 0.9), position: 0 });
            const quantum = new Float32Array(128);
            let loudest = 0;
            for (let n = 0; n < 100; n += 1) {
                buffer.pull(quantum, n * 128);
                loudest = Math.max(loudest, ...quantum);
            }
            return { loudest, audible: buffer.report(0).audibleFrames };
        }"""
    )
    assert state["loudest"] == pytest.approx(0.5), "another stream's sound was played, or none"
    assert 950 <= state["audible"] <= 960 + 240


async def test_only_gaps_with_text_to_speak_are_underruns(visit: Visitor, door: Door) -> None:
    here = await visit(door.url)
    cases = [
        # (gap, ended, expected): sentences start at 0 and 1000 ms; the second one was whole at t = 500.
        ({"positionMs": 600, "atMs": 300}, None, True),  # in mid-sentence
        ({"positionMs": 1000, "atMs": 400}, None, False),  # the writer was silent
        ({"positionMs": 1000, "atMs": 600}, None, True),  # the sentence was there
        ({"positionMs": 1000, "atMs": 400}, 450, False),
        ({"positionMs": 1000, "atMs": 400}, 350, True),  # all had been sent
    ]
    found = await here.page.evaluate(
        """async (cases) => {
            const { isUnderrun } = await import("./demo/underruns.js");
            const sentences = [{ index: 0, end: 10, start_ms: 0 }, { index: 1, end: 20, start_ms: 1000 }];
            const sent = [{ atMs: 0, codePoints: 12 }, { atMs: 500, codePoints: 21 }];
            return cases.map(([gap, ended]) => isUnderrun(gap, sentences, sent, ended));
        }""",
        [[gap, ended] for gap, ended, _ in cases],
    )
    assert found == [expected for _, _, expected in cases]


async def test_a_token_is_asked_for_only_where_it_is_wanted(visit: Visitor, door: Door) -> None:
    door.plan = ["token", "token"]
    here = await visit(door.url, language="zh-CN")
    await here.page.wait_for_selector("#auth", state="visible")
    await here.page.fill("#token", "wrong")
    await here.page.press("#token", "Enter")
    await here.until("!document.getElementById('notice').hidden")
    assert await here.page.inner_text("#notice-text") == "服务器没有接受这个令牌。"
    await here.page.fill("#token", "right")
    await here.page.press("#token", "Enter")
    await here.until("c.session === 'ready'")
    assert await here.page.is_hidden("#auth")
    assert await here.page.is_hidden("#notice")
    assert door.tokens == ["wrong", "right"]


async def test_it_reconnects_and_says_why(visit: Visitor, door: Door) -> None:
    door.plan = ["restart", "overload", "stay"]
    here = await visit(door.url)
    said: list[str] = []
    async with asyncio.timeout(30):
        while not said or await here.page.evaluate("window.sayflow.counters.session") != "ready":
            if (text := await here.page.inner_text("#notice")).strip() and text not in said:
                said.append(text)
            await asyncio.sleep(0.02)
    assert said[0] == "The server is restarting. The page reconnects by itself."
    assert said[1].startswith("The server is too busy for another listener. Trying again in ")
    assert await here.page.is_hidden("#notice")


async def test_a_typed_error_is_told_in_the_language_of_the_page(visit: Visitor, door: Door) -> None:
    here = await visit(door.url, language="zh-CN")
    await here.until("c.session === 'ready'")
    assert await here.page.get_attribute("html", "lang") == "zh-CN"
    await here.say("你好。")
    await here.until("!document.getElementById('notice').hidden")
    assert await here.page.inner_text("#notice-text") == "现在所有的声音都在忙。请在 3 秒后再试。"
    await here.page.click("[data-lang=en]")
    assert await here.page.get_attribute("html", "lang") == "en"
    told = await here.page.inner_text("#notice-text")
    assert told == "All voices are taken at the moment. Try again in 3 s."
    assert not here.errors


# --- with the real server ---------------------------------------------------------------------------------


async def test_it_speaks_english_and_chinese(visit: Visitor, server: Server) -> None:
    here = await visit(server.url)
    await here.until("c.session === 'ready'")
    heard = 0
    for name, text, last in (("en", ENGLISH, 1), ("zh", CHINESE, 0)):
        await here.say(text)
        await here.until(f"c.sentence === {last} && c.playedMs > 700")
        now = await here.page.inner_text(".sentence.now")
        ARTEFACTS.mkdir(exist_ok=True)
        await here.page.screenshot(path=ARTEFACTS / f"demo-{name}.png")
        assert text.endswith(now)
        assert text.startswith(now) == (last == 0), "the highlight moved on from the first sentence"
        await here.until("c.state === 'over'")
        counters = await here.counters()
        print(f"{name}: first sound after {counters['ttfaMs']:.0f} ms, {counters['playedMs']:.0f} ms played")
        assert counters["format"] == "opus"
        assert counters["output"] == "worklet"
        assert counters["audibleFrames"] - heard > 48_000, "over a second of sound reached the worklet"
        assert counters["underruns"] == 0
        heard = counters["audibleFrames"]
    assert not here.errors


async def test_a_long_text_has_no_underrun(visit: Visitor, tones: Server) -> None:
    here = await visit(tones.url)
    await here.until("c.session === 'ready'")
    await here.say("One sentence follows the other here. " * 8)
    await here.until("c.sentence >= 2")
    await here.until("document.querySelector('.sentence.now .said')?.textContent.length > 5")
    await here.until("c.state === 'over'")
    counters = await here.counters()
    assert counters["playedMs"] > 10_000
    assert counters["decodedFrames"] == pytest.approx(48 * counters["playedMs"], abs=48 * 20)
    assert (counters["underruns"], counters["gapMs"]) == (0, 0)
    assert not here.errors


async def test_stop_is_heard_at_once(visit: Visitor, server: Server) -> None:
    here = await visit(server.url)
    await here.until("c.session === 'ready'")
    text = ENGLISH + " Then sit down with us and tell the long story of your journey."
    await here.say(text)
    await here.until("c.state === 'speaking' && c.playedMs > 700")
    await here.page.keyboard.press("Escape")
    await here.until("c.state === 'over' && c.stopToSilenceMs !== null")
    counters = await here.counters()
    print(
        f"stop to silence {counters['stopToSilenceMs']:.1f} ms of the worklet's frames, "
        f"{counters['stopToSilenceHeardMs']:.1f} ms by the clock with the audio device's latency"
    )
    assert 0 <= counters["stopToSilenceMs"] <= MARGIN * STOP_GOAL_MS
    assert counters["stopToSilenceHeardMs"] <= MARGIN * STOP_GOAL_MS
    await asyncio.sleep(0.5)
    later = await here.counters()
    assert later["audibleFrames"] == counters["audibleFrames"], "sound came after the stop"
    assert later["silentSinceMs"] is not None
    spoken, rest = await here.page.inner_text(".heard"), await here.page.inner_text(".unheard")
    assert spoken + rest == text
    assert rest
    # The rest can be had on the same socket.
    await here.page.click("#rest")
    await here.until("c.state === 'speaking'")
    assert not here.errors


async def test_pcm_works_where_opus_does_not(visit: Visitor, server: Server) -> None:
    here = await visit(server.url + "/?pcm=1")
    await here.until("c.session === 'ready'")
    await here.say("It works without a decoder.")
    await here.until("c.state === 'over'")
    counters = await here.counters()
    assert counters["format"] == "pcm"
    assert counters["audibleFrames"] > 24_000
    assert counters["underruns"] == 0
    assert not here.errors


async def test_it_speaks_while_the_text_is_being_typed(visit: Visitor, server: Server) -> None:
    here = await visit(server.url)
    await here.until("c.session === 'ready'")
    await here.page.check("input[value=typed]", force=True)
    await here.say(ENGLISH)
    await here.until("c.state === 'speaking'")
    assert len(await here.page.inner_text("#reading")) < len(ENGLISH), "the first sound came before the end"
    await here.until("c.state === 'over'")
    assert (await here.counters())["underruns"] == 0
    assert not here.errors
