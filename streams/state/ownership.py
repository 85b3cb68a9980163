"""Which HPA scales which target, and how each HPA that fleethpa evaluates is set up, as of the last record applied."""

from typing import NamedTuple

from schemas.keys import HpaId
from schemas.observed import Mode
from streams.state.guards import asked_mode, effective_mode
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.rows import DirectoryKey, TargetName


class ScaleTarget(NamedTuple):
    """A scale in the fleet."""

    cluster: str
    namespace: str
    target: TargetName

    @property
    def short(self) -> str:
        """Kind and name, as in `Deployment/checkout`."""
        return f"{self.target[1]}/{self.target[2]}"

    def __str__(self) -> str:
        return f"{self.short} in {self.cluster}/{self.namespace}"


class Holder(NamedTuple):
    """An HPA that drives a target; `native`: through the cluster's own HPA controller."""

    hpa: HpaId
    native: bool


class Claim(NamedTuple):
    """How one HPA that fleethpa evaluates is set up: the mode asked for, the mode in force, and why they differ."""

    asked: Mode
    mode: Mode
    refused: str
    remedy: str
    origin: str
    target: ScaleTarget


class Ownership(NamedTuple):
    """What the fold knows of HPAs and their targets at one moment."""

    claims: dict[HpaId, Claim]
    holders: dict[ScaleTarget, list[Holder]]
    """Targets that at least one HPA drives."""

    def lost(self, after: "Ownership") -> dict[ScaleTarget, list[Holder]]:
        """Return the targets that an HPA drives now and none would drive afterwards, with the present HPA."""
        return {target: held for target, held in self.holders.items() if target not in after.holders}


def ownership(*states: State) -> Ownership:
    """Return the HPAs and their targets as of the last record that the states have applied."""
    claims: dict[HpaId, Claim] = {}
    holders: dict[ScaleTarget, list[Holder]] = {}
    for state in states:
        for namespace in state.namespaces.values():
            for key in sorted(namespace.directory):
                _add(state, namespace, key, claims, holders)
    return Ownership(claims, holders)


def _add(
    state: State,
    namespace: Namespace,
    key: DirectoryKey,
    claims: dict[HpaId, Claim],
    holders: dict[ScaleTarget, list[Holder]],
) -> None:
    settings = state.settings(namespace.cluster)
    target = ScaleTarget(namespace.cluster, namespace.name, namespace.directory[key].target)
    name = HpaId(namespace.cluster, namespace.name, key.name)
    if key.origin == "cluster" and not settings.native_absent:
        holders.setdefault(target, []).append(Holder(name, native=True))
    hpa = state.hpas.get(name)
    if hpa is None or namespace.is_hidden(key) or not hpa.row.is_live:
        return
    in_force = effective_mode(namespace, hpa, settings)
    mode = asked_mode(namespace, key.name, settings)
    claims[name] = Claim(mode, in_force.mode, in_force.refused, in_force.remedy, key.origin, target)
    if in_force.mode == "enforce":
        holders.setdefault(target, []).append(Holder(name, native=False))
