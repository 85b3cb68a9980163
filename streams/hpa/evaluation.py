"""What an evaluation gives: wanted write, new status with its conditions, events, labels, memory, and all that an
explanation needs.

Source of the conditions: upstream `setConditionInList`, v1.37.1.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.hpa.autoscaler import MetricSpec

Status = dict[str, Any]


def new_status(
    generation: int | None,
    last_scale_time: str | None,
    current: int,
    desired: int,
    metrics: list[dict[str, Any]] | None,
    conditions: list[dict[str, Any]],
) -> Status:
    """Build a status as the API's JSON has it: zero currentReplicas left out, currentMetrics null without metrics.

    `generation` is None for a controller that does not show it (before 1.37).
    """
    status: Status = {} if generation is None else {"observedGeneration": generation}
    if last_scale_time is not None:
        status["lastScaleTime"] = last_scale_time
    if current:
        status["currentReplicas"] = current
    status["desiredReplicas"] = desired
    status["currentMetrics"] = metrics
    if conditions:
        status["conditions"] = conditions
    return status


class Conditions:
    """A working copy of the condition list. Items are shared with the old status and never changed in place."""

    __slots__ = ("_now", "_now_ms", "items")

    def __init__(self, items: list[dict[str, Any]] | None, now_ms: int) -> None:
        self.items = list(items or ())
        self._now_ms = now_ms
        self._now = ""
        """The same as text, once a transition needs it."""

    def set(self, kind: str, status: str, reason: str, message: str, *, again: bool = False) -> None:
        """Set one condition: in its place or at the end; its transition time moves only when `status` changes.

        Args:
            again: upstream has set it before with another reason, so that its members come in the order of a changed
                one.
        """
        for index, old in enumerate(self.items):
            if old["type"] == kind:
                is_same = (
                    old["status"] == status and old.get("reason", "") == reason and old.get("message", "") == message
                )
                if again or not is_same:
                    self.items[index] = self._changed(old, status, reason, message)
                return
        self._add(kind, status, reason, message)

    def _add(self, kind: str, status: str, reason: str, message: str) -> None:
        since = self._now_text() if status else None
        if reason and message:
            self.items.append(
                {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
            )
        else:
            fresh = {"type": kind, "status": status, "lastTransitionTime": since}
            self.items.append(_explained(fresh, reason, message))

    def remove(self, kind: str) -> None:
        """Remove one condition, if it is there."""
        self.items = [item for item in self.items if item["type"] != kind]

    def is_true(self, kind: str) -> bool:
        """Return whether the condition exists with status True."""
        return any(item["type"] == kind and item["status"] == "True" for item in self.items)

    def _now_text(self) -> str:
        if not self._now:
            self._now = rfc3339_seconds(self._now_ms)
        return self._now

    def _changed(self, old: dict[str, Any], status: str, reason: str, message: str) -> dict[str, Any]:
        changed = {**old, "status": status}
        if old["status"] != status:
            changed["lastTransitionTime"] = self._now_text()
        changed.pop("reason", None)
        changed.pop("message", None)
        return _explained(changed, reason, message)


def _explained(condition: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


Event = tuple[str, str, str]
"""(type, reason, message)"""
MetricResult = tuple[str, str, str]
"""Labels of metric_computation_total: (metric_type, action, error)."""


class History(Struct, frozen=True, gc=False):
    """What the controller remembers of one HPA. Order is the stored order; slots are reused, so it is not by time.

    `recommended`: replicas, None before the first evaluation; `recommended_ms`: when each of them was. Scale events:
    (change, time_ms, outdated), change always positive.
    """

    recommended: tuple[int, ...] | None = None
    recommended_ms: tuple[int, ...] = ()
    scale_up_events: tuple[tuple[int, int, bool], ...] = ()
    scale_down_events: tuple[tuple[int, int, bool], ...] = ()

    @property
    def recommendations(self) -> list[tuple[int, int]]:
        """Each recommendation with its time: (replicas, time_ms)."""
        return list(zip(self.recommended or (), self.recommended_ms, strict=True))

    def with_recommendations(self, pairs: Iterable[tuple[int, int]]) -> "History":
        """Return the same scale events with these recommendations: (replicas, time_ms)."""
        known = list(pairs)
        recommended, times_ms = tuple([each[0] for each in known]), tuple([each[1] for each in known])
        return History(recommended, times_ms, self.scale_up_events, self.scale_down_events)


EMPTY_HISTORY = History()


class Calculation(Struct, frozen=True, gc=False):
    """How one metric came to its proposal."""

    proposal: int
    """Replicas that this metric asks for; may be negative."""
    value: int
    """What the status reports: percent for utilization; else milli (an average, or the total for a `value` target)."""
    ratio: float
    """Usage over target as measured."""
    average_milli: int | None = None
    """Raw average beside a utilization."""
    final_ratio: float | None = None
    """Ratio after missing and unready pods were filled in; None: nothing was."""
    used: int = 0
    """Pods counted with a sample (Resource, Pods) or running and ready (Object, External value)."""
    not_ready: int = 0
    missing: int = 0
    ignored: int = 0
    strays: int = 0
    """Samples of names that are no pod of the target."""
    kept: str = ""
    """Why the current replicas are proposed: withinTolerance, directionFlip, countGuard, or empty."""
    wrapped: bool = False
    """A sum or percentage left its integer type on the way, or a negative sum counted as MaxInt64."""


class MetricEvaluation(Struct, frozen=True, gc=False):
    """One metric of an evaluation: either a calculation or an error."""

    spec: MetricSpec
    calculation: Calculation | None
    error: str = ""
    """As condition and event carry it."""
    oldest_ms: int | None = None
    newest_ms: int | None = None


class PolicyLimit(Struct, frozen=True, gc=False):
    """What one scaling policy allowed: `start` = current - scaled_up + scaled_down within its period."""

    type: str
    value: int
    period_ms: int
    scaled_up: int
    scaled_down: int
    start: int
    limit: int


class Normalization(Struct, frozen=True, gc=False):
    """From the metrics' number to the final one: stabilization, then rate limits and min/max."""

    legacy: bool
    """No `behavior`: the fixed window and scale-up limit apply."""
    desired: int
    stabilized: int
    limited: int
    up_window_ms: int
    down_window_ms: int
    held_by: tuple[int, int] | None
    """The recommendation (replicas, time_ms) that held the stabilized value longest; None: it did not change."""
    held_until_ms: int | None
    """From this moment on `held_by` no longer counts."""
    policies: tuple[PolicyLimit, ...]
    rate_limit: int | None
    """What policies (or the legacy limit) allow in this direction; None: not asked for."""
    bound: str
    """Reason of the ScalingLimited condition: the limit that gave `limited`, or DesiredWithinRange."""


class Pending(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A wanted write of /scale and all that `complete` needs once its outcome is known. Plain data: storable."""

    current_replicas: int
    desired_replicas: int
    reason: str
    name: str
    reference: str
    generation: int | None
    """The observed generation that the status will show; None: the controller does not show it."""
    to_zero: bool
    """This write takes the target to zero by metrics: the ScaledToZero condition becomes True."""
    conditions: list[dict[str, Any]]
    current_metrics: list[dict[str, Any]] | None = None
    events: tuple[Event, ...] = ()
    error: str = ""
    """Remembered error of metrics that failed while others decided."""
    error_label: str = "none"
    metric_results: tuple[MetricResult, ...] = ()
    longest_period_ms: int | None = None
    """Longest policy period of the write's direction; None: no `behavior`, no scale event is stored."""


class ReconcileResult(Struct, frozen=True, kw_only=True, gc=False):
    """The end of a reconcile."""

    status: dict[str, Any]
    """autoscaling/v2 status in JSON form, after this reconcile."""
    events: tuple[Event, ...] = ()
    events_after_write: tuple[Event, ...] = ()
    """Emitted after the status write (matters only for the order when that write fails)."""
    error: str = ""
    error_label: str = "none"
    """none, spec or internal."""
    action: str = "none"
    """scale_up, scale_down or none."""
    metric_results: tuple[MetricResult, ...] = ()
    desired_gauge: int | None = None
    history: History
    final: bool = False
    """The reconcile ran to its end: a failed status write replaces its error."""


class Evaluation(Struct, frozen=True, kw_only=True, gc=False):
    """One evaluation of an HPA. Exactly one of `result` and `pending` is set."""

    path: str
    """metrics, metricsFailed, disabled, aboveMax, belowMin, scaleUnavailable; or ignored, which upstream has not."""
    history: History
    """Memory after this step; keep it also while a write is pending."""
    current_replicas: int | None = None
    proposal: int | None = None
    """Replicas that the metrics ask for, before anything limits them (upstream: never below 0)."""
    desired_replicas: int | None = None
    reason: str = ""
    """Reason of the rescale, as its event says; may be empty."""
    selected_metric: str = ""
    metrics: tuple[MetricEvaluation, ...] = ()
    """In the order of the spec; empty where none was read: on all paths but `metrics` and `metricsFailed`, and on that
    where the pod selector is at fault.
    """
    normalization: Normalization | None = None
    raised_to_min: bool = False
    """From zero: what the metrics gave was raised to minReplicas."""
    result: ReconcileResult | None = None
    pending: Pending | None = None


class ScaleApplied(Struct, frozen=True, gc=False, tag=True):
    """The target now has the wanted replicas."""


class ScaleFailed(Struct, frozen=True, gc=False, tag=True):
    """The write failed for good, with this text."""

    error: str


ScaleOutcome = ScaleApplied | ScaleFailed
