"""One metric, one call of the replica calculator."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from schemas.kubernetes.shape import Json
from streams.hpa.autoscaler import Autoscaler, ControllerSettings, compile_autoscaler
from streams.hpa.calculator import bounds
from streams.hpa.evaluation import MetricEvaluation
from streams.hpa.metrics import evaluate_metric
from streams.hpa.observation import Observation, Scale
from streams.hpa.rules import Rules
from tests.conformance.caseinputs import EPOCH_MS, NamespacePods, answer, rules_of_case, template
from tests.conformance.compare import AnswerDifference, differences
from tests.conformance.splitting import split_and_join


def check(cases: Iterable[Json], members: int = 1) -> Iterator[tuple[int, list[AnswerDifference]]]:
    """Give (1, differences) of each case, its pods split over `members` clusters."""
    for case in cases:
        ours = _out(case, _evaluate(case, members))
        yield 1, list(differences(case["out"], ours, "out"))


def _evaluate(case: Json, members: int) -> MetricEvaluation:
    rules = rules_of_case(case)
    settings = ControllerSettings(
        rules=rules,
        cpu_initialization_period_ms=case["cpuInitializationPeriodMs"],
        initial_readiness_delay_ms=case["initialReadinessDelayMs"],
    )
    band = bounds(float(case["toleranceDown"]), float(case["toleranceUp"]), rules)
    templates = [template(shape) for shape in case["templates"]]
    pods = NamespacePods(case.get("pods") or [], templates, case["labels"], rules)
    scale = Scale(case["currentReplicas"], case["currentReplicas"], case["selector"])
    autoscaler = _autoscaler(case, rules)
    spec, now_ms = autoscaler.metrics[0], EPOCH_MS + case["now"]
    seen = Observation(scale, pods.select(case["selector"]), (answer(case["metric"], spec.type),))
    if members > 1:
        whole = split_and_join(autoscaler, seen, members, settings, now_ms)
        return evaluate_metric(spec, whole.answers[0], scale, whole.pods, band, settings, now_ms)
    return evaluate_metric(spec, seen.answers[0], scale, seen.pods, band, settings, now_ms)


def _out(case: Json, metric: MetricEvaluation) -> Json:
    calculation = metric.calculation
    if calculation is None:
        return {"replicas": 0, "error": metric.error}
    out: dict[str, Any] = {"replicas": calculation.proposal, "usage": calculation.value}
    if case["kind"] == "resource":
        out |= {"utilization": calculation.value, "usage": calculation.average_milli}
    return out


def _autoscaler(case: Json, rules: Rules) -> Autoscaler:
    """Compile a metric of this kind; the calculator is below the layer that puts text before its errors."""
    hpa = {
        "metadata": {"name": "hpa", "namespace": "ns"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "maxReplicas": 1,
            "metrics": [_metric(case)],
        },
    }
    compiled = compile_autoscaler(hpa, rules)
    spec = structs.replace(compiled.metrics[0], target=case["target"], inner_prefix="")
    return structs.replace(compiled, metrics=(spec,))


def _metric(case: Json) -> Json:
    service = {"kind": "Service", "name": "svc", "apiVersion": "v1"}
    per_pod = {"type": "AverageValue", "averageValue": "1"}
    total = {"type": "Value", "value": "1"}
    external = {"name": "m", "selector": {}}
    match case["kind"]:
        case "resource":
            return _resource(case, {"type": "Utilization", "averageUtilization": 1})
        case "rawResource":
            return _resource(case, per_pod)
        case "pods":
            return {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": per_pod}}
        case "object" | "objectPerPod" as kind:
            target = total if kind == "object" else per_pod
            return {"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": service, "target": target}}
        case "external" | "externalPerPod" as kind:
            target = total if kind == "external" else per_pod
            return {"type": "External", "external": {"metric": external, "target": target}}
        case kind:
            raise ValueError(f"unknown calculator kind {kind!r}")


def _resource(case: Json, target: Json) -> Json:
    source = {"name": case["resource"], "target": target}
    if case.get("container"):
        return {"type": "ContainerResource", "containerResource": {**source, "container": case["container"]}}
    return {"type": "Resource", "resource": source}
