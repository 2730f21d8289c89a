"""The engine process: its control thread, which owns the Unix socket and always answers.

Run as `python -m engine.process FD` with an `EngineConfig` as JSON on standard input; FD is a listening Unix
socket that the parent made and keeps, so that a gateway may connect before, between and after incarnations.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from engine import wire
from engine.config import EngineConfig
from engine.errors import ModelMissing
from engine.loop import StepLoop
from engine.model import ModelSpec, SpeechModel
from engine.ring import RingError, RingWriter

log = structlog.get_logger(__name__)

HEARTBEAT_S: Final = 0.5
MAX_UNSENT: Final = 8 << 20
"""Bytes waiting for a gateway that does not read; past it the link is closed, as the gateway is stuck."""
EXIT_CONFIG: Final = 2


def load(config: EngineConfig) -> SpeechModel:
    """The model of this kind; each imports its own libraries. Raises `ModelMissing`."""
    match config.kind:
        case "synthetic":
            from engine.synthetic.model import SyntheticModel

            return SyntheticModel(slots=config.slots, rtf=config.synthetic_rtf)
        case "embedded":
            from engine.embedded.model import EmbeddedModel
            from engine.embedded.styles import DEFAULT

            styles = Path(config.styles) if config.styles else DEFAULT
            return EmbeddedModel(slots=config.slots, threads=config.threads, styles=styles)
        case "chattts":
            return _load_chattts(config)
        case "chattts-upstream":
            return _load_upstream(config)


def _load_chattts(config: EngineConfig) -> SpeechModel:
    try:
        import torch

        from engine.chattts.backend import Backend
        from engine.chattts.model import ChatTTSModel
    except ImportError as error:
        raise ModelMissing(f"ChatTTS needs the extra [torch]: {error}") from error
    # OpenMP's threads wait by spinning, which starves them where ONNX Runtime's do the work.
    torch.set_num_threads(config.threads if config.backend == "torch" else 1)
    voices = Path(config.voices) if config.voices else None
    backend = Backend(
        kind=config.backend, precision=config.precision, provider=config.provider, threads=config.threads
    )
    return ChatTTSModel(
        _weights(config), slots=config.slots, voices=voices, backend=backend, steps=config.decoder
    )


def _load_upstream(config: EngineConfig) -> SpeechModel:
    try:
        from engine.upstream.model import UpstreamModel
    except ImportError as error:
        raise ModelMissing(f"the reference engine needs the ChatTTS package: {error}") from error
    voices = Path(config.voices) if config.voices else None
    return UpstreamModel(_weights(config), voices=voices)


def _weights(config: EngineConfig) -> Path:
    if config.weights is None:
        raise ModelMissing("no folder of weights was named (--weights DIR)")
    return Path(config.weights)


class Peer:
    """A gateway's connection. `emit` may be called by any thread, the rest by the control thread."""

    def __init__(self, connection: socket.socket, wake: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.frames = wire.FrameBuffer()
        self._attached: RingWriter | None = None
        self._wake = wake
        self._lock = threading.Lock()
        self._unsent = bytearray()

    @property
    def ring(self) -> RingWriter:
        """The gateway's ring, once it has said hello."""
        if self._attached is None:
            raise wire.LinkError("a request before hello")
        return self._attached

    def attach(self, message: wire.Hello, fds: list[int], spec: ModelSpec) -> None:
        """Map the ring that came with `Hello`."""
        if self._attached is not None or len(fds) != 1:
            raise wire.LinkError(f"hello with {len(fds)} descriptors")
        self._attached = RingWriter.attach(fds[0], spec.slots, message.ring_samples)

    @property
    def is_attached(self) -> bool:
        """The gateway has said hello."""
        return self._attached is not None

    def emit(self, messages: Sequence[wire.FromEngine]) -> None:
        """Queue frames and wake the control thread."""
        data = b"".join(wire.encode(message) for message in messages)
        with self._lock:
            self._unsent += data
        with contextlib.suppress(BlockingIOError):  # enough wake-ups are under way
            self._wake.send(b"\0")

    def flush(self) -> bool:
        """Send what the socket takes. True: some is left."""
        with self._lock:
            if len(self._unsent) > MAX_UNSENT:
                raise wire.LinkError("the gateway does not read")
            while self._unsent:
                try:
                    sent = self.connection.send(self._unsent)
                except BlockingIOError:
                    return True
                del self._unsent[:sent]
            return False


class Control:
    """Accepts gateways and passes their messages to the loop."""

    def __init__(self, listener: socket.socket, loop: StepLoop, spec: ModelSpec, ready: wire.Ready) -> None:
        self._listener = listener
        self._loop = loop
        self._spec = spec
        self._ready = ready
        self._selector = selectors.DefaultSelector()
        self._woken, self.wake = socket.socketpair()
        self._peers: set[Peer] = set()
        self._stopping = False
        for end in (listener, self._woken, self.wake):
            end.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain_wake)

    def stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Serve until `stop`."""
        beat = time.monotonic() + HEARTBEAT_S
        while not self._stopping:
            for key, _ in self._selector.select(max(0.0, beat - time.monotonic())):
                if isinstance(key.data, Peer):
                    self._receive(key.data)
                else:
                    key.data()
            if time.monotonic() >= beat:
                beat = time.monotonic() + HEARTBEAT_S
                for peer in self._peers:
                    if peer.is_attached:
                        peer.emit([wire.Progress(self._loop.busy_until, self._loop.figures())])
            for peer in list(self._peers):
                self._flush(peer)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        if _peer_uid(connection) != os.getuid():
            log.warning("refused a connection of another user")
            connection.close()
            return
        peer = Peer(connection, self.wake)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)
        peer.emit([self._ready])

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _receive(self, peer: Peer) -> None:
        fds: list[int] = []
        try:
            data, fds, _, _ = socket.recv_fds(peer.connection, 65536, 1)
            if not data:
                self._lose(peer, "closed")
                return
            for body in peer.frames.feed(data):
                self._handle(peer, wire.decode_to_engine(body), fds)
        except BlockingIOError:
            pass
        except (OSError, wire.LinkError, RingError) as error:
            self._lose(peer, str(error))
        finally:
            for fd in fds:
                os.close(fd)

    def _handle(self, peer: Peer, message: wire.ToEngine, fds: list[int]) -> None:
        match message:
            case wire.Hello():
                peer.attach(message, fds, self._spec)
            case wire.Open():
                self._loop.open(peer, message)
            case wire.Submit():
                self._loop.submit(peer, message)
            case wire.Close(utterance):
                self._loop.close(peer, utterance)
            case wire.Cancel(utterance):
                self._loop.cancel(peer, utterance)
            case wire.Credit():
                self._loop.credit(peer, message)

    def _flush(self, peer: Peer) -> None:
        try:
            left = peer.flush()
        except (OSError, wire.LinkError) as error:
            self._lose(peer, str(error))
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0)
        self._selector.modify(peer.connection, events, peer)

    def _lose(self, peer: Peer, reason: str) -> None:
        log.info("link lost", reason=reason)
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._loop.drop(peer)


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def describe(spec: ModelSpec, step_s: tuple[float, ...]) -> wire.Ready:
    """What a gateway is told of the model."""
    return wire.Ready(
        model=spec.name,
        sample_rate=spec.sample_rate,
        slots=spec.slots,
        max_steps=spec.max_steps,
        max_chars=spec.max_chars,
        default_voice=spec.default_voice,
        voices=spec.voices,
        step_s=step_s,
        pid=os.getpid(),
    )


def serve(model: SpeechModel, listener: socket.socket, *, window_s: float = 0.0) -> None:
    """Warm up, then serve until SIGTERM or SIGINT."""
    ready = describe(model.spec, model.warm_up())
    loop = StepLoop(model, window_s=window_s)
    control = Control(listener, loop, model.spec, ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: control.stop())
    signal.set_wakeup_fd(control.wake.fileno(), warn_on_full_buffer=False)
    # A daemon: a step that never ends must not keep a process that was told to go.
    steps = threading.Thread(target=_step, args=(loop,), name="step", daemon=True)
    steps.start()
    log.info("engine ready", model=model.spec.name, slots=model.spec.slots)
    control.run()
    loop.stop()
    steps.join(timeout=2.0)


def _step(loop: StepLoop) -> None:
    """The step thread. Without it the process would answer and never speak: it ends with it."""
    try:
        loop.run()
    except BaseException:
        log.exception("the step thread crashed")
        os._exit(1)


def main() -> int:
    """Exit 0 when told to go, 2 for a model that cannot be loaded; anything else is a crash."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    listener = socket.socket(fileno=int(sys.argv[1]))
    try:
        model = load(config)
    except ModelMissing as error:
        log.error("cannot load the model", reason=str(error))
        return EXIT_CONFIG
    serve(model, listener, window_s=config.batch_window_ms / 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
