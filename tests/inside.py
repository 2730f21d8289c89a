"""A gateway on the test's own event loop, with its engine as a real process: for settings that a test varies,
and for engines that misbehave, where the test looks at the gateway's own parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from engine.config import EngineConfig
from gateway.config import Config
from gateway.http import Routes
from gateway.services import Services
from gateway.worker import build

ROOT = Path(__file__).parent.parent


class EngineProcess:
    """An engine's listening socket, and the process that serves it now."""

    def __init__(self, *, slots: int = 8, rtf: float = 0.02) -> None:
        self.address = "\0sayflow-test-" + secrets.token_hex(8)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(16)
        self._config = EngineConfig(kind="synthetic", slots=slots, synthetic_rtf=rtf)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        self.process: subprocess.Popen[bytes] | None = None

    def output(self) -> str:
        """All that it logged."""
        self._log.seek(0)
        return self._log.read()

    def start(self, fault: str | None = None) -> subprocess.Popen[bytes]:
        """The true engine, or the faulty one with this fault (see `tests.faulty_engine`)."""
        assert self.process is None or self.process.poll() is not None
        fd = self._listener.fileno()
        module = "tests.faulty_engine" if fault else "engine.process"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.child", str(os.getpid()), "info", module, str(fd)],
            cwd=ROOT,
            env=os.environ | {"FAULT": fault or ""},
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[fd],
        )
        assert self.process.stdin is not None
        with self.process.stdin as stdin:
            stdin.write(msgspec.json.encode(self._config))
        return self.process

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._listener.close()
        self._log.close()


@contextlib.contextmanager
def engine(fault: str | None = None, *, slots: int = 8, rtf: float = 0.02) -> Iterator[EngineProcess]:
    process = EngineProcess(slots=slots, rtf=rtf)
    try:
        process.start(fault)
        yield process
    finally:
        process.close()


class Inside:
    """The gateway's parts and its address."""

    def __init__(self, services: Services, tasks: list[asyncio.Task[None]], port: int) -> None:
        self.services = services
        self.tasks = tasks
        self.url = f"http://127.0.0.1:{port}"
        self.ws_url = f"ws://127.0.0.1:{port}/v1/stream"

    @property
    def link_state(self) -> str:
        return self.services.link.state

    @property
    def used_slots(self) -> int:
        return self.services.link.used_slots

    async def ready(self, *, within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while self.services.link.state != "ready":
                self.check()
                await asyncio.sleep(0.005)

    def check(self) -> None:
        """The gateway's own tasks are alive; raises what ended one."""
        for task in self.tasks:
            if task.done():
                task.result()

    async def metric(self, name: str, **labels: str) -> float:
        return self.services.metrics.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def gateway(process: EngineProcess, **settings: Any) -> AsyncIterator[Inside]:
    """A ready gateway with these settings. At the end its tasks must be alive."""
    services = build(Config(**settings), process.address)
    routes = Routes(services)
    app = web.Application()
    app.add_routes(routes.public() + routes.ops())
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port: int = runner.addresses[0][1]
    tasks = [
        asyncio.create_task(services.link.run(), name="link"),
        asyncio.create_task(services.pump.run(), name="pump"),
        asyncio.create_task(_serve_queue(services), name="queue"),
    ]
    inside = Inside(services, tasks, port)
    try:
        await inside.ready()
        yield inside
        inside.check()
    finally:
        await runner.cleanup()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve_queue(services: Services) -> None:
    """What the worker's probe does beside its measuring: deadlines of the queue pass."""
    while True:
        await asyncio.sleep(0.05)
        services.admission.serve(services.clock())
