"""Fixtures: real servers, shared by the tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that speaks: the embedded engine with its real voices."""
    with running("--engine", "embedded") as running_server:
        yield running_server


@pytest.fixture(scope="session")
def tones() -> Iterator[Server]:
    """A server with the synthetic engine, whose sound proves whose it is."""
    with running("--engine", "synthetic", "--slots", "32") as running_server:
        yield running_server
