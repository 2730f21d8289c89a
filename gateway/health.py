"""Is the gateway alive, and is it ready? Pure: from the links' states to what the ops endpoints say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.engine_client import EngineLink


def is_ready(links: Iterable[EngineLink], *, draining: bool) -> bool:
    """New work can be done: every engine is warm and makes progress, and the gateway is not going."""
    return not draining and all(link.state == "ready" for link in links)


def report(links: Iterable[EngineLink], *, draining: bool, sessions: int, waiting: int) -> dict[str, Any]:
    """What `/healthz` says."""
    links = list(links)
    return {
        "status": "ok",
        "ready": is_ready(links, draining=draining),
        "draining": draining,
        "sessions": sessions,
        "queue": waiting,
        "engines": {
            link.name: {
                "state": link.state,
                "model": link.spec.model if link.spec else None,
                "slots": link.spec.slots if link.spec else 0,
                "used_slots": link.used_slots,
                "figures": link.figures,
            }
            for link in links
        },
    }
