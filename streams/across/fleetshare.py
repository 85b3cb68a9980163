"""The share of a FleetHPA takes the place of what the metrics of an HPA in one of its clusters ask for."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from schemas import limits
from schemas.decisions import Step
from schemas.entries import FleetReport, FleetReportItem
from schemas.keys import FLEET
from schemas.observed import AutoscalerSet
from streams.across import fleet
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.hpa.observation import Observation
from streams.hpa.parts import PartObservation, summed, with_past
from streams.state.acrossrows import ShareRow
from streams.state.hpastate import Hpa
from streams.state.partitionstate import Message, State
from streams.state.replacements.replacement import Replacement
from streams.state.replacements.writes import replaced_by
from streams.state.subject import Decided, HpaAccount, Limited, Observed, Subject

_TOGETHER = 64
"""At most so many HPAs of a namespace report to FleetHPAs in one message."""
_LONG = 4_096
"""A part with more characters is a message of its own: none becomes too large, and one that ingest refuses takes no
other part with it.
"""


class FleetShare(Replacement):
    """Without a share yet, the replicas stay. Nothing is wanted while the scale cannot be read."""

    name = fleet.CONSTRAINT
    is_replayed = False
    hides_metrics = False
    """A share is what the metrics of all clusters ask for."""

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
        proposal = current if evaluation.desired_replicas is None else evaluation.desired_replicas
        detail = {"number": inputs.number, "decision": inputs.decision} if has_share else {}
        step = Step(step="allotment", in_=proposal, out=wanted, detail=detail)
        reason = f"share {wanted} of the FleetHPA" if has_share else "the FleetHPA has allotted no share yet"
        return replaced_by(wanted, reason, evaluation, autoscaler, status), step


class FleetShareAccount(HpaAccount):
    """What a FleetHPA knows of its clusters, and what an HPA in one of these reports to it."""

    def after(self, subject: Subject, observed: Observed, decided: Decided, limited: Limited) -> None:
        """Report what this cluster has. Only what is evaluated at its own time reports, so that an allotment brings no
        further evaluation of the FleetHPA.
        """
        state, row, namespace = subject.state, subject.hpa.row, subject.namespace
        if row.share is None:
            return
        part = _part(subject, observed, row.share)
        share = row.share = fleet.share_now(row.share, state.now_ms, subject.settings.sync_period_ms)
        if part is None:
            return
        if share.is_new:
            row.share = structs.replace(share, is_new=False)
        elif fleet.is_seen(namespace, state.now_ms):
            item = fleet.report(row, share, part, limited.wanted)
            if item is not None and len(item.part) > limits.FLEET_PART.most:
                namespace.touch()
                namespace.refuse(limits.FLEET_PART, row.name)
            elif item is not None:
                row.share = structs.replace(share, reported_ms=state.now_ms)
                report_together(state, row.cluster, row.namespace, item)

    def takes(self, hpa: Hpa, body: AutoscalerSet, now_ms: int) -> None:
        fleet.take_revision(hpa.row, body, now_ms)

    def lost(self, state: State) -> None:
        for hpa in state.hpas.values():
            if hpa.row.fleet is not None:
                hpa.row.fleet = fleet.after_loss(hpa.row.fleet, state.offset, state.now_ms)
                hpa.dirty = True

    def reports(self, hpa: Hpa) -> bool:
        return hpa.row.share is not None

    def calls_early(self, hpa: Hpa) -> bool:
        return hpa.row.share is not None and hpa.row.share.is_new

    def in_time(self, hpa: Hpa) -> None:
        """The share that has come is taken with this evaluation, which reports as any other."""
        share = hpa.row.share
        if share is not None and share.is_new:
            hpa.row.share = structs.replace(share, is_new=False)


def report_together(state: State, cluster: str, namespace: str, item: FleetReportItem) -> None:
    """Report to a FleetHPA, in one message with the other HPAs of the namespace that do so at this record."""
    is_short = len(item.part) <= _LONG
    newest = _newest_short_report(state.messages) if is_short else None
    if newest is not None and newest[0] == namespace and newest[1].member == cluster:
        items = newest[1].items
        if len(items) < _TOGETHER:
            items.append(item)
            return
    body = FleetReport(member=cluster, at=state.now_ms, items=[item])
    state.messages.append(Message(FLEET, namespace, state.now_ms, body))


def _newest_short_report(messages: Sequence[Message]) -> tuple[str, FleetReport] | None:
    """Return the namespace and the body of the newest report to FleetHPAs that has no long part, or None."""
    for message in reversed(messages):
        body = message.body
        if isinstance(body, FleetReport) and len(body.items[0].part) <= _LONG:
            return message.namespace, body
    return None


def _part(subject: Subject, observed: Observed, share: ShareRow) -> PartObservation | None:
    """Sum up what an HPA has seen and, before it has a share, done."""
    seen = observed.observation
    if not isinstance(seen, Observation):
        return None
    part = summed(subject.autoscaler, seen, subject.settings.controller, subject.evaluated_ms)
    return part if share.is_allotted else with_past(part, observed.history)
