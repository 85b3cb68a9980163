"""What the reconciler shows in clusters: statuses and Events."""

from functools import partial
from typing import Any

import pytest

from schemas.decisions import Decision, MetricDecision
from schemas.entries import Outcome
from schemas.observed import Target
from tests.pipeline.cluster_rig import NAMESPACE
from tests.pipeline.reconciler.reconciler_kit import App, asked

pytestmark = pytest.mark.asyncio(loop_scope="module")


CONDITION = {
    "type": "AbleToScale",
    "status": "True",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
    "reason": "SucceededRescale",
    "message": "the HPA controller was able to update the target scale to 5",
}
STATUS = {"currentReplicas": 2, "desiredReplicas": 5, "currentMetrics": None, "conditions": [CONDITION]}
RESCALE = [("Normal", "SuccessfulRescale", "New size: 5; reason: cpu resource above target")]


def events(app: App, about: str) -> list[Any]:
    found = app.sim.store.listing("events", NAMESPACE)
    return [
        each for each in found if each["involvedObject"]["name"] == app.name and each["involvedObject"]["kind"] == about
    ]


async def test_status_and_events_of_enforced_hpas_are_written_once(app: App) -> None:
    about = "HorizontalPodAutoscaler"
    for time in ("2026-11-21T12:00:00.500Z", "2026-11-21T12:01:00.500Z"):
        shown = await app.decided(wants=None, kind="completion", status=STATUS, events=RESCALE, time=time)
        await app.made.decider.publish(shown)
    await app.made.topics.until(
        lambda: events(app, about) and events(app, about)[0]["count"] == 2, "the event, counted twice"
    )
    live = app.sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, app.name))
    assert live is not None
    assert live["status"]["desiredReplicas"] == 5
    assert live["status"]["conditions"] == [CONDITION]
    assert len(asked(app.sim, "update", f"{app.name}/status")) == 1
    (event,) = events(app, about)
    assert event["involvedObject"]["uid"] == live["metadata"]["uid"]
    assert event["source"] == {"component": "horizontal-pod-autoscaler"}
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-11-21T12:00:00Z", "2026-11-21T12:01:00Z")


CPU = MetricDecision(type="Resource", name="cpu", value=100, utilization=50)
FAILED = [("Warning", "FailedGetResourceMetric", "no metrics returned")]


def shown(app: App) -> Any:
    """The utilization that the HPA's status shows in the cluster."""
    live = app.sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, app.name))
    assert live is not None
    metrics = (live.get("status") or {}).get("currentMetrics") or [{}]
    return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")


def shows(app: App, percent: int) -> bool:
    return bool(shown(app) == percent)


async def steady(app: App, **changes: Any) -> Decision:
    """An evaluation that changes nothing."""
    current = {"averageUtilization": 50, "averageValue": "100m"}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    status = STATUS | {"desiredReplicas": 2, "currentMetrics": metrics}
    return await app.decided(wants=None, status=status, metrics=[CPU], **changes)


async def test_the_status_is_as_fresh_as_the_evaluations_in_which_only_values_change(app: App) -> None:
    full = await app.made.decider.publish(await steady(app, events=FAILED))
    for number, percent in enumerate((60, 70, 70, 121)):
        await app.made.decider.repeat(full, f"2026-11-21T12:01:{15 * number:02}.000Z", 2 * percent, percent)
        await app.made.topics.until(partial(shows, app, percent), f"{percent} % in the status")

    def counted() -> Any:
        return [(each["count"], each["lastTimestamp"]) for each in events(app, "HorizontalPodAutoscaler")]

    await app.made.topics.until(lambda: counted() == [(5, "2026-11-21T12:01:45Z")], "an event per evaluation")
    writes = asked(app.sim, "update", f"{app.name}/status")
    assert len(writes) == 4, "one each time the status differs"
    assert len(asked(app.sim, "get", f"/{app.name}")) == 1, "and nothing is read in between"


async def test_shadow_decisions_write_nothing(app: App) -> None:
    shadow = await app.decided(wants=7, mode="shadow", status={"desiredReplicas": 7}, events=[("Normal", "A", "b")])
    await app.made.decider.publish(shadow)
    assert (await app.ends()).result == "applied"
    assert shadow.id not in {each.decision for each in app.made.topics.of(Outcome)}
    assert not events(app, "HorizontalPodAutoscaler")
    assert not asked(app.sim, "update", f"{app.name}/status")


async def test_events_of_a_central_hpa_are_about_its_target(app: App) -> None:
    decision = await app.made.decider.decision(
        app.sim,
        "central",
        uid="central-1",
        origin="central",
        wants=5,
        current_replicas=2,
        events=[("Normal", "Ok", "fine")],
        scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
        target=Target(group="apps", kind="Deployment", name=app.name),
    )
    assert (await app.ends(decision)).result == "applied"
    await app.made.topics.until(lambda: events(app, "Deployment"), "the event")
    target = app.sim.store.get(("deployments.apps", NAMESPACE, app.name))
    assert target is not None
    assert events(app, "Deployment")[0]["involvedObject"]["uid"] == target["metadata"]["uid"]
