"""A FleetHPA on the page: one row of the fleet with its clusters, and a view with the division among them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView, MemberView, cost_per_hour
from fleethpa.page.fleethpaview import division
from schemas.entries import WHOLE_PARTITION_KEY, Body, Outcome
from schemas.keys import FLEET, HpaId
from schemas.observed import AutoscalerSet, Command, FleetCluster, FleetSpec
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.cli import SETTINGS, Fleet, hpa
from tests.kit.page import Shown, browsing, over

WHOLE = "/hpa/@fleet/shop/checkout"
CLUSTERS = ("east", "west")


class AcrossClusters(Fleet):
    """A FleetHPA `checkout` over east and west, all in one partition; `away`: clusters whose observers are silent."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas = dict.fromkeys(CLUSTERS, 3)
        self.away: set[str] = set()
        self.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        west = FleetCluster(name="west", max_replicas=20)
        spec = FleetSpec(clusters=[FleetCluster(name="east", weight=2, max_replicas=20), west])
        manifest = hpa()
        self.append(
            AutoscalerSet(hpa=manifest, origin="central", fleet=spec, revision=1),
            Command(command="mode", name="checkout", mode="enforce"),
            key=f"{FLEET}/shop",
        )
        for name in CLUSTERS:
            member = AutoscalerSet(hpa=manifest, origin="central", mode="enforce", revision=1)
            self.append(member, key=f"{name}/shop")

    def append(self, *bodies: Body, **given: Any) -> None:
        """Append to the log, deliver the messages that come of it, and carry out what is wanted."""
        known = len(self.values)
        super().append(*bodies, **given)
        for each in self.partition.pop_messages():
            self.append(each.body, key=f"{each.cluster}/{each.namespace}")
        for value in self.values[known:]:
            self._carry_out(orjson.loads(value))

    def _carry_out(self, decision: dict[str, Any]) -> None:
        wanted, cluster = decision.get("wants"), str(decision.get("cluster"))
        if wanted is None or wanted == self.replicas[cluster]:
            return
        self.replicas[cluster] = wanted
        made = Outcome(
            decision=decision["id"],
            name=decision["name"],
            uid=decision["uid"],
            result="applied",
            spec_replicas=wanted,
            status_replicas=wanted,
        )
        self.append(made, key=f"{cluster}/shop")

    def periods(self, count: int, usage_milli: int = 300) -> None:
        """Sync periods in which each cluster that is not away reports its pods and samples."""
        for _ in range(count):
            self.now_ms += 10_000
            for self.cluster in CLUSTERS:
                if self.cluster not in self.away:
                    self.observe(self.replicas[self.cluster], usage_milli)
            for _ in range(5):
                self.append(after_ms=1_000)
        self.checkpoint()


@pytest.fixture
def across(monkeypatch: pytest.MonkeyPatch) -> AcrossClusters:
    made = AcrossClusters()
    made.periods(8)
    over(made, monkeypatch)
    return made


async def shown(path: str) -> Shown:
    async with browsing() as client:
        answer = await client.get(path)
        assert answer.status == 200
        return Shown(await answer.text())


async def test_the_fleet_has_one_row_of_it_with_a_link_to_each_cluster(across: AcrossClusters) -> None:
    page = await shown("/")
    rows = [attrs["id"] for tag, attrs in page.tags if tag == "tr" and attrs.get("id")]
    assert rows == ["row-@fleet/shop/checkout"]
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert {f"/hpa/{name}/shop/checkout" for name in CLUSTERS} <= links
    assert "1 of 3 HPAs, those with a problem first; 2 of clusters are in the row of their FleetHPA" in page.text
    filtered = await shown("/?q=checkout")
    assert "3 of 3 HPAs match" in filtered.text


async def test_replicas_and_costs_of_clusters_are_counted_once(across: AcrossClusters) -> None:
    across.append(SettingsSet(cluster="*", settings=ClusterSettings(price="2")), key=WHOLE_PARTITION_KEY)
    total = sum(across.replicas.values())
    assert f"Replicas {total} " in (await shown("/")).text
    assert cost_per_hour(await read_state(across.past())) == 2 * total


async def test_the_view_of_the_whole_has_the_division(across: AcrossClusters) -> None:
    page = await shown(WHOLE)
    east, west = across.replicas["east"], across.replicas["west"]
    assert f"{east + west} of at most 20 replicas in 2 clusters" in page.text
    assert f"east {east} {east} {east} 0 … 20 2 as allotted" in page.text
    assert f"west {west} {west} {west} 0 … 20 1 as allotted" in page.text
    bars = [attrs["class"] for tag, attrs in page.tags if tag == "g"]
    assert bars[-1] == "final", "the picture ends with the total"
    assert "Try another spec" not in page.text, "no analysis of a single HPA is one of the whole"
    assert ("a", "/hpa/west/shop/checkout") in [(tag, attrs.get("href")) for tag, attrs in page.tags]
    member = await shown("/hpa/west/shop/checkout")
    assert "wants its share of @fleet/shop/checkout" in member.text


async def test_a_cluster_that_is_away_says_since_when_and_keeps_its_replicas(across: AcrossClusters) -> None:
    across.away = {"west"}
    across.periods(6)
    view = (await read_state(across.past())).hpas[HpaId(FLEET, "shop", "checkout")]
    west = next(each for each in view.members if each.cluster.name == "west")
    assert west.is_away
    assert west.has == across.replicas["west"]
    page = await shown(WHOLE)
    assert "away since 1" in page.text
    assert "cluster west is away" in page.text
    assert f"west {west.has} away" in (await shown("/")).text
    assert [problem.text for problem in view.problems] == ["cluster west is away"]


async def test_a_cluster_that_has_not_reported_under_the_spec_is_shown_so(monkeypatch: pytest.MonkeyPatch) -> None:
    across = AcrossClusters()
    over(across, monkeypatch)
    page = await shown(WHOLE)
    assert "of which 2 have not reported under the present spec" in page.text
    assert page.text.count("has not reported yet") == 2
    across.away = {"west"}
    across.periods(6)
    assert "cluster west has not reported under the present spec" in (await shown(WHOLE)).text
    assert "away, has never reported" in (await shown(WHOLE)).text


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({"is_away": True, "is_spilled": True}, "the others may have its replicas as well"),
        ({"room": 4}, "has nodes for 4"),
        ({"may_have": 6}, "may have up to 6 until it reports again"),
        ({"share": 4}, "moves to its share"),
    ],
)
def test_each_state_of_a_cluster_has_its_words(known: dict[str, Any], state: str) -> None:
    west = FleetCluster(name="west", max_replicas=20)
    counts = {"share": 5, "has": 5, "may_have": 5, "reported_ms": 1, "is_away": False}
    member = MemberView(west, **(counts | known))
    whole = HpaId(FLEET, "shop", "checkout")
    view = HpaView(whole, {"spec": {"maxReplicas": 20}}, "enforce", "central", 0, members=(member,))
    (row,) = division(view, 2)["rows"]
    assert state in row["state"]
