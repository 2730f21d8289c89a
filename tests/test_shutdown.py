"""The end in order, and what cannot even start: signals, the drain, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.checks import check_marks, check_order
from tests.listener import eventually, listening
from tests.server import ROOT, Server, running
from tests.test_recovery import SLACK, TEXT, quick, speak_realtime, wait_gone


@contextlib.contextmanager
def fresh(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    with running("--engine", "synthetic", *arguments, env=env) as server:
        yield server


async def test_sigterm_drains() -> None:
    with fresh(env={"SAYFLOW_DRAIN_S": "20"}) as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        async with listening(server.ws_url) as listener, listening(server.ws_url) as idle:
            heard = await listener.say("a", TEXT, seed=3, pace="realtime")
            await heard.first_sound.wait()
            server.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            await eventually(lambda: server.status("/readyz") == 503)
            refused = await listener.start("late")
            await listener.wait(refused)
            assert refused.terminal["code"] == "draining"
            with pytest.raises(Exception, match="503"):
                async with listening(server.ws_url):
                    pass
            await listener.wait(heard)
            check_order(heard)
            assert heard.terminal["type"] == "done"
            assert check_marks(heard) == 6 * len(TEXT.strip())
            assert (await listener.until_closed(), await idle.until_closed()) == (1012, 1012)
        assert await asyncio.to_thread(server.process.wait, 10) == 0
        print(
            f"drained and gone {time.monotonic() - began - heard.milliseconds / 1000:.2f} s after the sound"
        )
        await asyncio.to_thread(wait_gone, children)
        assert not re.search("Traceback|never retrieved", server.output()), server.output()


async def test_sigterm_when_the_last_client_leaves_by_itself() -> None:
    with fresh(env={"SAYFLOW_DRAIN_S": "20"}) as server:
        async with listening(server.ws_url) as listener:
            heard = await listener.say("a", TEXT, seed=3, pace="realtime")
            await heard.first_sound.wait()
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            await listener.close()
        assert await asyncio.to_thread(server.process.wait, 10) == 0
        assert not re.search("Traceback|never retrieved", server.output()), server.output()


async def test_the_drain_has_a_deadline() -> None:
    with fresh(env={"SAYFLOW_DRAIN_S": "0.5"}) as server:
        async with listening(server.ws_url) as listener:
            (heard,) = await speak_realtime(listener, 1)
            server.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert await listener.until_closed() == 1012
            assert await asyncio.to_thread(server.process.wait, 10) == 0
            assert time.monotonic() - began < 0.5 + SLACK
        check_order(heard, complete=False)
        assert not re.search("Traceback|never retrieved", server.output()), server.output()


async def test_a_second_sigterm_ends_at_once() -> None:
    with fresh() as server:
        async with listening(server.ws_url) as listener:
            await speak_realtime(listener, 1)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert server.process.poll() is None
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.process.wait, 20) == 0
            took_s = time.monotonic() - began
            print(f"gone {took_s:.2f} s after the second signal")
            assert took_s < SLACK * 1.0
            assert await listener.until_closed() in (1001, 1006, 1012)
        assert not re.search("Traceback|never retrieved", server.output()), server.output()


async def test_ctrl_c_drains_too() -> None:
    """A terminal sends SIGINT to the whole group: the children leave the order of events to the parent."""
    with quick(new_group=True) as server:
        await asyncio.to_thread(server.wait_ready)
        async with listening(server.ws_url) as listener:
            heard = await listener.say("a", TEXT, seed=3, pace="realtime")
            await heard.first_sound.wait()
            os.killpg(server.process.pid, signal.SIGINT)
            await listener.wait(heard)
            check_order(heard)
            assert heard.terminal["type"] == "done"
            assert await listener.until_closed() == 1012
        assert await asyncio.to_thread(server.process.wait, 10) == 0
        assert "Traceback" not in server.output()


@pytest.mark.parametrize("wait_s", [0.0, 0.3, 0.8])
async def test_sigterm_while_it_starts(wait_s: float) -> None:
    with quick() as server:
        await eventually(lambda: "http://" in server.output(), within_s=20)
        await asyncio.sleep(wait_s)
        children = psutil.Process(server.process.pid).children(recursive=True)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(server.process.wait, 10)
        assert time.monotonic() - began < 5
        assert code == 0
        await asyncio.to_thread(wait_gone, children)
        assert "Traceback" not in server.output()


# --- what cannot start ------------------------------------------------------------------------------------


def serve_in_vain(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "serve", *arguments],
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_taken_port(tones: Server) -> None:
    port = tones.url.rsplit(":", 1)[1]
    ended = serve_in_vain("--port", port)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert port in ended.stderr


def write(text: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        path = folder / "settings.toml"
        path.write_text(text)
        return ["--config", str(path)]

    return make


@pytest.mark.parametrize(
    ("arguments", "env", "word"),
    [
        (lambda _: ["--port", "70000"], {}, "port"),
        (lambda _: ["--host", "no.such.host.invalid", "--port", "0"], {}, "no.such.host.invalid"),
        (lambda folder: ["--config", str(folder / "none.toml")], {}, "none.toml"),
        (lambda _: [], {"SAYFLOW_LEAD_MS": "soon"}, "lead_ms"),
        (write("port = [1"), {}, "settings.toml"),
        (write('colour = "blue"'), {}, "colour"),
        (write('[engines.main]\nkind = "magic"'), {}, "kind"),
        (write('[engines.other]\nkind = "synthetic"'), {}, "main"),
        (write("stall_s = 5.0\nstall_kill_s = 3.0"), {}, "stall"),
    ],
    ids=["port", "host", "no file", "env", "syntax", "unknown", "engine kind", "engine name", "stall order"],
)
def test_bad_settings(
    tmp_path: Path, arguments: Callable[[Path], list[str]], env: dict[str, str], word: str
) -> None:
    ended = serve_in_vain(*arguments(tmp_path), env=env | {"SAYFLOW_DRAIN_S": "0"})
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr
