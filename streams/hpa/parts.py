"""A target in parts: what each part of its pods contributes to one decision, and the parts added up.

The law: for every way to split the pods of a target into parts, `decide` on the joined parts gives what it gives on the
whole (`python -m tests.conformance --split K`).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct, structs

from schemas.limits import FLEET_PAST, Count, TimeMs
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, ControllerSettings, MetricSpec
from streams.hpa.evaluation import History
from streams.hpa.gofloat import MAX_INT32, wrap64
from streams.hpa.grouping import Groups, join
from streams.hpa.metrics import JoinedObservation, grouped
from streams.hpa.normalize import ScaleEvents
from streams.hpa.observation import (
    ExternalSamples,
    MetricFailure,
    MetricReading,
    ObjectSample,
    Observation,
    PodCounts,
    PodSamples,
    Scale,
    ScaleFailure,
    TargetPods,
    pod_samples,
)


class UnreadGroups(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """Pods whose metric could not be read: all of them are missing. `error`: the text of the metrics client."""

    groups: Groups
    error: str


PartReading = Groups | UnreadGroups | ObjectSample | ExternalSamples | MetricFailure | None
"""What a part knows of one metric; None: its spec is invalid, so it was not asked for."""


class PartObservation(Struct, array_like=True, frozen=True, gc=False):
    """An observation with sums in place of pods: what a member reports."""

    scale: Scale | ScaleFailure
    pods: PodCounts
    answers: tuple[PartReading, ...]
    """One per `spec.metrics` item, same order."""
    ambiguous: tuple[str, ...] = ()
    recommended: tuple[tuple[Count, TimeMs], ...] = ()
    """What its own autoscaler recommended (`recent`), until the autoscaler of the total has taken it over."""
    added: tuple[tuple[Count, TimeMs, bool], ...] = ()
    """Its scale events (`History`), until then."""
    removed: tuple[tuple[Count, TimeMs, bool], ...] = ()


def fits(parts: Iterable[PartObservation], autoscaler: Autoscaler) -> list[bool]:
    """Say of each part whether it has a reading for each metric of a spec, of pods where the metric is of pods."""
    are_of_pods = tuple([spec.calculation in kinds.OF_PODS for spec in autoscaler.metrics])
    return [_fit(tuple(map(type, part.answers)), are_of_pods) for part in parts]


@lru_cache
def _fit(answers: tuple[type, ...], are_of_pods: tuple[bool, ...]) -> bool:
    other = {True: (ObjectSample, ExternalSamples), False: (Groups, UnreadGroups)}
    return len(answers) == len(are_of_pods) and not any(
        [answer in other[is_of_pods] for answer, is_of_pods in zip(answers, are_of_pods, strict=True)]
    )


def summed(autoscaler: Autoscaler, seen: Observation, settings: ControllerSettings, now_ms: int) -> PartObservation:
    """Sum up what one part of the pods contributes to a decision at `now_ms`."""
    part = summed_answers(autoscaler, seen.scale, seen.pods, seen.answers, settings, now_ms)
    return structs.replace(part, ambiguous=seen.ambiguous) if seen.ambiguous else part


def summed_answers(
    autoscaler: Autoscaler,
    scale: Scale | ScaleFailure,
    pods: TargetPods,
    answers: Sequence[MetricReading | Groups | None],
    settings: ControllerSettings,
    now_ms: int,
) -> PartObservation:
    """Do what `summed` does with answers of which some may be groups already, with the times of their samples."""
    of_metrics = zip(autoscaler.metrics, answers, strict=True) if answers else ()
    readings = tuple([_summed(spec, answer, pods, settings, now_ms) for spec, answer in of_metrics])
    return PartObservation(scale, PodCounts(len(pods), pods.running_ready, _waiting(scale, pods)), readings)


def _waiting(scale: Scale | ScaleFailure, pods: TargetPods) -> int:
    """Count the pods that wait for a node: a kubelet sets the start time of a pod that it takes. Those that a rollout
    has beyond the replicas of the scale are not counted.
    """
    if not pods.pending or not isinstance(scale, Scale):
        return 0
    pending = sum([pod.start_ms is None for pod in pods.pending])
    placed = len(pods.rows) - len(pods.ignored) - pending
    return min(pending, max(0, scale.spec_replicas - placed))


class PartError(ValueError):
    """A text that is not a part; it names the field and the reason."""


_READ, _WRITE = msgspec.json.Decoder(PartObservation).decode, msgspec.json.Encoder().encode


def written_part(part: PartObservation) -> str:
    """Write a part as JSON: arrays, in the order of the fields. Sums are integers, of more than 64 bits if need be."""
    return _WRITE(part).decode()


def read_part(text: str) -> PartObservation:
    """Read a part. Raises PartError: it is not one."""
    try:
        return _READ(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PartError(str(error)) from error


def _summed(
    spec: MetricSpec, answer: MetricReading | Groups | None, pods: TargetPods, settings: ControllerSettings, now_ms: int
) -> PartReading:
    if isinstance(answer, PodSamples):
        groups = grouped(spec, answer, pods, settings, now_ms)
        return structs.replace(groups, oldest_ms=answer.oldest_ms, newest_ms=answer.newest_ms)
    if isinstance(answer, MetricFailure) and spec.calculation in kinds.OF_PODS:
        return UnreadGroups(grouped(spec, pod_samples({}), pods, settings, now_ms), answer.error)
    return answer


def joined(parts: Sequence[PartObservation]) -> JoinedObservation:
    """Add up the parts of a target, one at least, in their order: replicas, pods and groups.

    A part whose scale could not be read contributes nothing, one that could not read a metric has its pods missing
    there, as upstream counts pods without a sample; where every part failed, the first failure is that of all.
    An Object or External value is one for all parts: the first part that read it counts.
    """
    present = [each for each in parts if type(each.scale) is Scale] or parts[:1]
    scales = [each.scale for each in present if type(each.scale) is Scale]
    answers = zip(*[each.answers for each in present], strict=True)
    return JoinedObservation(
        Scale(
            sum([each.spec_replicas for each in scales]),
            sum([each.status_replicas for each in scales]),
            scales[0].selector,
        )
        if scales
        else present[0].scale,
        PodCounts(sum([each.pods.count for each in present]), sum([each.pods.running_ready for each in present])),
        tuple([_joined(each) for each in answers]),
        tuple(sorted({name for each in present for name in each.ambiguous})),
    )


def recent(recommendations: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the recommendations that can be the highest or the lowest of a window that ends now, oldest first; of very
    many the newest.
    """
    scales: list[tuple[int, int]] = []
    lowest, highest = MAX_INT32, -1
    for replicas, time_ms in sorted(recommendations, key=lambda each: (-each[1], each[0])):
        if not lowest <= replicas <= highest:
            scales.append((replicas, time_ms))
            lowest, highest = min(lowest, replicas), max(highest, replicas)
    return tuple(scales[: FLEET_PAST.most][::-1])


def newest_events(events: Iterable[tuple[int, int, bool]]) -> ScaleEvents:
    """Return scale events, oldest first; of very many the newest."""
    return tuple(sorted(events, key=lambda each: (each[1], each[0], each[2]))[-FLEET_PAST.most :])


def with_past(part: PartObservation, history: History) -> PartObservation:
    """Return a part with what its own autoscaler did until now."""
    added, removed = newest_events(history.scale_up_events), newest_events(history.scale_down_events)
    return structs.replace(part, recommended=recent(history.recommendations), added=added, removed=removed)


def added_up(parts: Sequence[Sequence[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    """Add up the recommendations of autoscalers that become one, so that its windows end as theirs would have: in each
    window, its highest is the sum of their highest, and its lowest the sum of their lowest.

    One without a recommendation so late in a window counts with its newest. `parts`: each with one at least.
    """
    highest = [max(part, key=lambda each: each[1])[0] for part in parts]
    lowest, sums = list(highest), []
    every = [(time_ms, number, replicas) for number, part in enumerate(parts) for replicas, time_ms in part]
    for time_ms, number, replicas in sorted(every, reverse=True):
        highest[number], lowest[number] = max(highest[number], replicas), min(lowest[number], replicas)
        sums += [(min(MAX_INT32, sum(each)), time_ms) for each in (highest, lowest)]
    return recent(sums)


class SeenPart(Struct, frozen=True, gc=False):
    """A part, `values` per metric, and `rest`: all that it shows beside values of metrics and their times."""

    part: PartObservation
    values: tuple[int, ...]
    rest: tuple[Any, ...]


def seen_part(text: str) -> SeenPart:
    """Read a part. Raises PartError: it is not one."""
    part = read_part(text)
    rest = (part.scale, part.pods, part.ambiguous, *map(_but_values, part.answers))
    return SeenPart(part, tuple(map(_value, part.answers)), rest)


def totals(parts: Iterable[SeenPart]) -> tuple[int, ...]:
    """Return per metric what all parts together show of it: the values that change while nothing else does."""
    return tuple([wrap64(sum(each)) for each in zip(*[part.values for part in parts], strict=False)])


def changed(drift: tuple[int, ...], before: SeenPart, now: SeenPart) -> tuple[int, ...]:
    """Return by how much `totals` has changed, after one part of them has."""
    of_metrics = zip(drift, before.values, now.values, strict=False)
    return tuple([wrap64(more + new - old) for more, old, new in of_metrics])


def _value(reading: PartReading) -> int:
    if type(reading) is Groups:
        return reading.kept_milli
    if isinstance(reading, ExternalSamples):
        return sum(reading.values_milli)
    return reading.value_milli if isinstance(reading, ObjectSample) else 0


_COUNTS = attrgetter(
    *("ready", "missing", "unready", "ignored", "strays"),
    *("ready_request", "missing_request", "unready_request", "request_error"),
)


def _but_values(reading: PartReading) -> Any:
    if type(reading) is Groups:
        return _COUNTS(reading)
    return type(reading) if isinstance(reading, ObjectSample | ExternalSamples) else reading


def within(autoscaler: Autoscaler, held: int, least: int) -> Autoscaler:
    """Return the spec of a whole for the parts that take part in a decision.

    Args:
        held: what the other parts have, which counts towards both bounds.
        least: the least that those that take part may have.
    """
    if not held:
        return autoscaler
    most = max(autoscaler.max_replicas - held, least, 1)
    bound = min(max(autoscaler.min_replicas - held, least), most)
    return structs.replace(autoscaler, max_replicas=most, min_replicas=bound)


def _joined(readings: Sequence[PartReading]) -> Groups | ObjectSample | ExternalSamples | MetricFailure | None:
    groups = [each for each in readings if type(each) is Groups]
    if len(groups) == len(readings):
        return join(groups)
    unread = [each for each in readings if isinstance(each, UnreadGroups)]
    if groups:
        return join(groups + [each.groups for each in unread])
    if unread:
        return MetricFailure(unread[0].error)
    values = [each for each in readings if isinstance(each, (ObjectSample, ExternalSamples))]
    failures = [each for each in readings if isinstance(each, MetricFailure)]
    return next(iter([*values, *failures]), None)
