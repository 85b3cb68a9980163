"""What one pod carries, as a multiple of a metric's target: the same measure of overload for every spec."""

from collections.abc import Sequence

from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import MetricSpec

USUAL = 0.99
"""Share of the time for which a load per pod must have been carried or not reached, to count as usual."""


def capacity_of(spec: MetricSpec, ratios: Sequence[float], high: float) -> float:
    """What a pod carries at a metric, as a multiple of its target.

    For a utilization this is the request. For other metrics nothing says what a pod can carry but the recording: the
    load that it rarely exceeded. Never less than the upper end of the tolerance, which every HPA allows.

    Args:
        spec: the metric.
        ratios: recorded loads per pod, over the target.
        high: the highest ratio at which the HPA changes nothing.
    """
    if spec.calculation == kinds.UTILIZATION:
        return max(100 / spec.target, high)
    ordered = sorted(ratios)
    return max(high, ordered[int(len(ordered) * USUAL)] if ordered else high)
