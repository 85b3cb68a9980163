"""What the tests of several verbs share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.cli_kit import Broker


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    @asynccontextmanager
    async def opened(config: Any) -> AsyncIterator[Broker]:
        yield made

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    return made
