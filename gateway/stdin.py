"""Text from standard input as it arrives, for `say`. Must not import anything of the service."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator
from typing import Final

READ_BYTES: Final = 4096


async def read_pieces(fd: int) -> AsyncIterator[str]:
    """Text from a descriptor, as soon as there is any; bytes that are no UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        await _await_readable(fd)
        data = os.read(fd, READ_BYTES)
        piece = decoder.decode(data, final=not data)
        if piece:
            yield piece
        if not data:
            return


async def _await_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:
        return  # A regular file cannot be polled, and never has to be waited for.
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
