"""What the tests of several verbs share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cli import Broker, Cli, Fleet


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    @asynccontextmanager
    async def opened(config: Any) -> AsyncIterator[Broker]:
        yield made

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    return made


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.settle()
    made.checkpoint()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, broker: Broker, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)
