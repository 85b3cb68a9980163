"""An HPA that a CapacityGroup holds back, on the page: the group with its limit, what is used of it, and the share."""

from __future__ import annotations

import pytest

from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacitySpec
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerSet
from schemas.settings import SettingsSet
from tests.unit.cli_kit import SETTINGS, Fleet, hpa
from tests.unit.page.test_page_division import CLUSTERS, AcrossClusters, shown
from tests.unit.page_kit import over


class UnderCeiling(AcrossClusters):
    """An HPA `checkout` in east and in west, each with 3 replicas, that share a limit of 8; later both want 6."""

    def __init__(self) -> None:
        Fleet.__init__(self)
        self.replicas = dict.fromkeys(CLUSTERS, 3)
        self.away: set[str] = set()
        self.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        selector = {"matchLabels": {"app": "checkout"}}
        spec = CapacitySpec(selector=selector, limit=CapacityLimit(count=8))
        self.append(CapacityGroupSet(name="search", revision=1, spec=spec), key=WHOLE_PARTITION_KEY)
        for name in CLUSTERS:
            self.append(AutoscalerSet(hpa=hpa(), origin="central", mode="enforce"), key=f"{name}/shop")


@pytest.fixture
def ceiling(monkeypatch: pytest.MonkeyPatch) -> UnderCeiling:
    made = UnderCeiling()
    made.periods(8)
    made.periods(4, usage_milli=600)
    over(made, monkeypatch)
    return made


async def test_the_view_names_the_group_that_holds_it_with_limit_use_and_share(ceiling: UnderCeiling) -> None:
    assert sum(ceiling.replicas.values()) == 8
    text = (await shown("/hpa/east/shop/checkout")).text
    assert "capacity group" in text
    assert "group search; capacity 8 replicas; used 8 replicas; share 4 replicas" in text
