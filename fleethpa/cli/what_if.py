"""`fleethpa what-if`: one evaluation again, with another spec, other metric values or without one of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from fleethpa.changes.manifests import FieldValidation, Input, read_input, valid_hpa, validate_option, warn_about_fields
from fleethpa.changes.specs import changed_spec, checked, with_metrics
from fleethpa.fleet.decisionfinding import asked_id, find_decision, name_and_moment
from fleethpa.fleet.state import look_for_trouble, read_state
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import OK, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.fleetdrill import AskedDrill, drill_options, fleet_drill
from fleethpa.show import words
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import UNKNOWN
from fleethpa.show.words import counted, one_line
from schemas.constraints import words_of
from schemas.decisions import Decision
from schemas.keys import FLEET
from schemas.observed import FleetSpec
from streams.across.fleet import CONSTRAINT as SHARE
from streams.analysis.answer import Answer, answer
from streams.analysis.candidate import CandidateError, candidate
from streams.analysis.fleethpas import WithoutCluster, shares, with_spec, without_at
from streams.history.evaluations import evaluation_of
from streams.history.past import LogGoneError
from streams.history.recorded import Recorded
from streams.hpa.evaluation import MetricEvaluation
from streams.state.guards import left_its_type
from streams.state.inputs import EvaluationInputs


@click.command("what-if")
@click.argument("what", required=False, metavar="[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE|DIR|-", help="A manifest of the HPA to try.")
@validate_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field: maxReplicas=16, cpu=80%, scaleDown.stabilizationWindowSeconds=60.",
)
@click.option(
    "--metric",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a metric's value: queue_depth=+30%, cpu=90%, or a quantity.",
)
@click.option(
    "--cluster-away", metavar="CLUSTER", help="This cluster does not answer any more: of a FleetHPA, or of the fleet."
)
@drill_options
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def what_if(
    session: Session,
    what: str | None,
    namespace: str | None,
    files: tuple[str, ...],
    validate: FieldValidation,
    settings: tuple[str, ...],
    values: tuple[str, ...],
    cluster_away: str | None,
    drill: AskedDrill,
    output: str,
) -> int:
    """Evaluate once more on the inputs of a decision, with another spec (-f, --set) or other metric values (--metric).

    Nothing is written. Earlier recommendations, pods and everything else are as they were for that decision. Of a
    FleetHPA, --set changes its spec, and --cluster-away says what the other clusters could have if one
    were lost now and its load went to them. Without a name, --cluster-away is a drill of the whole fleet: who would
    have no room, at the load of the hour before --at (or since --since) times --factor. Exit 0: all have room; 1:
    somebody has none; 5: nobody is known to lack it, but the demand of some is not known.
    """
    if cluster_away is not None and cluster_away.startswith("-"):
        raise usage(
            f"--cluster-away needs the name of a cluster before {cluster_away}", next_step="fleethpa get clusters"
        )
    if cluster_away is not None and (files or settings or values):
        raise usage("--cluster-away goes with no other change", next_step="leave out -f, --set and --metric")
    if what is None:
        if cluster_away is None or namespace is not None:
            cause = "Only --cluster-away goes without a name: it is then about the whole fleet, not one namespace."
            raise usage("what-if of which HPA?", cause=cause, next_step="fleethpa what-if NAME --set maxReplicas=16")
        return fleet_drill(session, cluster_away, drill, output)
    drill.refuse(session)
    if cluster_away is not None:
        session.publish(session.run(_without(session, what, namespace, cluster_away)), output)
        return OK
    if not (files or settings or values):
        step = "-f hpa.yaml, --set maxReplicas=16, or --metric cpu=+30%"
        raise usage("what-if what?", cause="Name a change.", next_step=step)
    read = read_input(files, validate)
    warn_about_fields(session, read)
    recorded, inputs = session.run(_inputs(session, what, namespace))
    if SHARE in recorded.decision.constraints_applied:
        fleet_hpa = recorded.hpa._replace(cluster=FLEET)
        cause = f"Its replicas are the share that FleetHPA {fleet_hpa} allots, whatever its own spec and metrics say."
        raise usage(
            f"{recorded.hpa} decides nothing by itself", cause=cause, next_step=f"fleethpa what-if {fleet_hpa} --set …"
        )
    if inputs.fleet is not None and (files or values):
        raise usage(
            f"of FleetHPA {recorded.hpa} only the spec can be changed, with --set",
            cause="It decides over the sums that its clusters report.",
            next_step="fleethpa backtest -f fleethpa.yaml, to try a manifest on what was recorded",
        )
    spec = _candidate(read, files, inputs) if files else inputs.spec
    changed, stated = _changed(inputs, spec, settings, values)
    stated = [*files, *settings, *stated]

    before, after = answer(inputs), answer(changed)
    changes: dict[str, Sequence[str]] = {"set": settings, "metrics": values}
    question_report = _report(inputs, recorded, before, after, stated, changes)
    if inputs.fleet is not None and changed.fleet is not None:
        of_before, of_after = shares(inputs, inputs.fleet, before), shares(changed, changed.fleet, after)
        question_report = _with_division(question_report, of_before, of_after)
    session.publish(question_report, output)
    return OK


async def _inputs(session: Session, what: str, namespace: str | None) -> tuple[Recorded, EvaluationInputs]:
    name, at_ms = name_and_moment(session, what)
    async with session.past() as past:
        recorded, _, state = await find_decision(past, name, namespace, at_ms=at_ms)
        if state is None:
            await look_for_trouble(past, recorded.partition)
        if recorded.decision.kind != "evaluation":
            raise usage(
                f"{what} is the end of a write, not an evaluation", next_step=f"name {recorded.decision.completes}"
            )
        try:
            return recorded, (await evaluation_of(past, recorded)).inputs
        except LogGoneError as error:
            raise usage(f"{what} cannot be evaluated again", cause=str(error)) from error


async def _without(session: Session, what: str, namespace: str | None, away: str) -> QuestionReport:
    """Return what a FleetHPA could do without one of its clusters, by its newest decision."""
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
    return away_report(view, view.fleet, recorded.decision, away)


def _candidate(read: Input, files: tuple[str, ...], inputs: EvaluationInputs) -> dict[str, Any]:
    """The spec of the only manifest that is of the evaluated HPA's namespace and name."""
    hpa = inputs.hpa
    named = [each for each in read.hpas if (each.namespace or hpa.namespace, each.name) == (hpa.namespace, hpa.name)]
    bodies = [valid_hpa(each, hpa.namespace) for each in named]
    if len(bodies) != 1:
        listed = ", ".join(f"{m.namespace or hpa.namespace}/{m.name}" for m in read.hpas[:5]) or "none"
        count = f"{len(bodies)} HPAs" if bodies else "no HPA"
        raise usage(
            f"-f {' '.join(files)}: {count} {hpa.namespace}/{hpa.name} there", cause=f"The HPAs there are: {listed}."
        )
    spec: dict[str, Any] = bodies[0]["spec"]
    return spec


def _changed(
    inputs: EvaluationInputs, spec: dict[str, Any], settings: tuple[str, ...], values: tuple[str, ...]
) -> tuple[EvaluationInputs, list[str]]:
    changed, stated = with_metrics(inputs, values)
    if settings:
        metadata = {"name": inputs.hpa.name, "namespace": inputs.hpa.namespace}
        spec = checked({"metadata": metadata}, changed_spec(spec, settings), "--set")
    elif spec is inputs.spec:
        return changed, stated
    try:
        tried = candidate(inputs.hpa, spec)
        return (tried.on(changed) if inputs.fleet is None else with_spec(inputs, inputs.fleet, tried)), stated
    except CandidateError as error:
        raise usage(str(error)) from error


_UNREAD: Final = {
    "scaleUnavailable": "its scale could not be read, so how many replicas there are is not known",
    "disabled": "the target has 0 replicas",
    "aboveMax": "there are more replicas than maxReplicas",
    "belowMin": "there are fewer replicas than minReplicas",
    "metricsFailed": "the selector of its pods cannot be used",
    "ignored": "fleethpa ignores this HPA",
}
"""By the path of an evaluation, why it read no metric."""


def _report(
    inputs: EvaluationInputs,
    recorded: Recorded,
    before: Answer,
    after: Answer,
    changes: list[str],
    asked: dict[str, Sequence[str]],
) -> QuestionReport:
    """`changes`: what was changed, in words. `asked`: the same as it was written, for machine formats."""
    selected = words.short(after.evaluation.selected_metric) or "-"
    rows = [("METRIC", "RECORDED", "WHAT IF", "NOTE")]
    known = {metric.spec.name: metric for metric in before.evaluation.metrics}
    for metric in after.evaluation.metrics:
        old = known.get(metric.spec.name)
        note = one_line(metric.error) or "; ".join(filter(None, (_note(metric), _overflowed(inputs, metric))))
        rows.append((words.short(metric.spec.name), _proposal(old), _proposal(metric), note))
    held = ", ".join(words_of(limit) for limit in after.constraints if limit != "Tolerance")
    document = {
        **recorded.hpa._asdict(),
        "decision": recorded.decision.id,
        **{name: list(texts) for name, texts in asked.items()},
        "recorded": _side(inputs, before),
        "whatIf": _side(inputs, after),
    }
    facts = [
        *[f"  with {change}" for change in changes],
        f"{_counts(after)}   winner {selected}   (recorded {_counts(before)})"
        + (f"   limited by {held}" if held else ""),
    ]
    metrics = (
        Grid(rows)
        if len(rows) > 1
        else Sentences([f"metrics ignored: {_UNREAD.get(after.evaluation.path, 'none was read')}"])
    )
    head = Section(str(recorded.hpa), f"decision {recorded.decision.id}", [Sentences(facts)])
    return QuestionReport("What if", "WhatIf", document, [head, Section(parts=[metrics])])


def _with_division(made: QuestionReport, before: dict[str, int], after: dict[str, int]) -> QuestionReport:
    """Add what each cluster of a FleetHPA that is not away has of the total."""
    rows = [("CLUSTER", "RECORDED", "WHAT IF"), *[(name, str(before[name]), str(after[name])) for name in before]]
    clusters = {name: {"recorded": before[name], "whatIf": after[name]} for name in before}
    sections = [*made.sections, Section(parts=[Grid(rows, numbers=True)])] if before else made.sections
    return made._replace(document={**made.document, "clusters": clusters}, sections=sections)


def _counts(made: Answer) -> str:
    return UNKNOWN if made.evaluation.current_replicas is None else f"{made.current} → {made.final}"


def _overflowed(inputs: EvaluationInputs, metric: MetricEvaluation) -> str:
    """That the arithmetic left its integer type, and what becomes of it; empty: it did not."""
    if not left_its_type(metric.calculation):
        return ""
    if inputs.limits.of("Overflow") is not None:
        return "overflow: a change of replicas is held by the overflow guard (hold-on-overflow)"
    return "overflow: no guard holds it (hold-on-overflow=false)"


def _proposal(metric: Any) -> str:
    return "-" if metric is None or metric.calculation is None else str(metric.calculation.proposal)


def _note(metric: Any) -> str:
    calculation = metric.calculation
    return f"ratio {calculation.ratio:.3f}" + (f": {words.note(calculation.kept)}" if calculation.kept else "")


def _side(inputs: EvaluationInputs, made: Answer) -> dict[str, Any]:
    evaluation = made.evaluation
    known = evaluation.current_replicas is not None
    return {
        "currentReplicas": made.current if known else None,
        "rawDesiredReplicas": evaluation.proposal,
        "finalDesiredReplicas": made.final if known else None,
        "selectedMetric": evaluation.selected_metric,
        "constraintsApplied": made.constraints,
        "metrics": [
            {
                "name": metric.spec.name,
                "proposal": metric.calculation.proposal if metric.calculation else None,
                "ratio": repr(metric.calculation.ratio) if metric.calculation else "",
                "error": metric.error,
                "overflow": _overflowed(inputs, metric),
            }
            for metric in evaluation.metrics
        ],
    }


# --- a FleetHPA without one of its clusters ---------------------------------------------------------------------------


_UNKNOWN = (
    "whether the load of the cluster goes to the others: that is for whoever routes it",
    "how long pods take to start where replicas are added",
)


def away_report(view: HpaView, fleet: FleetSpec, decision: Decision, away: str) -> QuestionReport:
    """Return what the others could have, by the newest decision of the FleetHPA. `away`: one of its clusters."""
    clusters: dict[str, dict[str, Any]] = decision.observed.get("clusters", {})
    had = {name: int(each.get("replicas", 0)) for name, each in clusters.items()}
    needed = decision.final_desired_replicas
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
        "keep": msgspec.to_builtins(keep),
        "spill": msgspec.to_builtins(spill),
    }
    kept, spilled = ("KEEP", "SPILL") if policy == "Keep" else ("AT FIRST", "SPILLED")
    rows = [
        ("CLUSTER", "NOW", kept, spilled),
        *[(name, *(str(counts.get(name, "away")) for counts in (had, keep.shares, spill.shares))) for name in had],
    ]
    return QuestionReport(
        "What if a cluster is away",
        "ClusterAway",
        document,
        [
            verdict(_verdict(away, maximum, keep, spill, fleet)),
            Section(str(view.id), f"decision {decision.id}", [Grid(rows, numbers=True)]),
        ],
        [],
        [Notes("This cannot know:", _UNKNOWN)],
    )


def _verdict(away: str, maximum: int, keep: WithoutCluster, spill: WithoutCluster, fleet: FleetSpec) -> str:
    """The answer in words."""
    reached = sum(keep.shares.values())
    begin = f"The load of all clusters takes {counted(keep.needed, 'replica')} now; without {away} the others "
    if not keep.missing:
        return f"{begin}have room for all of them."
    why = f"maxReplicas {maximum} counts what {away} had" if spill.missing < keep.missing else f"maxReplicas {maximum}"
    text = f"{begin}could have {reached}: {keep.missing} are missing ({why})."
    after_s = fleet.away_spill_after_ms // 1000
    when = f"After {after_s}s (whenAway Spill)" if after_s else "With whenAway Spill"
    if spill.missing == keep.missing:
        return f"{text} {when} that stays so."
    return f"{text} {when} they could have {sum(spill.shares.values())}."
