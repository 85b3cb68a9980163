"""HPA specs from nothing: defaulted, as the controller sees them; some that the API would have refused."""

import random
from typing import Any

from schemas.kubernetes.shape import Json
from tests.upstream.values import INT32_MAX, METRIC_SELECTORS, TARGETS, TOLERANCES, maybe, near, pick, replicas

TARGET_REFS: tuple[tuple[float, Json], ...] = (
    (40, {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}),
    (2, {"kind": "StatefulSet", "name": "db", "apiVersion": "apps/v1"}),
    (2, {"kind": "ReplicaSet", "name": "rs", "apiVersion": "apps/v7"}),
    (2, {"kind": "ReplicationController", "name": "rc", "apiVersion": "v1"}),
    (0.3, {"kind": "ReplicationController", "name": "rc"}),
    (0.3, {"kind": "Deployment", "name": "web"}),
    (0.3, {"kind": "Gizmo", "name": "g", "apiVersion": "acme.io/v1"}),
    (0.3, {"kind": "deployment", "name": "web", "apiVersion": "apps/v1"}),
    (0.3, {"kind": "Deployment", "name": "web", "apiVersion": "a/b/c"}),
    (0.3, {"kind": "Deployment", "name": "web", "apiVersion": "apps/"}),
    (0.3, {"kind": "Deployment", "name": "web", "apiVersion": "/v1"}),
    (0.3, {"kind": "", "name": "", "apiVersion": "apps"}),
    (0.3, {"kind": "ReplicationController", "name": "%s", "apiVersion": "/"}),
)


def spec(chance: random.Random) -> Json:
    """Return a spec."""
    low = pick(chance, (50, 1), (15, 0), (25, chance.randint(1, 20)), (5, replicas(chance)))
    high = pick(chance, (60, low + chance.randint(0, 30)), (20, replicas(chance)), (10, low), (5, INT32_MAX))
    made: Json = {"scaleTargetRef": pick(chance, *TARGET_REFS), "minReplicas": low, "maxReplicas": min(high, INT32_MAX)}
    if maybe(chance, 0.03):
        del made["minReplicas"]
    if maybe(chance, 0.02):
        made["maxReplicas"] = chance.choice((0, -1, low - 1))
    count = pick(chance, (60, 1), (25, 2), (10, 3), (4, 5), (1, 0))
    metrics = [metric(chance) for _ in range(count)]
    if metrics or maybe(chance, 0.5):
        made["metrics"] = metrics
    if maybe(chance, 0.5):
        made["behavior"] = {"scaleUp": rules(chance, True), "scaleDown": rules(chance, False)}
    return made


def rules(chance: random.Random, up: bool) -> Json:
    """Return the scaling rules of a direction, completed with the defaults."""
    periods = (1, 15, 15, 30, 60, 60, 120, 600, 1800, chance.randint(1, 1800))
    values = (1, 2, 4, 5, 10, 100, 100, 50, 33, 150, 200, chance.randint(1, 300), INT32_MAX, 2**30, 1_000_000)
    policies = [
        {
            "type": chance.choice(("Pods", "Percent")),
            "value": chance.choice(values),
            "periodSeconds": chance.choice(periods),
        }
        for _ in range(pick(chance, (40, 1), (40, 2), (15, 3), (2, 0)))
    ]
    if maybe(chance, 0.03):
        policies.append({"type": chance.choice(("", "pods", "Bogus")), "value": 3, "periodSeconds": 60})
    if policies and maybe(chance, 0.03):
        chance.choice(policies)[chance.choice(("value", "periodSeconds"))] = chance.choice((0, -1, -100, INT32_MAX))
    made: Json = {
        "stabilizationWindowSeconds": chance.choice((0, 0, 15, 60, 120, 300, 3600, chance.randint(0, 3600))),
        "selectPolicy": pick(chance, (40, "Max"), (35, "Min"), (10, "Disabled"), (1, ""), (1, "max")),
        "policies": policies,
    }
    if maybe(chance, 0.02):
        made["stabilizationWindowSeconds"] = chance.choice((INT32_MAX, -1, -300, 2**31 // 1000))
    if not up and maybe(chance, 0.3):
        del made["stabilizationWindowSeconds"]
    if maybe(chance, 0.4):
        made["tolerance"] = chance.choice(TOLERANCES)
    return made


def metric(chance: random.Random) -> Json:
    """Return a metric of any type."""
    kind = pick(
        chance,
        (35, "Resource"),
        (15, "ContainerResource"),
        (15, "Pods"),
        (15, "Object"),
        (15, "External"),
        (0.5, "Bogus"),
    )
    match kind:
        case "Resource":
            return {"type": kind, "resource": {"name": _resource(chance), "target": _resource_target(chance)}}
        case "ContainerResource":
            source = {"name": _resource(chance), "container": chance.choice(("c0", "c0", "c1", "side", "init", "none"))}
            return {"type": kind, "containerResource": {**source, "target": _resource_target(chance)}}
        case "Pods":
            # Upstream's controller ends with a panic where this type has no averageValue.
            target = {"type": "AverageValue", "averageValue": chance.choice(TARGETS)}
            return {"type": kind, "pods": {"metric": _identifier(chance), "target": target}}
        case "Object":
            described = chance.choice(
                (
                    {"kind": "Service", "name": "svc", "apiVersion": "v1"},
                    {"kind": "Ingress", "name": "main", "apiVersion": "networking.k8s.io/v1"},
                    {"kind": "Namespace", "name": "other", "apiVersion": "v1"},
                    {"kind": "Node", "name": "n%d"},
                )
            )
            asked = {"metric": _identifier(chance), "target": _target(chance)}
            return {"type": kind, "object": {"describedObject": described, **asked}}
        case "External":
            return {"type": kind, "external": {"metric": _identifier(chance), "target": _target(chance)}}
        case _:
            return {"type": chance.choice(("", "resource", "Cpu", "a%db", 'q"uote', "é\n"))}


def _resource(chance: random.Random) -> str:
    return pick(chance, (60, "cpu"), (30, "memory"), (5, "ephemeral-storage"), (5, "acme.io/widget"))


def _resource_target(chance: random.Random) -> dict[str, Any]:
    percent = pick(
        chance,
        (60, chance.choice((50, 60, 70, 80, 90, 100))),
        (20, chance.randint(1, 200)),
        (3, chance.choice((1, 1000, INT32_MAX))),
        (1, 0),
        (1, -5),
    )
    return pick(
        chance,
        (60, {"type": "Utilization", "averageUtilization": percent}),
        (35, {"type": "AverageValue", "averageValue": chance.choice(TARGETS)}),
        (1, {"type": "Utilization"}),
        (1, {"type": "Value", "value": "3"}),
        (1, {"type": "Utilization", "averageUtilization": percent, "averageValue": chance.choice(TARGETS)}),
    )


def _target(chance: random.Random) -> Json:
    return pick(
        chance,
        (45, {"type": "Value", "value": chance.choice(TARGETS)}),
        (45, {"type": "AverageValue", "averageValue": chance.choice(TARGETS)}),
        (1, {"type": "Value", "averageValue": "2"}),
        (1, {"type": "AverageValue", "value": "2"}),
        (1, {"type": "Utilization", "averageUtilization": 40}),
        (1, {"type": "", "value": "2", "averageValue": "3"}),
        (1, {"type": "Value"}),
    )


def _identifier(chance: random.Random) -> Json:
    made: dict[str, Any] = {"name": chance.choice(("m", "qps", "queue", "a|b", "100%", "%s%d", "é"))}
    selector = pick(chance, (70, None), (20, chance.choice(METRIC_SELECTORS[:8])), (6, chance.choice(METRIC_SELECTORS)))
    if selector is not None:
        made["selector"] = selector
    return made


def edited(chance: random.Random, given: Json) -> Json:
    """Return the spec after somebody edited it; its metrics may be others."""
    made = dict(given)
    for _ in range(chance.choice((1, 1, 2, 3))):
        match chance.randrange(6):
            case 0:
                made["minReplicas"] = near(chance, made.get("minReplicas") or 1, 0)
            case 1:
                made["maxReplicas"] = near(chance, made["maxReplicas"], 1)
            case 2:
                made["maxReplicas"] = chance.randint(1, 40)
            case 3:
                made["behavior"] = {"scaleUp": rules(chance, True), "scaleDown": rules(chance, False)}
            case 4:
                made.pop("behavior", None)
            case _:
                made["metrics"] = [metric(chance) for _ in range(chance.randint(1, 3))]
    return made
