"""Utilization that rose because the pods request less, as after a vertical autoscaler or a resize in place."""

from collections.abc import Iterable

from msgspec import Struct

from schemas.decisions import Decision, MetricDecision

BACK_MS = 600_000
"""How far back an earlier evaluation is looked for: pods are resized one after the other."""


class LoweredRequest(Struct, frozen=True, kw_only=True):
    """What the pods of a target request and use on average (milli units), in an earlier evaluation and in this one.

    The requests follow from usage and percentage, which is recorded in whole percents: they are about right.
    """

    metric: str
    request_before: int
    request: int
    usage_before: int
    usage: int


def lowered_requests(earlier: Iterable[Decision], decision: Decision) -> list[LoweredRequest]:
    """The metrics of a decision whose utilization is higher than in an earlier one, and more so because of a lower
    request than because of a higher usage. Of several earlier ones, the one with the highest request counts.

    A request counts as lower only where the rounding of percentages cannot explain it.
    """
    found: dict[str, LoweredRequest] = {}
    past = list(earlier)
    for metric in decision.metrics:
        for before in past:
            for old in before.metrics:
                lowered = _lowered(old, metric) if (old.type, old.name) == (metric.type, metric.name) else None
                known = found.get(metric.name)
                if lowered is not None and (known is None or lowered.request_before > known.request_before):
                    found[metric.name] = lowered
    return list(found.values())


def _lowered(old: MetricDecision, new: MetricDecision) -> LoweredRequest | None:
    if not (old.value and old.utilization and new.value and new.utilization) or new.utilization <= old.utilization:
        return None
    # A percentage is cut to a whole number: of u percents it is u or more, and below u + 1.
    least_before = old.value * 100 // (old.utilization + 1)
    most_now = -(-new.value * 100 // new.utilization)
    if least_before * old.value <= most_now * new.value or most_now >= least_before:
        return None
    before, now = old.value * 100 // old.utilization, new.value * 100 // new.utilization
    return LoweredRequest(metric=new.name, request_before=before, request=now, usage_before=old.value, usage=new.value)
