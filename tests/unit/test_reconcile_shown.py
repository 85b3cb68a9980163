"""Showing statuses in a cluster that does not answer."""

from typing import Any

from prometheus_client import CollectorRegistry

from reconciler.apply.statuswriter import DOWN_FOR_MS, GIVE_UP_MS, Shower, Showing
from reconciler.apply.telemetry import ReconcilerMetrics
from reconciler.clusters.clustererrors import UnreachableError
from reconciler.core.inbox import Position
from schemas.decisions import Decision, InputPosition


class Silent:
    """A client of a cluster that answers nothing; each request takes as long as a status is tried."""

    name = "east"

    def __init__(self) -> None:
        self.asked = 0
        self.now_ms = 1_000_000

    async def get_object(self, path: str) -> dict[str, Any]:
        self.asked += 1
        self.now_ms += GIVE_UP_MS
        raise UnreachableError("no answer within 5 s")


def showing() -> Showing:
    made = Showing()
    decision = Decision(
        id="0-1-web",
        seq=1,
        prev="",
        cluster="east",
        namespace="shop",
        name="web",
        uid="u",
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=0, offset=0, hash=""),
        scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        mode="enforce",
        status={"currentReplicas": 3},
    )
    made.add(decision, Position(0, 1))
    return made


async def test_what_waits_for_a_cluster_that_is_down_is_given_up_without_trying_each_for_long() -> None:
    client, metrics = Silent(), ReconcilerMetrics(CollectorRegistry())
    shower = Shower(client, metrics=metrics, clock=lambda: client.now_ms)  # type: ignore[arg-type]
    for _ in range(100):
        await shower.show(showing())
    assert client.asked == 1
    client.now_ms += DOWN_FOR_MS
    await shower.show(showing())
    assert client.asked == 2, "looked again after a while"
