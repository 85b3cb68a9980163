"""Scenarios of the whole controller: every tick's write, status, events, labels and, at the end, the memory."""

from collections.abc import Iterable, Iterator
from typing import Any

from schemas.kubernetes.hpa import semantically_equal_status
from schemas.kubernetes.selectors import SelectorError, is_selector, parse_selector
from schemas.kubernetes.shape import Json
from streams.hpa.autoscaler import Autoscaler, ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import (
    EMPTY_HISTORY,
    Evaluation,
    History,
    ReconcileResult,
    ScaleApplied,
    ScaleFailed,
    ScaleOutcome,
)
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import NO_PODS, Observation, Scale, ScaleFailure, TargetPods
from streams.hpa.reconcile import complete, decide
from tests.conformance.caseinputs import EPOCH_MS, NamespacePods, answer, rules_of_case, template
from tests.conformance.compare import AnswerDifference, differences
from tests.conformance.splitting import split_and_join
from tests.kit.upstream import status_write_failed

_KINDS = (("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("", "ReplicationController"))
MAPPED_KINDS = frozenset((group, name) for group, kind in _KINDS for name in (kind, kind.lower()))
"""Scale targets that the scenarios' API server knows, as (group, kind): each kind is found in lower case, too."""

MAX_ATTEMPTS = 5
EMPTY_STATUS: Json = {"desiredReplicas": 0, "currentMetrics": None}


def check(cases: Iterable[Json], members: int = 1) -> Iterator[tuple[int, list[AnswerDifference]]]:
    """Give (ticks, differences) of each scenario, its pods split over `members` clusters."""
    for case in cases:
        yield len(case["ticks"]), list(check_scenario(case, members))


def check_scenario(case: Json, members: int = 1) -> Iterator[AnswerDifference]:
    """Run one scenario and compare every tick and the memory it leaves."""
    scenario = Scenario(case, members)
    for index, tick in enumerate(case["ticks"]):
        ours = scenario.tick(tick["in"])
        if ours != tick["out"]:
            yield from differences(tick["out"], ours, f"ticks[{index}].out")
    memory = scenario.memory()
    if memory != case["memory"]:
        yield from differences(case["memory"], memory, "memory")


class Scenario:
    """The world of one scenario between ticks: HPA object, pods, and the engine's memory."""

    def __init__(self, case: Json, members: int = 1) -> None:
        self.members = members
        controller = case["controller"]
        self.rules = rules_of_case(case)
        self.settings = ControllerSettings(
            rules=self.rules,
            tolerance=float(controller["tolerance"]),
            downscale_stabilization_ms=controller["downscaleStabilizationMs"],
            cpu_initialization_period_ms=controller["cpuInitializationPeriodMs"],
            initial_readiness_delay_ms=controller["initialReadinessDelayMs"],
        )
        self.metadata = dict(case["hpa"]["metadata"])
        self.spec = case["hpa"]["spec"]
        self.status = case["hpa"].get("status") or EMPTY_STATUS
        self.autoscaler = self._compiled()
        self.history: History = EMPTY_HISTORY
        self.exists = True
        self.labels = case["labels"]
        self.templates = [template(shape) for shape in case["templates"]]
        self.pods = NamespacePods([], self.templates, self.labels, self.rules)
        self.others: dict[str, str] = {}
        """Other HPAs of the namespace → the selector that the overlap check knows of them."""

    def tick(self, given: Json) -> Json:
        """Apply what happened before this tick, evaluate, and give what the engine did in the file's notation."""
        self._happen(given)
        if not self.exists:
            self.history = EMPTY_HISTORY
            return {"deleted": True, "action": "", "errorLabel": ""}
        now_ms = EPOCH_MS + given["t"]
        whole = self._observe(given)
        seen: Observation | JoinedObservation = whole
        if self.members > 1:
            seen = split_and_join(self.autoscaler, whole, self.members, self.settings, now_ms)
        evaluation = decide(self.autoscaler, self.status, seen, self.history, self.settings, now_ms)
        attempts, result = self._write(evaluation, given, now_ms)
        out = self._write_status(result, given, attempts)
        self.history = result.history
        if attempts:
            out["scaleAttempts"] = attempts
        if result.action != "none":
            out["scaledTo"] = attempts[-1]
        return out

    def memory(self) -> Json:
        """Give the engine's memory in the file's notation."""
        history = self.history
        return {
            "recommendations": [[replicas, time - EPOCH_MS] for replicas, time in history.recommendations],
            "scaleUpEvents": [[size, time - EPOCH_MS, int(old)] for size, time, old in history.scale_up_events],
            "scaleDownEvents": [[size, time - EPOCH_MS, int(old)] for size, time, old in history.scale_down_events],
        }

    def _happen(self, given: Json) -> None:
        if given.get("restart"):
            self.history = EMPTY_HISTORY
            self.others = {}
        if given.get("hpaDeleted"):
            self.exists = False
        if given.get("hpaRecreated"):
            self.exists, self.status = True, EMPTY_STATUS
            self.metadata["generation"] = 1
            self.autoscaler = self._compiled()
        if "hpaEdit" in given:
            self.spec = given["hpaEdit"]
            if self.exists:
                self.metadata["generation"] = self.metadata.get("generation", 0) + 1
            self.autoscaler = self._compiled()
        if "pods" in given:
            self.pods = NamespacePods(given["pods"], self.templates, self.labels, self.rules)
        self._meet(given.get("otherHpas") or [])

    def _meet(self, others: list[Json]) -> None:
        """Let each other HPA register its selector; one that is empty or wrong leaves what was known before."""
        known = {each["name"]: self.others.get(each["name"], "") for each in others}
        self.others = known | {each["name"]: each["selector"] for each in others if is_selector(each["selector"])}

    def _compiled(self) -> Autoscaler:
        return compile_autoscaler({"metadata": self.metadata, "spec": self.spec}, self.rules)

    def _observe(self, given: Json) -> Observation:
        scale = self._scale(given)
        pods, ambiguous = self._select(scale.selector) if isinstance(scale, Scale) else (NO_PODS, ())
        specs = self.autoscaler.metrics
        metrics = given.get("metrics") or [{}] * len(specs)
        answers = tuple([answer(metric, spec.type) for spec, metric in zip(specs, metrics, strict=True)])
        return Observation(scale, pods, answers, ambiguous)

    def _scale(self, given: Json) -> Scale | ScaleFailure:
        kind = (self.autoscaler.target_group, self.autoscaler.target_kind)
        if kind not in MAPPED_KINDS:
            return ScaleFailure(f'no matches for kind "{kind[1]}" in group "{kind[0]}"', unmapped=True)
        if "scaleError" in given or self.autoscaler.target_error:
            return ScaleFailure(given.get("scaleError", ""))
        scale = given["scale"]
        return Scale(scale.get("spec", 0), scale.get("status", 0), scale.get("selector", ""))

    def _select(self, selector: str) -> tuple[TargetPods, tuple[str, ...]]:
        """Give the selected pods and the names of all HPAs that select one of them, when there are several."""
        if not selector:
            return NO_PODS, ()
        try:
            pods = self.pods.select(selector)
        except SelectorError:
            return NO_PODS, ()
        if not self.others or not pods.rows:
            return pods, ()
        labels = self.pods.labels_of(pods)
        namespace = self.metadata["namespace"]
        names = [f"{namespace}/{name}" for name, known in self.others.items() if _matches_any(known, labels)]
        return pods, tuple(sorted([*names, f"{namespace}/{self.metadata['name']}"])) if names else ()

    def _write(self, evaluation: Evaluation, given: Json, now_ms: int) -> tuple[list[int], ReconcileResult]:
        """Make the scale update that the evaluation wants, retrying conflicts."""
        if evaluation.pending is None:
            if evaluation.result is None:
                raise ValueError("an evaluation must end or want a write")
            return [], evaluation.result
        answers = given.get("scaleUpdate") or []
        attempts: list[int] = []
        outcome: ScaleOutcome = ScaleApplied()
        for attempt in range(MAX_ATTEMPTS if self.rules.conflicts_retried else 1):
            attempts.append(evaluation.pending.desired_replicas)
            reply = answers[attempt] if attempt < len(answers) else {}
            error = reply.get("conflict", reply.get("error"))
            outcome = ScaleApplied() if error is None else ScaleFailed(error)
            if "conflict" not in reply:
                break
        pending, history = evaluation.pending, evaluation.history
        return attempts, complete(pending, self.status, history, outcome, now_ms, rules=self.rules)

    def _write_status(self, result: ReconcileResult, given: Json, attempts: list[int]) -> Json:
        out: Json = {}
        # An attempt to scale leaves the exact moment in the status, which differs from the whole second that is stored.
        stamped = bool(attempts) and given["t"] % 1000 != 0
        error = given.get("statusUpdateError")
        changed = stamped or not semantically_equal_status(self.status, result.status)
        if changed and error is not None:
            out["statusAttempt"] = result.status
            result = status_write_failed(result, self.metadata["name"], error)
        elif changed:
            out["status"] = self.status = result.status
        out["action"], out["errorLabel"] = result.action, result.error_label
        events = [list(event) for event in (*result.events, *result.events_after_write)]
        optional: dict[str, Any] = {
            "events": events,
            "error": result.error,
            "metricResults": [list(labels) for labels in result.metric_results],
        }
        out.update((key, value) for key, value in optional.items() if value)
        if result.desired_gauge is not None:
            out["desiredGauge"] = result.desired_gauge
        return out


def _matches_any(selector: str, labels: list[dict[str, str]]) -> bool:
    """Tell whether the selector that is known of another HPA matches a pod; before it registers one, none does."""
    if not selector:
        return False
    parsed = parse_selector(selector)
    return any(parsed.matches(each) for each in labels)
