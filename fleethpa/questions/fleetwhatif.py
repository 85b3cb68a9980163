"""The forms of `fleethpa what-if` that are about a FleetHPA: its division, and one of its clusters away."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fleethpa.fleet.decisionfinding import asked_id, find_decision, name_and_moment
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import OK, PARTIAL, usage
from fleethpa.frame.session import Session
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, verdict
from fleethpa.show.words import counted, listed
from schemas.decisions import Decision
from schemas.keys import FLEET
from schemas.observed import FleetSpec
from streams.across.fleet import CONSTRAINT as SHARE
from streams.analysis.answer import Answer
from streams.analysis.candidate import Candidate
from streams.analysis.fleethpas import WithoutCluster, shares, with_spec, without_at
from streams.history.recorded import Recorded
from streams.state.inputs import EvaluationInputs

_UNKNOWN: Final = (
    "whether the load of the cluster goes to the others: that is for whoever routes it",
    "how long pods take to start where replicas are added",
)


def refuse_of_fleet_hpas(recorded: Recorded, inputs: EvaluationInputs, *, spec_only: bool) -> None:
    """See that an evaluation can be tried with a change. `spec_only`: the change is one of fields of the spec.

    Raises CommandError: the HPA has its share of a FleetHPA, or it is one, of which only the spec can be changed (exit
    2).
    """
    if SHARE in recorded.decision.constraints_applied:
        fleet_hpa = recorded.hpa._replace(cluster=FLEET)
        cause = f"Its replicas are the share that FleetHPA {fleet_hpa} allots, whatever its own spec and metrics say."
        raise usage(
            f"{recorded.hpa} decides nothing by itself", cause=cause, next_step=f"fleethpa what-if {fleet_hpa} --set …"
        )
    if inputs.fleet is not None and not spec_only:
        raise usage(
            f"of FleetHPA {recorded.hpa} only the spec can be changed, with --set",
            cause="It decides over the sums that its clusters report.",
            next_step="fleethpa backtest -f fleethpa.yaml, to try a manifest on what was recorded",
        )


def with_candidate(inputs: EvaluationInputs, changed: EvaluationInputs, tried: Candidate) -> EvaluationInputs:
    """Return `changed` with another spec; of a FleetHPA, `inputs` with the sums of its clusters under that spec.

    Raises CandidateError: the spec cannot be tried on them.
    """
    return tried.on(changed) if inputs.fleet is None else with_spec(inputs, inputs.fleet, tried)


async def without_cluster(session: Session, what: str, namespace: str | None, away: str) -> tuple[QuestionReport, int]:
    """Return what a FleetHPA could do without one of its clusters, by its newest decision, and the exit code: `PARTIAL`
    where a part of its load is not known now.
    """
    name, at_ms = name_and_moment(session, what)
    if at_ms is not None or asked_id(name):
        raise usage(
            "--cluster-away of one FleetHPA is about now",
            cause="It takes the present spec and the newest decision. A drill of the whole fleet takes a past hour.",
            next_step="leave out the time, or fleethpa what-if --cluster-away CLUSTER --at TIME",
        )
    async with session.past() as past:
        recorded = (await find_decision(past, name, namespace)).recorded
        state = await read_state(past)
    view = state.hpas.get(recorded.hpa)
    if view is None or view.fleet is None:
        raise usage(f"{recorded.hpa} is no FleetHPA", next_step="name one, as @fleet/NAMESPACE/NAME")
    names = [each.name for each in view.fleet.clusters]
    if away not in names:
        raise usage(f"{recorded.hpa} has no cluster {away}", cause=f"It has {', '.join(names)}.")
    is_old = state.is_last_known
    made = away_report(view, view.fleet, recorded.decision, away, is_old=is_old)
    return made, PARTIAL if is_old or made.document["unknown"] else OK


def with_division(
    made: QuestionReport, was: tuple[EvaluationInputs, Answer], tried: tuple[EvaluationInputs, Answer]
) -> QuestionReport:
    """Add what each cluster that is not away has of the total, where the HPA is a FleetHPA."""
    (inputs, before), (changed, after) = was, tried
    if inputs.fleet is None or changed.fleet is None:
        return made
    had, has = shares(inputs, inputs.fleet, before), shares(changed, changed.fleet, after)
    rows = [("CLUSTER", "RECORDED", "WHAT IF"), *[(name, str(had[name]), str(has[name])) for name in had]]
    clusters = {name: {"recorded": had[name], "whatIf": has[name]} for name in had}
    sections = [*made.sections, Section(parts=[Grid(rows, numbers=True)])] if had else made.sections
    return made._replace(document={**made.document, "clusters": clusters}, sections=sections)


def away_report(
    view: HpaView, fleet: FleetSpec, decision: Decision, away: str, *, is_old: bool = False
) -> QuestionReport:
    """Return what the others could have, by the newest decision of the FleetHPA.

    `away`: one of its clusters. `is_old`: that decision is only the last that was known.
    """
    clusters: dict[str, dict[str, Any]] = decision.observed.get("clusters", {})
    had = {name: int(each.get("replicas", 0)) for name, each in clusters.items()}
    unknown = [name for name, each in clusters.items() if each.get("away") or "replicas" not in each]
    # What the metrics ask for is above what maxReplicas and policies leave of it.
    needed = max(decision.raw_desired_replicas or 0, decision.final_desired_replicas)
    maximum: int = view.spec["maxReplicas"]

    keep = without_at(fleet, clusters, away, maximum, needed, is_spilled=False)
    spill = without_at(fleet, clusters, away, maximum, needed, is_spilled=True)
    policy = "Spill" if fleet.away_spill_after_ms else "Keep"
    document = {
        "namespace": view.id.namespace,
        "name": view.id.name,
        "decision": decision.id,
        "away": away,
        "policy": policy,
        "maxReplicas": maximum,
        "replicas": had,
        "unknown": unknown,
        "keep": msgspec.to_builtins(keep),
        "spill": msgspec.to_builtins(spill),
    }
    kept, spilled = ("KEEP", "SPILL") if policy == "Keep" else ("AT FIRST", "SPILLED")
    rows = [
        ("CLUSTER", "NOW", kept, spilled),
        *[
            (name, _had(clusters[name]), *(str(counts.get(name, "away")) for counts in (keep.shares, spill.shares)))
            for name in had
        ],
    ]
    known = [name for name in had if name not in unknown]
    load = _load(keep.needed, known, unknown, is_old=is_old)
    missing = max([each.pods_missing for each in decision.metrics], default=0)
    unmeasured = [f"what {counted(missing, 'pod')} without metrics use"] if missing else []
    return QuestionReport(
        "What if a cluster is away",
        "ClusterAway",
        document,
        [
            verdict(f"{load}; {_verdict(away, maximum, keep, spill, fleet)}"),
            Section(str(view.id), f"decision {decision.id}", [Grid(rows, numbers=True)]),
        ],
        [],
        [Notes("This cannot know:", [*unmeasured, *_UNKNOWN])],
    )


def _had(cluster: dict[str, Any]) -> str:
    """Return the replicas of a cluster in words, as far as they are known."""
    if "replicas" not in cluster:
        return "?"
    return f"{cluster['replicas']} (last known)" if cluster.get("away") else str(cluster["replicas"])


def _load(needed: int, known: list[str], unknown: list[str], *, is_old: bool) -> str:
    """Return in words how many replicas the load takes, and of which clusters it is known."""
    takes = (
        f"took {counted(needed, 'replica')} when last known" if is_old else f"takes {counted(needed, 'replica')} now"
    )
    if not unknown:
        return f"The load of all clusters {takes}"
    if not known:
        return "The load is not known, as all clusters are away"
    return f"The load of {listed(known)} {takes}; that of {listed(unknown)}, away already, is not known"


def _verdict(away: str, maximum: int, keep: WithoutCluster, spill: WithoutCluster, fleet: FleetSpec) -> str:
    """Return in words what the other clusters could have."""
    reached = sum(keep.shares.values())
    if not keep.shares:
        return f"without {away} no cluster is left to take it."
    begin = f"without {away} the others "
    if not keep.missing:
        return f"{begin}have room for all of them."
    why = f"maxReplicas {maximum} counts what {away} had" if spill.missing < keep.missing else f"maxReplicas {maximum}"
    text = f"{begin}could have {reached}: {keep.missing} are missing ({why})."
    after_s = fleet.away_spill_after_ms // 1000
    when = f"After {after_s}s (whenAway Spill)" if after_s else "With whenAway Spill"
    if spill.missing == keep.missing:
        return f"{text} {when} that stays so."
    return f"{text} {when} they could have {sum(spill.shares.values())}."
