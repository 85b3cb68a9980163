"""The fallback for lost metrics: the replicas that the annotation `fleethpa.io/fallback` names, as KEDA's."""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.replacements.replacement import Replacement
from streams.state.replacements.writes import write_to
from streams.state.subject import Subject

FALLBACK_ANNOTATION: Final = "fleethpa.io/fallback"
_FORM: Final = re.compile(r"failureThreshold=([1-9][0-9]{0,5}),\s*replicas=([0-9]{1,9})", re.ASCII)


class Fallback(Struct, frozen=True, gc=False):
    """`failure_threshold`: failed evaluations in a row (one per sync period); `replicas`: what to scale to then."""

    failure_threshold: int
    replicas: int


@lru_cache(maxsize=1024)
def parse_fallback(text: str) -> Fallback | None:
    """Read the annotation; None: it is empty or cannot be read, and there is no fallback then."""
    form = _FORM.fullmatch(text.strip())
    return Fallback(int(form[1]), int(form[2])) if form is not None else None


def is_lost(evaluation: Evaluation) -> bool:
    """Return whether no metric gave a number, or one is missing and the others would scale down."""
    return evaluation.path == "metricsFailed"


class FallbackNow(NamedTuple):
    """The fallback, and the evaluations in a row that failed, this one included if it does."""

    fallback: Fallback
    failures: int


class FallbackReplicas(Replacement):
    name = "Fallback"

    def inputs(self, subject: Subject) -> FallbackNow | None:
        fallback = parse_fallback(subject.hpa.annotation(FALLBACK_ANNOTATION)) if subject.hpa.row.annotations else None
        return None if fallback is None else FallbackNow(fallback, subject.hpa.row.failures + 1)

    def apply(
        self, inputs: FallbackNow, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
    ) -> tuple[Evaluation, Step | None]:
        fallback, failures = inputs
        result = evaluation.result
        if result is None or not is_lost(evaluation) or failures < fallback.failure_threshold:
            return evaluation, None
        current = evaluation.current_replicas or 0
        wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, fallback.replicas))
        detail = {"failures": failures, "failureThreshold": fallback.failure_threshold}
        step = Step(step="fallback", in_=current, out=wanted, detail=detail)
        if wanted == current or not current:
            return evaluation, step if current else None
        reason = f"fallback, as the metrics have failed {fallback.failure_threshold} times in a row"
        pending = write_to(wanted, reason, evaluation, autoscaler)
        changed = structs.replace(evaluation, desired_replicas=wanted, reason=reason, result=None, pending=pending)
        return changed, step


def failures_after(subject: Subject, evaluation: Evaluation) -> int:
    """Return how many evaluations in a row found no metrics, as far as they are counted: for HPAs with a fallback."""
    row = subject.hpa.row
    if subject.ignores or not row.annotations:
        return row.failures
    fallback = parse_fallback(subject.hpa.annotation(FALLBACK_ANNOTATION))
    return row.failures + 1 if fallback is not None and is_lost(evaluation) else 0
