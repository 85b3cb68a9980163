"""Questions to a FleetHPA: one of its decisions with another spec, its past in shadow, and a cluster away.

Of a decision with another spec: what it read are the sums that clusters reported, so only what these hold can be tried.

Of a FleetHPA in shadow beside the HPAs that its clusters have: a whole is not meant to give the sum of what separate
HPAs give, as each of those rounds up by itself and keeps its own minimum. So what counts is whether it would have had
fewer replicas than they had, by more than rounding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from schemas.decisions import Decision
from schemas.observed import FleetCluster, FleetSpec
from streams.across.contradiction import contradiction
from streams.across.division import capped, settle
from streams.across.fleet import bounds_of, divided, with_bounds, without_away
from streams.analysis.answer import Answer
from streams.analysis.candidate import Candidate, CandidateError, metric_key
from streams.analysis.shadowreport import MIN_AGREEMENT, MIN_DECISIONS
from streams.history.recorded import Recorded
from streams.hpa.autoscaler import UTILIZATION
from streams.hpa.grouping import Groups
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs, FleetInputs

_WHOLE_REQUEST = 100
"""A missing pod counts with its request at least, in percent (`streams.hpa.grouping.group_by_pod`)."""


# --- a decision with another spec -------------------------------------------------------------------------------------


def with_spec(inputs: EvaluationInputs, known: FleetInputs, tried: Candidate) -> EvaluationInputs:
    """Return the inputs of a FleetHPA's evaluation with another spec of the FleetHPA.

    A cluster whose maxReplicas is that of the FleetHPA has the new one. Raises CandidateError: the reports do not hold
    what the spec asks for, or the bounds of the clusters contradict it.
    """
    autoscaler = structs.replace(tried.autoscaler, generation=inputs.generation)
    clusters = bounded(known.row.spec.clusters, inputs.spec["maxReplicas"], autoscaler.max_replicas)
    spec = structs.replace(known.row.spec, clusters=clusters)
    if problem := contradiction(spec.clusters, autoscaler.min_replicas, autoscaler.max_replicas):
        raise CandidateError(f"{inputs.hpa}: {problem}")
    row = structs.replace(known.row, spec=spec)
    joined = structs.replace(known.joined, answers=_answers(inputs, known, tried))
    bounded_spec = without_away(autoscaler, row, known.now_ms, inputs.period_ms)
    if isinstance(joined.scale, Scale):
        settings, is_enforced, present = inputs.settings, inputs.mode == "enforce", joined.scale.spec_replicas
        bounds = bounds_of(row, bounded_spec, settings, is_enforced, known.now_ms, inputs.period_ms)
        bounded_spec = with_bounds(bounded_spec, bounds, present, inputs.history, known.now_ms, settings.rules)
    return structs.replace(
        inputs, spec=tried.spec, autoscaler=bounded_spec, fleet=FleetInputs(joined, row, known.now_ms)
    )


def shares(inputs: EvaluationInputs, known: FleetInputs, made: Answer) -> dict[str, int]:
    """Return what each cluster that is not away would have of the total, as the decider divides it."""
    total = None if made.evaluation.desired_replicas is None else made.final
    most, is_enforced = inputs.spec["maxReplicas"], inputs.mode == "enforce"
    return dict(divided(known.row, total, most, is_enforced, known.now_ms, inputs.period_ms).shares)


def bounded(clusters: Sequence[FleetCluster], before: int, most: int) -> list[FleetCluster]:
    """Return the clusters after the FleetHPA's maxReplicas has become `most`: those that had no other have it, too."""
    return [structs.replace(each, max_replicas=most) if each.max_replicas == before else each for each in clusters]


def _answers(inputs: EvaluationInputs, known: FleetInputs, tried: Candidate) -> tuple[object, ...]:
    """Return the recorded sums in the order of the metrics that are tried."""
    read = zip(inputs.spec.get("metrics") or (), inputs.autoscaler.metrics, known.joined.answers, strict=True)
    by_key = {metric_key(metric): (spec, answer) for metric, spec, answer in read}
    answers: list[object] = []
    for key, metric in zip(tried.asked, tried.autoscaler.metrics, strict=True):
        if key not in by_key:
            raise CandidateError(f"{inputs.hpa}: its clusters report nothing for {metric.name or metric.type}")
        spec, answer = by_key[key]
        if metric.calculation == UTILIZATION and spec.calculation != UTILIZATION:
            raise CandidateError(
                f"{inputs.hpa}: its clusters report no requests for {metric.name}, as it has no such target"
            )
        if isinstance(answer, Groups) and metric.calculation == UTILIZATION:
            before, after = [max(_WHOLE_REQUEST, each.target) for each in (spec, metric)]
            if before != after:
                # Sums cannot be truncated pod by pod: this is less than a milli-unit per missing pod too much.
                answer = structs.replace(answer, missing_fallback=answer.missing_request * after // 100)
        answers.append(answer)
    return tuple(answers)


# --- its past in shadow -----------------------------------------------------------------------------------------------


class FleetHpaSeen(Struct, frozen=True):
    """One evaluation of a whole in shadow. `total`, `shares`: what it wanted (None: nothing could be decided).
    `replicas`: what each cluster had. `away`: clusters that had not reported.
    """

    time_ms: int
    total: int | None
    shares: Mapping[str, int]
    replicas: Mapping[str, int]
    away: tuple[str, ...]

    @property
    def has_total(self) -> bool:
        """Whether it has a total of all clusters."""
        return self.total is not None and not self.away


class MemberShadow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster: means over time of what its own HPA had and of the share, and both at the end."""

    cluster: str
    native_mean: float
    share_mean: float
    native_now: int
    share_now: int


class FleetHpaShadowReport(Struct, frozen=True, kw_only=True, rename="camel"):
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


def seen_of(recorded: Recorded) -> FleetHpaSeen | None:
    """Return what a decision of a whole shows; None: it is no evaluation in shadow."""
    decision: Decision = recorded.decision
    if decision.kind != "evaluation" or decision.mode != "shadow":
        return None
    clusters = decision.observed.get("clusters", {})
    return FleetHpaSeen(
        recorded.time_ms,
        None if decision.error else decision.final_desired_replicas,
        {name: int(each["share"]) for name, each in clusters.items() if "share" in each},
        {name: int(each["replicas"]) for name, each in clusters.items() if "replicas" in each},
        tuple([name for name, each in clusters.items() if each.get("away") or "replicas" not in each]),
    )


def fleet_hpa_shadow(seen: Sequence[FleetHpaSeen], unscaled: Sequence[str]) -> FleetHpaShadowReport:
    """Compare; `seen`: one evaluation at least. `unscaled`: clusters without an HPA of their own.

    What comes before the first evaluation of all clusters is the beginning, when they had not reported yet.
    """
    first = next((at for at, each in enumerate(seen) if each.has_total), 0)
    seen = seen[first:]
    decided = [each for each in seen if each.has_total]
    distances = [_distance(each, decided[at : at + _NEXT + 1]) for at, each in enumerate(decided)]
    rounding = max(0, len(seen[-1].replicas) - 1)
    fewer = sum([distance < -rounding for distance in distances])
    undecided = len(seen) - len(decided)
    return FleetHpaShadowReport(
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


def _distance(each: FleetHpaSeen, near: Sequence[FleetHpaSeen]) -> int:
    """By how much a total is outside what separate HPAs had from then on; negative: below."""
    had, total = [sum(other.replicas.values()) for other in near], each.total or 0
    return min(0, total - min(had)) + max(0, total - max(had))


def _members(decided: Sequence[FleetHpaSeen]) -> list[MemberShadow]:
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
    seen: Sequence[FleetHpaSeen], decided: Sequence[FleetHpaSeen], fewer: int, rounding: int, unscaled: Sequence[str]
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


# --- a cluster away ---------------------------------------------------------------------------------------------------


class WithoutCluster(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer. `needed`: what the load of all clusters takes. `may_have`: the most that the others may have by
    maxReplicas, whether they have nodes for it or not.

    `shares`: of each of them; one above what it has nodes for is the part whose pods would wait. `missing`: what no
    share is left for.
    """

    needed: int
    may_have: int
    shares: dict[str, int]
    missing: int


def without_cluster(
    spec: FleetSpec,
    away: str,
    maximum: int,
    needed: int,
    had: Mapping[str, int],
    *,
    is_spilled: bool,
    caps: Mapping[str, int],
    gone: Mapping[str, int],
) -> WithoutCluster:
    """Return what the others get once `away` does not answer any more. It need not be one of its clusters: then
    nothing is lost.

    Args:
        maximum: of the FleetHPA.
        needed: replicas that the load of all clusters takes.
        had: replicas of each cluster now.
        is_spilled: what the cluster has counts no longer.
        caps: what clusters have nodes for, where that is less than their share.
        gone: what counts of clusters that are away already.
    """
    members = [each for each in spec.clusters if each.name != away and each.name not in gone]
    held = sum(gone.values()) + (0 if is_spilled else had.get(away, 0))
    least, most = sum([each.min_replicas for each in members]), sum([each.max_replicas for each in members])
    may_have = min(most, max(maximum - held, least))
    total = min(needed, may_have)
    now = {each.name: had.get(each.name, 0) for each in members}
    shares = settle(total, capped(total, members, caps), now, spec.strategy)
    return WithoutCluster(
        needed=needed, may_have=may_have, shares=shares, missing=max(0, needed - sum(shares.values()))
    )


def without_at(
    spec: FleetSpec,
    clusters: Mapping[str, Mapping[str, Any]],
    away: str,
    maximum: int,
    needed: int,
    *,
    is_spilled: bool,
) -> WithoutCluster:
    """Return it from one decision of a FleetHPA. `clusters`: what it shows of them (`streams.across.fleet.shown`)."""
    had = {name: int(each.get("replicas", 0)) for name, each in clusters.items()}
    gone = {
        name: 0 if is_spilled else int(each.get("allotted", had[name]))
        for name, each in clusters.items()
        if each.get("away") and name != away
    }
    caps = {name: int(each["room"]) for name, each in clusters.items() if "room" in each}
    return without_cluster(spec, away, maximum, needed, had, is_spilled=is_spilled, caps=caps, gone=gone)
