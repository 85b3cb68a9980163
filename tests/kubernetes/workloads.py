"""Applications and HPAs of every kind, and what is demanded of them: the same in every cluster that is compared."""

from collections.abc import Mapping
from typing import Any, Final

from tests.kubernetes.backend import Backend, Demand

Json = dict[str, Any]

NAMESPACE: Final = "shop"
WIDGETS: Final = "widgets.example.com"


def deployment(name: str, replicas: int = 2, *, cpu: str = "100m", kind: str = "Deployment") -> Json:
    """A workload of one of the built-in kinds; `cpu` empty: its containers request nothing."""
    labels = {"app": name}
    requests = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    containers = [{"name": "server", "image": "shop:1"} | requests, {"name": "proxy", "image": "proxy:1"} | requests]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    core = kind == "ReplicationController"
    selector: Json = {"selector": labels if core else {"matchLabels": labels}}
    service = {"serviceName": name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "v1" if core else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "template": template} | selector | service,
    }


def widget(name: str, replicas: int = 2) -> Json:
    """A custom resource with a scale subresource; `tests.kubernetes.widgets` makes its pods."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"replicas": replicas}}


def definition(name: str, kind: str, short: str = "") -> Json:
    """The CustomResourceDefinition of a kind with a scale subresource. `name`: PLURAL.GROUP."""
    whole = {"type": "integer", "format": "int32"}
    spec = {"type": "object", "properties": {"replicas": whole}}
    status = {"type": "object", "properties": {"replicas": whole, "selector": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}, "scale": scale | {"labelSelectorPath": ".status.selector"}},
    }
    plural, _, group = name.partition(".")
    names: Json = {"plural": plural, "singular": kind.lower(), "kind": kind}
    names |= {"shortNames": [short]} if short else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def hpa(
    name: str,
    *metrics: Json,
    target: tuple[str, str] = ("apps/v1", "Deployment"),
    low: int = 1,
    high: int = 8,
    behavior: Json | None = None,
) -> Json:
    """An HPA of the target of its name."""
    reference = {"apiVersion": target[0], "kind": target[1], "name": name}
    spec: Json = {"scaleTargetRef": reference, "minReplicas": low, "maxReplicas": high, "metrics": list(metrics)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec | ({"behavior": behavior} if behavior else {}),
    }


def resource(name: str, **target: Any) -> Json:
    """A Resource metric: `averageUtilization=60` or `averageValue="100m"`."""
    return {"type": "Resource", "resource": {"name": name, "target": _target(target)}}


def container(name: str, within: str, **target: Any) -> Json:
    """A ContainerResource metric."""
    return {
        "type": "ContainerResource",
        "containerResource": {"name": name, "container": within, "target": _target(target)},
    }


def pods(name: str, **target: Any) -> Json:
    """A Pods metric."""
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": _target(target)}}


def described(name: str, service: str, **target: Any) -> Json:
    """An Object metric of a Service."""
    about = {"apiVersion": "v1", "kind": "Service", "name": service}
    return {"type": "Object", "object": {"metric": {"name": name}, "describedObject": about, "target": _target(target)}}


def external(name: str, **target: Any) -> Json:
    """An External metric."""
    return {"type": "External", "external": {"metric": {"name": name}, "target": _target(target)}}


def _target(given: Mapping[str, Any]) -> Json:
    kinds = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
    return {"type": kinds[next(iter(given))], **given}


_CPU: Final = {"averageUtilization": 50}
_ONE_BY_ONE: Final = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}
_TWO_AT_ONCE: Final = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 15}]}

HPAS: Final = (
    hpa("cpu", resource("cpu", **_CPU)),
    hpa("cpu-average", resource("cpu", averageValue="100m")),
    hpa("cpu-at-max", resource("cpu", **_CPU), high=3),
    hpa("memory", resource("memory", averageValue="100Mi")),
    hpa("stateful", resource("cpu", **_CPU), target=("apps/v1", "StatefulSet")),
    hpa("replicaset", resource("cpu", **_CPU), target=("apps/v1", "ReplicaSet")),
    hpa("controller", resource("cpu", **_CPU), target=("v1", "ReplicationController")),
    hpa("container", container("cpu", "server", averageUtilization=100)),
    hpa("requests", pods("http_requests", averageValue="100")),
    hpa("object", described("hits", "front", value="100")),
    hpa("object-average", described("total_hits", "front", averageValue="100")),
    hpa("lag", external("lag", value="100")),
    hpa("queue-average", external("queue", averageValue="100")),
    hpa("queue-to-zero", external("queue", averageValue="150"), low=0),
    hpa("several", resource("cpu", **_CPU), pods("http_requests", averageValue="100"), external("queue", value="1k")),
    hpa(
        "stepwise", external("queue", averageValue="100"), behavior={"scaleUp": _TWO_AT_ONCE, "scaleDown": _ONE_BY_ONE}
    ),
    hpa("never-down", external("queue", averageValue="100"), behavior={"scaleDown": {"selectPolicy": "Disabled"}}),
    hpa("widget", external("queue", averageValue="100"), target=("example.com/v1", "Widget")),
    hpa("tolerant", external("queue", averageValue="100"), behavior={"scaleUp": {"tolerance": "500m"}}),
    hpa("no-requests", resource("cpu", **_CPU)),
    hpa("no-metric", pods("nobody_knows", averageValue="1")),
    hpa("no-target", resource("cpu", **_CPU)),
)
"""One of every kind, and some that cannot work."""
TO_MAXIMUM: Final = frozenset({"object", "lag"})
"""Those that go on until their maximum; by which steps is a matter of when pods become ready."""
BROKEN: Final = frozenset({"no-requests", "no-metric", "no-target"})


def workloads() -> list[Json]:
    """The targets of `HPAS`, as they are before anything scales."""
    made = []
    for each in HPAS:
        name, kind = each["metadata"]["name"], each["spec"]["scaleTargetRef"]["kind"]
        if kind == "Widget":
            made.append(widget(name))
        elif name != "no-target":
            made.append(deployment(name, kind=kind, cpu="" if name == "no-requests" else "100m"))
    return made


def namespace() -> Json:
    """The namespace of all of them."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def demand(backend: Backend, percent: int) -> None:
    """Demand so much of every application: at 100 two replicas are right for each, at 200 four or the most.

    Values that a target is compared with as a whole do not fall when replicas are added: those HPAs go to their most.
    """
    # Two containers request 100m each, and the first of them does all the work. A little less than the whole, so that
    # an evaluation that knows three of four pods does not round up to five.
    busy = max(0, 2 * percent - 10)
    for each in HPAS:
        name = each["metadata"]["name"]
        backend.demands[NAMESPACE, name] = Demand(cpu_milli=busy, memory_mib=busy, pods={"http_requests": busy})
    service = (NAMESPACE, "services", "front")
    backend.objects |= {(*service, "hits"): percent, (*service, "total_hits"): 2 * percent}
    backend.external |= {(NAMESPACE, "lag"): percent, (NAMESPACE, "queue"): 2 * percent}


def wanted(percent: int) -> dict[str, int]:
    """The count at which each target comes to rest under `demand(100)`, then 104, 200 and 0."""
    exceptions: Mapping[int, Mapping[str, int]] = {
        100: {},
        104: {},
        200: {"cpu-at-max": 3, "queue-to-zero": 3} | dict.fromkeys(TO_MAXIMUM, 8),
        0: {"queue-to-zero": 0, "never-down": 4},
    }
    rest = {100: 2, 104: 2, 200: 4, 0: 1}[percent]
    names = [each["metadata"]["name"] for each in HPAS]
    at_rest = {name: 2 if name in BROKEN else exceptions[percent].get(name, rest) for name in names}
    del at_rest["no-target"]
    return at_rest
