"""What the utterances of all sessions share; `worker` builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admission import Admission
from gateway.config import Config
from gateway.engine_client import EngineLink
from gateway.metrics import Metrics
from gateway.pump import Pump


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What utterances of all sessions share."""

    config: Config
    clock: Callable[[], float]
    link: EngineLink
    admission: Admission
    pump: Pump
    metrics: Metrics
