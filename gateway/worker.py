"""A gateway process: the event loop, its listeners, and the order of start and stop.

Run as `python -m gateway.worker PUBLIC_FD OPS_FD|- ADDRESS` by `gateway.child`, with the settings as
JSON on standard input. The parent made the sockets, so that a restart loses no connection attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from typing import Final

import structlog
from aiohttp import web

from gateway.admission import Admission
from gateway.config import Config
from gateway.engine_client import EngineLink
from gateway.http import Routes
from gateway.metrics import Metrics
from gateway.pump import Pump
from gateway.services import Services

log = structlog.get_logger(__name__)

LAG_S: Final = 0.05
"""Period of the event-loop lag probe, and of the queue's deadlines."""


def build(config: Config, address: str) -> Services:
    """The parts of a gateway, wired."""
    clock = time.monotonic

    def on_change() -> None:
        admission.serve(clock())

    link = EngineLink(
        "main",
        address,
        ring_ms=config.ring_ms,
        stall_s=config.stall_s,
        stall_kill_s=config.stall_kill_s,
        clock=clock,
        on_change=on_change,
    )
    admission = Admission(link, wait_s=config.queue_wait_s)
    return Services(
        config=config,
        clock=clock,
        link=link,
        admission=admission,
        pump=Pump(clock=clock),
        metrics=Metrics(),
    )


async def serve(services: Services, public: socket.socket, ops: socket.socket | None) -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal ends at once."""
    routes = Routes(services)
    runners = [
        await _listen(public, routes.public() + ([] if ops else routes.ops())),
        *([await _listen(ops, routes.ops())] if ops else []),
    ]
    stop, now = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: (now if stop.is_set() else stop).set())
    background = {
        asyncio.create_task(services.link.run(), name="link"),
        asyncio.create_task(services.pump.run(), name="pump"),
        asyncio.create_task(_probe(services), name="probe"),
    }
    stopping = asyncio.create_task(_until(stop))
    done, _ = await asyncio.wait({stopping, *background}, return_when=asyncio.FIRST_COMPLETED)
    # 1. not ready, and no new sessions; 2. utterances finish; 3. sockets close; 4. the links let go.
    crashed = done - {stopping}
    if not crashed:
        drain = asyncio.create_task(routes.drain())
        await asyncio.wait({drain, asyncio.create_task(_until(now))}, return_when=asyncio.FIRST_COMPLETED)
    for runner in runners:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await runner.cleanup()
    for task in background - done:
        task.cancel()
    await asyncio.gather(*(background - done), return_exceptions=True)
    for task in crashed:
        await task


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _listen(listener: socket.socket, routes: list[web.AbstractRouteDef]) -> web.AppRunner:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


async def _probe(services: Services) -> None:
    """Measure how late timers run; let the queue's deadlines pass."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_S
        await asyncio.sleep(LAG_S)
        services.metrics.loop_lag.observe(max(0.0, loop.time() - due))
        services.admission.serve(services.clock())


def _inherited(fd: str) -> socket.socket:
    listener = socket.socket(fileno=int(fd))
    listener.setblocking(False)
    return listener


def main(arguments: list[str]) -> int:
    """The process's whole life."""
    public, ops, link = arguments
    config = Config.model_validate_json(sys.stdin.read())
    services = build(config, _abstract(link))
    gc.collect()
    gc.freeze()  # what was imported stays; the collector need not stop the loop to look at it again
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(serve(services, _inherited(public), None if ops == "-" else _inherited(ops)))
    return 0


def _abstract(link: str) -> str:
    return "\0" + link


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
