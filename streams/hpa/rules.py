"""What the HPA controller decides differently from one Kubernetes version to the next.

`Rules` is a value of switches, passed with the controller's settings; nothing here is global state. A version has code
rules, which come with its binary, and gate rules, which follow its feature gates. Kubernetes 1.30 to 1.32 changed none.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from schemas.kubernetes.shape import minor_version

OLDEST: Final = 27
"""The oldest minor version whose rules are known (1.27)."""
NEWEST: Final = 38
"""The newest minor version whose rules are known. 1.38 is not released: its rules are those of `NEWEST_IS`."""
NEWEST_IS: Final = "1.38.0-beta.0"
"""What was asked for the rules of `NEWEST`: a beta, so that the release may still differ."""
RELEASED: Final = 37
"""The newest released minor version that is known."""


class RuleChange(NamedTuple):
    """One change of the controller's answers, as it is shown to people."""

    since: int
    """The minor version from which on the controller does this (for a gate: by default)."""
    change: str
    """What it does since then, in one sentence."""
    source: int | str
    """Number of upstream's pull request; where none is known, the changed file below `pkg/controller/podautoscaler`."""
    decides: bool = True
    """Whether replicas can differ; otherwise texts, statuses or labels do."""

    @property
    def link(self) -> str:
        """Address of upstream's change."""
        if isinstance(self.source, int):
            return f"https://github.com/kubernetes/kubernetes/pull/{self.source}"
        return f"https://github.com/kubernetes/kubernetes/blob/v{NEWEST_IS}/pkg/controller/podautoscaler/{self.source}"


class Rules(Struct, frozen=True, kw_only=True, cache_hash=True, gc=False):
    """How a controller answers. The defaults are those of v1.37 with its default gates."""

    ratio_one_ignores_missing: Annotated[
        bool, RuleChange(28, "missing pods of an averageValue metric do not count as 0 exactly on the target", 117845)
    ] = True
    sidecars_request: Annotated[bool, RuleChange(29, "requests of sidecar containers count", 120001)] = True
    failure_shows_metrics: Annotated[
        bool,
        RuleChange(29, "a failed evaluation shows the metrics it read, not those of before", 121039, decides=False),
    ] = True
    tolerance_is_band: Annotated[
        bool, RuleChange(33, "nothing scales exactly at the edge of the tolerance, such as at +10 %", 130797)
    ] = True
    average_names_object: Annotated[
        bool, RuleChange(33, "the status of an Object metric with averageValue names its object", 124555, decides=False)
    ] = True
    missing_container_is_missing_pod: Annotated[
        bool, RuleChange(33, "a pod whose container has no sample is missing instead of an error", 127193)
    ] = True
    memory_is_binary: Annotated[
        bool, RuleChange(34, "averages of memory are written in binary units", 132351, decides=False)
    ] = True
    conflicts_retried: Annotated[bool, RuleChange(34, "a write of /scale is retried on a conflict", 132007)] = True
    external_average_saturates: Annotated[
        bool, RuleChange(34, "an External metric with averageValue asks for at most MaxInt32 replicas", 127050)
    ] = True
    pod_level_requests: Annotated[
        bool, RuleChange(34, "pod-level resource requests count (gate PodLevelResources)", 132430)
    ] = True
    tolerance_field: Annotated[
        bool, RuleChange(35, "the tolerance of an HPA's behavior is obeyed (gate HPAConfigurableTolerance)", 133128)
    ] = True
    totals_saturate: Annotated[
        bool, RuleChange(35, "a total of an Object or External metric asks for at most MaxInt32 replicas", 126979)
    ] = True
    container_must_exist: Annotated[
        bool, RuleChange(35, "a pod without the named container stops its ContainerResource metric", 133415)
    ] = True
    desired_gauge: Annotated[
        bool, RuleChange(35, "the controller exports the desired replicas of each HPA", 134295, decides=False)
    ] = True
    zero_is_pause: Annotated[
        bool,
        RuleChange(36, "a target at zero replicas stays at zero, unless the condition ScaledToZero is True", 135118),
    ] = True
    scale_to_zero: Annotated[
        bool, RuleChange(37, "the controller scales to zero and wakes from it (gate HPAScaleToZero)", 139648)
    ] = True
    observed_generation: Annotated[
        bool, RuleChange(37, "the status shows the observed generation (gate HPAGeneration)", 138228, decides=False)
    ] = True
    two_ambiguous_named: Annotated[
        bool, RuleChange(37, "the message on an ambiguous selector names two HPAs", 139142, decides=False)
    ] = True
    object_error_in_order: Annotated[
        bool, RuleChange(37, "errors of Object metrics name metric, kind and object in order", 139029, decides=False)
    ] = True
    unknown_metric_is_spec_fault: Annotated[
        bool, RuleChange(37, "an unknown metric type counts as a fault of the spec", 139029, decides=False)
    ] = True
    succeeded_ignored: Annotated[bool, RuleChange(38, "Succeeded pods are ignored, as Failed ones are", 141302)] = False
    conversions_saturate: Annotated[
        bool, RuleChange(38, "a replica count beyond int32 counts as the largest or least int32", 141397)
    ] = False
    overhead_left_out: Annotated[
        bool, RuleChange(38, "a pod's overhead does not count as part of its pod-level requests", 142154)
    ] = False
    average_of_none_is_zero: Annotated[
        bool, RuleChange(38, "the average of an Object or External metric over no replicas is 0", 140958, decides=False)
    ] = False
    totals_exact: Annotated[
        bool, RuleChange(38, "totals of samples and requests are exact, and a utilization ends at MaxInt32 %", 142192)
    ] = False
    object_average_named: Annotated[
        bool,
        RuleChange(38, "an Object metric with averageValue is called by its object", "horizontal.go", decides=False),
    ] = False
    sidecars_named_first: Annotated[
        bool,
        RuleChange(
            38, "of several containers without a request a sidecar is named", "replica_calculator.go", decides=False
        ),
    ] = False
    quantities_saturate: Annotated[
        bool, RuleChange(38, "quantities of 2^63 thousandths and more count as 2^63 - 1, and not as 0", 141305)
    ] = False


RULES: Final[dict[str, RuleChange]] = {field.name: field.type.__metadata__[0] for field in fields(Rules)}
"""Each switch of `Rules` and what it means, the oldest change first."""


class Gate(NamedTuple):
    """A feature gate of the controller that changes its answers."""

    rule: str
    alpha: int
    """The first minor version that has the gate, off by default."""
    beta: int
    """The first minor version in which it is on by default."""
    locked: int | None = None
    """The first minor version in which it cannot be switched off."""

    def is_locked(self, minor: int) -> bool:
        """Whether it is on for good in this minor version."""
        return self.locked is not None and minor >= self.locked


GATES: Final[dict[str, Gate]] = {
    "PodLevelResources": Gate("pod_level_requests", 32, 34),
    "HPAConfigurableTolerance": Gate("tolerance_field", 33, 35, 37),
    "HPAScaleToZero": Gate("scale_to_zero", 16, 37),
    "HPAGeneration": Gate("observed_generation", 37, 37, 38),
}
"""Feature gates by name, with the versions that they belong to."""

CURRENT: Final = Rules()
CURRENT_TEXT: Final = f"1.{RELEASED}"


class UnknownRulesError(ValueError):
    """A version that is older than every known one, or a gate that the version does not have."""


def rules_of(minor: int, gates: Mapping[str, bool] | None = None) -> Rules:
    """Return the rules of Kubernetes 1.`minor`; `gates` overrides defaults of feature gates.

    A version that is newer than every known one decides as the newest known. Raises UnknownRulesError: the version is
    older than 1.27, or it does not have such a gate, or the gate cannot be switched off in it.
    """
    if minor < OLDEST:
        raise UnknownRulesError(f"rules of Kubernetes 1.{minor} are not known; the oldest known version is 1.{OLDEST}")
    known = min(minor, NEWEST)
    switches = {name: known >= rule.since for name, rule in RULES.items()}
    for name, on in (gates or {}).items():
        gate = GATES.get(name)
        if gate is None or known < gate.alpha:
            raise UnknownRulesError(f"Kubernetes 1.{minor} has no feature gate {name} that changes an HPA's decisions")
        if gate.is_locked(known) and not on:
            raise UnknownRulesError(f"the feature gate {name} cannot be switched off in Kubernetes 1.{minor}")
        switches[gate.rule] = on
    return Rules(**switches)


def rules_text(version: str, gates: Mapping[str, bool]) -> str:
    """Name a controller in one text, such as `1.36 HPAScaleToZero=true`: its version and the gates that differ.

    Gates that the version does not have, or that are locked in it, are left out. Raises UnknownRulesError: `version` is
    no version of Kubernetes.
    """
    minor = minor_of(version)
    known = min(max(minor, OLDEST), NEWEST)
    differing = [
        f"{name}={str(gates[name]).lower()}"
        for name, gate in sorted(GATES.items())
        if name in gates and known >= gate.alpha and gates[name] != (known >= gate.beta) and not gate.is_locked(known)
    ]
    return f"1.{minor} {','.join(differing)}".rstrip()


@lru_cache(maxsize=64)
def rules_named(text: str) -> Rules:
    """Return the rules that `rules_text` names. A version older than 1.27 decides as 1.27, the oldest that is known.

    Raises UnknownRulesError: the text is none of `rules_text`.
    """
    version, _, gates = text.partition(" ")
    return rules_of(max(minor_of(version), OLDEST), parse_gates(gates))


def parse_gates(text: str) -> dict[str, bool]:
    """Read `HPAScaleToZero=true,HPAGeneration=false`, as kube-controller-manager's `--feature-gates` has it.

    Raises UnknownRulesError: an item is not NAME=true or NAME=false, or no such gate changes an HPA's decisions.
    """
    gates = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.strip().partition("=")
        if name not in GATES or value not in ("true", "false"):
            known = ", ".join(sorted(GATES))
            raise UnknownRulesError(
                f"{item.strip()[:60]!r} is no feature gate; write NAME=true or NAME=false of {known}"
            )
        gates[name] = value == "true"
    return gates


def known_gates(text: str) -> dict[str, bool]:
    """Read the same, without what is no known gate: a newer observer may report more than this version knows."""
    gates: dict[str, bool] = {}
    for item in text.split(","):
        with suppress(UnknownRulesError):
            gates |= parse_gates(item)
    return gates


def minor_of(version: str) -> int:
    """Read the minor version of `1.33`, `v1.33.4` or `v1.33.4-eks-1234`. Raises UnknownRulesError: it is no 1.x."""
    minor = minor_version(version)
    if minor is None:
        raise UnknownRulesError(f"{version[:40]!r} is no version of Kubernetes; write it as 1.{RELEASED}")
    return minor
