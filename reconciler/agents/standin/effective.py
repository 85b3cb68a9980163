"""What the stand-in keeps for each enforced central HPA: its effective spec, its policy, how urgent it is. No I/O."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, structs

from reconciler.agents.standin.protocol import HpaKey
from schemas.agentknowledge import KnownPause
from schemas.agents import STAND_IN_POLICY
from schemas.decisions import Decision
from schemas.inforce import covers
from schemas.kubernetes.shape import Json, JsonView
from schemas.pauses import OVERRIDE, ScalingDirection, is_in_force

_FLOOR = re.compile(r"floor=(?:(?P<count>[0-9]{1,6})|(?P<peak>peak-24h))")
_HOUR_MS = 3_600_000
_PEAK_HOURS = 24

PolicyKind = Literal["native", "hold", "floor"]
BOTH_DIRECTIONS: Final[tuple[ScalingDirection, ...]] = ("scaleUp", "scaleDown")


class Policy(NamedTuple):
    """What becomes of an HPA in a stand-in. `floor`: replicas that a target has at least; None: its peak of 24 h."""

    kind: PolicyKind = "native"
    floor: int | None = None


def policy_of(hpa: JsonView) -> Policy | None:
    """The policy of a central HPA, by its annotation; None: the annotation cannot be read."""
    text = ((hpa.get("metadata") or {}).get("annotations") or {}).get(STAND_IN_POLICY, "native")
    if text == "native":
        return Policy()
    if text == "hold":
        return Policy("hold")
    floor = _FLOOR.fullmatch(text)
    if floor is None:
        return None
    return Policy("floor", None if floor["peak"] else int(floor["count"]))


class KeptSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is kept of one HPA in the cluster.

    Args:
        spec: of the central HPA, autoscaling/v2.
        floor: policy `floor`: no native HPA, but so many replicas at least; None: another policy.
        peaks: policy `floor=peak-24h`: the highest count in each of the last 24 hours, by hours since 1970.
        paused_up, paused_down: until when (Unix ms) changes in this direction are paused, 0 for ever; None: they are
            not.
        override: replicas that a person wants in place of what the metrics ask for, until `override_until` (Unix ms);
            None: there is no override.
        partition: of the log, in which it is decided.
        position: of the decision that it follows from, `partition@offset`.
    """

    namespace: str
    name: str
    spec: Json
    floor: int | None = None
    peaks: dict[int, int] = {}
    paused_up: int | None = None
    paused_down: int | None = None
    override: int | None = None
    override_until: int = 0
    partition: int = 0
    position: str = ""

    @property
    def key(self) -> HpaKey:
        return HpaKey(self.namespace, self.name)

    def same_as(self, other: "KeptSpec | None") -> bool:
        """Whether the two differ in nothing but the position, which changes with every decision."""
        return other is not None and structs.replace(other, position=self.position) == self


def effective_spec(kept: KeptSpec, now_ms: int) -> Json:
    """The spec of the native HPA: a pause in force is `selectPolicy: Disabled` in its direction, and an override in
    force bounds the replicas from both sides, with both directions disabled.

    Upstream scales to a bound also in disabled directions (`reconcileAutoscaler`), also while metrics fail. So a pause
    holds an override by leaving out the bound that would make the native controller scale in the paused direction.
    """
    paused = tuple(direction for direction in BOTH_DIRECTIONS if _is_paused(kept, direction, now_ms))
    wanted = override_now(kept, now_ms)
    if wanted is None:
        return disabled(kept.spec, *paused)
    spec = disabled(kept.spec, *BOTH_DIRECTIONS)
    if "scaleUp" not in paused:
        spec["minReplicas"] = wanted
    if "scaleDown" not in paused:
        spec["maxReplicas"] = wanted
    return spec


def override_now(kept: KeptSpec, now_ms: int) -> int | None:
    """Replicas that an override in force asks for, within minReplicas and maxReplicas; None: there is none."""
    if kept.override is None or not is_in_force(kept.override_until, now_ms):
        return None
    least: int = kept.spec.get("minReplicas", 1)
    most: int = kept.spec["maxReplicas"]
    return max(least, min(most, kept.override))


def floor_now(kept: KeptSpec, now_ms: int) -> int | None:
    """Replicas that the target has at least; None: it has no floor, or its scale-ups are paused. A floor is never above
    maxReplicas, which bounds what the hub would want, too. An override in force takes the place of the floor.
    """
    if kept.floor is None or _is_paused(kept, "scaleUp", now_ms):
        return None
    wanted = override_now(kept, now_ms)
    return min(kept.floor, kept.spec["maxReplicas"]) if wanted is None else wanted


def _is_paused(kept: KeptSpec, direction: ScalingDirection, now_ms: int) -> bool:
    until_ms = kept.paused_up if direction == "scaleUp" else kept.paused_down
    return until_ms is not None and is_in_force(until_ms, now_ms)


def disabled(spec: JsonView, *directions: str) -> Json:
    """A copy of a spec whose changes in these directions (`scaleUp`, `scaleDown`) are disabled."""
    if not directions:
        return dict(spec)
    behavior = dict(spec.get("behavior") or {})
    for direction in directions:
        behavior[direction] = {**(behavior.get(direction) or {}), "selectPolicy": "Disabled"}
    return {**spec, "behavior": behavior}


def spec_hash(spec: JsonView) -> str:
    """A short hash of a spec, or of the data of a ConfigMap, for an annotation."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


class Keeper:
    """Follows decisions, central HPAs and pauses, and says what is to be kept."""

    def __init__(self, stored: Mapping[HpaKey, KeptSpec]) -> None:
        self._stored = dict(stored)
        self._decisions: dict[HpaKey, Decision] = {}
        self._urgency: dict[HpaKey, float] = {}
        self._peaks = {key: dict(each.peaks) for key, each in stored.items() if each.peaks}

    def decided(self, decision: Decision, now_ms: int) -> None:
        """Add an evaluation."""
        key = HpaKey(decision.namespace, decision.name)
        self._decisions[key] = decision
        self._urgency[key] = max((_number(metric.ratio) for metric in decision.metrics), default=0.0)
        hours = self._peaks.setdefault(key, {})
        hour = now_ms // _HOUR_MS
        hours[hour] = max(hours.get(hour, 0), decision.current_replicas)
        for old in [each for each in hours if each <= hour - _PEAK_HOURS]:
            del hours[old]

    def kept(
        self, hpas: Mapping[tuple[str, str], JsonView] | None, pauses: Collection[KnownPause], *, is_frozen: bool
    ) -> dict[HpaKey, KeptSpec]:
        """Return what is to be kept now, the most urgent first.

        Args:
            hpas: the central HPAs of the cluster; None: they are not known yet, and what is stored holds.
        """
        if is_frozen:
            return {}
        if hpas is None:
            return dict(self._stored)
        specs: dict[HpaKey, KeptSpec] = {}
        for namespace, name in sorted(hpas):
            key = HpaKey(namespace, name)
            if (kept := self._of(key, hpas[namespace, name], pauses)) is not None:
                specs[key] = kept
        self._stored = specs
        return dict(sorted(specs.items(), key=lambda item: -self._urgency.get(item[0], 0.0)))

    def _of(self, key: HpaKey, hpa: JsonView, pauses: Collection[KnownPause]) -> KeptSpec | None:
        decision, stored = self._decisions.get(key), self._stored.get(key)
        if decision is None and stored is None:
            return None
        if decision is not None and (decision.mode != "enforce" or decision.origin != "central" or decision.refused):
            return None
        policy = policy_of(hpa) or Policy("hold")  # what cannot be read must not scale
        if policy.kind == "hold":
            return None
        partition, position = (stored.partition, stored.position) if stored is not None else (0, "")
        if decision is not None:
            partition = decision.input.partition
            position = f"{partition}@{decision.input.offset}"
        peaks = self._peaks.get(key, {}) if policy.kind == "floor" and policy.floor is None else {}
        up, down = _paused(key, pauses, "scaleUp"), _paused(key, pauses, "scaleDown")
        override, override_until = _override(key, pauses)
        if decision is not None and any(step.step == "allotment" for step in decision.steps):
            override, override_until = None, 0  # a share of a FleetHPA comes before it
        return KeptSpec(
            namespace=key.namespace,
            name=key.name,
            spec=dict(hpa["spec"]),
            floor=_floor(policy, peaks),
            peaks=dict(peaks),
            paused_up=up,
            paused_down=down,
            override=override,
            override_until=override_until,
            partition=partition,
            position=position,
        )


def _floor(policy: Policy, peaks: Mapping[int, int]) -> int | None:
    if policy.kind != "floor":
        return None
    return max(peaks.values(), default=0) if policy.floor is None else policy.floor


def _paused(key: HpaKey, pauses: Collection[KnownPause], direction: ScalingDirection) -> int | None:
    """Until when the changes of an HPA in a direction are paused, 0 for ever; None: they are not."""
    ends = [pause.until for pause in pauses if covers(pause, key.namespace, key.name, direction)]
    return None if not ends else 0 if 0 in ends else max(ends)


def _override(key: HpaKey, pauses: Collection[KnownPause]) -> tuple[int | None, int]:
    """The replicas that an override of an HPA asks for, and until when; None: there is none. It comes with the pauses,
    not with decisions: one for which the scale could not be read shows no override.
    """
    for pause in pauses:
        if pause.kind == OVERRIDE and (pause.namespace, pause.name) == key:
            return pause.replicas, pause.until
    return None, 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def frozen_or_paused(spec: JsonView) -> bool:
    """Whether a spec has both directions disabled."""
    behavior: Any = spec.get("behavior") or {}
    return all((behavior.get(each) or {}).get("selectPolicy") == "Disabled" for each in BOTH_DIRECTIONS)
