"""The fallback for lost metrics: the replicas that the annotation `fleethpa.io/fallback` names, as KEDA's."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from schemas.decisions import Step
from schemas.kubernetes.metricspecs import no_such_metric
from schemas.kubernetes.shape import JsonView
from schemas.limits import TEXT, shortened
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.hpa.metrics import largest
from streams.state.replacements.replacement import Replacement
from streams.state.replacements.writes import replaced_by
from streams.state.subject import Decided, HpaAccount, Limited, Observed, Subject

FALLBACK_ANNOTATION: Final = "fleethpa.io/fallback"
STATIC: Final = "static"
BEHAVIORS: Final[Mapping[str, Callable[[int, int], int]]] = {
    STATIC: lambda stated, current: stated,
    "currentReplicas": lambda stated, current: current,
    "currentReplicasIfHigher": max,
    "currentReplicasIfLower": min,
}
"""KEDA's values of `fallback.behavior`: what the stated and the current replicas give."""
_FORM: Final = re.compile(
    r"failureThreshold=([1-9][0-9]{0,5}),\s*replicas=([0-9]{1,9})(?:,\s*behavior=([^,]*))?(?:,\s*metric=(.+))?",
    re.ASCII,
)
_NEXT: Final = re.compile(r",\s*metric=")
"""The name of a metric may have a comma."""
_EXAMPLES: Final = (
    "failureThreshold=3,replicas=6 or failureThreshold=3,replicas=6,behavior=currentReplicasIfHigher,metric=queue_depth"
)


class Fallback(Struct, frozen=True, gc=False):
    """`failure_threshold`: failed evaluations in a row (one per sync period); `replicas`: what to scale to then, with
    the current ones as `behavior` says. `metrics`: whose failures count, by their names in the spec; empty: those for
    which upstream finds no number to act on.
    """

    failure_threshold: int
    replicas: int
    behavior: str = STATIC
    metrics: tuple[str, ...] = ()

    def lost(self, evaluation: Evaluation) -> tuple[str, ...] | None:
        """Return the names of those of `metrics` that failed; None: nothing that counts did."""
        if not self.metrics or not evaluation.metrics:
            return self.metrics if evaluation.path == "metricsFailed" else None
        failed = {each.spec.own_name for each in evaluation.metrics if each.calculation is None}
        return tuple([name for name in self.metrics if name in failed]) or None

    def asks_for(self, evaluation: Evaluation) -> int:
        """Return the replicas in place of what the metrics ask for. As KEDA's fallback is the proposal of a metric,
        metrics that have a number may ask for more, if this one is for some metrics.
        """
        wanted = BEHAVIORS[self.behavior](self.replicas, evaluation.current_replicas or 0)
        return max(wanted, largest(evaluation.metrics)[0]) if self.metrics else wanted


def _parsed(text: str) -> Fallback | str:
    """Read the annotation; a text: why it cannot be read."""
    form = _FORM.fullmatch(text.strip())
    metrics = tuple([name.strip() for name in _NEXT.split(form[4])]) if form is not None and form[4] else ()
    if form is None or not all(metrics):
        return f"{shortened(text, TEXT)!r} must be such as {_EXAMPLES}"
    behavior = STATIC if form[3] is None else form[3].strip()
    if behavior not in BEHAVIORS:
        return f"behavior={shortened(behavior, TEXT)!r} is not known; it is one of {', '.join(BEHAVIORS)}"
    return Fallback(int(form[1]), int(form[2]), behavior, metrics)


def parse_fallback(text: str) -> Fallback | None:
    """Read the annotation; None: it is empty or cannot be read, and there is no fallback then."""
    parsed = _parsed(text)
    return parsed if isinstance(parsed, Fallback) else None


def fallback_fault(text: str, spec: JsonView) -> str:
    """Return what is wrong with the annotation's text beside this spec, and what to write; empty: nothing is."""
    parsed = _parsed(text)
    if isinstance(parsed, str):
        return parsed
    return next((why for name in parsed.metrics if (why := no_such_metric(name, spec))), "")


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
        lost, current = fallback.lost(evaluation), evaluation.current_replicas or 0
        if lost is None or failures < fallback.failure_threshold or not current:
            return evaluation, None
        has_number = evaluation.path != "metricsFailed"
        before = evaluation.desired_replicas or 0 if has_number else current
        wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, fallback.asks_for(evaluation)))
        if has_number and wanted <= before:
            return evaluation, None  # the metrics that have a number ask for as much
        step = Step(step="fallback", in_=before, out=wanted, detail=_detail(fallback, failures, lost))
        if wanted == current:
            return evaluation, step
        return replaced_by(wanted, _reason(fallback), evaluation, autoscaler, status), step


def _detail(fallback: Fallback, failures: int, lost: tuple[str, ...]) -> dict[str, Any]:
    detail: dict[str, Any] = {"failures": failures, "failureThreshold": fallback.failure_threshold}
    if fallback.behavior != STATIC:
        detail |= {"replicas": fallback.replicas, "behavior": fallback.behavior}
    return detail | ({"metric": shortened(", ".join(lost), TEXT)} if lost else {})


def _reason(fallback: Fallback) -> str:
    if not fallback.metrics:
        return f"fallback, as the metrics have failed {fallback.failure_threshold} times in a row"
    names = shortened(", ".join(fallback.metrics), TEXT)
    what = f"metric {names} has" if len(fallback.metrics) == 1 else f"some of the metrics {names} have"
    return f"fallback, as {what} failed in each of {fallback.failure_threshold} evaluations in a row"


class FallbackAccount(HpaAccount):
    """The evaluations in a row that failed."""

    def after(self, subject: Subject, observed: Observed, decided: Decided, limited: Limited) -> None:
        subject.hpa.row.failures = _failures_after(subject, decided.evaluation)


def _failures_after(subject: Subject, evaluation: Evaluation) -> int:
    """Return how many evaluations in a row found no metrics, as far as they are counted: for HPAs with a fallback."""
    row = subject.hpa.row
    if subject.ignores or not row.annotations:
        return row.failures
    fallback = parse_fallback(subject.hpa.annotation(FALLBACK_ANNOTATION))
    return row.failures + 1 if fallback is not None and fallback.lost(evaluation) is not None else 0
