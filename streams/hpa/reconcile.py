"""One evaluation of an HPA: upstream's reconcile up to the moment where it would write /scale.

`decide` is pure: the same arguments give the same evaluation. Source: upstream `reconcileAutoscaler`, v1.37.1, gates at
their defaults.
"""

from functools import lru_cache
from typing import Any

from schemas.kubernetes.selectors import SelectorError, parse_selector
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import (
    Evaluation,
    Event,
    History,
    MetricResult,
    Normalization,
    Pending,
    ReconcileResult,
    Status,
    new_status,
)
from streams.hpa.metrics import Combined, combine, set_scaling_active
from streams.hpa.normalize import normalize
from streams.hpa.observation import Observation, Scale, ScaleFailure
from streams.hpa.status import Conditions, set_limited, set_stabilized

REACHED = "the HPA controller was able to get the target's current scale"
ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"


def decide(
    autoscaler: Autoscaler,
    status: Status,
    observation: Observation,
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
    if history.recommendations is None:
        history = History(((scale.spec_replicas, now_ms),), history.scale_up_events, history.scale_down_events)
    run = _Run(autoscaler, status, observation, scale, history, settings, now_ms, conditions)
    return run.evaluate()


class _Run:
    """One evaluation with a known scale; the steps share its arguments."""

    __slots__ = (
        "autoscaler",
        "conditions",
        "current",
        "history",
        "normalization",
        "now_ms",
        "observation",
        "proposal",
        "raised_to_min",
        "scale",
        "selected",
        "settings",
        "status",
    )

    def __init__(
        self,
        autoscaler: Autoscaler,
        status: Status,
        observation: Observation,
        scale: Scale,
        history: History,
        settings: ControllerSettings,
        now_ms: int,
        conditions: Conditions,
    ) -> None:
        self.autoscaler = autoscaler
        self.status = status
        self.observation = observation
        self.scale = scale
        self.current = scale.spec_replicas
        self.history = history
        self.settings = settings
        self.now_ms = now_ms
        self.conditions = conditions
        # What an evaluation by metrics finds on its way, for its record:
        self.proposal: int | None = None
        self.selected = ""
        self.normalization: Normalization | None = None
        self.raised_to_min = False

    def evaluate(self) -> Evaluation:
        """Choose the branch by the current replicas, before any metric is read."""
        autoscaler, current = self.autoscaler, self.current
        if current == 0:
            return self._by_metrics() if self._wakes_from_zero() else self._disabled()
        if current > autoscaler.max_replicas:
            self._set_reached()
            return self._want(autoscaler.max_replicas, "aboveMax", ABOVE_MAX)
        if current < autoscaler.min_replicas:
            self._set_reached()
            return self._want(autoscaler.min_replicas, "belowMin", BELOW_MIN)
        return self._by_metrics()

    def _set_reached(self) -> None:
        """Say that the scale was read; where a number is found, `set_stabilized` says more."""
        self.conditions.set("AbleToScale", "True", "SucceededGetScale", REACHED)

    def _disabled(self) -> Evaluation:
        self._set_reached()
        message = "scaling is disabled since the replica count of the target is zero"
        self.conditions.set("ScalingActive", "False", "ScalingDisabled", message)
        return self._finish(0, "disabled")

    def _wakes_from_zero(self) -> bool:
        """Zero is a pause, unless this controller scaled to zero itself (condition ScaledToZero True)."""
        if not self.conditions.is_true("ScaledToZero"):
            return False
        return self.autoscaler.min_replicas != 0 or self.autoscaler.has_object_or_external

    def _by_metrics(self) -> Evaluation:
        failed = self._selector_failure()
        if failed is not None:
            return failed
        combined = combine(
            self.autoscaler,
            self.observation,
            self.scale,
            self.status.get("currentReplicas", 0),
            self.settings,
            self.now_ms,
        )
        if combined.proposal is None and combined.error:
            self._set_reached()
            set_scaling_active(self.conditions, combined)
            return self._metrics_failed(combined.error, combined.spec_fault, combined)
        proposal = max(combined.proposal or 0, 0)
        if proposal:
            self.selected = combined.selected
        self.proposal = proposal
        reason = ""
        if proposal > self.current:
            reason = f"{self.selected} above target"
        elif proposal < self.current:
            reason = "All metrics below target"
        return self._normalized(combined, proposal, reason)

    def _normalized(self, combined: Combined, proposal: int, reason: str) -> Evaluation:
        autoscaler, old = self.autoscaler, self.history
        normalization, recommendations = normalize(autoscaler, self.current, proposal, old, self.settings, self.now_ms)
        self.history = History(recommendations, old.scale_up_events, old.scale_down_events)
        desired = normalization.limited
        set_stabilized(self.conditions, self.current, normalization)
        set_scaling_active(self.conditions, combined)
        set_limited(self.conditions, normalization)
        self.normalization = normalization
        if self.current == 0 and autoscaler.min_replicas != 0 and desired < autoscaler.min_replicas:
            # The branch was taken with ScaledToZero True: nothing else leads here from zero.
            desired, reason = autoscaler.min_replicas, reason or BELOW_MIN
            self.raised_to_min = True
        if desired == self.current:
            return self._finish(desired, "metrics", reason, combined)
        return self._want(desired, "metrics", reason, combined)

    def _selector_failure(self) -> Evaluation | None:
        text = self.scale.selector
        if not text:
            message = "the HPA target's scale is missing a selector"
            return self._selector_failed("SelectorRequired", "selector is required", "InvalidSelector", message)
        error = _selector_error(text)
        if error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            return self._selector_failed("InvalidSelector", message, "InvalidSelector", message)
        names = self.observation.ambiguous
        if len(names) > 1:
            message = f"pods by selector {text} are controlled by more than one HPA (e.g. [{names[0]} {names[1]}])"
            return self._selector_failed("AmbiguousSelector", message, "AmbiguousSelector", message)
        return None

    def _selector_failed(self, event_reason: str, error: str, reason: str, message: str) -> Evaluation:
        self._set_reached()
        self.conditions.set("ScalingActive", "False", reason, message)
        return self._metrics_failed(error, False, None, (("Warning", event_reason, error),))

    def _metrics_failed(
        self, error: str, spec_fault: bool, combined: Combined | None, events: tuple[Event, ...] = ()
    ) -> Evaluation:
        """End without a number: nothing is scaled, desiredReplicas of the status stays."""
        statuses = combined.statuses if combined is not None else None
        before = self.status.get("desiredReplicas", 0)
        status = self._status(before, statuses)
        result = ReconcileResult(
            status=status,
            before=self.status,
            events=events + (combined.events if combined is not None else ()),
            events_after_write=(("Warning", "FailedComputeMetricsReplicas", error),),
            error="failed to compute desired number of replicas based on listed metrics for "
            f"{self.autoscaler.reference}: {error}",
            error_label="spec" if spec_fault else "internal",
            metric_results=combined.results if combined is not None else (),
            history=self.history,
        )
        return Evaluation(
            path="metricsFailed",
            history=self.history,
            current_replicas=self.current,
            metrics=combined.metrics if combined is not None else (),
            result=result,
        )

    def _finish(self, desired: int, path: str, reason: str = "", combined: Combined | None = None) -> Evaluation:
        """End without a write of /scale."""
        statuses = combined.statuses if combined is not None else None
        status = self._status(desired, statuses)
        events, results, error, label = _of_metrics(combined)
        result = ReconcileResult(
            status=status,
            before=self.status,
            events=events,
            error=error,
            error_label=label,
            metric_results=results,
            desired_gauge=desired,
            history=self.history,
            final=True,
        )
        return self._evaluation(desired, path, reason, combined, result, None)

    def _status(self, desired: int, metrics: list[dict[str, Any]] | None) -> Status:
        last_scale_time, generation = self.status.get("lastScaleTime"), self.autoscaler.generation
        return new_status(generation, last_scale_time, self.current, desired, metrics, self.conditions.items)

    def _want(self, desired: int, path: str, reason: str, combined: Combined | None = None) -> Evaluation:
        """Ask for a write of /scale."""
        autoscaler, current = self.autoscaler, self.current
        rules = autoscaler.scale_up if desired > current else autoscaler.scale_down
        events, results, error, label = _of_metrics(combined)
        pending = Pending(
            current_replicas=current,
            desired_replicas=desired,
            reason=reason,
            name=autoscaler.name,
            reference=autoscaler.reference,
            generation=autoscaler.generation,
            to_zero=current > 0 and desired == 0 and autoscaler.min_replicas == 0 and autoscaler.has_object_or_external,
            conditions=self.conditions.items,
            current_metrics=combined.statuses if combined is not None else None,
            events=events,
            error=error,
            error_label=label,
            metric_results=results,
            longest_period_ms=rules.longest_ms if rules is not None else None,
        )
        return self._evaluation(desired, path, reason, combined, None, pending)

    def _evaluation(
        self,
        desired: int,
        path: str,
        reason: str,
        combined: Combined | None,
        result: ReconcileResult | None,
        pending: Pending | None,
    ) -> Evaluation:
        return Evaluation(
            path=path,
            history=self.history,
            current_replicas=self.current,
            proposal=self.proposal,
            desired_replicas=desired,
            reason=reason,
            selected_metric=self.selected,
            metrics=combined.metrics if combined is not None else (),
            normalization=self.normalization,
            raised_to_min=self.raised_to_min,
            result=result,
            pending=pending,
        )


def _of_metrics(combined: Combined | None) -> tuple[tuple[Event, ...], tuple[MetricResult, ...], str, str]:
    if combined is None:
        return (), (), "", "none"
    label = "none"
    if combined.error:
        label = "spec" if combined.spec_fault else "internal"
    return combined.events, combined.results, combined.error, label


def _no_scale(
    autoscaler: Autoscaler, status: Status, history: History, conditions: Conditions, error: str, stage: str
) -> Evaluation:
    """End before anything is known: only the AbleToScale condition and an event tell of it."""
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
        before=status,
        events=(("Warning", "FailedGetScale", error),),
        error=f"{prefix}: {error}",
        error_label="spec" if stage == "spec" else "internal",
        history=history,
    )
    return Evaluation(path="scaleUnavailable", history=history, result=result)


@lru_cache(maxsize=4096)
def _selector_error(text: str) -> str:
    """Say why a selector in query-string form cannot be parsed; empty: it can."""
    try:
        parse_selector(text)
    except SelectorError as error:
        return str(error)
    return ""
