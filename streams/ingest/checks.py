"""Checks of what types cannot say: names, values and times as producers write them; pods, answers of metrics APIs and
pushed points; and what FleetHPAs and CapacityGroups are, report and allot.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from schemas import fitting, limits
from schemas.answers import Answers, MetricAnswer, PodColumns, check_size
from schemas.capacity import CAPACITY, CapacityAllotment, CapacityGroupSet, CapacityMatch, CapacityReport
from schemas.codec import encode
from schemas.entries import Body, FleetAllotment, FleetReport, FleetReportItem, central_name
from schemas.keys import FLEET
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.names import dns_label_errors, dns_subdomain_errors
from schemas.kubernetes.quantity import MAX_I64, MIN_I64, QuantityError, parse_quantity
from schemas.kubernetes.selectors import SelectorError
from schemas.kubernetes.shape import Json
from schemas.limits import MAX_TIME_MS, NAME, POD_QUANTITY, Refusal
from schemas.observed import AutoscalerSet, Command, Container, FleetSpec, Pod, PodList, Point, Samples
from streams.across.contradiction import contradiction
from streams.hpa.parts import PartError, read_part
from streams.ingest.pieces import SourcePlace

_CLUSTER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)
_MAX_NAME = 253
"""Of any name. Longer texts never get into a cache: a client that may write a topic could fill the memory with them."""


def is_cluster(name: str) -> bool:
    """Whether a cluster can be called so: letters, digits, `-`, `_`, `.`; at most 253; no `/`, which parts keys."""
    return len(name) <= _MAX_NAME and _matches_cluster(name)


def is_object(name: str) -> bool:
    """Whether it is a DNS subdomain (RFC 1123), as pods and workloads are called."""
    return len(name) <= _MAX_NAME and not _subdomain_errors(name)


@lru_cache(maxsize=1_024)
def _matches_cluster(name: str) -> bool:
    return _CLUSTER.fullmatch(name) is not None


_label_errors = lru_cache(maxsize=16_384)(dns_label_errors)
_subdomain_errors = lru_cache(maxsize=65_536)(dns_subdomain_errors)


def check_cluster(name: str) -> str:
    """Return the name. Raises Refusal: `badName`."""
    if not is_cluster(name):
        raise Refusal(
            "badName", f"cluster {_shown(name)} must be 1-253 of letters, digits, '-', '_' and '.', no '/' or blank"
        )
    return name


def check_namespace(name: str) -> str:
    """Return a name that is a DNS label (RFC 1123), as of namespaces and containers. Raises Refusal: `badName`."""
    if len(name) > _MAX_NAME or _label_errors(name):
        raise Refusal("badName", f"namespace {_shown(name)} must be a DNS label: a-z, 0-9 and '-', at most 63")
    return name


def check_object(name: str, field: str) -> str:
    """Return the name, or raise `badName`."""
    if not is_object(name):
        raise Refusal("badName", f"{field} {_shown(name)} must be a DNS subdomain: a-z, 0-9, '-' and '.', at most 253")
    return name


def check_text(text: str, field: str, limit: int = NAME.most) -> str:
    """Return a free text that is not empty, not too long and printable, or raise `badName`."""
    if not text or len(text) > limit or not text.isprintable():
        raise Refusal("badName", f"{field} {_shown(text)} must be 1-{limit} printable characters")
    return text


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "…")


_MOST_SHIFT = 30
"""A number with more zeros than this at its end, in milli units, does not fit 64 bit."""
_DIGIT = re.compile("[0-9]")
_NOT_FINITE = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


def to_milli(value: object) -> int:
    """Turn a sample's value into milli units, rounded away from zero as `Quantity.MilliValue` does.

    A double counts as the shortest decimal that reads back as the same double (0.1 is 100 milli, not 101). A text is
    read as a quantity, and is not wrapped where it does not fit.

    Args:
        value: an int, a finite float, a decimal text (`"112.5"`, `"1e3"`) or a Kubernetes quantity (`"250m"`, `"2Gi"`).

    Raises:
        Refusal: `notANumber`, `outOfRange` (beyond signed 64 bit in milli units).
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Refusal("notANumber", f"value must be a number or a quantity text, got {type(value).__name__}")
    if isinstance(value, int):
        return _in_range(value * 1000, value)
    text = value if isinstance(value, str) else repr(value)
    if text.lower() in _NOT_FINITE:
        raise Refusal("notANumber", f"value is {text}, not a finite number (a stale marker ends a series)")
    return _text_to_milli(text)


def _text_to_milli(text: str) -> int:
    try:
        if not _DIGIT.search(text):  # which Kubernetes takes for 0
            raise QuantityError("it has no digit")
        quantity = parse_quantity(text)
    except QuantityError as error:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise Refusal(
            "notANumber", f"value {shown!r} is neither a number nor a Kubernetes quantity: {error}"
        ) from error
    size, shift = abs(quantity.mantissa), quantity.exponent + 3
    if not size:
        return 0
    if shift > _MOST_SHIFT:
        raise _out_of_range(text)
    milli = size * int(10**shift) if shift >= 0 else -(-size // int(10**-shift))
    return _in_range(milli if quantity.mantissa > 0 else -milli, text)


def _in_range(milli: int, shown: object) -> int:
    if not MIN_I64 <= milli <= MAX_I64:
        raise _out_of_range(shown)
    return milli


def _out_of_range(shown: object) -> Refusal:
    text = str(shown)
    return Refusal("outOfRange", f"value {text[:40]}{'…' if len(text) > 40 else ''} does not fit 64 bit in milli units")


def check_time(time_ms: int, field: str) -> int:
    """Return the time if it lies after the epoch and within the year 9999. Raises Refusal: `badTime`."""
    if not 0 < time_ms <= MAX_TIME_MS:
        raise Refusal("badTime", f"{field} is {time_ms}: expected milliseconds since 1970, up to the year 9999")
    return time_ms


def nanos_to_ms(nanos: int, field: str) -> int:
    """Whole milliseconds of a Unix time in nanoseconds."""
    return check_time(nanos // 1_000_000, field)


def time_to_ms(value: object, field: str) -> int:
    """Read a time: integer milliseconds since the epoch or RFC 3339 text (finer than a millisecond is cut off).

    Raises Refusal: `badTime`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return check_time(value, field)
    if not isinstance(value, str):
        raise Refusal("badTime", f"{field} must be integer milliseconds or RFC 3339, got {str(value)[:40]!r}")
    try:
        # RFC 3339 allows small letters and a space between date and time, which some producers write.
        return check_time(parse_time_ms(value.upper().replace(" ", "T", 1)), field)
    except ValueError as error:
        raise Refusal("badTime", f"{field} must be integer milliseconds or RFC 3339, got {value[:40]!r}") from error


def check_chunk(list_id: str, chunk: int, chunks: int) -> None:
    """Check the numbering of a chunk of a full list, or raise a refusal."""
    check_text(list_id, "listId")
    check_range(chunk, "chunk", 0, chunks - 1)


def check_range(value: int, field: str, minimum: int, maximum: int) -> None:
    """Check that a number lies within its bounds. Raises Refusal: `outOfRange`."""
    if not minimum <= value <= maximum:
        raise Refusal("outOfRange", f"{field} is {value}, must be {minimum} to {maximum}")


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


T = TypeVar("T")


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


_PREFIX = re.compile("[a-z0-9][-a-z0-9]{0,99}")
_NAMES = re.compile("[-a-z0-9]{0,99}[a-z0-9](?:,[-a-z0-9]{0,99}[a-z0-9])*")
"""Parts of the names of pods that surely make DNS subdomains without dots."""


def _pods(api: str, pods: PodColumns) -> None:
    if api not in ("resource", "pods"):
        raise Refusal("invalid", f"pods: an answer of api {api} has none")
    count, ages, shorter = pods.count, pods.ages, pods.shorter
    if len(pods.prefix) > limits.SCALE_NAME.most:
        raise Refusal("badName", f"the prefix of pods has {len(pods.prefix)} characters, a name at most 253")
    if not (_PREFIX.fullmatch(pods.prefix) and _NAMES.fullmatch(pods.names)):  # a fifth of the time, for nearly all
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


def check_of_fleet(body: Body, kind: str) -> None:
    """Refuse what is not of a FleetHPA: nothing is observed of it."""
    if central_name(body) is None and not isinstance(body, Command | FleetReport):
        raise Refusal("invalid", f"{kind!r} is of a cluster, and {FLEET} is none: it has FleetHPAs only")
    if isinstance(body, AutoscalerSet) and body.fleet is None:
        raise Refusal("invalid", f"an HPA of {FLEET} needs fleet, which says among which clusters it is divided")


def check_fleet(fleet: FleetSpec, spec: Json, revision: int, place: SourcePlace) -> None:
    """Check the part of a FleetHPA's spec that an HPA has not. Raises Refusal."""
    if place.cluster != FLEET:
        raise Refusal("invalid", f"fleet: a FleetHPA is of cluster {FLEET}, not of {place.cluster}")
    if not revision:
        raise Refusal("invalid", "a FleetHPA needs a revision, another one with each change")
    limits.check(limits.FLEET_CLUSTERS, len(fleet.clusters), "fleet.clusters")
    for each in fleet.clusters:
        check_cluster(each.name)
    if problem := contradiction(fleet.clusters, spec["minReplicas"], spec["maxReplicas"]):
        raise Refusal("invalid", problem)


def check_allotment(body: FleetAllotment) -> None:
    """Check what a FleetHPA allots to a member. Raises Refusal."""
    check_object(body.name, "name")
    check_text(body.decision, "decision")


def check_group(body: CapacityGroupSet) -> None:
    """Check a CapacityGroup. Raises Refusal."""
    check_namespace(body.name)
    if body.spec is None:
        return
    limits.check(limits.CAPACITY_PRIORITIES, len(body.spec.priorities), "spec.priorities")
    limits.check(limits.CAPACITY_CLUSTERS, len(body.spec.clusters), "spec.clusters")
    limits.check(limits.CAPACITY_CLUSTERS, len(body.spec.namespaces), "spec.namespaces")
    limits.check(limits.CAPACITY_SPEC, len(encode(body.spec)), f"CapacityGroup {body.name}")
    if body.spec.limit.kind == "units":
        check_text(body.spec.limit.name, "spec.limit.name")
    try:
        CapacityMatch(body.spec)
    except SelectorError as error:
        raise Refusal("invalid", f"CapacityGroup {body.name}: a selector cannot be read: {error}") from error


def check_capacity_report(body: CapacityReport, place: SourcePlace) -> None:
    """Check what a member reports to a CapacityGroup. Raises Refusal."""
    if place.namespace != body.group:
        raise Refusal("invalid", f"a report to CapacityGroup {body.group} goes to {CAPACITY}/{body.group}")
    check_cluster(body.cluster)
    check_namespace(body.namespace)
    check_object(body.name, "name")
    if body.most < body.has:
        raise Refusal("invalid", f"most is {body.most}, below has, which is {body.has}")


def check_capacity_allotment(body: CapacityAllotment) -> None:
    """Check what a CapacityGroup allots to a member. Raises Refusal."""
    check_namespace(body.group)
    check_object(body.name, "name")


def check_fleet_report(body: FleetReport, place: SourcePlace) -> None:
    """Check what a member reports to its FleetHPAs, but for the items. Raises Refusal."""
    if place.cluster != FLEET:
        raise Refusal("invalid", f"a report goes to cluster {FLEET}, not to {place.cluster}")
    check_cluster(body.member)


def checked_item(item: FleetReportItem, of: str) -> FleetReportItem:
    """Check and give what a member reports to one FleetHPA. Raises Refusal.

    Args:
        of: member and namespace, for texts.
    """
    check_object(item.name, "name")
    if item.most < item.replicas:
        raise Refusal("invalid", f"{item.name}: most is {item.most}, below replicas, which are {item.replicas}")
    limits.check(limits.FLEET_PART, len(item.part), f"{of}/{item.name}")
    try:
        read_part(item.part)
    except PartError as error:
        raise Refusal("wrongType", f"{item.name}: part: {error}") from error
    return item
