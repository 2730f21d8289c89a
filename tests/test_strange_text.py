"""Strange text over the socket: silent where nothing can be said, never an error; the session speaks on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.checks import check_marks, check_order
from tests.listener import Json, listening
from tests.server import Server
from tests.test_bad_input import SEED, message, speaks_on

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "cases" / "shared" / "torture.jsonl").read_text().splitlines()
]
SILENT_S = 0.1
SLACK = 5


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["text"])[:40])
async def test_torture(tones: Server, case: Json) -> None:
    async with listening(tones.ws_url) as listener:
        began = time.monotonic()
        heard = await listener.say("a", case["text"], seed=SEED)
        await listener.wait(heard)
        took_s = heard.terminal_entry.at - began
        await speaks_on(listener)
    check_order(heard)
    check_marks(heard)
    assert heard.terminal["type"] == "done"
    duration = heard.terminal["duration_ms"]
    if case["outcome"] == "done, duration = 0":
        assert duration == 0
        assert took_s < SLACK * SILENT_S, f"{took_s * 1000:.0f} ms"
    elif case["outcome"] == "done, duration > 0":
        assert duration > 0
    else:
        assert case["outcome"] == "done"


@pytest.mark.parametrize(
    ("parts", "spoken"),
    [
        (("go \ud83d", "\ude00 on"), "go 😀 on"),
        (("go \ud83d", "on"), "go \ufffdon"),
        (("\ude00 on",), "\ufffd on"),
        (("a \ud83d\ud83d", "\ude00 b"), "a \ufffd😀 b"),
        (("a \ud83d",), "a \ufffd"),
        (("\ud83d", "", "\ude00x"), "😀x"),
    ],
)
async def test_surrogates_over_pieces(tones: Server, parts: tuple[str, ...], spoken: str) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.start("a")
        for part in parts:
            await listener.text(heard, part)
        await listener.send(type="flush", utterance="a")
        heard.text = spoken
        await listener.cancel(heard, played_ms=0)
        await listener.wait(heard)
        await speaks_on(listener)
    check_order(heard)


async def test_no_text_of_a_user_is_logged(tones: Server) -> None:
    async with listening(tones.ws_url) as listener:
        heard = await listener.say("a", "Zanzibar is lovely. Xylophones as well!")
        await listener.wait(heard)
        await listener.refusal('{"type": "Quagmire"')
        await listener.refusal(message(type="start", utterance="Quagmire\n", voice=5))
    assert not [word for word in ("Zanzibar", "Xylophone", "Quagmire") if word in tones.output()]
