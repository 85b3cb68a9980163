"""What may take the place of the metrics, in the order in which it is asked; a later one replaces an earlier one."""

from collections.abc import Callable
from typing import Any, NamedTuple

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.inputs import NamedInputs
from streams.state.replacements.fallback import FallbackReplicas
from streams.state.replacements.fleetshare import FleetShare
from streams.state.replacements.override import Overridden
from streams.state.replacements.replacement import Replacement
from streams.state.subject import Subject

REPLACEMENTS: tuple[Replacement, ...] = (FallbackReplicas(), Overridden(), FleetShare())


class Replaced(NamedTuple):
    """An evaluation with other replicas in place of what its metrics ask for. `name`, `step`: of the last replacement
    that applied; empty, None: none did.
    """

    evaluation: Evaluation
    name: str = ""
    step: Step | None = None


def replaced(
    given: Callable[[Replacement], Any], evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
) -> Replaced:
    """Ask the replacements. `given`: what one reads; None: it does not apply. `status`: before the evaluation."""
    made = Replaced(evaluation)
    for each in REPLACEMENTS:
        if (inputs := given(each)) is not None:
            changed, step = each.apply(inputs, made.evaluation, autoscaler, status)
            made = made._replace(evaluation=changed) if step is None else Replaced(changed, each.name, step)
    return made


def replacements_now(subject: Subject) -> NamedInputs:
    """Return what all replacements that a replay keeps read of an HPA at this record."""
    given = [(each.name, each.inputs(subject)) for each in REPLACEMENTS if each.is_replayed]
    return NamedInputs(tuple([each for each in given if each[1] is not None]))
