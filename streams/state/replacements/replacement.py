"""What a replacement is: it reads a few values, and puts other replicas in the place of what the metrics ask for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.inputs import NamedInputs
from streams.state.subject import Subject


class Replacement(ABC):
    """A pure function of what `inputs` gives, which replays keep. The metrics are evaluated all the same, so that
    windows are right when it ends, and fleethpa's limits bound its write as any other.
    """

    name: ClassVar[str] = ""
    """As in `schemas.constraints`."""
    is_replayed: ClassVar[bool] = True
    """Whether a replay with another spec keeps it. One that another HPA decides would hide what the spec does."""

    hides_metrics: ClassVar[bool] = True
    """While it applies, what the metrics ask for is no state of the HPA (`streams.state.needs.states`)."""

    @abstractmethod
    def inputs(self, subject: Subject) -> Any:
        """Return what it reads of an HPA at this record, as a value; None: it does not apply."""

    @abstractmethod
    def apply(
        self, inputs: Any, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
    ) -> tuple[Evaluation, Step | None]:
        """Return the evaluation with the other replicas and the step that says so; unchanged, and None, where it does
        not apply. `status`: the HPA's status before the evaluation.
        """


class Replaced(NamedTuple):
    """An evaluation with other replicas in place of what its metrics ask for. `name`, `step`: of the last replacement
    that applied; empty, None: none did.
    """

    evaluation: Evaluation
    name: str = ""
    step: Step | None = None


def replaced(
    replacements: Sequence[Replacement],
    given: Callable[[Replacement], Any],
    evaluation: Evaluation,
    autoscaler: Autoscaler,
    status: dict[str, Any],
) -> Replaced:
    """Ask the replacements in their order.

    `given`: what one reads; None: it does not apply. `status`: before the evaluation.
    """
    newest = Replaced(evaluation)
    for each in replacements:
        if (inputs := given(each)) is not None:
            changed, step = each.apply(inputs, newest.evaluation, autoscaler, status)
            newest = newest._replace(evaluation=changed) if step is None else Replaced(changed, each.name, step)
    return newest


def replacements_now(subject: Subject) -> NamedInputs:
    """Return what all replacements that a replay keeps read of an HPA at this record."""
    replacements: tuple[Replacement, ...] = subject.state.attached.replacements
    given = [(each.name, each.inputs(subject)) for each in replacements if each.is_replayed]
    return NamedInputs(tuple([each for each in given if each[1] is not None]))
