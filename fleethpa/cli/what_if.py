"""`fleethpa what-if`: one evaluation again, with another spec, other metric values or without one of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from fleethpa.changes.manifests import FieldValidation, Input, read_input, valid_hpa, validate_option, warn_about_fields
from fleethpa.changes.specs import changed_spec, checked, with_metrics
from fleethpa.fleet.decisionfinding import find_decision, name_and_moment
from fleethpa.fleet.state import look_for_trouble
from fleethpa.frame.errors import OK, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.fleetdrill import AskedDrill, drill_options, fleet_drill
from fleethpa.questions.fleetwhatif import refuse_of_fleet_hpas, with_candidate, with_division, without_cluster
from fleethpa.show import words
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences
from fleethpa.show.text import UNKNOWN
from fleethpa.show.words import one_line
from schemas.constraints import words_of
from streams.analysis.answer import Answer, answer
from streams.analysis.candidate import CandidateError, candidate
from streams.history.evaluations import evaluation_of
from streams.history.past import LogGoneError
from streams.history.recorded import Recorded
from streams.hpa.evaluation import MetricEvaluation
from streams.state.inputs import EvaluationInputs
from streams.state.limits.overflow import left_its_type


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
        question_report, code = session.run(without_cluster(session, what, namespace, cluster_away))
        session.publish(question_report, output)
        return code
    if not (files or settings or values):
        step = "-f hpa.yaml, --set maxReplicas=16, or --metric cpu=+30%"
        raise usage("what-if what?", cause="Name a change.", next_step=step)
    read = read_input(files, validate)
    warn_about_fields(session, read)
    recorded, inputs = session.run(_inputs(session, what, namespace))
    refuse_of_fleet_hpas(recorded, inputs, spec_only=not (files or values))
    spec = _candidate(read, files, inputs) if files else inputs.spec
    changed, stated = _changed(inputs, spec, settings, values)
    stated = [*files, *settings, *stated]

    before, after = answer(inputs), answer(changed)
    changes: dict[str, Sequence[str]] = {"set": settings, "metrics": values}
    question_report = _report(inputs, recorded, before, after, stated, changes)
    session.publish(with_division(question_report, (inputs, before), (changed, after)), output)
    return OK


async def _inputs(session: Session, what: str, namespace: str | None) -> tuple[Recorded, EvaluationInputs]:
    name, at_ms = name_and_moment(session, what)
    async with session.past() as past:
        recorded, _, state = await find_decision(past, name, namespace, at_ms=at_ms)
        if state is None:
            await look_for_trouble(past, recorded)
        if recorded.decision.kind != "evaluation":
            raise usage(
                f"{what} is the end of a write, not an evaluation", next_step=f"name {recorded.decision.completes}"
            )
        try:
            return recorded, (await evaluation_of(past, recorded)).inputs
        except LogGoneError as error:
            raise usage(f"{what} cannot be evaluated again", cause=str(error)) from error


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
        return with_candidate(inputs, changed, tried), stated
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
