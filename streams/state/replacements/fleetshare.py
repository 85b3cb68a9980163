"""The share of a FleetHPA takes the place of what the metrics of an HPA in one of its clusters ask for."""

from typing import Any

from schemas.decisions import Step
from streams.across.allotments import ShareRow
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state import fleet
from streams.state.replacements.replacement import Replacement
from streams.state.replacements.writes import replaced_by
from streams.state.steps import Subject


class FleetShare(Replacement):
    """Without a share yet, the replicas stay. Nothing is wanted while the scale cannot be read."""

    name = fleet.CONSTRAINT
    is_replayed = False

    def inputs(self, subject: Subject) -> ShareRow | None:
        share = subject.hpa.row.share
        if share is None:
            return None
        return fleet.share_now(share, subject.state.now_ms, subject.settings.sync_period_ms)

    def apply(
        self, inputs: ShareRow, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
    ) -> tuple[Evaluation, Step | None]:
        current = evaluation.current_replicas
        if current is None:
            return evaluation, None
        has_share = inputs.is_allotted
        wanted = min(inputs.replicas, autoscaler.max_replicas) if has_share else current
        asked = current if evaluation.desired_replicas is None else evaluation.desired_replicas
        detail = {"number": inputs.number, "decision": inputs.decision} if has_share else {}
        step = Step(step="allotment", in_=asked, out=wanted, detail=detail)
        reason = f"share {wanted} of the FleetHPA" if has_share else "the FleetHPA has allotted no share yet"
        return replaced_by(wanted, reason, evaluation, autoscaler, status), step
