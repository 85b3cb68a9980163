"""What another version of the HPA controller would have decided of recorded evaluations.

It decides each evaluation a second time with the inputs that it had (open loop). After the first write that differs,
the recorded load and replicas no longer are those that the other version would have seen, so only the first counts as
sure.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from schemas.keys import HpaId
from streams.analysis.answer import Answer, answer
from streams.history.evaluations import MOST_COUNTED, readers_by_hpa
from streams.history.parallel import Faults, reported
from streams.history.past import Past
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, compile_autoscaler
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import Scale, TargetPods
from streams.hpa.rules import RULES, Rules
from streams.state.inputs import EvaluationInputs

SEVERAL: Final = "several"
"""Named instead of a rule where no single one changes the answer."""
_REPORTED_EVERY: Final = 500
"""Evaluations of an HPA after which progress is reported."""
_MOST_NAMED: Final = 3
"""Pods that a finding names."""


class FirstDifference(NamedTuple):
    """The first evaluation that another version decides otherwise. `rule`: the switch of `Rules`, or `several`."""

    decision: str
    time_ms: int
    current: int
    recorded: int
    other: int
    rule: str


class UpgradeFinding(NamedTuple):
    """What the upgrade may change for an HPA at any load. `rule`: the switch of `Rules` that it is about."""

    rule: str
    text: str


class Preview(NamedTuple):
    """What an upgrade would change for one HPA. `applied`: per rule, in how many evaluations it changed the answer."""

    hpa: HpaId
    evaluations: int
    first: FirstDifference | None
    applied: dict[str, int]
    findings: list[UpgradeFinding]


class UpgradeReader:
    """Reads the evaluations of one HPA, oldest first, and compares the rules that decided with `target`."""

    def __init__(self, hpa: HpaId, target: Rules) -> None:
        self._hpa, self._target = hpa, target
        self._rules: Rules | None = None
        self._may_differ = False
        """The rules of the evaluation before, and whether the target may ask for other replicas."""
        self._count = 0
        self._first: FirstDifference | None = None
        self._applied: Counter[str] = Counter()
        self._edges = 0
        self._last: EvaluationInputs | None = None
        self._compiled_from: Autoscaler | None = None
        self._compiled: Autoscaler | None = None
        """What the recorded one is for the target: compiled once per spec, not per evaluation."""

    def add(self, inputs: EvaluationInputs) -> None:
        """Add an evaluation; one at which the scale was unknown is left out."""
        if not isinstance(inputs.observation.scale, Scale):
            return
        self._count += 1
        if self._count % _REPORTED_EVERY == 0:
            reported(0, _REPORTED_EVERY)
        self._last = inputs
        if inputs.settings.rules != self._rules:
            self._rules = inputs.settings.rules
            self._may_differ = any(RULES[name].decides for name in differing(self._rules, self._target))
        if not self._may_differ:
            return
        recorded = answer(inputs)
        self._edges += is_at_edge(inputs, self._target, recorded)
        if self._compiled is None or self._compiled_from is not inputs.autoscaler:
            self._compiled_from, self._compiled = inputs.autoscaler, _compiled(inputs, self._target)
        other = answer(_replaced(inputs, self._target, self._compiled))
        if other.final == recorded.final:
            return
        rule = changing_rule(inputs, self._target, recorded)
        self._applied[rule] += 1
        if self._first is None:
            self._first = FirstDifference(
                inputs.decision, inputs.now_ms, recorded.current, recorded.final, other.final, rule
            )

    def preview(self) -> Preview:
        findings = [] if self._last is None else list(_findings(self._last, self._target, self._edges))
        return Preview(self._hpa, self._count, self._first, dict(self._applied), findings)


class PreviewTask(NamedTuple):
    """HPAs of one log partition whose past is to be compared. `window`: from a log time to before another."""

    past: Past
    hpas: frozenset[HpaId]
    window: tuple[int, int]
    target: Rules


async def previews(task: PreviewTask) -> tuple[dict[HpaId, Preview], Faults]:
    """Read a partition and compare. Raises LogGoneError: the log does not reach back."""
    by_hpa, faults = dict[HpaId, Preview](), Faults()
    reader = partial(UpgradeReader, target=task.target)
    reading = readers_by_hpa(task.past, set(task.hpas), task.window, reader, MOST_COUNTED, faults)
    async with aclosing(reading) as parts:
        async for readers in parts:
            for hpa in readers.keys() - faults.keys():
                with faults.of(hpa):
                    by_hpa[hpa] = readers[hpa].preview()
    return by_hpa, faults


def with_rules(inputs: EvaluationInputs, rules: Rules) -> EvaluationInputs:
    """Return the inputs of an evaluation as a controller with other rules reads them.

    An answer of a metrics API keeps the form that it got: whether a pod's sample lacked the container is not known.
    """
    return _replaced(inputs, rules, _compiled(inputs, rules))


def _compiled(inputs: EvaluationInputs, rules: Rules) -> Autoscaler:
    metadata = {"namespace": inputs.hpa.namespace, "name": inputs.hpa.name, "generation": inputs.generation}
    return compile_autoscaler({"metadata": metadata, "spec": inputs.spec}, rules)


def _replaced(inputs: EvaluationInputs, rules: Rules, autoscaler: Autoscaler) -> EvaluationInputs:
    observation = inputs.observation
    if rules.succeeded_ignored != inputs.settings.rules.succeeded_ignored:
        # Otherwise both count the same pods, and what was worked out of them is kept per rules.
        observation = structs.replace(observation, pods=TargetPods(observation.pods.rows, rules))
    settings = structs.replace(inputs.settings, rules=rules)
    return structs.replace(inputs, autoscaler=autoscaler, settings=settings, observation=observation)


def is_at_edge(inputs: EvaluationInputs, target: Rules, recorded: Answer) -> bool:
    """Whether only one of both controllers takes a metric to be within the tolerance, because of how it compares."""
    now = inputs.settings.rules
    if now.tolerance_is_band == target.tolerance_is_band:
        return False
    alone = structs.replace(now, tolerance_is_band=target.tolerance_is_band)
    bands = [tolerance_band(inputs.autoscaler, structs.replace(inputs.settings, rules=rules)) for rules in (now, alone)]
    calculations = [each.calculation for each in recorded.evaluation.metrics if each.calculation is not None]
    ratios = [each.ratio if each.final_ratio is None else each.final_ratio for each in calculations]
    return any(len({low <= ratio <= high for low, high in bands}) > 1 for ratio in ratios)


def changing_rule(inputs: EvaluationInputs, target: Rules, recorded: Answer) -> str:
    """Name the rule that alone changes the answer, the oldest of several; `several` where none does alone."""
    now = inputs.settings.rules
    for name in differing(now, target):
        alone = structs.replace(now, **{name: getattr(target, name)})
        if answer(with_rules(inputs, alone)).final != recorded.final:
            return name
    return SEVERAL


def differing(now: Rules, target: Rules) -> list[str]:
    """Name the rules in which two controllers differ, the oldest change first."""
    return [name for name in RULES if getattr(now, name) != getattr(target, name)]


def _findings(inputs: EvaluationInputs, target: Rules, edges: int) -> Iterator[UpgradeFinding]:
    """Yield what concerns the HPA as it is at its last evaluation, for each rule that the upgrade changes."""
    looks: dict[str, Callable[[EvaluationInputs], str]] = {
        "tolerance_is_band": lambda _: (
            f"evaluations with a metric exactly at the edge of the tolerance: {edges}" if edges else ""
        ),
        "tolerance_field": _own_tolerance,
        "container_must_exist": _without_container,
        "sidecars_request": _sidecars,
        "pod_level_requests": _pod_level,
        "zero_is_pause": _at_zero,
        "succeeded_ignored": _succeeded,
        "overhead_left_out": _overhead,
        "average_of_none_is_zero": _average_of_none,
        "object_average_named": _object_average,
        "sidecars_named_first": _named_sidecar,
    }
    for rule in differing(inputs.settings.rules, target):
        if rule in looks and (text := looks[rule](inputs)):
            yield UpgradeFinding(rule, text)


def _own_tolerance(inputs: EvaluationInputs) -> str:
    behavior = inputs.spec.get("behavior") or {}
    own = [f"{name} {rules['tolerance']}" for name, rules in behavior.items() if (rules or {}).get("tolerance")]
    return f"it has a tolerance of its own: {', '.join(own)}" if own else ""


def _without_container(inputs: EvaluationInputs) -> str:
    for metric in inputs.autoscaler.metrics:
        if not metric.container or metric.calculation != kinds.UTILIZATION:
            continue
        pods = [
            row.name
            for row in inputs.observation.pods.rows
            if all(each.name != metric.container for each in (*row.template.containers, *row.template.init_containers))
        ]
        if pods:
            return f"its selector matches pods without the container {metric.container}: {_named(pods)}"
    return ""


def _sidecars(inputs: EvaluationInputs) -> str:
    if not _uses_pod_requests(inputs):
        return ""
    rows = inputs.observation.pods.rows
    pods = [row.name for row in rows if any(each.sidecar for each in row.template.init_containers)]
    return f"its pods have sidecar containers, each of which needs a request: {_named(pods)}" if pods else ""


def _pod_level(inputs: EvaluationInputs) -> str:
    if not _uses_pod_requests(inputs):
        return ""
    pods = [row.name for row in inputs.observation.pods.rows if row.template.pod_requests]
    return f"its pods have pod-level requests: {_named(pods)}" if pods else ""


def _uses_pod_requests(inputs: EvaluationInputs) -> bool:
    """Whether a metric compares the use of whole pods with what they request."""
    return any(each.calculation == kinds.UTILIZATION and not each.container for each in inputs.autoscaler.metrics)


def _at_zero(inputs: EvaluationInputs) -> str:
    scale = inputs.observation.scale
    conditions = inputs.status.get("conditions") or ()
    woken = any(each["type"] == "ScaledToZero" and each["status"] == "True" for each in conditions)
    if not isinstance(scale, Scale) or scale.spec_replicas or woken or inputs.autoscaler.min_replicas:
        return ""
    return "its target has zero replicas and the condition ScaledToZero is not True: it stays at zero"


def _succeeded(inputs: EvaluationInputs) -> str:
    pods = [row.name for row in inputs.observation.pods.rows if row.phase == "Succeeded" and not row.deleting]
    return f"its selector matches pods that have succeeded, which no longer count: {_named(pods)}" if pods else ""


def _overhead(inputs: EvaluationInputs) -> str:
    if not _uses_pod_requests(inputs):
        return ""
    rows = inputs.observation.pods.rows
    pods = [row.name for row in rows if row.template.pod_requests and row.template.overhead]
    return f"the overhead of its pods no longer counts, so that utilization rises: {_named(pods)}" if pods else ""


def _average_of_none(inputs: EvaluationInputs) -> str:
    scale, per_pod = inputs.observation.scale, (kinds.OBJECT_PER_POD, kinds.EXTERNAL_PER_POD)
    shown = any(metric.calculation in per_pod for metric in inputs.autoscaler.metrics)
    if not shown or not isinstance(scale, Scale) or scale.status_replicas:
        return ""
    return "its target has no replicas: the status then shows 0 as the average"


def _object_average(inputs: EvaluationInputs) -> str:
    if all(metric.calculation != kinds.OBJECT_PER_POD for metric in inputs.autoscaler.metrics):
        return ""
    return "messages call its Object metric by the object, and its status is written once for that"


def _named_sidecar(inputs: EvaluationInputs) -> str:
    """Where a sidecar and a container both lack the request, the error names another one of them."""
    now = inputs.settings.rules
    first = structs.replace(now, sidecars_named_first=True)
    for metric in inputs.autoscaler.metrics:
        if metric.calculation == kinds.UTILIZATION:
            templates = {row.template for row in inputs.observation.pods.rows}
            source = metric.resource, metric.container
            if any(each.request(*source, now) != each.request(*source, first) for each in templates):
                return f"the error about a missing {metric.resource} request names the sidecar"
    return ""


def _named(pods: list[str]) -> str:
    more = len(pods) - _MOST_NAMED
    return ", ".join(pods[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
