"""A WebSocket client that can send any bytes: for what no library would send, and for reading nothing."""

from __future__ import annotations

import base64
import os
import socket
import time
from urllib.parse import urlsplit

TEXT = 0x1
BINARY = 0x2
CLOSE = 0x8
PING = 0x9


def frame(
    payload: bytes, opcode: int = TEXT, *, fin: bool = True, masked: bool = True, rsv: int = 0
) -> bytes:
    """One frame, right or wrong."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    mask = os.urandom(4) if masked else b""
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if masked else payload
    return header(first, len(payload), masked=masked) + mask + body


def header(first: int, size: int, *, masked: bool = True) -> bytes:
    """A frame's header, which may promise any size."""
    bit = 0x80 if masked else 0
    if size < 126:
        return bytes([first, bit | size])
    if size < 1 << 16:
        return bytes([first, bit | 126]) + size.to_bytes(2, "big")
    return bytes([first, bit | 127]) + size.to_bytes(8, "big")


class RawClient:
    """A blocking socket to the server, and its handshake."""

    def __init__(self, url: str, *headers: str, receive_buffer: int | None = None, host: str = "") -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10.0)
        self.socket.connect((parts.hostname, parts.port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /v1/stream HTTP/1.1",
            f"Host: {host or parts.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            *headers,
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape"))
        self._buffer = b""
        head = self._until(b"\r\n\r\n")
        self.status = int(head.split()[1])

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            data = self.socket.recv(4096)
            assert data, f"the server closed in the handshake: {self._buffer!r}"
            self._buffer += data
        head, self._buffer = self._buffer.split(mark, 1)
        return head

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def receive(self) -> tuple[int, bytes]:
        """(opcode, payload) of the next frame. Raises `EOFError`, or `TimeoutError` after 10 s."""
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self._take(2), "big")
        elif size == 127:
            size = int.from_bytes(self._take(8), "big")
        return first & 0x0F, self._take(size)

    def close_code(self, *, within_s: float = 5.0) -> int:
        """The code of the server's close frame, 1006 where it just hung up; what comes before is skipped."""
        deadline = time.monotonic() + within_s
        try:
            while time.monotonic() < deadline:
                self.socket.settimeout(max(0.01, deadline - time.monotonic()))
                opcode, payload = self.receive()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
        except (EOFError, ConnectionError):
            return 1006
        except TimeoutError:
            pass
        raise AssertionError("the server did not close")
