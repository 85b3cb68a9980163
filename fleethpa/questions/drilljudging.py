"""Who has no room for a load at one moment: an HPA of one cluster, a FleetHPA or a CapacityGroup. Pure.

What a FleetHPA could give its other clusters, what an HPA asks for and what a CapacityGroup grants come from the
functions by which the decider divides, calculates and grants.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fleethpa.questions.drillloads import Load
from fleethpa.show.words import counted
from schemas.observed import FleetSpec
from streams.across.allotments import CapacityClaim, granted
from streams.analysis.fleethpas import WithoutCluster, without_at
from streams.hpa.calculator import ToleranceBand, object_per_pod
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.rules import Rules

_MILLI: Final = 1_000


class Controller(NamedTuple):
    """How an HPA is decided: its tolerance, its rules and how often."""

    band: ToleranceBand
    rules: Rules
    period_ms: int


def asked_for(pods: float, most: int, controller: Controller) -> int:
    """Return the replicas that a load asks for where there are `most`, as the controller calculates an average per pod:
    within the tolerance no more than these.
    """
    milli = round(min(pods, MAX_INT32 / _MILLI) * _MILLI)
    proposal = object_per_pod(most, _MILLI, milli, controller.band, controller.rules).proposal
    return proposal if proposal > most else min(proposal, -(-milli // _MILLI))


class Judged(NamedTuple):
    """One moment, in replicas, of a CapacityGroup in counts of its limit. `unknown`: why the demand is not known;
    empty: it is. `first`: what is missing while what the cluster had still counts, `later`: once it counts no longer;
    `missing` is one of the two.
    """

    asks: int = 0
    may_have: int = 0
    missing: int = 0
    why: str = ""
    unknown: str = ""
    first: int = 0
    later: int = 0


def judged_alone(load: Load, most: int, factor: float, controller: Controller) -> Judged:
    """Judge an HPA of one cluster that is not away."""
    asks = 0 if load.pods is None else asked_for(load.pods * factor, most, controller)
    if asks > most:
        missing = asks - most
        return Judged(asks, most, missing, f"maxReplicas {most}", "", missing, missing)
    return Judged(unknown=load.unread) if load.unread else Judged(asks, most)


class DrillFleetHpa(NamedTuple):
    """A FleetHPA."""

    spec: FleetSpec
    least: int
    most: int

    @property
    def names(self) -> list[str]:
        """Its clusters."""
        return [each.name for each in self.spec.clusters]


def judged_fleet_hpa(
    load: Load,
    clusters: Mapping[str, Mapping[str, Any]],
    fleet_hpa: DrillFleetHpa,
    away: str,
    factor: float,
    controller: Controller,
) -> tuple[Judged, Mapping[str, int]]:
    """Judge a FleetHPA, and give the shares of its other clusters; none where its load is not known."""
    for name in fleet_hpa.names:
        if clusters.get(name, {}).get("away") or "replicas" not in clusters.get(name, {}):
            return Judged(unknown=f"cluster {name} had not reported"), {}
    if load.pods is None:
        return Judged(unknown=load.unread), {}
    pods, clusters = load.pods * factor, {name: clusters[name] for name in fleet_hpa.names}

    def without(is_spilled: bool) -> WithoutCluster:
        def divided(needed: int) -> WithoutCluster:
            return without_at(fleet_hpa.spec, clusters, away, fleet_hpa.most, needed, is_spilled=is_spilled)

        may_have = divided(0).may_have
        held = 0 if is_spilled or away not in clusters else int(clusters[away]["replicas"])
        return divided(max(asked_for(pods, may_have, controller), min(may_have, fleet_hpa.least - held)))

    kept = without(is_spilled=False)
    spilled = without(is_spilled=True) if fleet_hpa.spec.away_spill_after_ms else kept
    waiting = _waiting(spilled, clusters)
    first, missing = kept.missing + sum(_waiting(kept, clusters).values()), spilled.missing + sum(waiting.values())
    if load.unread and not first and not missing:
        return Judged(unknown=load.unread), {}
    why = [_why_missing(spilled, fleet_hpa, clusters, away)] if spilled.missing else []
    why += [f"{name} has nodes for {spilled.shares[name] - short}" for name, short in waiting.items()]
    if first > missing > 0:
        why.append(f"until the spill {first} are missing")
    asks = spilled.needed
    return Judged(asks, asks - missing, missing, "; ".join(why), "", first, missing), spilled.shares


def _waiting(made: WithoutCluster, clusters: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return how many replicas of each share are known to find no node."""
    rooms = {name: int(clusters[name].get("room", MAX_INT32)) for name in made.shares}
    return {name: share - rooms[name] for name, share in made.shares.items() if share > rooms[name]}


def _why_missing(
    made: WithoutCluster, fleet_hpa: DrillFleetHpa, clusters: Mapping[str, Mapping[str, Any]], away: str
) -> str:
    others = sum([each.max_replicas for each in fleet_hpa.spec.clusters if each.name != away])
    if not others:
        return f"it has no cluster but {away}"
    if made.may_have == others < fleet_hpa.most:
        return f"maxReplicas of its other clusters: {others}"
    held = int(clusters.get(away, {}).get("replicas", 0))
    is_counted = held and not fleet_hpa.spec.away_spill_after_ms
    return f"maxReplicas {fleet_hpa.most}" + (f", of which {away} keeps {held} (whenAway Keep)" if is_counted else "")


class DrillMember(NamedTuple):
    """An HPA of a CapacityGroup at one moment. `wants`: None: its demand is not known, so it counts with what it has.
    `is_away`: it is in the cluster that is away, and counts with what it has, too.
    """

    name: str
    has: int
    wants: int | None
    priority: int
    weight: int
    is_away: bool = False

    @property
    def claim(self) -> CapacityClaim:
        """Its present and wanted use of the group; what it gives up is given up at once."""
        wants = self.has if self.wants is None or self.is_away else self.wants
        return CapacityClaim(self.name, min(self.has, wants), wants, self.priority, self.weight)


def judged_group(limit: int, members: Sequence[DrillMember]) -> tuple[Judged, dict[str, int]]:
    """Judge a CapacityGroup while it still counts what the cluster had that is away. Gives also the replicas that are
    missing, by HPA.
    """
    missing = _held_back(limit, members)
    weights = {each.name: each.weight for each in members}
    wants = sum([each.claim.wants * each.weight for each in members if not each.is_away])
    lost = sum([each.has * each.weight for each in members if each.is_away])
    short = sum([count * weights[name] for name, count in missing.items()])
    left = _held_back(limit, [each for each in members if not each.is_away])
    later = sum([count * weights[name] for name, count in left.items()])
    unknown = sum([each.wants is None and not each.is_away for each in members])
    why = []
    if missing:
        most = max(missing, key=lambda name: (missing[name], name))
        why = [f"{counted(len(missing), 'HPA')} held back, {most} by {missing[most]}"]
    if missing and lost:
        why.append("what the cluster had still counts")
    if missing and unknown:
        why.append(f"{counted(unknown, 'HPA')} of unknown demand with what they have")
    return Judged(wants, max(0, limit - lost), short, "; ".join(why), "", short, later), missing


def _held_back(limit: int, members: Sequence[DrillMember]) -> dict[str, int]:
    claims = [each.claim for each in members]
    given = granted(limit, claims)
    return {each.name: each.missing - given[each.name] for each in claims if each.missing > given[each.name]}
