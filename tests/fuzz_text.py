"""A fuzz target on the splitter, the normaliser and what joins them. pytest does not collect it.

    python -m tests.fuzz_text --minutes 10 [--seed N]

Texts are made of fragments that mean something to some rule, of repetitions, and of the project's own cases
with pieces cut out, doubled and swapped. Each must satisfy `check`: pieces do not matter, nothing is lost,
all that is said can be said, places are in order and inside, and no segment takes long. The first text that
does not is cut down to a short one and printed: an `@example` for `tests/test_rendition.py`. The exit code is
then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, get_args

from gateway.fold import fold
from gateway.lexicon import EMPTY, Lexicon, parse
from gateway.markup import MarkupPolicy
from gateway.messages import Language
from gateway.normalize import Spoken, normalize
from gateway.rendition import Tags, render
from gateway.sentences import Segment, Splitter
from tests.segments import check as check_segments
from tests.test_normalize import SILENT, unaccounted, unspeakable
from tests.test_rendition import check as check_rendition

HOME: Final = Path(__file__).parent / "cases"
LONGEST: Final = 600
SLOW_S: Final = 0.5
"""Of the thread, for one segment of at most 500 characters; the worst known takes 25 ms."""
LEXICON: Final = parse(
    {"nginx": "engine x", "C++": "C plus plus", "k8s": "kubernetes", "zh": {"AI": "人工智能"}}
)
FRAGMENTS: Final = (
    *r"""
    . , ? ! ; : 。 ， ？ ！ ； ： 、 … —— - -- ~ / \ | _ * ** *** ` ``` # ## > + = % ‰ ° ℃ № § & &amp; &lt;
    &#65;
    @ $ € £ ¥ ￥ ( ) [ ] { } < > （ ） 《 》 「 」 “ ” ‘ ’ " ' 1 2 3 10 100 1000 1,000 1,234,567.89 0 007 3.14
    2.5 1/2 3/4 ½ ¼ ① ② ⑩ Ⅳ ㎏ ㎡ ² ³ １ ２ ．５ 零 一 二 两 三 十 百 千 万 亿 第 元 块 个 年 月 日 号 点
    分 秒
    5% 10-20 3:30 14:30:25 3pm a.m. 2024 2024-03-05 5/3/2024 90s '90s 1st 2nd 23rd v1.2.3 192.168.0.1 +86
    138-0013-8000 555-1234 (555) kg km/h m² °C GB Dr. Mr. St. e.g. i.e. etc. U.S. J. a.k.a. No. vs. A.I. C++
    C# nginx k8s AI GPT-4 iPhone Hello hello it's don't naïve é ñ ß ﬁ 今天 你好 世界 天气 中国 的 了 北京大学
    мир שלום مرحبا ไทย カナ 한국 😀 🎉 👩‍👩‍👧 🇨🇳 ❤️ <b> </b> <br/> <think> </think> <script> <!-- --> http://
    https://a.b/c?d=e&f=g www.x.com a@b.c x.y /usr/bin C:\x [a](b) ![c](d) [^1] [x] [laugh] [uv_break]
    [lbreak] |a|b| |--|--| 1. 2. a) α Ω π × ÷ ± ≤ ≠ → ∞ ^ x^2 2^10 1e5 1.5e-3 ∶ ⁄ ２０２４年 3：30 ０.５ 1～2
    5×
    −5 -3 +1 #1 @user #tag A/B and/or 24/7 km 3km 5'10" 1: 1;
    """.split(),  # noqa: SIM905, as a block
    *("\n", "\n\n", "\r\n", " ", " ", "  ", "\t", ". ", ", ", "\u00a0", "\u3000", "e\u0301", "\u0301\u0301"),
    *("\u200b", "\u200d", "\u202e", "\ufeff", "\x00", "\x1b[31m", "\ud800", "\U000f0000", "- [x] ", "1. "),
)  # fmt: skip


def corpus() -> list[str]:
    """Texts of all cases."""
    return [
        json.loads(line)["text"]
        for path in sorted(HOME.rglob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def make(dice: random.Random, texts: Sequence[str]) -> str:
    """Some text."""
    kind = dice.random()
    if kind < 0.45:
        text = "".join(dice.choice(FRAGMENTS) for _ in range(dice.randint(1, 30)))
    elif kind < 0.55:
        text = " ".join(dice.choice(FRAGMENTS) for _ in range(dice.randint(1, 20)))
    elif kind < 0.65:
        text = "".join(dice.choice(FRAGMENTS) for _ in range(dice.randint(1, 3))) * dice.randint(2, 200)
    elif kind < 0.72:
        highest = dice.choice((0x80, 0x3000, 0x10000, 0x110000))
        text = "".join(chr(dice.randrange(highest)) for _ in range(dice.randint(1, 40)))
    else:
        text = mutated(dice, dice.choice(texts), texts)
    return text[:LONGEST]


def mutated(dice: random.Random, text: str, texts: Sequence[str]) -> str:
    """A case with pieces cut out, put in, doubled or swapped."""
    for _ in range(dice.randint(1, 6)):
        low = dice.randint(0, len(text))
        high = min(len(text), low + dice.randint(0, 8))
        match dice.randint(0, 4):
            case 0:
                text = text[:low] + text[high:]
            case 1:
                text = text[:low] + dice.choice(FRAGMENTS) + text[low:]
            case 2:
                text = text[:low] + text[low:high] * dice.randint(2, 30) + text[high:]
            case 3:
                other = dice.choice(texts)
                at = dice.randint(0, len(other))
                text = text[:low] + other[at : at + dice.randint(1, 30)] + text[high:]
            case _:
                text = text[low:] + text[:low]
    return text


def check(text: str, dice: random.Random) -> None:
    """Raises `AssertionError`, or what a rule raised."""
    policy = MarkupPolicy(code=dice.choice(["skip", "read"]), thoughts=dice.choice(["skip", "read"]))
    limit = dice.choice([3, 10, 50, 80, 150, 500])
    acts = {dice.randint(0, len(text)): dice.choice(["flush", "release"]) for _ in range(dice.randint(0, 2))}
    found, dropped = play(text, list(range(len(text))), acts, limit, policy)
    cuts = [dice.randint(0, len(text)) for _ in range(dice.randint(0, 6))]
    assert play(text, cuts, acts, limit, policy) == (found, dropped), "pieces matter"
    check_segments(found, len(text), limit)
    covered = found[-1].end if found else 0
    assert dropped == ((covered, len(text)) if covered < len(text) else None), "no partition"
    check_said(text, found, dice)


def play(
    text: str, cuts: list[int], acts: dict[int, str], limit: int, policy: MarkupPolicy
) -> tuple[list[Segment], tuple[int, int] | None]:
    """Feed a text cut at `cuts`, and flush or release after so many characters."""
    splitter = Splitter(max_chars=limit, chunk_size=limit, policy=policy)
    places = sorted({0, len(text), *cuts, *acts})
    out: list[Segment] = []
    for low, high in pairwise(places):
        out += splitter.feed(text[low:high])
        if acts.get(high) == "flush":
            out += splitter.flush()
        elif acts.get(high) == "release":
            out += splitter.release()
    return out + splitter.flush(), splitter.dropped


def check_said(text: str, segments: Sequence[Segment], dice: random.Random) -> None:
    """What is said of the segments, and of the text as it is."""
    language: Language = dice.choice(get_args(Language))
    default: Literal["zh", "en"] = dice.choice(["zh", "en"])
    lexicon: Lexicon = dice.choice([EMPTY, EMPTY, LEXICON])
    for segment in segments:
        began = time.thread_time()
        spoken = normalize(segment.text, language=language, default=default, lexicon=lexicon)
        took = time.thread_time() - began
        assert took < SLOW_S, f"{took:.2f} s"
        check_spoken(segment.text, spoken)
        max_chars = dice.choice([12, 20, 80, 200])
        tags: Tags = dice.choice(get_args(Tags))
        source = text[segment.start : segment.end]
        rendition = render(
            segment, source, max_chars=max_chars, language=language, lexicon=lexicon, tags=tags,
            default=default,
        )  # fmt: skip
        check_rendition(rendition, max_chars, spoken.text if tags == "read" else rendition.text)
    check_spoken(text, normalize(text, language=language, default=default, lexicon=lexicon))


def check_spoken(text: str, spoken: Spoken) -> None:
    """Only what can be said is left, nothing is dropped in silence, and places are in order.

    They may overlap: both parts of a ㎡ that goes on from a word, a blank between marks. In a rendition they
    do not.
    """
    assert unspeakable(spoken.text) == [], "unspeakable"
    assert spoken.text == spoken.text.strip()
    assert "  " not in spoken.text
    silent = [char for char in unaccounted(text, spoken) if not is_pause(char)]
    assert silent == [], f"dropped in silence: {silent}"
    for piece in spoken.pieces:
        assert 0 <= piece.start < piece.end <= len(text)
    for before, after in pairwise(spoken.pieces):
        assert before.start <= after.start, "out of order"
    for start, end in spoken.dropped:
        assert 0 <= start < end <= len(text)


def is_pause(char: str) -> bool:
    """A sign by Unicode that is written for a dash, a colon or a slash, which may be silent: ∶ ⁄ −."""
    plain = fold(char).chars
    return bool(plain) and (unicodedata.category(plain[0])[0] in "PZ" or plain in SILENT)


def fails(text: str, seed: int) -> bool:
    """Whether a text still fails, by the same throws of the dice."""
    try:
        check(text, random.Random(seed))
    except Exception:
        return True
    return False


def shortest(text: str, seed: int) -> str:
    """The text, without what it can do without."""
    size = len(text) // 2
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if fails(shorter, seed):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def main() -> int:
    """Runs until something is found or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--go-on", action="store_true", help="print what is found and go on")
    arguments = parser.parse_args()
    texts = corpus()
    end = time.monotonic() + 60 * arguments.minutes
    number = found = 0
    while time.monotonic() < end:
        number += 1
        seed = arguments.seed * 1_000_000_000 + number
        text = make(random.Random(seed), texts)
        if fails(text, seed):
            found += 1
            text = shortest(text, seed)
            print(f"seed {seed}: {text!r}", flush=True)
            try:
                check(text, random.Random(seed))
            except Exception:
                traceback.print_exc()
            if not arguments.go_on or found >= 20:
                break
    print(f"{number} texts, {found} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
