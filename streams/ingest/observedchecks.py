"""Checks of what is observed or pushed: pods, answers of metrics APIs, and points."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from schemas import fitting, limits
from schemas.answers import Answers, MetricAnswer, PodColumns, check_size
from schemas.kubernetes.quantity import MAX_I64, MIN_I64, QuantityError, parse_quantity
from schemas.limits import MAX_TIME_MS, POD_QUANTITY, Refusal
from schemas.observed import Container, Pod, PodList, Point, Samples
from streams.ingest.checks import check_chunk, check_namespace, check_object, check_text, check_time

T = TypeVar("T")


def check_pod_list(body: PodList) -> None:
    """Check a chunk of a full list.

    Raises Refusal: naming the first pod at fault: a list with a hole would remove that pod.
    """
    check_chunk(body.list_id, body.chunk, body.chunks)
    for pod in body.pods:
        check_pod(pod)


def check_pod(pod: Pod) -> None:
    """Check one pod. Raises Refusal: naming the pod and the field."""
    check_object(pod.name, "pod name")
    for container in (*pod.containers, *pod.init_containers):
        _container(container, pod.name)
    _amounts(pod.pod_requests or {}, f"podRequests of pod {pod.name}")
    _amounts(pod.overhead, f"overhead of pod {pod.name}")


def _container(container: Container, pod: str) -> None:
    check_namespace(container.name)
    _amounts(container.requests, f"requests of {pod}/{container.name}")


def _amounts(amounts: Mapping[str, str], field: str) -> None:
    for resource, text in amounts.items():
        # Checked before the cache, which would keep every text that is sent.
        if problem := _problem(text) if len(text) <= POD_QUANTITY.most else "longer than any quantity":
            raise Refusal("invalid", f"{field}: {resource} {text[:40]!r}: {problem}")


@lru_cache(maxsize=16_384)
def _problem(text: str) -> str:
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        return str(error)
    return "must not be negative" if quantity.sign() < 0 else ""


def check_answers(body: Answers | Samples) -> None:
    """Check a batch of answers or of pushed points. Raises Refusal: naming the first item at fault."""
    if isinstance(body, Samples):
        _check_each("points", check_point, body.points)
    else:
        _check_each("items", _answer, body.items)


def _check_each(field: str, check: Callable[[T], None], items: Sequence[T]) -> None:
    checked = 0
    try:
        for item in items:
            check(item)
            checked += 1
    except Refusal as refusal:
        raise Refusal(refusal.code, f"{field}[{checked}]: {refusal.text}") from refusal


def _answer(answer: MetricAnswer) -> None:
    if answer.api != "resource":
        check_text(answer.metric, "metric")
    if answer.api == "object":
        check_text(answer.group_kind, "groupKind")
        check_text(answer.object, "object")
    check_size(answer)
    if answer.pods is not None:
        _pods(answer.api, answer.pods)


def _pods(api: str, pods: PodColumns) -> None:
    if api not in ("resource", "pods"):
        raise Refusal("invalid", f"pods: an answer of api {api} has none")
    count, ages, shorter = pods.count, pods.ages, pods.shorter
    if len(pods.prefix) > limits.SCALE_NAME.most:
        raise Refusal("badName", f"the prefix of pods has {len(pods.prefix)} characters, a name at most 253")
    for name in pods.pod_names:
        check_object(name, "pod")
    if ages and (len(ages) != count or min(ages) < 0 or max(ages) > pods.time):
        raise Refusal("invalid", f"ages of pods: none, or one of 0 to {pods.time} for each of {count} pods")
    if shorter and (len(shorter) != count or min(shorter) < 0 or max(shorter) > MAX_TIME_MS):
        raise Refusal("invalid", f"shorter of pods: none, or one of 0 to {MAX_TIME_MS} for each of {count} pods")
    if api == "pods" and [column[:2] for column in pods.columns] != [("", "")]:
        raise Refusal("invalid", "columns of pods: one without container and resource for a custom metric")
    for container, resource, factor, values in pods.columns:
        known = [value for value in values if value is not None]
        if len(values) != count or (api == "pods" and len(known) < count):
            raise Refusal("invalid", f"{resource} of {container}: {len(known)} values for {count} pods")
        if factor < 1 or (known and (max(known) * factor > MAX_I64 or min(known) * factor < MIN_I64)):
            raise Refusal("outOfRange", f"{resource} of {container}: factor below 1, or beyond 64 bit with it")


def check_point(point: Point) -> None:
    """Check that a pushed point says what its type needs and that its value is possible.

    Raises Refusal: naming the field.
    """
    fitting.check_point(point)
    check_text(point.metric, "metric")
    check_time(point.time, "time")
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
