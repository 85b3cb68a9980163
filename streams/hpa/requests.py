"""What pods request of a resource: the denominator of a utilization, compiled once per pod template.

Source: upstream `calculateRequests` and component-helpers `PodRequests` (KEP-2837 pod-level resources on).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from schemas.kubernetes.quantity import Quantity, parse_quantity
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
        """Give the request for `resource` of one container (empty name: of the pod), or the start of an error."""
        known = self._known.get((resource, container, rules))
        if known is None:
            known = self._known[resource, container, rules] = self._request(resource, container, rules)
        return known

    def _request(self, resource: str, container: str, rules: Rules) -> int | str:
        if not container and rules.pod_level_requests and any(_is_pod_level(name) for name in self.pod_requests):
            return self._pod_level(resource)
        return self._from_containers(resource, container, rules)

    def _from_containers(self, resource: str, container: str, rules: Rules) -> int | str:
        running = list(self.containers)
        if rules.sidecars_request:
            running += [init for init in self.init_containers if init.sidecar]
        chosen = [each for each in running if not container or each.name == container]
        if container and not chosen and rules.container_must_exist:
            return f"container {container} not found in Pod "
        total = 0
        for each in chosen:
            text = each.requests.get(resource)
            if text is None:
                return f"missing request for {resource} in container {each.name} of Pod "
            total += parse_quantity(text).milli_value()
        return wrap64(total)

    def _pod_level(self, resource: str) -> int | str:
        if resource in self.pod_requests and _is_pod_level(resource):
            request: Quantity | None = parse_quantity(self.pod_requests[resource])
        else:
            request = self._aggregate(resource)
        request = _add(request, _quantity(self.overhead, resource))
        return f"missing pod-level request for {resource} in Pod " if request is None else request.milli_value()

    def _aggregate(self, resource: str) -> Quantity | None:
        """Give the larger of what runs together and what any moment of initialisation needs."""
        total: Quantity | None = None
        for each in self.containers:
            total = _add(total, _quantity(each.requests, resource))
        sidecars: Quantity | None = None
        peak: Quantity | None = None
        for init in self.init_containers:
            own = _quantity(init.requests, resource)
            if init.sidecar:
                total, sidecars = _add(total, own), _add(sidecars, own)
                peak = _larger(peak, sidecars)
            else:
                peak = _larger(peak, _add(own, sidecars))
        return _larger(total, peak)


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _quantity(requests: Mapping[str, str], resource: str) -> Quantity | None:
    text = requests.get(resource)
    return None if text is None else parse_quantity(text)


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
