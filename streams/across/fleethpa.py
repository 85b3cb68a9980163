"""A FleetHPA: it sees what its clusters report, added up, and divides what it decides among them."""

from typing import Any

from msgspec import structs

from streams.across import fleet
from streams.across.bounds import FleetBounds
from streams.across.fleetsettings import fleet_settings
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import History
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation
from streams.state.acrossrows import FleetRow
from streams.state.clustersettings import Effective
from streams.state.hpastate import Hpa
from streams.state.inputs import FleetInputs
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.rows import HpaRow
from streams.state.subject import Decided, Limited, Observed, Subject
from streams.state.timing import Turn


class FleetHpa:
    """As `streams.state.subject.SubjectKind`. The rules are in `streams.across.fleet`."""

    def is_of(self, row: HpaRow) -> bool:
        return row.fleet is not None

    def settings(self, state: State, row: HpaRow) -> Effective:
        clusters = () if row.fleet is None else tuple(row.fleet.accounts)
        known = state.joint_settings.get(clusters)
        if known is None:
            known = state.joint_settings[clusters] = fleet_settings(state.row.settings, clusters).effective
        return known

    def obeys(self, row: HpaRow, cluster: str) -> bool:
        return cluster == row.cluster or (row.fleet is not None and cluster in row.fleet.accounts)

    def bounded(self, subject: Subject) -> Subject:
        known, now_ms, settings = _known(subject.hpa), subject.state.now_ms, subject.settings
        period_ms, is_enforced = settings.sync_period_ms, _is_enforced(subject)
        autoscaler = fleet.without_away(subject.autoscaler, known, now_ms, period_ms)
        bounds = fleet.bounds_of(known, autoscaler, settings.controller, is_enforced, now_ms, period_ms)
        return structs.replace(subject, autoscaler=autoscaler, of_kind=bounds)

    def read(self, subject: Subject) -> tuple[Observation | JoinedObservation, list[str]]:
        known, now_ms, period_ms = _known(subject.hpa), subject.state.now_ms, subject.settings.sync_period_ms
        seen = fleet.seen_by(known, subject.autoscaler, _is_enforced(subject), now_ms, period_ms)
        return seen, [""] * len(subject.autoscaler.metrics)

    def remembered(self, subject: Subject, history: History) -> History:
        known, now_ms, period_ms = _known(subject.hpa), subject.state.now_ms, subject.settings.sync_period_ms
        return fleet.with_past_of(history, known, fleet.beginning(known, now_ms, period_ms), now_ms, period_ms)

    def decided_by(self, subject: Subject, observed: Observed) -> Autoscaler:
        """Return the spec within what its clusters' own metrics let the total be."""
        bounds, rules = _bounds(subject), subject.settings.controller.rules
        if bounds is None or observed.replicas is None:
            return subject.autoscaler
        now_ms = subject.evaluated_ms
        return fleet.with_bounds(subject.autoscaler, bounds, observed.replicas, observed.history, now_ms, rules)

    def finish(
        self, subject: Subject, observed: Observed, decided: Decided, limited: Limited
    ) -> tuple[Decided, Limited]:
        """Divide what was decided among its clusters. It writes nothing itself: what it wants counts as written.

        Its own limits hold or cut the total, and those of each cluster the share.
        """
        known = _known(subject.hpa)
        evaluation, wanted, now_ms = decided.evaluation, limited.wanted, subject.state.now_ms
        if wanted is not None:
            evaluation = structs.replace(
                evaluation, desired_replicas=wanted.desired_replicas, history=limited.result.history, pending=None
            )
        total = evaluation.current_replicas if limited.held else evaluation.desired_replicas
        is_enforced, period_ms = subject.effective_mode.mode == "enforce", subject.settings.sync_period_ms
        most = subject.hpa.compiled.max_replicas
        if observed.replicas is not None:
            begun = tuple(sorted({*known.begun, *fleet.beginning(known, now_ms, period_ms)}))
            known = structs.replace(known, begun=begun)
            known = structs.replace(known, recommended_for=fleet.recommended_for(known, now_ms, period_ms))
        bounds = _bounds(subject)
        after = fleet.divided(
            known, total, most, is_enforced, now_ms, period_ms, {} if bounds is None else bounds.keeps
        )
        bounded = fleet.bounds_steps(subject.autoscaler, bounds, decided.evaluation)
        after = fleet.with_over(after, bounds, bounded)
        subject.hpa.row.fleet = after
        missing = fleet.shares_steps(after, now_ms, period_ms)
        constraints = [*limited.constraints, *([fleet.CONSTRAINT] if bounded else [])]
        result = limited.result
        if missing and evaluation.current_replicas is not None:
            # What is not reached for long is not there: else the FleetHPA would seem to have it.
            has = fleet.there_is(after, now_ms, period_ms)
            evaluation = structs.replace(evaluation, current_replicas=has)
            result = structs.replace(result, status={**result.status, "currentReplicas": has})
        decided = structs.replace(decided, evaluation=evaluation, further=(*bounded, *missing))
        return decided, structs.replace(limited, wanted=None, result=result, constraints=constraints)

    def shown(self, subject: Subject) -> dict[str, Any]:
        known, now_ms, period_ms = _known(subject.hpa), subject.state.now_ms, subject.settings.sync_period_ms
        return {"clusters": fleet.shown(known, now_ms, period_ms)}

    def replayed(self, subject: Subject, observed: Observed) -> tuple[Observation, FleetInputs | None]:
        seen = observed.observation
        assert isinstance(seen, JoinedObservation)
        alone = Observation(seen.scale, answers=(None,) * len(subject.autoscaler.metrics))
        return alone, FleetInputs(seen, _known(subject.hpa), subject.state.now_ms)

    def tell(self, subject: Subject, decision: str) -> None:
        """Allot to its clusters."""
        state, row = subject.state, subject.hpa.row
        state.messages += fleet.allotments(row, _known(subject.hpa), decision, state.now_ms, _is_enforced(subject))

    def turn(self, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
        return fleet.fleet_turn(_known(hpa), hpa.row.evaluated_ms, state.now_ms, settings.sync_period_ms)


def _bounds(subject: Subject) -> FleetBounds | None:
    """Return what the clusters let the total be by their own metrics; None: anything within the spec."""
    bounds = subject.of_kind
    assert bounds is None or isinstance(bounds, FleetBounds)
    return bounds


def _known(hpa: Hpa) -> FleetRow:
    """Return what is known of its clusters."""
    known = hpa.row.fleet
    assert known is not None
    return known


def _is_enforced(subject: Subject) -> bool:
    return subject.effective_mode.mode == "enforce"
