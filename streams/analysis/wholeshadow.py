"""A FleetHPA in shadow beside the HPAs that its clusters have: its total and its division against theirs.

A whole is not meant to give the sum of what separate HPAs give: each of those rounds up by itself, and keeps its own
minimum. So what counts is whether it would have had fewer replicas than they had, by more than rounding.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from schemas.decisions import Decision
from streams.analysis.shadowreport import MIN_AGREEMENT, MIN_DECISIONS
from streams.history.recorded import Recorded


class WholeSeen(Struct, frozen=True):
    """One evaluation of a whole in shadow. `total`, `shares`: what it wanted (None: nothing could be decided).
    `replicas`: what each cluster had. `away`: clusters that had not reported.
    """

    time_ms: int
    total: int | None
    shares: Mapping[str, int]
    replicas: Mapping[str, int]
    away: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it has a total of all clusters."""
        return self.total is not None and not self.away


class MemberShadow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster: means over time of what its own HPA had and of the share, and both at the end."""

    cluster: str
    native_mean: float
    share_mean: float
    native_now: int
    share_now: int


class WholeShadowReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison. `agreed`: totals that the separate HPAs had, at the evaluation or at one of the next two.
    `fewer`: totals that were below that by more than rounding; `most_below`, `most_above`: by how much at most.
    `undecided`: evaluations without a total, or while a cluster was away.
    """

    since: int
    until: int
    evaluations: int
    undecided: int
    agreed: int
    fewer: int
    most_below: int
    most_above: int
    members: list[MemberShadow]
    reasons: list[str]

    @property
    def ready(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons

    @property
    def compared(self) -> int:
        """Evaluations with a total of all clusters."""
        return self.evaluations - self.undecided


_NEXT = 2
"""Evaluations within which separate HPAs, whose sync periods begin at other moments, follow the same load."""


def seen_of(recorded: Recorded) -> WholeSeen | None:
    """Give what a decision of a whole shows; None: it is no evaluation in shadow."""
    decision: Decision = recorded.decision
    if decision.kind != "evaluation" or decision.mode != "shadow":
        return None
    clusters = decision.observed.get("clusters", {})
    return WholeSeen(
        recorded.time_ms,
        None if decision.error else decision.final_desired_replicas,
        {name: int(each["share"]) for name, each in clusters.items() if "share" in each},
        {name: int(each["replicas"]) for name, each in clusters.items() if "replicas" in each},
        tuple([name for name, each in clusters.items() if each.get("away") or "replicas" not in each]),
    )


def whole_shadow(seen: Sequence[WholeSeen], unscaled: Sequence[str]) -> WholeShadowReport:
    """Compare; `seen`: one evaluation at least. `unscaled`: clusters without an HPA of their own.

    What comes before the first evaluation of all clusters is the beginning, when they had not reported yet.
    """
    first = next((at for at, each in enumerate(seen) if each.is_whole), 0)
    seen = seen[first:]
    decided = [each for each in seen if each.is_whole]
    distances = [_distance(each, decided[at : at + _NEXT + 1]) for at, each in enumerate(decided)]
    rounding = max(0, len(seen[-1].replicas) - 1)
    fewer = sum([distance < -rounding for distance in distances])
    undecided = len(seen) - len(decided)
    return WholeShadowReport(
        since=seen[0].time_ms,
        until=seen[-1].time_ms,
        evaluations=len(seen),
        undecided=undecided,
        agreed=distances.count(0),
        fewer=fewer,
        most_below=-min(distances, default=0),
        most_above=max(distances, default=0),
        members=_members(decided),
        reasons=_reasons(seen, decided, fewer, rounding, unscaled),
    )


def _distance(each: WholeSeen, near: Sequence[WholeSeen]) -> int:
    """By how much a total is outside what separate HPAs had from then on; negative: below."""
    had, total = [sum(other.replicas.values()) for other in near], each.total or 0
    return min(0, total - min(had)) + max(0, total - max(had))


def _members(decided: Sequence[WholeSeen]) -> list[MemberShadow]:
    if not decided:
        return []
    newest, count = decided[-1], len(decided)
    return [
        MemberShadow(
            cluster=name,
            native_mean=sum([each.replicas.get(name, 0) for each in decided]) / count,
            share_mean=sum([each.shares.get(name, 0) for each in decided]) / count,
            native_now=newest.replicas[name],
            share_now=newest.shares.get(name, 0),
        )
        for name in newest.replicas
    ]


def _reasons(
    seen: Sequence[WholeSeen], decided: Sequence[WholeSeen], fewer: int, rounding: int, unscaled: Sequence[str]
) -> list[str]:
    reasons = [f"cluster {name} has no HPA of its own to compare with" for name in unscaled]
    if len(decided) < MIN_DECISIONS:
        reasons.append(f"{len(decided)} evaluations of all clusters, {MIN_DECISIONS} are needed")
    if len(decided) < MIN_AGREEMENT * len(seen):
        away = sorted({name for each in seen for name in each.away})
        why = f": {', '.join(away)} had not reported" if away else ""
        reasons.append(f"{len(seen) - len(decided)} of {len(seen)} evaluations were without all clusters{why}")
    if fewer > (1 - MIN_AGREEMENT) * len(decided):
        reasons.append(
            f"in {fewer} of {len(decided)} evaluations it wanted fewer than the separate HPAs had, by more than the "
            f"{rounding} that rounding explains: loads of the clusters differ, so see that traffic follows replicas"
        )
    return reasons
