"""The hub is gone: the cluster's own controller scales within 45 s, and gives the cluster back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.standin_rig import HUB_PARTS, Rig, standin_rig


@pytest.fixture(scope="module")
def rig(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with standin_rig(tmp_path_factory.mktemp("standin"), binaries) as made:
        yield made


def test_the_hub_is_killed_and_comes_back(rig: Rig) -> None:
    killed = rig.kill(*HUB_PARTS)
    rig.until(lambda: len(rig.natives()) == len(rig.names), "native HPAs", 60.0)
    assert max(rig.created_after(killed)) - killed <= 45.0
    rig.demand(5)
    rig.until_at(5)
    back = time.time()
    rig.start_hub()
    rig.until(lambda: rig.holder().startswith("hub/") and not rig.natives(), "handed back", 180.0)
    assert time.time() - back < 180
    rig.demand(2)
    rig.until_at(2)
    assert rig.hub_writes_after(back)
    assert rig.conflicts() == []
