"""What a replacement is: it reads a few values, and puts other replicas in the place of what the metrics ask for."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.subject import Subject


class Replacement(ABC):
    """A pure function of what `inputs` gives, which replays keep. The metrics are evaluated all the same, so that
    windows are right when it ends, and fleethpa's limits bound its write as any other.
    """

    name: ClassVar[str] = ""
    """As in `schemas.constraints`."""
    is_replayed: ClassVar[bool] = True
    """Whether a replay with another spec keeps it. One that another HPA decides would hide what the spec does."""

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
