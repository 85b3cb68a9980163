"""An override: replicas that a person wants in place of what the metrics ask for, for a while.

It is kept with the pauses of the HPA, ends by log time, by a command, or when the HPA's own mode is no longer enforce,
and stays within minReplicas and maxReplicas. It does not apply where upstream scales nothing at all: at 0 replicas, or
while the scale cannot be read.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from schemas.decisions import Step
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.pauses import OVERRIDE, is_in_force
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.replacements.replacement import Replacement
from streams.state.replacements.writes import replaced_by
from streams.state.rows import Pause
from streams.state.subject import Subject


class Override(Struct, frozen=True, gc=False):
    """What is wanted, until when (Unix milliseconds), by whom and why."""

    replicas: int
    until_ms: int
    author: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """It in words, as decisions record it."""
        return self.text_until(rfc3339_seconds(self.until_ms))

    def text_until(self, end: str) -> str:
        """It in words, with its end as text."""
        by = f" by {self.author}" if self.author else ""
        why = f": {self.reason}" if self.reason else ""
        return f"override to {self.replicas} replicas{by} until {end}{why}"


def override_in_force(pauses: Mapping[str, Pause], now_ms: int) -> Override | None:
    """Return the override among the pauses of an HPA; None: there is none now."""
    override = pauses.get(OVERRIDE)
    if override is None or not is_in_force(override.until_ms, now_ms):
        return None
    return Override(override.replicas, override.until_ms, override.author, override.reason)


class Overridden(Replacement):
    name = "Override"

    def inputs(self, subject: Subject) -> Override | None:
        """Return the override in force of an HPA that fleethpa writes."""
        command = subject.namespace.commands.get(subject.hpa.id.name)
        if command is None or subject.effective_mode.mode != "enforce":
            return None
        return override_in_force(command[1], subject.state.now_ms)

    def apply(
        self, inputs: Override, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
    ) -> tuple[Evaluation, Step | None]:
        current = evaluation.current_replicas or 0
        if not current:
            return evaluation, None
        wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, inputs.replicas))
        proposal = current if evaluation.desired_replicas is None else evaluation.desired_replicas
        detail = {"replicas": inputs.replicas, "author": inputs.author}
        step = Step(step="override", in_=proposal, out=wanted, detail=detail, until=inputs.until_ms)
        return replaced_by(wanted, inputs.text, evaluation, autoscaler, status), step
