"""Equality proves only the rules that the cases reach: here each rule is counted over the controller's cases.

`python -m tests.conformance.test_rules_reached` writes docs/reference/rules-reached.md anew.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from schemas.kubernetes.hpa import semantically_equal_status
from streams.hpa.evaluation import Calculation, Evaluation, Normalization, ReconcileResult
from tests.conformance.scenarios import Scenario

DATA = Path(__file__).parent / "data"
MIN_INT32 = -(2**31)
MIN_INT64 = -(2**63)

Step = tuple[Scenario, Evaluation, ReconcileResult, dict[str, Any]]
"""What a tick made, and the status before it."""
Rule = Callable[[Step], bool]


class Recorded(Scenario):
    """A scenario that keeps what every tick made."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(case)
        self.steps: list[Step] = []

    def _write(self, evaluation: Evaluation, given: dict[str, Any], now_ms: int) -> tuple[list[int], ReconcileResult]:
        before = self.status
        attempts, result = super()._write(evaluation, given, now_ms)
        self.steps.append((self, evaluation, result, before))
        return attempts, result


def calculations(step: Step) -> Iterator[tuple[str, Calculation]]:
    for metric in step[1].metrics:
        if metric.calculation is not None:
            yield metric.spec.calculation, metric.calculation


def path(name: str) -> Rule:
    return lambda step: step[1].path == name


def metric(check: Callable[[Calculation], bool]) -> Rule:
    return lambda step: any(check(made) for _, made in calculations(step))


def kind(name: str) -> Rule:
    return lambda step: any(how == name for how, _ in calculations(step))


def failed(text: str) -> Rule:
    return lambda step: any(text in each.error for each in step[1].metrics)


def event(reason: str) -> Rule:
    return lambda step: any(each[1] == reason for each in (*step[2].events, *step[2].events_after_write))


def normalized(check: Callable[[Normalization], bool]) -> Rule:
    return lambda step: step[1].normalization is not None and check(step[1].normalization)


def bound(name: str, *, legacy: bool) -> Rule:
    return normalized(lambda made: made.bound == name and made.legacy is legacy and made.limited != made.stabilized)


def selects(direction: str, policy: str) -> Rule:
    def check(step: Step) -> bool:
        rules = getattr(step[0].autoscaler, f"scale_{direction}")
        made = step[1].normalization
        if rules is None or made is None or rules.select != policy or made.rate_limit is None:
            return False
        return (made.stabilized > (step[1].current_replicas or 0)) is (direction == "up")

    return check


RULES: dict[str, Rule] = {
    "zero is a pause": path("disabled"),
    "above maxReplicas": path("aboveMax"),
    "below minReplicas": path("belowMin"),
    "no usable metric": path("metricsFailed"),
    "no scale": path("scaleUnavailable"),
    "bad apiVersion": lambda step: bool(step[0].autoscaler.target_error),
    "no selector": event("SelectorRequired"),
    "bad selector": event("InvalidSelector"),
    "ambiguous selector": event("AmbiguousSelector"),
    "failed scale update": event("FailedRescale"),
    "rescale": event("SuccessfulRescale"),
    "a metric fails, others decide": lambda step: step[1].path == "metrics" and bool(step[2].error),
    "label spec": lambda step: step[2].error_label == "spec" and step[1].path == "metrics",
    "no metrics": lambda step: not step[0].autoscaler.metrics,
    "utilization": kind("utilization"),
    "raw average": kind("rawAverage"),
    "pods": kind("pods"),
    "object value": kind("objectValue"),
    "object per pod": kind("objectPerPod"),
    "external value": kind("externalValue"),
    "external per pod": kind("externalPerPod"),
    "within tolerance": metric(lambda made: made.kept == "withinTolerance"),
    "within tolerance after filling": metric(
        lambda made: made.kept == "withinTolerance" and made.final_ratio is not None
    ),
    "direction flip": metric(lambda made: made.kept == "directionFlip"),
    "count guard": metric(lambda made: made.kept == "countGuard"),
    "missing pods, down": metric(lambda made: made.missing > 0 and made.ratio < 1),
    "missing pods, up": metric(lambda made: made.missing > 0 and made.ratio > 1),
    "missing pods at ratio 1": metric(lambda made: made.missing > 0 and made.ratio == 1),
    "unready pods, up": metric(lambda made: made.not_ready > 0 and made.ratio > 1),
    "ignored pods": metric(lambda made: made.ignored > 0),
    "strays": metric(lambda made: made.strays > 0),
    "negative proposal": metric(lambda made: made.proposal < 0),
    "int32 out of range": metric(lambda made: made.proposal == MIN_INT32),
    "average over no replicas": metric(lambda made: made.value == MIN_INT64),
    "ratio NaN": metric(lambda made: made.ratio != made.ratio),
    "ratio infinite": metric(lambda made: made.ratio in (float("inf"), float("-inf"))),
    "no samples": failed("did not receive metrics for targeted pods"),
    "no pods": failed("no pods returned by selector"),
    "no matched pods": failed("no metrics returned matched known pods"),
    "missing request": failed("missing request for"),
    "missing pod-level request": failed("missing pod-level request"),
    "unknown container": failed("not found in Pod"),
    "unknown metric type": failed("unknown metric source type"),
    "no object target": failed("invalid object metric source"),
    "no external target": failed("invalid external metric source"),
    "no resource target": failed("invalid resource metric source"),
    "bad metric selector": failed("is not a valid label selector operator"),
    "legacy: held": normalized(lambda made: made.legacy and made.stabilized != made.desired),
    "legacy: maxReplicas": bound("TooManyReplicas", legacy=True),
    "legacy: minReplicas": bound("TooFewReplicas", legacy=True),
    "legacy: scale-up limit": bound("ScaleUpLimit", legacy=True),
    "behavior: held up": normalized(lambda made: not made.legacy and made.stabilized > made.desired),
    "behavior: held down": normalized(lambda made: not made.legacy and made.stabilized < made.desired),
    "behavior: maxReplicas": bound("TooManyReplicas", legacy=False),
    "behavior: minReplicas": bound("TooFewReplicas", legacy=False),
    "behavior: scale-up limit": bound("ScaleUpLimit", legacy=False),
    "behavior: scale-down limit": bound("ScaleDownLimit", legacy=False),
    "scale up Max": selects("up", "Max"),
    "scale up Min": selects("up", "Min"),
    "scale up Disabled": selects("up", "Disabled"),
    "scale down Max": selects("down", "Max"),
    "scale down Min": selects("down", "Min"),
    "scale down Disabled": selects("down", "Disabled"),
    "an event counts in a period": normalized(
        lambda made: any(each.scaled_up or each.scaled_down for each in made.policies)
    ),
    "an event is outdated for one policy only": normalized(
        lambda made: len({each.start for each in made.policies}) > 1
    ),
    "from zero": lambda step: step[1].path == "metrics" and step[1].current_replicas == 0,
    "from zero: raised to minReplicas": lambda step: step[1].raised_to_min,
    "to zero": lambda step: step[1].pending is not None and step[1].pending.to_zero,
    "rescale without a reason": lambda step: step[1].pending is not None and not step[1].reason,
    "nothing to write": lambda step: semantically_equal_status(step[3], step[2].status),
}


Happening = Callable[[dict[str, Any], dict[str, Any]], bool]


def attempts(out: dict[str, Any]) -> int:
    return len(out.get("scaleAttempts", ()))


HAPPENINGS: dict[str, Happening] = {
    "the controller restarts": lambda given, _: bool(given.get("restart")),
    "the HPA is deleted and its memory dropped": lambda _, out: bool(out.get("deleted")),
    "the HPA is created again": lambda given, _: bool(given.get("hpaRecreated")),
    "the spec is edited": lambda given, _: "hpaEdit" in given,
    "the spec is edited while the HPA is deleted": lambda given, out: "hpaEdit" in given and bool(out.get("deleted")),
    "other HPAs in the namespace": lambda given, _: bool(given.get("otherHpas")),
    "a conflict is retried": lambda _, out: attempts(out) > 1 and "scaledTo" in out,
    "a conflict ends in another failure": lambda _, out: 1 < attempts(out) < 5 and "scaledTo" not in out,
    "the last of five conflicts fails": lambda _, out: attempts(out) == 5 and "scaledTo" not in out,
    "another failure is not retried": lambda _, out: attempts(out) == 1 and "scaledTo" not in out,
    "a status write fails": lambda _, out: "statusAttempt" in out,
    "a status write fails after a rescale": lambda _, out: "statusAttempt" in out and "scaledTo" in out,
    "a status write fails beside failed metrics": lambda _, out: (
        "statusAttempt" in out and "failed to compute desired" in out.get("error", "")
    ),
}
"""What happens around an evaluation, by a tick's input and answer."""


@cache
def reached() -> Counter[str]:
    counts: Counter[str] = Counter()
    for name in ("controller-boundary", "controller-random", "controller-trace"):
        with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
            for line in lines:
                case = json.loads(line)
                scenario = Recorded(case)
                for tick in case["ticks"]:
                    out = scenario.tick(tick["in"])
                    counts.update(rule for rule, check in HAPPENINGS.items() if check(tick["in"], out))
                    if scenario.steps:
                        step = scenario.steps.pop()
                        counts.update(rule for rule, check in RULES.items() if check(step))
    return counts


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules-reached.md"


def page() -> str:
    """Give the published table."""
    lines = [
        "# Rules that the conformance cases reach",
        "",
        "How often the controller cases in `tests/conformance/data`, a sample of upstream's answers, reach each rule",
        "of the decision. Made by `python -m tests.conformance.test_rules_reached`; a test keeps it current and every",
        "count above 0.",
        "",
        "| rule | evaluations |",
        "|---|---|",
    ]
    lines += [f"| {rule} | {reached()[rule]} |" for rule in (*RULES, *HAPPENINGS)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("rule", [*RULES, *HAPPENINGS])
def test_a_case_reaches(rule: str) -> None:
    assert reached()[rule] > 0


def test_the_published_table_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make generated`"


if __name__ == "__main__":
    PAGE.write_text(page())
