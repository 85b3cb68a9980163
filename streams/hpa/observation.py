"""What a decision sees at one moment: the scale, the pods with their requests, and what upstream's clients make of
each metric's answer.

The answer is the wire form that the observer made of the API's JSON (`reconciler.core.metricanswers`). Requests are the
denominator of a utilization, compiled once per pod template.
Source: upstream `metrics/client.go` and `calculateRequests`, v1.37.1, and component-helpers `PodRequests` (KEP-2837
pod-level resources on).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, Literal

from msgspec import Struct

from schemas.answers import MetricAnswer, PodColumns
from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.kubernetes.quantity import Quantity, parse_quantity
from schemas.limits import Count
from streams.hpa.gofloat import wrap64
from streams.hpa.rules import CURRENT, Rules


class ContainerRequests(Struct, frozen=True):
    """A container's requests: resource name to quantity text."""

    name: str
    requests: Mapping[str, str]
    sidecar: bool = False
    """An init container that restarts always."""


class PodTemplate:
    """The part of a pod spec that requests resources; pods of one shape share one template.

    `request` gives milli units, or the start of an error text that the pod's name completes.
    """

    __slots__ = ("_known", "containers", "init_containers", "overhead", "pod_requests")

    def __init__(
        self,
        containers: Sequence[ContainerRequests],
        init_containers: Sequence[ContainerRequests] = (),
        pod_requests: Mapping[str, str] | None = None,
        overhead: Mapping[str, str] | None = None,
    ) -> None:
        self.containers = tuple(containers)
        self.init_containers = tuple(init_containers)
        self.pod_requests = pod_requests or {}
        self.overhead = overhead or {}
        self._known: dict[tuple[str, str, Rules], int | str] = {}

    def request(self, resource: str, container: str, rules: Rules = CURRENT) -> int | str:
        """Return the request for `resource` of one container (empty name: of the pod), or the start of an error."""
        known = self._known.get((resource, container, rules))
        if known is None:
            known = self._known[resource, container, rules] = self._request(resource, container, rules)
        return known

    def _request(self, resource: str, container: str, rules: Rules) -> int | str:
        if not container and rules.pod_level_requests and any(_is_pod_level(name) for name in self.pod_requests):
            return self._pod_level(resource, rules)
        return self._from_containers(resource, container, rules)

    def _from_containers(self, resource: str, container: str, rules: Rules) -> int | str:
        sidecars = [init for init in self.init_containers if init.sidecar] if rules.sidecars_request else []
        running = [*sidecars, *self.containers] if rules.sidecars_named_first else [*self.containers, *sidecars]
        chosen = [each for each in running if not container or each.name == container]
        if container and not chosen and rules.container_must_exist:
            return f"container {container} not found in Pod "
        total = 0
        for each in chosen:
            text = each.requests.get(resource)
            if text is None:
                return f"missing request for {resource} in container {each.name} of Pod "
            total += _read(text, rules).milli_value()
        return wrap64(total)

    def _pod_level(self, resource: str, rules: Rules) -> int | str:
        if resource in self.pod_requests and _is_pod_level(resource):
            request: Quantity | None = _read(self.pod_requests[resource], rules)
        else:
            request = self._aggregate(resource, rules)
        if not rules.overhead_left_out:
            request = _add(request, _quantity(self.overhead, resource, rules))
        return f"missing pod-level request for {resource} in Pod " if request is None else request.milli_value()

    def _aggregate(self, resource: str, rules: Rules) -> Quantity | None:
        """Return the larger of what runs together and what any moment of initialisation needs."""
        total: Quantity | None = None
        for each in self.containers:
            total = _add(total, _quantity(each.requests, resource, rules))
        sidecars: Quantity | None = None
        peak: Quantity | None = None
        for init in self.init_containers:
            own = _quantity(init.requests, resource, rules)
            if init.sidecar:
                total, sidecars = _add(total, own), _add(sidecars, own)
                peak = _larger(peak, sidecars)
            else:
                peak = _larger(peak, _add(own, sidecars))
        return _larger(total, peak)


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _quantity(requests: Mapping[str, str], resource: str, rules: Rules) -> Quantity | None:
    text = requests.get(resource)
    return None if text is None else _read(text, rules)


def _read(text: str, rules: Rules) -> Quantity:
    return parse_quantity(text, saturating=rules.quantities_saturate)


def _add(left: Quantity | None, right: Quantity | None) -> Quantity | None:
    if left is None or right is None:
        return right if left is None else left
    return left.add(right)


def _larger(left: Quantity | None, right: Quantity | None) -> Quantity | None:
    if left is None or right is None:
        return right if left is None else left
    return right if right.cmp(left) > 0 else left


class RequestTable(Struct, frozen=True):
    """Requests of a pod list for one resource and container, milli units."""

    error: str
    """The whole metric's error, naming the first pod in list order without the request; empty: none."""
    active: tuple[int, ...]
    """Aligned with the list's active pods."""
    active_total: int
    """Sum over the active pods, not wrapped."""
    pending_total: int
    """Sum over the pending pods, not wrapped."""


def request_table(
    pods: Sequence[tuple[str, PodTemplate]],
    active: Sequence[str],
    pending: Sequence[str],
    resource: str,
    container: str,
    rules: Rules,
) -> RequestTable:
    """Sum up a pod list. Every pod must have the request, also failed, pending and terminating ones."""
    known: dict[str, int] = {}
    for name, template in pods:
        request = template.request(resource, container, rules)
        if isinstance(request, str):
            return RequestTable(request + name, (), 0, 0)
        known[name] = request
    requested = tuple(known[name] for name in active)
    return RequestTable("", requested, sum(requested), sum(known[name] for name in pending))


class Scale(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """A successful read of /scale. `selector` is `status.selector` in query-string form."""

    spec_replicas: int
    status_replicas: int
    selector: str


class ScaleFailure(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """A failed read of /scale. `unmapped`: the API does not know the kind, so nothing was asked."""

    error: str
    unmapped: bool = False


class PodRow(Struct, frozen=True, gc=False):
    """A pod as the calculation reads it. Times are Unix milliseconds."""

    name: str
    template: PodTemplate
    phase: str = "Running"
    start_ms: int | None = None
    """`status.startTime`; None: not set."""
    ready: str | None = None
    """Status of the Ready condition: True, False or Unknown; None: no such condition."""
    ready_at_ms: int = ZERO_TIME_MS
    """`lastTransitionTime` of the Ready condition."""
    deleting: bool = False


@lru_cache(maxsize=1024)
def _equal_requests(count: int, request: int) -> RequestTable:
    """Return the table of so many pods that request the same (milli): the same object for all such pods."""
    return RequestTable("", (request,) * count, request * count, 0)


class TargetPods:
    """The pods that the target's selector matches, in list order, with what can be known of them before a metric is.

    Make one when the pods or the selector change and use it for every evaluation until then: it keeps the sums of
    requests.
    """

    __slots__ = (
        "_requests",
        "_template",
        "active",
        "always_ready",
        "ignored",
        "newest_start_ms",
        "pending",
        "rows",
        "running_ready",
    )

    def __init__(self, rows: tuple[PodRow, ...], rules: Rules = CURRENT) -> None:
        self.rows = rows
        ended = ("Failed", "Succeeded") if rules.succeeded_ignored else ("Failed",)
        self.ignored = tuple(pod for pod in rows if pod.deleting or pod.phase in ended)
        """Terminating or failed: never counted."""
        live = [pod for pod in rows if not (pod.deleting or pod.phase in ended)]
        self.pending = tuple(pod for pod in live if pod.phase == "Pending")
        """Not ready, whichever metrics they have."""
        are_all = len(live) == len(rows) and not self.pending
        self.active = rows if are_all else tuple([pod for pod in live if pod.phase != "Pending"])
        self.always_ready = all(pod.ready in ("True", "Unknown") and pod.start_ms is not None for pod in self.active)
        """No active pod is without a start time, without a Ready condition, or not ready."""
        self.newest_start_ms = max((pod.start_ms or 0 for pod in self.active), default=0)
        self.running_ready = sum(1 for pod in rows if pod.phase == "Running" and pod.ready == "True")
        self._template = rows[0].template if rows and not self.pending else None
        """The one of all pods, none of which is pending; None: they have none in common."""
        if any(pod.template is not self._template for pod in rows):
            self._template = None
        self._requests: dict[tuple[str, str, Rules], RequestTable] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def are_settled(self, cpu_initialization_period_ms: int, now_ms: int) -> bool:
        """Return whether every active pod is ready and past its initialization, so that no cpu sample is left out."""
        return self.always_ready and self.newest_start_ms + cpu_initialization_period_ms <= now_ms

    def requests(self, resource: str, container: str, rules: Rules = CURRENT) -> RequestTable:
        """Return what each pod requests of a resource (milli): of one container, or (empty name) of the whole pod."""
        if self._template is not None:
            request = self._template.request(resource, container, rules)
            if not isinstance(request, str):  # otherwise the error names a pod
                return _equal_requests(len(self.active), request)
        if self._requests is None:
            self._requests = {}
        table = self._requests.get((resource, container, rules))
        if table is None:
            table = self._requests[resource, container, rules] = request_table(
                [(pod.name, pod.template) for pod in self.rows],
                [pod.name for pod in self.active],
                [pod.name for pod in self.pending],
                resource,
                container,
                rules,
            )
        return table


NO_PODS = TargetPods(())


class PodCounts(Struct, array_like=True, frozen=True, gc=False):
    """What a calculation reads of pods beside their groups, where only that is known of them.

    `waiting`: pods that no node has taken and that the scale asks for; no calculation reads it.
    """

    count: Count = 0
    running_ready: Count = 0
    waiting: Count = 0

    def __len__(self) -> int:
        return self.count


SeenPods = TargetPods | PodCounts

_MILLI, _TIME_MS = itemgetter(0), itemgetter(1)


class PodSamples(Struct, frozen=True, gc=False):
    """An answer with one sample per pod: `samples[pod] = (milli, time_ms, window_ms)`. Build it with `pod_samples`."""

    samples: dict[str, tuple[int, int, int]]
    total_milli: int
    """Sum over all samples, not wrapped."""
    oldest_ms: int | None
    newest_ms: int | None


def pod_samples(samples: dict[str, tuple[int, int, int]]) -> PodSamples:
    """Wrap samples per pod (milli, sample time in Unix ms, window in ms); an empty map is a valid answer."""
    if not samples:
        return PodSamples(samples, 0, None, None)
    times_ms = list(map(_TIME_MS, samples.values()))
    return PodSamples(samples, sum(map(_MILLI, samples.values())), min(times_ms), max(times_ms))


class ObjectSample(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """The value of an Object metric, in milli units."""

    value_milli: int
    time_ms: int | None = None


class ExternalSamples(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """The values of the series of an External metric, in milli units, in the order of the answer."""

    values_milli: tuple[int, ...]
    oldest_ms: int | None = None
    newest_ms: int | None = None


class MetricFailure(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """The metrics client failed with this text (its whole text, as `metricsclient` makes it)."""

    error: str


MetricReading = PodSamples | ObjectSample | ExternalSamples | MetricFailure


class Observation(Struct, frozen=True, gc=False):
    """Everything that one evaluation reads beside spec, status and history."""

    scale: Scale | ScaleFailure
    pods: TargetPods = NO_PODS
    """The namespace's pods that `scale.selector` matches (none when it is empty or cannot be parsed)."""
    answers: tuple[MetricReading | None, ...] = ()
    """One per `spec.metrics` item, same order; None where the metric's spec is invalid, so it was not asked for."""
    ambiguous: tuple[str, ...] = ()
    """`namespace/name` of all HPAs, this one among them, whose targets' selectors match one of `pods`, when they are
    two or more; the message names the first two."""


UpstreamApi = Literal["resource", "custom", "external"]

SERVED_BY: Final[dict[str, UpstreamApi]] = {
    "resource": "resource",
    "pods": "custom",
    "object": "custom",
    "external": "external",
}
"""Which metrics API answers a query, as error messages name it."""


def fetch_failure(api: UpstreamApi, message: str) -> MetricFailure:
    """Return the error of a request that the API answered with an error; `message` is that of the answer's Status."""
    return MetricFailure(f"unable to fetch metrics from {api} metrics API: {message}")


def empty_failure(api: UpstreamApi) -> MetricFailure:
    """Return the error of an answer without items."""
    return MetricFailure(f"no metrics returned from {api} metrics API")


def compile_answer(
    answer: MetricAnswer, resource: str = "", container: str = "", namespace: str = "", rules: Rules = CURRENT
) -> MetricReading:
    """Turn a metrics API's answer into what a calculation takes.

    `resource` and `container` are what a Resource or ContainerResource metric asks of the answer about `namespace`;
    without a container the values of a pod's containers are summed. The last item of a pod wins. A time of 0 is one
    that the API did not give, which upstream reads as Go's zero time.
    """
    if answer.error is not None:
        return fetch_failure(SERVED_BY[answer.api], answer.error)
    if answer.api == "object":
        return ObjectSample(answer.milli, answer.time or ZERO_TIME_MS)
    if answer.api == "external":
        if not answer.items:
            return empty_failure("external")
        times = [time_ms or ZERO_TIME_MS for _, time_ms in answer.items]
        return ExternalSamples(tuple([milli for milli, _ in answer.items]), min(times), max(times))
    pods = answer.pods
    if pods is None:
        return empty_failure(SERVED_BY[answer.api])
    without = _first_without(pods, container) if container and not rules.missing_container_is_missing_pod else None
    if without is not None:
        where = f"container {container} not present in metrics for pod {namespace}/{without}"
        return MetricFailure(f"failed to get container metrics: {where}")
    millis = _of_container(pods, resource, container) if container else _of_pods(pods, resource)
    return pod_samples(
        {
            name: (milli, time_ms or ZERO_TIME_MS, window_ms)
            for name, milli, time_ms, window_ms in zip(pods.pod_names, millis, pods.times, pods.windows, strict=True)
            if milli is not None
        }
    )


def _first_without(pods: PodColumns, container: str) -> str | None:
    """Name the first pod without this container, which is an error up to 1.32; None: each has it."""
    own = [column for name, columns in pods.containers() if name == container for column in columns.values()]
    missing = (pod for pod, *values in zip(pods.pod_names, *own, strict=True) if not _any_known(values))
    return next(missing, None)


def _of_pods(pods: PodColumns, resource: str) -> list[int | None]:
    """Sum over all containers of each pod; None: it has no containers, or one of them is without the resource."""
    containers = [columns for _, columns in pods.containers()]
    if len(containers) == 1:
        return containers[0].get(resource) or [None] * pods.count
    totals: list[int | None] = [None] * pods.count
    missing: set[int] = set()
    for columns in containers:
        own = columns.get(resource) or [None] * pods.count
        for number, milli in enumerate(own):
            if milli is not None:
                totals[number] = milli + (totals[number] or 0)
            elif _any_known([column[number] for column in columns.values()]):
                missing.add(number)
    return [None if total is None or number in missing else wrap64(total) for number, total in enumerate(totals)]


def _any_known(values: Iterable[int | None]) -> bool:
    """Return whether there is a value among these."""
    return any(value is not None for value in values)


def _of_container(pods: PodColumns, resource: str, container: str) -> list[int | None]:
    """Read the first container of that name, also where a later one has the resource and it does not."""
    first = next((columns for name, columns in pods.containers() if name == container), {})
    return first.get(resource) or [None] * pods.count
