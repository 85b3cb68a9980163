"""One evaluation of an HPA: upstream's reconcile up to where it would write /scale (`decide`), and from there on, with
what became of the write (`complete`).

`decide` is pure: the same arguments give the same evaluation. Source: upstream `reconcileAutoscaler` and
`updateStatus`, v1.37.1, gates at their defaults.
"""

from typing import Any

from msgspec import Struct

from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.selectors import SelectorError, parse_selector
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import (
    Conditions,
    Evaluation,
    Event,
    History,
    Normalization,
    Pending,
    ReconcileResult,
    ScaleFailed,
    ScaleOutcome,
    Status,
    new_status,
)
from streams.hpa.metrics import NO_METRICS, Combined, JoinedObservation, action, combine, set_scaling_active
from streams.hpa.normalize import normalize, set_limited, set_stabilized, store_scale_event
from streams.hpa.observation import Observation, Scale, ScaleFailure
from streams.hpa.rules import CURRENT, Rules

REACHED = "the HPA controller was able to get the target's current scale"
ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"


def decide(
    autoscaler: Autoscaler,
    status: Status,
    observation: Observation | JoinedObservation,
    history: History,
    settings: ControllerSettings,
    now_ms: int,
) -> Evaluation:
    """Evaluate an HPA at `now_ms` (Unix milliseconds).

    Args:
        autoscaler: the compiled spec.
        status: the stored autoscaling/v2 status in JSON form; never changed in place.
        observation: what the world shows.
        history: what earlier evaluations left; carry it from each evaluation or completion to the next.
        settings: the controller's flags.
        now_ms: the one clock of this evaluation.

    Returns:
        An evaluation whose `result` is the end of the reconcile, or whose `pending` is a wanted write for `complete`.
    """
    conditions = Conditions(status.get("conditions"), now_ms)
    scale = observation.scale
    if autoscaler.target_error:
        return _no_scale(autoscaler, status, history, conditions, autoscaler.target_error, "spec")
    if isinstance(scale, ScaleFailure):
        return _no_scale(autoscaler, status, history, conditions, scale.error, "unmapped" if scale.unmapped else "read")
    if history.recommended is None:
        history = history.with_recommendations([(scale.spec_replicas, now_ms)])
    case = _Case(autoscaler, status, observation, scale, scale.spec_replicas, history, settings, now_ms, conditions)
    return _ended(case, outcome) if (outcome := _without_metrics(case)) is not None else _by_metrics(case)


class _Case(Struct, frozen=True, gc=False):
    """What an evaluation with a known scale is about. `current`: the replicas that the scale asks for.

    `conditions` are those of the new status; each step sets its own.
    """

    autoscaler: Autoscaler
    status: Status
    observation: Observation | JoinedObservation
    scale: Scale
    current: int
    history: History
    settings: ControllerSettings
    now_ms: int
    conditions: Conditions

    @property
    def generation(self) -> int | None:
        """The observed generation that the status shows, or None for a controller that does not show it."""
        return self.autoscaler.generation if self.settings.rules.observed_generation else None

    def set_reached(self) -> None:
        """Say that the scale was read; where a number is found, `set_stabilized` says more."""
        self.conditions.set("AbleToScale", "True", "SucceededGetScale", REACHED)

    def new_status(self, desired: int, metrics: list[dict[str, Any]] | None) -> Status:
        """Return the status with the conditions that were set."""
        last_scale_time, generation = self.status.get("lastScaleTime"), self.generation
        return new_status(generation, last_scale_time, self.current, desired, metrics, self.conditions.items)


class _Found(Struct, frozen=True, gc=False):
    """The number of replicas to have, and how it was found. `proposal`: what the metrics ask for."""

    desired: int
    path: str
    reason: str
    history: History
    combined: Combined = NO_METRICS
    proposal: int | None = None
    normalization: Normalization | None = None
    raised_to_min: bool = False


def _without_metrics(case: _Case) -> _Found | None:
    """Choose the branch by the current replicas, before any metric is read; None: the metrics decide."""
    autoscaler, current = case.autoscaler, case.current
    # Up to 1.35 zero that is no pause is looked at as any other count.
    is_bounded = current != 0 or not case.settings.rules.zero_is_pause
    if current == 0 and not _wakes_from_zero(case):
        outcome = _Found(0, "disabled", "", case.history)
    elif is_bounded and current > autoscaler.max_replicas:
        outcome = _Found(autoscaler.max_replicas, "aboveMax", ABOVE_MAX, case.history)
    elif is_bounded and current < autoscaler.min_replicas:
        outcome = _Found(autoscaler.min_replicas, "belowMin", BELOW_MIN, case.history)
    else:
        return None
    case.set_reached()
    if outcome.path == "disabled":
        message = "scaling is disabled since the replica count of the target is zero"
        case.conditions.set("ScalingActive", "False", "ScalingDisabled", message)
        rules = case.settings.rules
        if rules.zero_is_pause and not rules.scale_to_zero:
            case.conditions.remove("ScaledToZero")
    return outcome


def _wakes_from_zero(case: _Case) -> bool:
    """Zero is a pause, unless this controller scaled to zero itself (condition ScaledToZero True).

    Up to 1.35 zero is a pause where minReplicas is not 0.
    """
    autoscaler, rules = case.autoscaler, case.settings.rules
    if not rules.zero_is_pause:
        return autoscaler.min_replicas == 0
    if not rules.scale_to_zero or not case.conditions.is_true("ScaledToZero"):
        return False
    return autoscaler.min_replicas != 0 or autoscaler.has_object_or_external


def _by_metrics(case: _Case) -> Evaluation:
    failed = _selector_failure(case)
    if failed is not None:
        return failed
    reported = case.status.get("currentReplicas", 0)
    combined = combine(case.autoscaler, case.observation, case.scale, reported, case.settings, case.now_ms)
    if combined.proposal is None and combined.error:
        case.set_reached()
        set_scaling_active(case.conditions, combined)
        return _metrics_failed(case, combined.error, combined)
    return _ended(case, _normalized(case, combined))


def _normalized(case: _Case, combined: Combined) -> _Found:
    autoscaler, current, old = case.autoscaler, case.current, case.history
    proposal = max(combined.proposal or 0, 0)
    reason = ""
    if proposal > current:
        reason = f"{combined.selected} above target"
    elif proposal < current:
        reason = "All metrics below target"
    normalization, history = normalize(autoscaler, current, proposal, old, case.settings, case.now_ms)
    desired = normalization.limited
    set_stabilized(case.conditions, current, normalization)
    set_scaling_active(case.conditions, combined)
    set_limited(case.conditions, normalization)
    # From zero, the branch was taken with ScaledToZero True: nothing else leads here.
    raised = current == 0 and autoscaler.min_replicas != 0 and desired < autoscaler.min_replicas
    if raised:
        desired, reason = autoscaler.min_replicas, reason or BELOW_MIN
    return _Found(desired, "metrics", reason, history, combined, proposal, normalization, raised)


def _selector_failure(case: _Case) -> Evaluation | None:
    text, names = case.scale.selector, case.observation.ambiguous
    event_reason = reason = "InvalidSelector"
    if not text:
        event_reason, error = "SelectorRequired", "selector is required"
        message = "the HPA target's scale is missing a selector"
    elif problem := _selector_error(text):
        error = message = f"couldn't convert selector into a corresponding internal selector object: {problem}"
    elif len(names) > 1:
        event_reason = reason = "AmbiguousSelector"
        several = f"more than one HPA (e.g. [{names[0]} {names[1]}])"
        if not case.settings.rules.two_ambiguous_named:
            several = f"multiple HPAs: [{' '.join(names)}]"
        error = message = f"pods by selector {text} are controlled by {several}"
    else:
        return None
    case.set_reached()
    case.conditions.set("ScalingActive", "False", reason, message)
    return _metrics_failed(case, error, NO_METRICS, (("Warning", event_reason, error),))


def _metrics_failed(case: _Case, error: str, combined: Combined, events: tuple[Event, ...] = ()) -> Evaluation:
    """End without a number: nothing is scaled, desiredReplicas of the status stays."""
    shown = combined.statuses if case.settings.rules.failure_shows_metrics else case.status.get("currentMetrics")
    result = ReconcileResult(
        status=case.new_status(case.status.get("desiredReplicas", 0), shown),
        events=events + combined.events,
        events_after_write=(("Warning", "FailedComputeMetricsReplicas", error),),
        error="failed to compute desired number of replicas based on listed metrics for "
        f"{case.autoscaler.reference}: {error}",
        error_label="spec" if combined.spec_fault else "internal",
        metric_results=combined.results,
        history=case.history,
    )
    return Evaluation(
        path="metricsFailed",
        history=case.history,
        current_replicas=case.current,
        metrics=combined.metrics,
        result=result,
    )


def _ended(case: _Case, found: _Found) -> Evaluation:
    """End with a number: ask for a write of /scale, unless it is what the scale shows."""
    wants = found.desired != case.current
    return Evaluation(
        path=found.path,
        history=found.history,
        current_replicas=case.current,
        proposal=found.proposal,
        desired_replicas=found.desired,
        reason=found.reason,
        selected_metric=found.combined.selected if found.proposal else "",
        metrics=found.combined.metrics,
        normalization=found.normalization,
        raised_to_min=found.raised_to_min,
        result=None if wants else _result(case, found),
        pending=_wanted(case, found) if wants else None,
    )


def _result(case: _Case, found: _Found) -> ReconcileResult:
    combined = found.combined
    return ReconcileResult(
        status=case.new_status(found.desired, combined.statuses),
        events=combined.events,
        error=combined.error,
        error_label=combined.error_label,
        metric_results=combined.results,
        desired_gauge=found.desired if case.settings.rules.desired_gauge else None,
        history=found.history,
        final=True,
    )


def _wanted(case: _Case, found: _Found) -> Pending:
    autoscaler, current, desired, combined = case.autoscaler, case.current, found.desired, found.combined
    rules = autoscaler.scale_up if desired > current else autoscaler.scale_down
    return Pending(
        current_replicas=current,
        desired_replicas=desired,
        reason=found.reason,
        name=autoscaler.name,
        reference=autoscaler.reference,
        generation=case.generation,
        to_zero=current > 0 and desired == 0 and autoscaler.min_replicas == 0 and autoscaler.has_object_or_external,
        conditions=case.conditions.items,
        current_metrics=combined.statuses,
        events=combined.events,
        error=combined.error,
        error_label=combined.error_label,
        metric_results=combined.results,
        longest_period_ms=rules.longest_ms if rules is not None else None,
    )


def _no_scale(
    autoscaler: Autoscaler, status: Status, history: History, conditions: Conditions, error: str, stage: str
) -> Evaluation:
    """End before anything is known: only the AbleToScale condition and an event show it."""
    message = f"the HPA controller was unable to get the target's current scale: {error}"
    conditions.set("AbleToScale", "False", "FailedGetScale", message)
    prefix = {
        "spec": "invalid API version in scale target reference",
        "unmapped": "unable to determine resource for scale target reference",
        "read": f"failed to query scale subresource for {autoscaler.reference}",
    }[stage]
    new = {"desiredReplicas": 0, "currentMetrics": None, **status, "conditions": conditions.items}
    result = ReconcileResult(
        status=new,
        events=(("Warning", "FailedGetScale", error),),
        error=f"{prefix}: {error}",
        error_label="spec" if stage == "spec" else "internal",
        history=history,
    )
    return Evaluation(path="scaleUnavailable", history=history, result=result)


def _selector_error(text: str) -> str:
    """Return why a selector in query-string form cannot be parsed; empty: it can."""
    try:
        parse_selector(text)
    except SelectorError as error:
        return str(error)
    return ""


def complete(
    pending: Pending,
    status: dict[str, Any],
    history: History,
    outcome: ScaleOutcome,
    now_ms: int,
    event_ms: int | None = None,
    rules: Rules = CURRENT,
) -> ReconcileResult:
    """End a reconcile whose write was wanted.

    Args:
        pending: what `decide` asked for.
        status: the stored status that `decide` was given.
        history: the evaluation's history.
        outcome: what became of the write.
        now_ms: when that is known: the time of lastScaleTime and of the conditions' transitions.
        event_ms: time of the scale event; None: `now_ms`, as upstream, where evaluation and write are one moment.
        rules: those of the evaluation.
    """
    conditions = Conditions(pending.conditions, now_ms)
    if isinstance(outcome, ScaleFailed):
        return _failed(pending, status, history, conditions, outcome.error, rules)
    desired = pending.desired_replicas
    _set_rescaled(conditions, desired)
    if rules.zero_is_pause:
        _set_scaled_to_zero(conditions, pending.to_zero, rules)
    new = new_status(
        pending.generation,
        rfc3339_seconds(now_ms),
        pending.current_replicas,
        desired,
        pending.current_metrics,
        conditions.items,
    )
    rescaled = ("Normal", "SuccessfulRescale", f"New size: {desired}; reason: {pending.reason}")
    return ReconcileResult(
        status=new,
        events=(*pending.events, rescaled),
        error=pending.error,
        error_label=pending.error_label,
        action=action(desired, pending.current_replicas),
        metric_results=pending.metric_results,
        desired_gauge=desired if rules.desired_gauge else None,
        history=_with_change(history, pending, now_ms if event_ms is None else event_ms),
        final=True,
    )


def _with_change(history: History, pending: Pending, now_ms: int) -> History:
    """Store the scale event; an HPA without `behavior` needs none."""
    if pending.longest_period_ms is None:
        return history
    change = pending.desired_replicas - pending.current_replicas
    return store_scale_event(history, change, pending.longest_period_ms, now_ms)


def _failed(
    pending: Pending, status: dict[str, Any], history: History, conditions: Conditions, error: str, rules: Rules
) -> ReconcileResult:
    """Nothing was scaled: no scale event, lastScaleTime and desiredReplicas stay."""
    message = f"the HPA controller was unable to update the target scale: {error}"
    conditions.set("AbleToScale", "False", "FailedUpdateScale", message)
    new = new_status(
        pending.generation,
        status.get("lastScaleTime"),
        pending.current_replicas,
        status.get("desiredReplicas", 0),
        pending.current_metrics if rules.failure_shows_metrics else status.get("currentMetrics"),
        conditions.items,
    )
    text = f"New size: {pending.desired_replicas}; reason: {pending.reason}; error: {error}"
    return ReconcileResult(
        status=new,
        events=(*pending.events, ("Warning", "FailedRescale", text)),
        error=f"failed to rescale {pending.reference}: {error}",
        error_label="internal",
        metric_results=pending.metric_results,
        history=history,
    )


def _set_rescaled(conditions: Conditions, desired: int) -> None:
    message = f"the HPA controller was able to update the target scale to {desired}"
    conditions.set("AbleToScale", "True", "SucceededRescale", message)


def _set_scaled_to_zero(conditions: Conditions, to_zero: bool, rules: Rules) -> None:
    if not rules.scale_to_zero:
        conditions.remove("ScaledToZero")
    elif to_zero:
        message = "the HPA controller scaled the workload to zero"
        conditions.set("ScaledToZero", "True", "ScaledToZero", message)
    else:
        message = "the HPA controller did not scale the workload to zero"
        conditions.set("ScaledToZero", "False", "NotScaledToZero", message)
