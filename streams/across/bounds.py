"""What the clusters of a FleetHPA let its total be, so that none of them decides for the others.

A total over all pods follows whatever one cluster says of its own: pods that request a thousand CPUs make the others
look idle, pods that use as many make them look busy. So each cluster is also asked what its own metrics alone would
give, by the same algorithm: it keeps that of what it has, and counts with at most its own `maxReplicas`.
"""

from collections.abc import Mapping
from math import ceil, isfinite
from typing import Final

from msgspec import Struct, structs

from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.metrics import JoinedObservation, combine
from streams.hpa.observation import Scale
from streams.hpa.parts import PartObservation, joined

DILUTED_PERCENT: Final = 125
"""Where the clusters together ask for more than this much of the total over all pods, and a replica for each of them
beside it, requests or usage of one hide the load of others: tolerance and rounding make no such difference.
"""


class ClusterNeed(Struct, frozen=True, gc=False):
    """What a cluster has, as far as it counts, and what its own metrics of pods ask for there, per metric (None: it is
    not one of pods). One that cannot be read asks for what there is.
    """

    has: int
    asks: tuple[int | None, ...]
    most: int
    """What it counts with: as much as they ask for, also where that is within the tolerance."""
    is_over: bool = False
    """They ask for more than its own maxReplicas."""

    @property
    def wants(self) -> int:
        """What its metrics of pods ask for together."""
        return max([each for each in self.asks if each is not None], default=self.has)


class FleetBounds(Struct, frozen=True, gc=False):
    """The least and the most that the total may be, and what each cluster keeps of what it has."""

    least: int
    most: int
    keeps: Mapping[str, int]
    counted: Mapping[str, int]
    """What each cluster counts with at most."""
    over: tuple[str, ...] = ()
    """The clusters whose metrics ask for more than their own maxReplicas."""


def need_of(
    part: PartObservation, has: int, most: int, autoscaler: Autoscaler, settings: ControllerSettings, now_ms: int
) -> ClusterNeed | None:
    """Return what a cluster alone would ask for; None: its scale or its metrics of pods say nothing.

    Args:
        has: what it has or is about to have.
        most: its own maxReplicas, which bounds what it counts with.
    """
    if not isinstance(part.scale, Scale) or not any(spec.calculation in kinds.OF_PODS for spec in autoscaler.metrics):
        return None
    has, replicas = min(has, most), min(part.scale.spec_replicas, most)
    scale = structs.replace(part.scale, spec_replicas=replicas)
    combined = combine(autoscaler, joined([part]), scale, part.scale.status_replicas, settings, now_ms)
    asks: list[int | None] = []
    counted, is_over = 0, False
    for metric in combined.metrics:
        calculation = metric.calculation
        if metric.spec.calculation not in kinds.OF_PODS:
            asks.append(None)
        elif not replicas:
            asks.append(0)
        else:
            asks.append(min(most, has if calculation is None else max(0, calculation.proposal)))
            is_over = is_over or (calculation is not None and calculation.proposal > most)
            exact = (
                0.0
                if calculation is None or not isfinite(calculation.ratio)
                else min(calculation.ratio * replicas, float(most))
            )
            counted = max(counted, asks[-1] or 0, ceil(exact))
    return ClusterNeed(has, tuple(asks), counted, is_over)


def fleet_bounds(
    needs: Mapping[str, ClusterNeed],
    total: JoinedObservation,
    present: int,
    autoscaler: Autoscaler,
    settings: ControllerSettings,
    now_ms: int,
) -> FleetBounds | None:
    """Return what the needs of all clusters that take part let the total be; None: they do not bound it.

    Args:
        total: what all of them have seen, added up.
        present: the replicas that the total is decided for.
    """
    if not needs or not isinstance(total.scale, Scale):
        return None
    keeps = {name: min(each.has, each.wants) for name, each in needs.items()}
    counted = {name: each.most for name, each in needs.items()}
    least, most = min(present, sum(keeps.values())), max(present, sum(counted.values()))
    combined_needs = _asked(needs)
    if combined_needs > present or any(each is None for each in next(iter(needs.values())).asks):
        scale = structs.replace(total.scale, spec_replicas=present)
        combined = combine(autoscaler, total, scale, total.scale.status_replicas, settings, now_ms)
        # What is not of pods is one value of the FleetHPA.
        not_of_pods = [
            each.calculation.proposal
            for each in combined.metrics
            if each.calculation is not None and each.spec.calculation not in kinds.OF_PODS
        ]
        most = max([most, *not_of_pods])
        highest = max(
            [present, *[each.calculation.proposal for each in combined.metrics if each.calculation is not None]]
        )
        if 100 * combined_needs > DILUTED_PERCENT * highest + 100 * len(needs):
            least = combined_needs
    over = tuple(name for name, each in needs.items() if each.is_over)
    return FleetBounds(least, max(most, least), keeps, counted, over)


def _asked(needs: Mapping[str, ClusterNeed]) -> int:
    """Return the largest sum of what the clusters ask for by one metric, as a total over all pods would find it."""
    of_metrics = zip(*[each.asks for each in needs.values()], strict=True)
    return max([sum([each or 0 for each in asks]) for asks in of_metrics], default=0)
