"""What an observer knows of one cluster: HPAs, pods, scales and problems. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from reconciler.core.kepthpas import Asking, KeptHpa
from reconciler.core.objectbodies import tells_the_same
from reconciler.observer.troubles import API_SERVER, ReadProblem, Troubles
from runtime.wallclock import wall_clock_ms
from schemas.kubernetes.jsontypes import Json
from schemas.pods import Pod
from schemas.scales import ScaleSet, Target

WATCHES = ("pods", "autoscalers", "scales")


@dataclass
class NamespaceState:
    """One namespace. `central` HPAs exist only in fleethpa; `scales` holds what was last reported.

    `asked`: target → the selector with which its metrics were asked for at once, when its scale became known.
    """

    hpas: dict[str, KeptHpa] = field(default_factory=dict)
    central: dict[str, Asking] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    scales: dict[Target, ScaleSet] = field(default_factory=dict)
    asked: dict[Target, str] = field(default_factory=dict)
    rivals: dict[str, Json] = field(default_factory=dict)

    def targets(self) -> set[Target]:
        """What the HPAs of the namespace scale."""
        return {hpa.target for hpa in self.all_hpas()}

    def all_hpas(self) -> list[Asking]:
        """HPAs of the cluster and central ones."""
        return [*(hpa.asking for hpa in self.hpas.values()), *self.central.values()]

    def forget(self, target: Target) -> None:
        """No HPA scales the target any more."""
        self.scales.pop(target, None)
        self.asked.pop(target, None)

    def selectors(self) -> dict[Target, str]:
        """Selectors of the targets whose scale is known."""
        return {target: scale.selector for target, scale in self.scales.items() if scale.error is None}

    @property
    def active(self) -> bool:
        """Whether there is anything to scale here."""
        return bool(self.hpas or self.central)


class ClusterState:
    """All namespaces of one cluster, and what cannot be seen."""

    def __init__(self, troubles: Troubles | None = None) -> None:
        self.namespaces: dict[str, NamespaceState] = {}
        self.troubles = troubles or Troubles(wall_clock_ms)
        self._pods_listed: set[str] = set()

    def namespace(self, name: str) -> NamespaceState:
        """The state of a namespace, made when it is first named."""
        return self.namespaces.setdefault(name, NamespaceState())

    def active(self) -> list[str]:
        """Namespaces with HPAs."""
        return [name for name, state in self.namespaces.items() if state.active]

    def scope(self, namespace: str) -> list[str]:
        """Namespaces that a list of this scope speaks for (empty: the cluster)."""
        return [namespace] if namespace else list(self.namespaces)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def replace_pods(self, scope: str, pods: Iterable[tuple[str, Pod]]) -> set[str]:
        """Take a full list in; returns the namespaces it speaks for."""
        self._pods_listed.add(scope)
        found: dict[str, dict[str, Pod]] = {name: {} for name in self.scope(scope)}
        for namespace, pod in pods:
            found.setdefault(namespace, {})[pod.name] = pod
        for name, listed in found.items():
            self.namespace(name).pods = listed
        return set(found)

    def set_pod(self, namespace: str, pod: Pod) -> bool:
        """Store a pod; False if nothing changed."""
        pods = self.namespace(namespace).pods
        before, pods[pod.name] = pods.get(pod.name), pod
        return before != pod

    def pods_known(self, namespace: str) -> bool:
        """Whether the namespace's pods have been listed."""
        return "" in self._pods_listed or namespace in self._pods_listed

    # --- HPAs ---------------------------------------------------------------------------------------------------------

    def replace_hpas(self, scope: str, hpas: Iterable[tuple[str, str, KeptHpa]]) -> set[str]:
        """Take a full list in, with namespaces and names; returns the namespaces that have or had HPAs."""
        found: dict[str, dict[str, KeptHpa]] = {}
        for name in self.scope(scope):
            if self.namespaces.get(name, NamespaceState()).hpas or name == scope:
                found[name] = {}
        for namespace, name, hpa in hpas:
            found.setdefault(namespace, {})[name] = hpa
        for namespace, listed in found.items():
            self.namespace(namespace).hpas = listed
        return set(found)

    def set_central(self, namespace: str, name: str, hpa: Asking | None) -> None:
        """A central HPA was applied, or deleted (None)."""
        central = self.namespace(namespace).central
        if hpa is None:
            central.pop(name, None)
        else:
            central[name] = hpa

    # --- scales -------------------------------------------------------------------------------------------------------

    def set_scale(self, namespace: str, scale: ScaleSet) -> bool:
        """Store a scale; False if nothing changed, or if it is older than what was reported."""
        scales = self.namespace(namespace).scales
        before = scales.get(scale.target)
        if before is not None and _is_older(scale, before):
            return False
        scales[scale.target] = scale
        return not tells_the_same(before, scale)

    # --- problems -----------------------------------------------------------------------------------------------------

    def problem(self, watch: str, namespace: str, problem: ReadProblem | None) -> None:
        """A watch cannot be held in a scope (empty: the cluster); None: it can again."""
        self.troubles.note(watch, namespace, problem)

    def unread(self, namespace: str, problem: ReadProblem | None) -> None:
        """`/scale` of a target of this namespace got no answer; None: it got one."""
        self.troubles.note("scales", namespace, problem)

    def problems(self, namespace: str) -> dict[str, ReadProblem]:
        """What a reader of this namespace has to know: watch -> why it is down.

        Scales whose parents cannot be watched are read one by one, so `scales` is down only if reading fails, too.
        While the API server is away nothing that was reported is known to hold.
        """
        away = self.troubles.find(API_SERVER, "")
        if away is not None:
            return dict.fromkeys(WATCHES, away)
        found = {watch: self.troubles.find(watch, namespace) for watch in WATCHES}
        if self._all_watched(namespace):
            found["scales"] = None
        return {watch: problem for watch, problem in found.items() if problem is not None}

    def _all_watched(self, namespace: str) -> bool:
        return all(self.is_watched(target, namespace) for target in self.namespace(namespace).targets())

    def is_watched(self, target: Target, namespace: str) -> bool:
        """Whether the target's kind is watched here without a problem."""
        return self.troubles.find(scales_watch(target.kind, target.group), namespace) is None


def scales_watch(kind: str, group: str) -> str:
    """Name of the watch of a kind of scale parents."""
    return f"scales/{kind}.{group}"


def _is_older(now: ScaleSet, before: ScaleSet) -> bool:
    """Of one object the higher resource version is newer; versions of the API server are decimal integers."""
    if now.error is not None or before.error is not None or now.uid != before.uid:
        return False
    both = (now.resource_version, before.resource_version)
    return all(version.isdecimal() for version in both) and int(both[0]) < int(both[1])
