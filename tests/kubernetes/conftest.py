"""What the tests on a real control plane share; they are skipped, loudly, on a machine that cannot build one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import binaries as building
from tests.kubernetes.world import World, two_clusters

LONG = {"test_across_clusters.py", "test_finding.py", "test_standin.py", "test_troubles.py", "test_unexplained.py"}
"""Modules that wait for minutes, for leases, sessions and tokens to end: `.ci/run` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and say what is missing.

    The tests of the two clusters come last, together: these clusters run on until the end, and take their share of the
    machine from every test that comes after them.
    """
    missing = building.missing_tools()
    items.sort(key=lambda item: "world" in getattr(item, "fixturenames", ()))
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            item.add_marker(pytest.mark.slow)
            if item.path.name in LONG:
                item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1_200))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"KUBERNETES NOT TESTED: {missing}"))


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder of the control plane's binaries; `make test-kubernetes` has built them."""
    return building.built()


@pytest.fixture(scope="session")
def helm() -> str:
    """The helm binary; `make test-kubernetes` has built it."""
    return str(building.built(building.HELM) / "helm")


@pytest.fixture(scope="session")
def world(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two clusters, which the tests of several modules use one after another."""
    with two_clusters(tmp_path_factory.mktemp("world"), binaries) as made:
        yield made
