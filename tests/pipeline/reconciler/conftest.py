"""What the tests of the reconciler share: two clusters with a running one, and a workload for each test."""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from reconciler.apply.clusterwriters import WriterLimits
from reconciler.apply.process import Reconciler
from tests.pipeline.cluster_rig import Rig, deployment, hpa, rig, running
from tests.pipeline.reconciler.reconciler_kit import App, config

_NUMBERS = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """Two clusters with one running reconciler for all tests; each test has a workload of its own."""
    async with rig(tmp_path_factory.mktemp("fleet"), ("east", "west")) as made:
        made.part = Reconciler(config(made, limits=WriterLimits(workers=4, request_timeout_s=2.0)))
        async with running(made.part, asyncio.Event()):
            made.sims["east"].apply(deployment("first"))
            made.sims["east"].apply(hpa("first"))
            await App(made, "first").ends()  # it has its partitions: no test counts the time of that
            yield made


@pytest.fixture(autouse=True)
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions are of a fixed day."""
    monkeypatch.setattr("reconciler.apply.clusterwriters.LATE_MS", math.inf)


@pytest.fixture
def app(fleet: Rig) -> Any:
    name = f"web-{next(_NUMBERS)}"
    fleet.sims["east"].apply(deployment(name))
    fleet.sims["east"].apply(hpa(name))
    yield App(fleet, name)
    fleet.sims["east"].clear_faults()
    fleet.sims["east"].deny([])
