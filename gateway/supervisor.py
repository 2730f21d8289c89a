"""The parent process: starts the engines and the gateway as its children, restarts them, ends them in order.

It makes every socket before anything starts: a port that is taken is one clear line, and a child's restart
loses no connection attempt. Children are executed, never forked, and die with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from gateway.config import Config

log = structlog.get_logger(__name__)

BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits before the first, second, ... restart in a row."""
STEADY_S: Final = 10.0
"""A child that lived so long has healed; the next restart is the first in a row again."""
GRACE_S: Final = 3.0
EXIT_CONFIG: Final = 2


class StartError(Exception):
    """Nothing was started; the message says why in one line."""


class Child:
    """A child process that is to be there."""

    def __init__(
        self, name: str, command: Sequence[str], *, log_level: str, stdin: bytes, fds: Sequence[int]
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "gateway.child", str(os.getpid()), log_level, *command]
        self._stdin = stdin
        self._fds = fds
        self._process: asyncio.subprocess.Process | None = None

    async def keep(self) -> int:
        """Run it again and again, until it says that its settings are wrong."""
        restarts = 0
        while True:
            started = time.monotonic()
            code = await self._run_once()
            if code == EXIT_CONFIG:
                return code
            restarts = 0 if time.monotonic() - started > STEADY_S else restarts
            wait = BACKOFF_S[min(restarts, len(BACKOFF_S) - 1)]
            restarts += 1
            log.warning("child ended", child=self.name, code=code, restart_in_s=wait)
            await asyncio.sleep(wait)

    async def _run_once(self) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=self._fds,
            start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends them in order
        )
        self._process = process
        await process.communicate(self._stdin)
        assert process.returncode is not None
        return process.returncode

    async def stop(self, grace_s: float) -> None:
        """TERM, and after the grace KILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await process.wait()
        except TimeoutError:
            log.warning("child killed, as it did not end in time", child=self.name)
            process.kill()
            await process.wait()

    def terminate(self) -> None:
        """Pass a signal on."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises `StartError`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


def _listen_link() -> tuple[socket.socket, str]:
    """A listening Unix socket in the abstract namespace: no file, so nothing is left behind."""
    name = f"sayflow-{os.getpid()}-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + name)
    listener.listen(64)
    return listener, name


async def supervise(config: Config, announce: Callable[[str], None]) -> int:
    """Serve until told to stop. Returns the exit code. Raises `StartError`."""
    public = listen(config.host, config.port)
    ops = listen(config.host, config.ops_port) if config.ops_port is not None else None
    link, address = _listen_link()
    settings = config.engines["main"]
    engine = Child(
        "engine main",
        ["engine.process", str(link.fileno())],
        log_level=config.log_level,
        stdin=msgspec.json.encode(settings.model_dump(mode="json")),
        fds=[link.fileno()],
    )
    listeners = [public, *([ops] if ops else [])]
    gateway = Child(
        "gateway",
        ["gateway.worker", str(public.fileno()), str(ops.fileno()) if ops else "-", address],
        log_level=config.log_level,
        stdin=config.model_dump_json().encode(),
        fds=[listener.fileno() for listener in listeners],
    )
    host, port = public.getsockname()[:2]
    announce(f"http://{host}:{port}/")
    return await _run(gateway, engine, config.drain_s)


async def _run(gateway: Child, engine: Child, drain_s: float) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            gateway.terminate()  # the second signal: at once
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    keepers = {
        asyncio.create_task(engine.keep(), name="engine"),
        asyncio.create_task(gateway.keep(), name="gateway"),
    }
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait({stopping, *keepers}, return_when=asyncio.FIRST_COMPLETED)
    for keeper in keepers:
        keeper.cancel()
    # The gateway drains while its engine still speaks; then the engine goes.
    await gateway.stop(drain_s + GRACE_S)
    await engine.stop(GRACE_S)
    failed = [task.result() for task in done if task in keepers]
    return failed[0] if failed else 0
