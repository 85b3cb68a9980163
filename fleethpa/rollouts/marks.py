"""Rollouts of a changed spec in waves of clusters: their plan, and how far each has come, read off the state.

A rollout has no store of its own. Each HPA that it changes carries a mark, an annotation with the whole plan, so that
everyone who can read the log can continue or abort it. What a mark does not say follows from the recorded decisions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec
import orjson
from msgspec import Struct

from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import usage
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.shape import Json
from streams.state.hpastate import SCHEDULE_ANNOTATION

ANNOTATION: Final = "fleethpa.io/rollout"
_SIZE: Final = re.compile(r"([0-9]{1,18})(%?)")

WaveState = Literal["watching", "waiting", "complete", "reverted", "reverting"]
"""`watching`: the newest wave's time is not over. `waiting`: it is over, and the next wave has not begun. `complete`:
the last wave's time is over. `reverting`: some HPAs have their earlier spec again. `reverted`: all of them have."""


class RolloutMark(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What an HPA of a rollout carries.

    `waves`: the clusters of each. `hpas`: `namespace/name` of each HPA of the rollout. `wave`: the one of this HPA,
    from 1. `begun_ms`: when it got the spec. `replicas`: what it had then. `previous`: labels, annotations and spec
    before; None: it has them again. `reverted`: why. `kept_schedule`: its schedule is its own, not the manifest's.
    """

    id: str
    waves: list[list[str]]
    hpas: list[str]
    wave: int
    begun_ms: int
    wait_ms: int
    fail_if: list[str]
    spec_digest: dict[str, str]
    replicas: int = 0
    author: str = ""
    reason: str = ""
    previous: Json | None = None
    reverted: str = ""
    kept_schedule: bool = False


@dataclass
class StagedRollout:
    """One rollout: the HPAs that carry its mark."""

    id: str
    marks: dict[HpaId, RolloutMark] = field(default_factory=dict)
    views: dict[HpaId, HpaView] = field(default_factory=dict)

    @property
    def plan(self) -> RolloutMark:
        """The mark of one of its HPAs: all of them say the same about the plan."""
        return self.marks[min(self.marks)]

    @property
    def wave(self) -> int:
        """The newest wave that has begun, from 1."""
        return max(mark.wave for mark in self.marks.values())

    @property
    def began_ms(self) -> int:
        """When its first wave began."""
        return min(mark.begun_ms for mark in self.marks.values())

    @property
    def reverted(self) -> str:
        """Why it was reverted; empty: it was not."""
        return next((mark.reverted for mark in self.marks.values() if mark.reverted), "")

    def running(self, wave: int | None = None) -> dict[HpaId, RolloutMark]:
        """The HPAs (of one wave) that have the new spec."""
        return {
            hpa: mark
            for hpa, mark in self.marks.items()
            if wave in (None, mark.wave) and not mark.reverted and not self.is_overtaken(hpa)
        }

    def is_overtaken(self, hpa: HpaId) -> bool:
        """Whether somebody has changed an HPA since, so that its spec is not the rollout's any more."""
        mark = self.marks[hpa]
        return not mark.reverted and digest(self.views[hpa].spec) != mark.spec_digest.get(f"{hpa.namespace}/{hpa.name}")

    def ends_ms(self, wave: int) -> int:
        """When a wave's time is over."""
        return max((mark.begun_ms for mark in self.running(wave).values()), default=0) + self.plan.wait_ms

    def state(self, now_ms: int) -> WaveState:
        """How far it has come."""
        if self.reverted:
            return "reverting" if self.running() else "reverted"
        if now_ms < self.ends_ms(self.wave):
            return "watching"
        return "complete" if self.wave == len(self.plan.waves) else "waiting"

    def example(self, named: str) -> Json:
        """Labels, annotations and spec that the rollout gives an HPA of this `namespace/name`."""
        for hpa, mark in self.running().items():
            if f"{hpa.namespace}/{hpa.name}" == named:
                part = manifest_part(self.views[hpa])
                if mark.kept_schedule:
                    part["annotations"].pop(SCHEDULE_ANNOTATION, None)
                return part
        raise KeyError(named)


def members(plan: RolloutMark, state: FleetState, wave: int) -> list[HpaView]:
    """The central HPAs of a wave that have the new spec by this rollout, or still another one."""
    views = []
    for cluster in plan.waves[wave - 1]:
        for named in plan.hpas:
            namespace, name = named.split("/")
            view = state.hpas.get(HpaId(cluster, namespace, name))
            if view is None or view.origin != "central":
                continue
            mark = mark_of(view)
            if (mark is not None and mark.id == plan.id) or digest(view.spec) != plan.spec_digest[named]:
                views.append(view)
    return views


def rollouts_in(state: FleetState) -> dict[str, StagedRollout]:
    """Every rollout that HPAs carry the mark of, by its id."""
    rollouts: dict[str, StagedRollout] = {}
    for hpa, view in state.hpas.items():
        mark = mark_of(view)
        if mark is not None:
            rollout = rollouts.setdefault(mark.id, StagedRollout(mark.id))
            rollout.marks[hpa], rollout.views[hpa] = mark, view
    return rollouts


def under_way(state: FleetState, now_ms: int) -> set[HpaId]:
    """The HPAs of rollouts of which the last wave is not over: a changed spec would end them."""
    return {
        hpa
        for rollout in rollouts_in(state).values()
        if rollout.state(now_ms) in ("watching", "waiting", "reverting")
        for hpa in rollout.marks
    }


def mark_of(view: HpaView) -> RolloutMark | None:
    """The mark that an HPA carries; None: none, or one that cannot be read."""
    text = view.annotations.get(ANNOTATION)
    if not text or view.origin != "central":
        return None
    try:
        return msgspec.json.decode(text, type=RolloutMark)
    except msgspec.DecodeError:
        return None


def manifest_part(view: HpaView) -> Json:
    """Labels, annotations (without a mark) and spec of an HPA."""
    return part_of(view.labels, view.annotations, view.spec)


def part_of(labels: Mapping[str, str], annotations: Mapping[str, str], spec: Json) -> Json:
    """Return what a rollout changes of an HPA, and brings back."""
    kept = {name: value for name, value in annotations.items() if name != ANNOTATION}
    return {"labels": dict(labels), "annotations": kept, "spec": spec}


def marked(hpa: HpaId, part: Json, mark: RolloutMark) -> Json:
    """The object of an HPA that carries a mark."""
    annotations = part["annotations"] | {ANNOTATION: msgspec.json.encode(mark).decode()}
    metadata = {"name": hpa.name, "namespace": hpa.namespace, "labels": part["labels"], "annotations": annotations}
    return manifest_of(metadata, part["spec"])


def digest(spec: Json) -> str:
    """A short digest of a defaulted spec."""
    return hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


# --- waves ------------------------------------------------------------------------------------------------------------


def waves_of(clusters: Sequence[str], text: str) -> list[list[str]]:
    """Divide clusters, in their order, as `--wave 1,25%,100%` says: how many have the spec after each wave.

    A wave that would add none is left out. A percentage is rounded up, so that it is at least one cluster.

    Raises CommandError: a part is not N or N%, parts do not grow, or the last one leaves clusters out (exit 2).
    """
    parts = [part.strip() for part in text.split(",")]
    bounds = [_bound(part, text, len(clusters)) for part in parts]
    if bounds != sorted(bounds):
        raise usage(
            f"--wave {text}: each wave is at least as large as the one before", cause="They count all clusters so far."
        )
    if bounds[-1] < len(clusters):
        left = len(clusters) - bounds[-1]
        raise usage(
            f"--wave {text} leaves out {left} of {len(clusters)} clusters",
            cause="The last wave reaches all of them.",
            next_step=f"--wave {text},100%, or name fewer clusters",
        )
    waves, first = [], 0
    for bound in bounds:
        if bound > first:
            waves.append(list(clusters[first:bound]))
            first = bound
    return waves


def _bound(part: str, text: str, count: int) -> int:
    match = _SIZE.fullmatch(part)
    if match is None or not int(match[1]) or (match[2] and int(match[1]) > 100):
        raise usage(
            f"--wave {text!r}: {part!r} is not a number of clusters or a percentage",
            cause="Write how many clusters have the spec after each wave, such as 1,25%,100%.",
        )
    size = int(match[1])
    return min(count, -(-count * size // 100) if match[2] else size)


def in_order(clusters: Iterable[str], globs: Sequence[str]) -> list[str]:
    """Sort clusters by the first glob that names them, then by name: `canary-*,prod-*` begins with the canaries."""
    return sorted(clusters, key=lambda name: (next(i for i, glob in enumerate(globs) if fnmatchcase(name, glob)), name))
