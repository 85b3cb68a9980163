"""Which pods a selector matches, pod by pod: a pod change costs O(selectors), an evaluation O(its pods)."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from sys import intern

from msgspec import Struct, structs

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.selectors import Selector, is_selector, parse_selector
from schemas.observed import Container, Pod, PodShape, decode_shape, shape_of
from streams.hpa.observation import NO_PODS, ContainerRequests, PodRow, PodTemplate, TargetPods
from streams.hpa.rules import CURRENT, Rules
from streams.state.namespacerows import Names, with_name, without_name


class MatchingPods:
    """The names of the pods that one selector matches."""

    __slots__ = ("_list", "_rules", "names", "overlap", "overlap_version", "selector")

    def __init__(self, text: str) -> None:
        self.selector = parse_selector(text)
        self.names: Names[str] = ()
        self.overlap: tuple[str, ...] = ()
        """Selectors that match one of these pods, as of `overlap_version`."""
        self.overlap_version = -1
        self._list: TargetPods | None = None
        self._rules = CURRENT

    def put(self, name: str) -> None:
        """Add a pod, or note that it has changed."""
        self.names = with_name(self.names, name)
        self._list = None

    def drop(self, name: str) -> None:
        """Remove a pod, if it is there."""
        if name in self.names:
            self.names = without_name(self.names, name)
            self._list = None

    def as_list(self, pods: "Mapping[str, TrackedPod]", rules: Rules | None) -> TargetPods:
        """Return the pods in order of their names, as a controller with these rules looks at them; None: as before."""
        rules = rules or self._rules
        if self._list is None or self._rules is not rules:
            self._list, self._rules = TargetPods(tuple([pods[name] for name in sorted(self.names)]), rules), rules
        return self._list


class PodKind(Struct, gc=False):
    """What pods of one workload have in common, once for all of them: memory."""

    labels: dict[str, str]
    shape: PodShape
    owner: str
    selectors: tuple[str, ...]
    """Those in use that match it."""

    def is_of(self, pod: Pod) -> bool:
        """Whether it gives what the pod has, in the same order of labels."""
        known, labels = self.labels, pod.labels
        return self.shape == _shape(pod) and self.owner == pod.owner and known == labels and list(known) == list(labels)


class TrackedPod(PodRow, frozen=True, gc=False, kw_only=True):
    """A pod with all that was reported of it. `mark`, the full list that named it last, is changed in place: another
    row would be another pod for those that calculate.
    """

    uid: str
    kind: PodKind
    mark: str = ""

    @property
    def pod(self) -> Pod:
        """The pod as it was reported, made anew at each call."""
        kind = self.kind
        containers, init_containers, pod_requests, overhead = kind.shape
        return Pod(
            name=self.name,
            uid=self.uid,
            labels=kind.labels,
            phase=self.phase,
            start=self.start_ms,
            ready=self.ready,
            ready_at=None if self.ready_at_ms == ZERO_TIME_MS else self.ready_at_ms,
            deleting=self.deleting,
            containers=containers,
            init_containers=init_containers,
            pod_requests=pod_requests,
            overhead=overhead,
            owner=kind.owner,
        )


class Membership:
    """All pods of a namespace, and for every selector in use those it matches."""

    __slots__ = ("_labelled", "_members", "_version", "changes", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, TrackedPod] = {}
        self._labelled: dict[tuple[str, str], Names[str]] = {}
        """Label -> names of the pods that bear it: a selector that asks for a label looks at those alone."""
        self._members: dict[str, MatchingPods] = {}
        self._version = 0
        self.changes = 0
        """Another number as soon as a pod or a selector in use changes."""

    def put(self, pod: Pod, mark: str = "") -> None:
        """Add a pod or take over its change."""
        known = self.pods.get(pod.name)
        # Of a known pod its own texts, which are the keys of tables.
        name = pod.name if known is None else known.name
        kind = self._kind(pod, known)
        if known is None or known.kind.labels != pod.labels:
            self._unlabel(known)
            for label in kind.labels.items():
                self._labelled[label] = with_name(self._labelled.get(label, ()), name)
            for selector in () if known is None else known.kind.selectors:
                if selector not in kind.selectors:
                    self._members[selector].drop(name)
            self._version += 1
        self.pods[name] = _tracked(name, pod, kind, mark, known)
        self.changes += 1
        for selector in kind.selectors:
            self._members[selector].put(name)

    def _kind(self, pod: Pod, known: TrackedPod | None) -> PodKind:
        """Return the kind of a pod: the one that it had, that of the newest pod with the rarest of its labels, or a
        new one.
        """
        if known is not None and known.kind.is_of(pod):
            return known.kind
        alike = min([self._labelled.get(label, ()) for label in pod.labels.items()], key=len, default=())
        newest = self.pods[next(reversed(alike))].kind if alike else None
        if newest is not None and newest.is_of(pod):
            return newest
        selectors = [text for text, members in self._members.items() if members.selector.matches(pod.labels)]
        return PodKind(pod.labels, _shape(pod), pod.owner, tuple(selectors))

    def _unlabel(self, known: TrackedPod | None) -> None:
        if known is None:
            return
        for label in known.kind.labels.items():
            names = without_name(self._labelled[label], known.name)
            if names:
                self._labelled[label] = names
            else:
                del self._labelled[label]

    def note(self, name: str, mark: str) -> None:
        """Note which full list named a pod."""
        structs.force_setattr(self.pods[name], "mark", mark)

    def drop(self, name: str) -> None:
        """Remove a pod, if it is there."""
        known = self.pods.pop(name, None)
        if known is None:
            return
        self._unlabel(known)
        for selector in known.kind.selectors:
            self._members[selector].drop(name)
        self._version += 1
        self.changes += 1

    def matching(self, selector: str, rules: Rules | None = None) -> TargetPods:
        """Return the pods that `selector` matches; none for one that is empty or cannot be parsed."""
        members = self._members.get(selector) or self.track(selector)
        return NO_PODS if members is None else members.as_list(self.pods, rules)

    def has_any(self, selector: str, names: set[str]) -> bool:
        """Return whether `selector` matches one of the pods with these names."""
        members = self.track(selector)
        return members is not None and not names.isdisjoint(members.names)

    def overlapping(self, selector: str) -> tuple[str, ...]:
        """Return the selectors in use, this one among them, that match one of the pods of `selector`; sorted."""
        members = self._members.get(selector) or self.track(selector)
        if members is None or not members.names:
            return ()
        if members.overlap_version != self._version:
            kinds = [self.pods[name].kind for name in members.names]
            selectors, first = tuple(sorted({text for kind in kinds for text in kind.selectors})), kinds[0].selectors
            members.overlap = first if first == selectors else selectors
            members.overlap_version = self._version
        return members.overlap

    def track(self, selector: str) -> MatchingPods | None:
        """Keep the pods of `selector` from now on, and give them; None: it is empty or cannot be parsed."""
        members = self._members.get(selector)
        if members is None and is_selector(selector):
            members = self._members[selector] = MatchingPods(selector)
            for known in map(self.pods.__getitem__, self._candidates(members.selector)):
                if members.selector.matches(known.kind.labels):
                    if selector not in known.kind.selectors:
                        known.kind.selectors = (*known.kind.selectors, selector)
                    members.put(known.name)
            self._version += 1
            self.changes += 1
        return members

    def _candidates(self, selector: Selector) -> Iterable[str]:
        """Return the pods that a selector may match: those with the rarest label that it asks for, else all."""
        return min([self._labelled.get(label, ()) for label in selector.equalities], key=len, default=self.pods)

    def may_hold_unused(self, used: int) -> bool:
        """Return whether there may be selectors to forget where at least so many are used."""
        return len(self._members) > 2 * used + 8

    def forget_unused(self, used: Iterable[str]) -> None:
        """Drop selectors that are no longer used."""
        keep = set(used)
        if not self.may_hold_unused(len(keep)):
            return
        self._members = {text: members for text, members in self._members.items() if text in keep}
        for known in self.pods.values():
            kind = known.kind
            if not keep.issuperset(kind.selectors):
                kind.selectors = tuple([text for text in kind.selectors if text in keep])
        self._version += 1
        self.changes += 1


def pod_row(pod: Pod) -> PodRow:
    """Compile a pod into the form that calculations use."""
    return _tracked(pod.name, pod, PodKind(pod.labels, _shape(pod), pod.owner, ()), "", None)


def _shape(pod: Pod) -> PodShape:
    return pod.containers, pod.init_containers, pod.pod_requests, pod.overhead


def _tracked(name: str, pod: Pod, kind: PodKind, mark: str, known: TrackedPod | None) -> TrackedPod:
    """Compile a pod with the objects of the one before where they are equal."""
    uid, start_ms = pod.uid, pod.start
    ready_at_ms = ZERO_TIME_MS if pod.ready_at is None else pod.ready_at
    if known is not None:
        uid = known.uid if known.uid == uid else uid
        start_ms = known.start_ms if known.start_ms == start_ms else start_ms
        ready_at_ms = known.ready_at_ms if known.ready_at_ms == ready_at_ms else ready_at_ms
    return TrackedPod(
        name,
        _template(shape_of(pod)),
        intern(pod.phase),
        start_ms,
        None if pod.ready is None else intern(pod.ready),
        ready_at_ms,
        pod.deleting,
        uid=uid,
        kind=kind,
        mark=mark,
    )


@lru_cache(maxsize=8192)
def _template(shape: bytes) -> PodTemplate:
    """Share one template among the pods of one shape."""
    containers, init_containers, pod_requests, overhead = decode_shape(shape)
    return PodTemplate(
        [_container(each) for each in containers],
        [_container(each) for each in init_containers],
        None if pod_requests is None else _readable(pod_requests),
        _readable(overhead),
    )


def _container(container: Container) -> ContainerRequests:
    return ContainerRequests(container.name, _readable(container.requests), container.restart_always)


def _readable(requests: dict[str, str]) -> dict[str, str]:
    """Leave out requests that are not quantities: the metric then fails naming the pod, and the partition continues."""
    readable = {}
    for resource, text in requests.items():
        try:
            parse_quantity(text)
        except QuantityError:
            continue
        readable[resource] = text
    return readable
