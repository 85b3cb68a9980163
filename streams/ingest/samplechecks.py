"""Checks of samples: answers of metrics APIs and pushed points."""

from collections.abc import Callable
from typing import TypeVar

from schemas import fitting, limits
from schemas.limits import OverLimitError
from schemas.samples import Answers, MetricAnswer, PodUsage, PodValue, Point, Samples
from streams.ingest.keynames import check_namespace, check_object, check_text, is_object
from streams.ingest.numberchecks import MAX_I64, check_i64, check_moment, check_range
from streams.ingest.pieces import MAX_TIME_MS, Refusal
from streams.ingest.points import check_time

T = TypeVar("T")


def check_answers(body: Answers | Samples) -> None:
    """Check a batch of answers or of pushed points.

    Raises:
        Refusal: naming the first item at fault.
    """
    if isinstance(body, Samples):
        for index, point in enumerate(body.points):
            _at(f"points[{index}]", check_point, point)
        return
    for index, answer in enumerate(body.items):
        _at(f"items[{index}]", _answer, answer)


def _at(place: str, check: Callable[[T], None], item: T) -> None:
    try:
        check(item)
    except Refusal as refusal:
        raise Refusal(refusal.code, f"{place}: {refusal.text}") from refusal


def _answer(answer: MetricAnswer) -> None:
    if answer.api != "resource":
        check_text(answer.metric, "metric")
    if answer.api == "object":
        check_text(answer.group_kind, "groupKind")
        check_text(answer.object, "object")
        check_i64(answer.milli, "milli")
        check_moment(answer.time, "time")
    if answer.parts != 1 or answer.part:
        check_text(answer.answer_id, "answerId")
        check_range(answer.parts, "parts", 1, limits.ANSWER_PARTS.most)
        check_range(answer.part, "part", 0, answer.parts - 1)
    for usage in answer.usages:
        _check_pod(usage)
        for container, amounts in usage.containers:
            for resource, milli in amounts.items():
                if not -MAX_I64 <= milli <= MAX_I64:
                    raise Refusal("outOfRange", f"{resource} of {usage.pod}/{container} does not fit 64 bit")
    for value in answer.values:
        _check_pod(value)
        check_i64(value.milli, f"value of {value.pod}")
    for milli, time_ms in answer.items:
        check_i64(milli, "items")
        check_moment(time_ms, "time of an item")


def _check_pod(sample: PodUsage | PodValue) -> None:
    # A negative window counts, as upstream has it.
    if is_object(sample.pod) and 0 <= sample.time <= MAX_TIME_MS and -MAX_TIME_MS <= sample.window_ms <= MAX_TIME_MS:
        return
    check_object(sample.pod, "pod")
    check_moment(sample.time, "time")
    check_range(sample.window_ms, "windowMs", -MAX_TIME_MS, MAX_TIME_MS)


def check_point(point: Point) -> None:
    """Check that a pushed point says what its type needs and that its value is possible.

    Raises:
        Refusal: naming the field.
    """
    try:
        fitting.check_point(point)
    except OverLimitError as error:
        raise Refusal("overLimit", str(error)) from error
    check_text(point.metric, "metric")
    check_i64(point.milli, "milli")
    check_time(point.time, "time")
    check_moment(point.start_time, "startTime")
    is_resource = point.type in ("Resource", "ContainerResource")
    if is_resource or point.type == "Pods":
        check_object(point.pod, f"pod of a {point.type} sample")
    if point.type == "ContainerResource":
        check_namespace(point.container)
    if point.type == "Object":
        check_text(point.object_kind, "objectKind")
        check_object(point.object, "object")
    if is_resource and point.milli < 0:
        raise Refusal("outOfRange", f"{point.metric} of pod {point.pod} is negative, which a resource cannot be")
    if point.utilization and not is_resource:
        raise Refusal("invalid", f"utilization goes only with Resource and ContainerResource, not {point.type}")
