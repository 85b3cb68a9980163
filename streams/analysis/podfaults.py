"""Which pods an evaluation could not count, by name, and why: what upstream's messages leave out.

Source of the rules: upstream `groupPods` (pkg/controller/podautoscaler/replica_calculator.go v1.37.1). The faults of
upstream itself that are named here are open issues there, by number.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import MetricSpec
from streams.hpa.evaluation import Evaluation
from streams.hpa.grouping import is_unready
from streams.hpa.observation import PodRow, PodSamples, Scale
from streams.hpa.rules import Rules
from streams.state.inputs import EvaluationInputs

NAMED = 5
"""Pods that a line names at most."""


def pod_faults(inputs: EvaluationInputs, evaluation: Evaluation, owners: Mapping[str, str]) -> list[str]:
    """Return a sentence for each group of pods that an evaluation could not count, and for each fault of upstream that
    it met; each sentence once.

    `owners`: pod → its controller as `Kind/name`; a pod without one is absent.
    """
    faults: list[str] = []
    for index, spec in enumerate(inputs.autoscaler.metrics):
        evaluated = evaluation.metrics[index] if index < len(evaluation.metrics) else None
        is_failed = evaluated is not None and bool(evaluated.error)
        kept = evaluated is not None and evaluated.calculation is not None and bool(evaluated.calculation.kept)
        if spec.calculation in kinds.OF_PODS and (is_failed or kept or _misses(evaluation, index)):
            faults += _of_metric(inputs, index, spec, owners, is_failed=is_failed)
        if (
            evaluated is not None
            and evaluated.calculation is not None
            and _drifts(inputs, spec, evaluated.calculation.proposal)
        ):
            faults.append(
                f"{spec.name}: the proposal is the number of pods that run during the rollout, not spec.replicas, so "
                "that the count drifts upwards while the value is within its tolerance: kubernetes #138505"
            )
    return list(dict.fromkeys(faults))


def _misses(evaluation: Evaluation, index: int) -> bool:
    calculation = evaluation.metrics[index].calculation if index < len(evaluation.metrics) else None
    return calculation is not None and bool(calculation.missing)


def _of_metric(
    inputs: EvaluationInputs, index: int, spec: MetricSpec, owners: Mapping[str, str], *, is_failed: bool
) -> Iterator[str]:
    pods, settings, now_ms = inputs.observation.pods, inputs.settings, inputs.now_ms
    answers = inputs.observation.answers
    answer = answers[index] if index < len(answers) else None
    if not pods.rows or not isinstance(answer, PodSamples):
        yield from _without_request(pods.rows, spec, owners, settings.rules) if is_failed else ()
        return
    samples, total = answer.samples, len(pods.rows) - len(pods.ignored)
    init_ms, delay_ms = settings.cpu_initialization_period_ms, settings.initial_readiness_delay_ms
    without = [pod for pod in pods.active if pod.name not in samples]
    young = [
        pod
        for pod in pods.active
        if pod.name in samples
        and spec.resource == "cpu"
        and is_unready(pod, samples[pod.name], init_ms, delay_ms, now_ms)
    ]
    if spec.container and without:
        missing = [pod for pod in without if spec.container not in _containers(pod)]
        if len(missing) == len(pods.rows):
            have = ", ".join(sorted({name for pod in missing for name in _containers(pod)}))
            yield f"no pod has a container {spec.container}: they have {have or 'none'}"
            return
    if without:
        ended = any(pod.phase == "Succeeded" for pod in without) and not settings.rules.succeeded_ignored
        later = "; pods that have succeeded are ignored from Kubernetes 1.38 on" if ended else ""
        has = "has" if len(without) == 1 else "have"
        yield f"{len(without)} of {total} pods {has} no metrics: {_named(without, owners)}{later}"
    if unready := [*young, *pods.pending]:
        are = "is" if len(unready) == 1 else "are"
        yield f"{len(unready)} of {total} pods {are} not ready: {_named(unready, owners)}"
    if is_failed:
        yield from _without_request(pods.rows, spec, owners, settings.rules)


def _without_request(
    rows: Iterable[PodRow], spec: MetricSpec, owners: Mapping[str, str], rules: Rules
) -> Iterator[str]:
    """The pods that request nothing of the resource, where a utilization needs the request of each."""
    if spec.calculation != kinds.UTILIZATION:
        return
    pods = [pod for pod in rows if isinstance(pod.template.request(spec.resource, spec.container, rules), str)]
    if not pods:
        return
    names = ", ".join(dict.fromkeys(name for pod in pods for name in _silent_containers(pod, spec)))
    where = f"container {names}" if names else "their containers"
    have = "requests" if len(pods) == 1 else "request"
    yield f"{_named(pods, owners)} {have} no {spec.resource}: set resources.requests.{spec.resource} of {where}"


def _silent_containers(pod: PodRow, spec: MetricSpec) -> list[str]:
    return [
        each.name
        for each in pod.template.containers
        if spec.resource not in each.requests and spec.container in ("", each.name)
    ]


def foreign_pods(inputs: EvaluationInputs, owners: Mapping[str, str]) -> str:
    """Return which pods under the selector belong to another kind of controller than most of them; empty: none does."""
    scale, rows = inputs.observation.scale, inputs.observation.pods.rows
    of = {pod.name: owners.get(pod.name, "") for pod in rows}
    usual = Counter(owner.partition("/")[0] for owner in of.values()).most_common(1)
    if not usual or not isinstance(scale, Scale):
        return ""
    jobs = {name: owner for name, owner in of.items() if owner.startswith("Job/")}
    others = jobs or {name: owner for name, owner in of.items() if owner.partition("/")[0] != usual[0][0]}
    if not others or (len(others) == len(of) and not jobs):
        return ""
    names = [f"{name} {_belongs(owner)}" for name, owner in list(others.items())[:NAMED]]
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return f"pods are those of selector {scale.selector}; {', '.join(names)}{more}"


def _belongs(owner: str) -> str:
    kind, _, name = owner.partition("/")
    return f"belongs to {kind} {name}" if owner else "belongs to no controller"


def _containers(pod: PodRow) -> list[str]:
    return [each.name for each in (*pod.template.containers, *pod.template.init_containers)]


def _named(pods: list[PodRow], owners: Mapping[str, str]) -> str:
    more = f" and {len(pods) - NAMED} more" if len(pods) > NAMED else ""
    return ", ".join(_one(pod, owners.get(pod.name, "")) for pod in pods[:NAMED]) + more


def _one(pod: PodRow, owner: str) -> str:
    """A pod with what is unusual of it: a phase other than Running, and an owner other than a ReplicaSet."""
    kind, _, name = owner.partition("/")
    known = [pod.phase] if pod.phase != "Running" else []
    known += [f"of {kind} {name}"] if owner and kind != "ReplicaSet" else []
    return f"{pod.name} ({', '.join(known)})" if known else pod.name


def _drifts(inputs: EvaluationInputs, spec: MetricSpec, proposal: int) -> bool:
    """Whether a metric within its tolerance proposes the pods that run, of which a rollout has more than wanted."""
    scale = inputs.observation.scale
    if spec.calculation not in (kinds.OBJECT_PER_POD, kinds.EXTERNAL_PER_POD) or not isinstance(scale, Scale):
        return False
    return scale.spec_replicas < scale.status_replicas == proposal
