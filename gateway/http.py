"""The HTTP routes: the WebSocket's door, the demo page, the schema, and the ops endpoints."""

from __future__ import annotations

import asyncio
import hmac
import socket
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import prometheus_client
from aiohttp import web

import web_demo
from gateway import health
from gateway.errors import CloseCode
from gateway.messages import SUBPROTOCOL, schema
from gateway.services import Services
from gateway.session import Session

ASSETS: Final = {
    path.name: path
    for path in Path(web_demo.__file__).parent.iterdir()
    if path.suffix in {".html", ".js", ".css", ".svg"}
}
FRESH: Final = {"Cache-Control": "no-cache"}
"""Browsers ask each time whether a file changed, so that an upgrade never mixes old modules with new."""
CSP: Final = (
    "default-src 'self'; connect-src 'self' ws: wss:; worker-src 'self' blob:; style-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
)
SEND_BUFFER: Final = 32_768
"""Bytes the kernel may hold for a client, so that a stalled reader shows within seconds of audio."""


class Routes:
    """The handlers, over the services they share."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._draining = False

    def public(self) -> list[web.AbstractRouteDef]:
        """What users reach."""
        return [
            web.get("/v1/stream", self.stream),
            web.get("/v1/schema", self.schema),
            web.get("/", self.page),
            web.get("/demo/{name}", self.asset),
        ]

    def ops(self) -> list[web.AbstractRouteDef]:
        """What operators reach."""
        return [
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
        ]

    # --- the WebSocket ------------------------------------------------------------------------------------

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/stream`: one session."""
        config = self._services.config
        if not _origin_allowed(request, config.origins):
            raise web.HTTPForbidden(text="this origin may not connect\n")
        if self._draining or self._services.link.spec is None:
            raise web.HTTPServiceUnavailable(text="not ready\n", headers={"Retry-After": "2"})
        authenticated = config.token is None
        if config.token is not None and (header := request.headers.get("Authorization")):
            if not hmac.compare_digest(
                header.encode("utf-8", "surrogateescape"), f"Bearer {config.token}".encode()
            ):
                raise web.HTTPUnauthorized(text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"})
            authenticated = True
        response = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            compress=False,
            heartbeat=config.ping_s,
            max_msg_size=config.message_bytes + 1,  # aiohttp refuses what is as long as this
            timeout=1.0,
        )
        await response.prepare(request)
        if request.transport is None:
            return response
        transport = request.transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        session = Session(response, transport, self._services, authenticated=authenticated)
        task = asyncio.create_task(session.run(), name=f"session {session.id}")
        self._sessions[session] = task
        try:
            await task
        finally:
            del self._sessions[session]
        return response

    async def drain(self) -> None:
        """Refuse new sessions, let utterances under way finish up to the deadline, then say goodbye."""
        self._draining = True
        if self._sessions:
            quiet = [asyncio.create_task(session.drain()) for session in self._sessions]
            _, late = await asyncio.wait(quiet, timeout=self._services.config.drain_s)
            for task in late:
                task.cancel()
            for session in self._sessions:
                session.hang_up(CloseCode.RESTART, "the server restarts; reconnect")
            if self._sessions:  # they may have left by themselves
                await asyncio.wait(self._sessions.values())

    # --- pages --------------------------------------------------------------------------------------------

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The demo page."""
        return web.FileResponse(ASSETS["index.html"], headers={"Content-Security-Policy": CSP, **FRESH})

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """A file of the demo page, by its name in a fixed map."""
        if (path := ASSETS.get(request.match_info["name"])) is None:
            raise web.HTTPNotFound
        return web.FileResponse(path, headers=FRESH)

    async def schema(self, request: web.Request) -> web.Response:
        """JSON Schema of the messages."""
        return web.json_response(schema())

    # --- ops ----------------------------------------------------------------------------------------------

    async def healthz(self, request: web.Request) -> web.Response:
        """200 while the event loop runs."""
        services = self._services
        return web.json_response(
            health.report(
                [services.link],
                draining=self._draining,
                sessions=len(self._sessions),
                waiting=services.admission.waiting,
            )
        )

    async def readyz(self, request: web.Request) -> web.Response:
        """200 when new work can be done, else 503."""
        if health.is_ready([self._services.link], draining=self._draining):
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: engine {self._services.link.state}\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus exposition."""
        services = self._services
        spec, name = services.link.spec, services.link.name
        services.metrics.queue.set(services.admission.waiting)
        services.metrics.slots.labels(name, "total").set(spec.slots if spec else 0)
        services.metrics.slots.labels(name, "used").set(services.link.used_slots)
        services.metrics.engine_ready.labels(name).set(services.link.state == "ready")
        body = prometheus_client.generate_latest(services.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})


def _origin_allowed(request: web.Request, origins: tuple[str, ...]) -> bool:
    """A browser says where its page is from: ours, or one of the list. Other programs say nothing."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    if origin in origins:
        return True
    try:
        return urlsplit(origin).netloc == request.host
    except ValueError:
        return False
