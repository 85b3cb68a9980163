"""What a HorizontalPodAutoscaler's spec says, compiled once per generation so that an evaluation only computes.

`compile.py` makes these from a defaulted autoscaling/v2 object; nothing here reads JSON.
"""

from typing import Any, Final

from msgspec import Struct

UTILIZATION: Final = "utilization"
RAW_AVERAGE: Final = "rawAverage"
PODS: Final = "pods"
OBJECT_VALUE: Final = "objectValue"
OBJECT_PER_POD: Final = "objectPerPod"
EXTERNAL_VALUE: Final = "externalValue"
EXTERNAL_PER_POD: Final = "externalPerPod"
INVALID: Final = "invalid"
"""How a metric's replicas are calculated. `invalid`: the spec itself is the error, the metric is never asked for."""


class ControllerSettings(Struct, frozen=True, kw_only=True):
    """The controller flags that take part in a decision; the defaults are kube-controller-manager's."""

    tolerance: float = 0.1
    downscale_stabilization_ms: int = 300_000
    cpu_initialization_period_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000


class MetricSpec(Struct, frozen=True, kw_only=True):
    """One item of `spec.metrics`."""

    type: str
    """`type` as written: the label of metric_computation_total."""
    calculation: str
    target: int = 0
    """Percent for `utilization`, else milli units."""
    name: str = ""
    """The metric as messages call it, e.g. `cpu resource utilization (percentage of request)`."""
    resource: str = ""
    container: str = ""
    """Empty: the whole pod."""
    binary: bool = False
    """The status shows its averages in BinarySI (resource memory)."""
    status_key: str = ""
    """Member of a MetricStatus that carries this metric: `resource`, `pods`, …"""
    status_before: tuple[tuple[str, Any], ...] = ()
    """The members of that member beside `current`: what identifies the metric. Shared; never changed."""
    reason: str = ""
    """Condition and event reason when it fails, e.g. FailedGetResourceMetric."""
    fetch_prefix: str = ""
    """Put before an error text of the metrics client."""
    inner_prefix: str = ""
    """Put before every error of the calculation; the result is what condition and event carry."""
    outer_prefix: str = ""
    """Put before the condition's text in the error of the reconcile."""
    error: str = ""
    """The error of an `invalid` metric, as condition and event carry it."""
    spec_fault: bool = False
    """The error counts as a fault of the spec (label `spec`), not of the system (`internal`)."""


class ScalingPolicy(Struct, frozen=True):
    """One policy of a direction. `factor`: what a Percent policy multiplies the start value with."""

    type: str
    value: int
    period_ms: int
    factor: float


class ScalingRules(Struct, frozen=True, kw_only=True):
    """`behavior.scaleUp` or `behavior.scaleDown`."""

    window_ms: int | None
    """Stabilization window; None (scaleDown only): the controller's downscale stabilization."""
    select: str
    policies: tuple[ScalingPolicy, ...]
    longest_ms: int
    """The longest period of the policies: events older than it are outdated when the next one is stored."""
    tolerance: float | None


class Autoscaler(Struct, frozen=True, kw_only=True, gc=False):
    """A compiled HorizontalPodAutoscaler spec (identity, target, limits, metrics, behavior)."""

    namespace: str
    name: str
    generation: int
    reference: str
    """`kind/namespace/name` of the target, as error texts print it."""
    target_kind: str
    target_group: str
    target_name: str
    target_error: str
    """Why `scaleTargetRef.apiVersion` cannot be parsed; empty when it can."""
    min_replicas: int
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    has_object_or_external: bool
    """Some metric is of type Object or External: what scaling to and from zero requires."""
    scale_up: ScalingRules | None
    """None together with `scale_down`: no `behavior`, the legacy limits apply."""
    scale_down: ScalingRules | None
