"""A real server for tests: `sayflow serve` as a child process on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
START_S = 60.0


class Server:
    """A running `sayflow serve`."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `running`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--port", "0", *arguments],
            cwd=ROOT,
            env=os.environ | (env or {}),
            stderr=self.log,
        )
        self.url = ""

    def wait_ready(self, within_s: float = START_S) -> None:
        """Until `/readyz` says 200."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.output()}"
            if not self.url and (found := re.search(r"http://\S+?:\d+", self.output())):
                self.url = found.group()
            if self.url and self.status("/readyz") == 200:
                return
            time.sleep(0.05)
        raise AssertionError(f"not ready within {within_s} s: {self.output()}")

    @property
    def ws_url(self) -> str:
        """Where clients connect."""
        return self.url.replace("http://", "ws://") + "/v1/stream"

    def output(self) -> str:
        """All that it logged."""
        self.log.seek(0)
        return self.log.read()

    def get(self, path: str) -> str:
        """The body of a page; raises for a status of 400 and above."""
        with urllib.request.urlopen(self.url + path, timeout=5) as response:
            body: bytes = response.read()
        return body.decode()

    def status(self, path: str) -> int:
        """The status of a page, 0 for no answer."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def health(self) -> Any:
        """`/healthz`."""
        return json.loads(self.get("/healthz"))

    def metric(self, name: str) -> float:
        """The value of a sample without labels, or with these: `name{label="value"}`."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0.0

    def child(self, module: str) -> psutil.Process:
        """The child that runs `engine.process` or `gateway.worker`."""
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if module in process.cmdline():
                    return process
        raise LookupError(module)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=45)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextlib.contextmanager
def running(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """A ready server, stopped at the end."""
    server = Server(*arguments, env=env)
    try:
        server.wait_ready()
        yield server
    finally:
        with server.log:
            server.stop()
