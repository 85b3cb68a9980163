"""`fleethpa what-if`: one evaluation again, with another spec or other metric values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.cli.common.changes import changed_spec, checked, with_metrics
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.session import Session, command_options, output_option

if TYPE_CHECKING:
    from fleethpa.cli.common.decisionreading import Recorded
    from streams.analysis.answer import Answer
    from streams.state.probe import EvaluationInputs


_UNASKED: Final = "metrics ignored: replicas are 0, unknown or out of bounds"


@click.command("what-if")
@click.argument("what", metavar="[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="maxReplicas=16, cpu=80%, scaleDown.…=…")
@click.option(
    "--metric", "values", multiple=True, metavar="NAME=VALUE", help="queue_depth=+30%, cpu=90%, or a quantity."
)
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def what_if(
    session: Session,
    what: str,
    namespace: str | None,
    settings: tuple[str, ...],
    values: tuple[str, ...],
    output: str,
) -> None:
    """Evaluate once more on the inputs of a decision, with another spec (--set) or other metric values (--metric).

    Nothing is written anywhere. Memory, pods and everything else are as they were for that decision.
    """
    if not settings and not values:
        raise usage("what-if what?", cause="Name a change.", next_step="--set maxReplicas=16, or --metric cpu=+30%")
    recorded, inputs = session.run(_inputs(session, what, namespace))
    changed, said = _changed(inputs, settings, values)
    from streams.analysis.answer import answer

    before, after = answer(inputs), answer(changed)
    if output == "table":
        session.out("\n".join(_lines(recorded, before, after, [*settings, *said])))
        return
    from fleethpa.cli.output.formats import one

    session.out(one("WhatIf", _document(recorded, before, after, settings, values), output))


async def _inputs(session: Session, what: str, namespace: str | None) -> tuple[Recorded, EvaluationInputs]:
    from fleethpa.cli.common.finding import find_decision, name_and_moment
    from fleethpa.cli.common.replaying import LogGoneError, evaluated

    name, at_ms = name_and_moment(session, what)
    async with session.reader() as reader:
        found, _ = await find_decision(reader, name, namespace, at_ms=at_ms)
        if found.decision.kind != "evaluation":
            raise usage(
                f"{what} is the end of a write, not an evaluation", next_step=f"name {found.decision.completes}"
            )
        try:
            return found, (await evaluated(reader, found)).inputs
        except LogGoneError as error:
            raise usage(f"{what} cannot be evaluated again", cause=str(error)) from error


def _changed(
    inputs: EvaluationInputs, settings: tuple[str, ...], values: tuple[str, ...]
) -> tuple[EvaluationInputs, list[str]]:
    from streams.analysis.candidate import CandidateError, candidate

    changed, said = with_metrics(inputs, values)
    if not settings:
        return changed, said
    metadata = {"name": inputs.hpa.name, "namespace": inputs.hpa.namespace}
    spec = checked({"metadata": metadata}, changed_spec(inputs.spec, settings), "--set")
    try:
        return candidate(inputs.hpa, spec).on(changed), said
    except CandidateError as error:
        raise usage(str(error)) from error


def _lines(recorded: Recorded, before: Answer, after: Answer, changes: list[str]) -> list[str]:
    from fleethpa.cli.output import words
    from fleethpa.cli.output.errortexts import one_line
    from fleethpa.cli.output.table import layout

    selected = words.short(after.evaluation.selected_metric) or "-"
    rows = [("METRIC", "RECORDED", "WHAT IF", "NOTE")]
    known = {metric.spec.name: metric for metric in before.evaluation.metrics}
    for metric in after.evaluation.metrics:
        old = known.get(metric.spec.name)
        rows.append(
            (words.short(metric.spec.name), _proposal(old), _proposal(metric), one_line(metric.error) or _note(metric))
        )
    held = ", ".join(words.LIMITS.get(limit, limit) for limit in after.constraints if limit != "Tolerance")
    return [
        f"{recorded.hpa}  decision {recorded.decision.id}",
        *[f"  with {change}" for change in changes],
        f"{after.current} → {after.final}   winner {selected}   (recorded {before.current} → {before.final})"
        + (f"   limited by {held}" if held else ""),
        "",
        *(layout(rows) if len(rows) > 1 else [_UNASKED]),
    ]


def _proposal(metric: Any) -> str:
    return "-" if metric is None or metric.calculation is None else str(metric.calculation.proposal)


def _note(metric: Any) -> str:
    from fleethpa.cli.output import words

    made = metric.calculation
    return f"ratio {made.ratio:.3f}" + (f": {words.note(made.kept)}" if made.kept else "")


def _document(
    recorded: Recorded, before: Answer, after: Answer, settings: tuple[str, ...], values: tuple[str, ...]
) -> dict[str, Any]:
    cluster, namespace, name = recorded.hpa
    return {
        "cluster": cluster,
        "namespace": namespace,
        "name": name,
        "decision": recorded.decision.id,
        "set": list(settings),
        "metrics": list(values),
        "recorded": _side(before),
        "whatIf": _side(after),
    }


def _side(made: Answer) -> dict[str, Any]:
    evaluation = made.evaluation
    return {
        "currentReplicas": made.current,
        "rawDesiredReplicas": evaluation.proposal,
        "finalDesiredReplicas": made.final,
        "selectedMetric": evaluation.selected_metric,
        "constraintsApplied": made.constraints,
        "metrics": [
            {
                "name": metric.spec.name,
                "proposal": metric.calculation.proposal if metric.calculation else None,
                "ratio": repr(metric.calculation.ratio) if metric.calculation else "",
                "error": metric.error,
            }
            for metric in evaluation.metrics
        ],
    }
