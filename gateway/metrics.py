"""Prometheus metrics. Labels come from closed sets only: nothing that a client sends becomes a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_TTFA_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_LAG_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
_LEAD_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0)


class Metrics:
    """One gateway's figures, in a registry of its own, so that tests can have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions = Gauge("sayflow_sessions", "Open sessions", registry=self.registry)
        self.utterances = Counter(
            "sayflow_utterances", "Utterances ended, by outcome", ["outcome"], registry=self.registry
        )
        self.active = Gauge("sayflow_utterances_active", "Utterances under way", registry=self.registry)
        self.ttfa = Histogram(
            "sayflow_time_to_first_audio_seconds",
            "From the arrival of the text that completes the first segment to the first audio byte sent",
            buckets=_TTFA_S,
            registry=self.registry,
        )
        self.lead = Histogram(
            "sayflow_lead_seconds",
            "Audio sent ahead of the listener, at each message",
            buckets=_LEAD_S,
            registry=self.registry,
        )
        self.underruns = Counter(
            "sayflow_underruns", "Gaps in playout while text was there to speak", registry=self.registry
        )
        self.slow_consumers = Counter(
            "sayflow_slow_consumers", "Sessions closed at their write deadline", registry=self.registry
        )
        self.loop_lag = Histogram(
            "sayflow_event_loop_lag_seconds",
            "How late the event loop runs a timer",
            buckets=_LAG_S,
            registry=self.registry,
        )
        self.slots = Gauge(
            "sayflow_engine_slots", "Engine slots, by link and use", ["link", "use"], registry=self.registry
        )
        self.engine_ready = Gauge(
            "sayflow_engine_ready", "1 while the link's engine is ready", ["link"], registry=self.registry
        )
        self.queue = Gauge("sayflow_queue", "Utterances waiting for a slot", registry=self.registry)


OUTCOMES = ("done", "cancelled", "error", "disconnected")
