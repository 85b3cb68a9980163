"""Which pods a selector matches, pod by pod: a pod change costs O(selectors), an evaluation O(its pods)."""

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.observed import Container, Pod
from schemas.packed import shape_of, shared_shape
from streams.hpa.observation import NO_PODS, ContainerRequests, PodRow, PodTemplate, TargetPods
from streams.hpa.rules import CURRENT, Rules


class MatchingPods:
    """The pods that one selector matches."""

    __slots__ = ("_list", "_rules", "equalities", "matches", "overlap", "overlap_version", "pods")

    def __init__(self, text: str) -> None:
        selector = parse_selector(text)
        self.matches, self.equalities = selector.matches, selector.equalities
        self.pods: dict[str, PodRow] = {}
        self.overlap: tuple[str, ...] = ()
        """Selectors that match one of these pods, as of `overlap_version`."""
        self.overlap_version = -1
        self._list: TargetPods | None = None
        self._rules = CURRENT

    def put(self, pod: PodRow) -> None:
        self.pods[pod.name] = pod
        self._list = None

    def drop(self, name: str) -> None:
        """Remove a pod, if it is there."""
        if self.pods.pop(name, None) is not None:
            self._list = None

    def as_list(self, rules: Rules | None) -> TargetPods:
        """Give the pods in order of their names, as a controller with these rules looks at them; None: as before."""
        rules = rules or self._rules
        if self._list is None or self._rules is not rules:
            self._list, self._rules = TargetPods(tuple(self.pods[name] for name in sorted(self.pods)), rules), rules
        return self._list


class _Tracked(Struct, gc=False):
    """A pod, its labels, and the selectors in use that match it."""

    row: PodRow
    labels: dict[str, str] | None = None
    """None: not looked at yet."""
    selectors: tuple[str, ...] = ()


class Membership:
    """All pods of a namespace, and for every selector in use those it matches."""

    __slots__ = ("_labelled", "_members", "_pods", "_same", "_version", "changes")

    def __init__(self) -> None:
        self._pods: dict[str, _Tracked] = {}
        self._labelled: dict[tuple[str, str], dict[str, None]] = {}
        """Label -> names of the pods that bear it: a selector that asks for a label looks at those alone. A dictionary
        of five names takes a quarter of the memory of a set.
        """
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The `selectors` in use, so that pods of one workload share them."""
        self._members: dict[str, MatchingPods] = {}
        self._version = 0
        self.changes = 0
        """Another number as soon as a pod or a selector in use changes."""

    def put(self, pod: Pod) -> None:
        name, row = pod.name, pod_row(pod)
        known = self._pods.get(name)
        if known is None:
            known = self._pods[name] = _Tracked(row)
        if known.labels != pod.labels:
            self._unlabel(name, known)
            for label in pod.labels.items():
                self._labelled.setdefault(label, {})[name] = None
            self._relabel(name, known, pod.labels)
        known.row = row
        self.changes += 1
        for selector in known.selectors:
            self._members[selector].put(row)

    def _relabel(self, name: str, known: _Tracked, labels: dict[str, str]) -> None:
        after = tuple([text for text, members in self._members.items() if members.matches(labels)])
        for selector in known.selectors:
            if selector not in after:
                self._members[selector].drop(name)
        known.labels, known.selectors = labels, self._shared(after)
        self._version += 1

    def _unlabel(self, name: str, known: _Tracked) -> None:
        for label in (known.labels or {}).items():
            names = self._labelled[label]
            names.pop(name, None)
            if not names:
                del self._labelled[label]

    def drop(self, name: str) -> None:
        """Remove a pod, if it is there."""
        known = self._pods.pop(name, None)
        if known is None:
            return
        self._unlabel(name, known)
        for selector in known.selectors:
            self._members[selector].drop(name)
        self._version += 1
        self.changes += 1

    def matching(self, selector: str, rules: Rules | None = None) -> TargetPods:
        """Give the pods that `selector` matches; none for one that is empty or cannot be parsed."""
        members = self._members.get(selector) or self.track(selector)
        return NO_PODS if members is None else members.as_list(rules)

    def has_any(self, selector: str, names: set[str]) -> bool:
        """Say whether `selector` matches one of the pods with these names."""
        members = self.track(selector)
        return members is not None and not members.pods.keys().isdisjoint(names)

    def overlapping(self, selector: str) -> tuple[str, ...]:
        """Give the selectors in use, this one among them, that match one of the pods of `selector`; sorted."""
        members = self._members.get(selector) or self.track(selector)
        if members is None or not members.pods:
            return ()
        if members.overlap_version != self._version:
            members.overlap = tuple(sorted({text for name in members.pods for text in self._pods[name].selectors}))
            members.overlap_version = self._version
        return members.overlap

    def track(self, selector: str) -> MatchingPods | None:
        """Keep the pods of `selector` from now on, and give them; None: it is empty or cannot be parsed."""
        members = self._members.get(selector)
        if members is None and is_selector(selector):
            members = self._members[selector] = MatchingPods(selector)
            for name in self._candidates(members):
                known = self._pods[name]
                if members.matches(known.labels or {}):
                    known.selectors = self._shared((*known.selectors, selector))
                    members.put(known.row)
            self._version += 1
            self.changes += 1
        return members

    def _candidates(self, members: MatchingPods) -> Iterable[str]:
        """Give the pods that a selector may match: those with the rarest label that it asks for, else all."""
        if not members.equalities:
            return self._pods
        return min((self._labelled.get(label, {}) for label in members.equalities), key=len)

    def _shared(self, selectors: tuple[str, ...]) -> tuple[str, ...]:
        return self._same.setdefault(selectors, selectors)

    def may_hold_unused(self, used: int) -> bool:
        """Say whether there may be selectors to forget where at least so many are used."""
        return len(self._members) > 2 * used + 8

    def forget_unused(self, used: Iterable[str]) -> None:
        """Drop selectors that are no longer used."""
        keep = set(used)
        if not self.may_hold_unused(len(keep)):
            return
        self._members = {text: members for text, members in self._members.items() if text in keep}
        self._same = {}
        for known in self._pods.values():
            known.selectors = self._shared(tuple([text for text in known.selectors if text in keep]))
        self._version += 1
        self.changes += 1


@lru_cache(maxsize=4096)
def is_selector(text: str) -> bool:
    """Tell whether `text` is a selector that the overlap check and the pod lister take: not empty and well-formed."""
    return bool(text) and canonical_selector(text) is not None


@lru_cache(maxsize=4096)
def canonical_selector(text: str) -> str | None:
    """Give the canonical string form, None for text that cannot be parsed."""
    try:
        return str(parse_selector(text))
    except SelectorError:
        return None


def pod_row(pod: Pod) -> PodRow:
    """Compile a pod into the form that calculations use."""
    return PodRow(
        pod.name,
        _template(shape_of(pod)),
        pod.phase,
        pod.start,
        pod.ready,
        ZERO_TIME_MS if pod.ready_at is None else pod.ready_at,
        pod.deleting,
    )


@lru_cache(maxsize=8192)
def _template(shape: bytes) -> PodTemplate:
    """Share one template among the pods of one shape."""
    containers, init_containers, pod_requests, overhead = shared_shape(shape)
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
