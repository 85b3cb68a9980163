"""The values that one step of an evaluation gives to the next, its first step, which reads everything, and its last.

The overlap check is part of the first: upstream scales none of the HPAs whose targets share a pod. Source:
pkg/controller/podautoscaler/horizontal.go (hpaSelectors, hpasControllingPodsUnderSelector) v1.37.1.
"""

from typing import Any

from msgspec import Struct, structs

from schemas import limits
from schemas.codec import encode
from schemas.decisions import Decision, Step
from streams.across.allotments import FleetRow
from streams.across.bounds import FleetBounds
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, Evaluation, History, Pending, ReconcileResult
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import NO_PODS, Observation, Scale, TargetPods
from streams.state import fleet, records
from streams.state.clustersettings import Effective
from streams.state.fleet import beginning, bounded_whole, bounds_of, seen_by, with_past_of
from streams.state.gather import asked_of_prometheus, observe_metric, observe_scale
from streams.state.guards import Standing, asked_mode, ignored, standing
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.ledger import Draft
from streams.state.moves import Stored, attribute, with_observation
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.rows import NOTHING_APPLIED, ScaleRow
from streams.state.timing import as_of


class Subject(Struct, frozen=True, gc=False):
    """One HPA at one log record, and what is in force for it."""

    state: State
    namespace: Namespace
    hpa: Hpa
    settings: Effective
    autoscaler: Autoscaler
    standing: Standing
    ignores: bool
    """Nothing is decided by this HPA, since it or what would be recorded is too large."""
    scale_row: ScaleRow | None
    evaluated_ms: int
    """Time as of which the evaluation decides (`streams.state.timing.as_of`)."""
    bounds: FleetBounds | None = None
    """Of a FleetHPA: what its clusters' own metrics let the total be; None: anything within the spec."""

    @property
    def follows_native(self) -> bool:
        """Whether the HPA's status is the native controller's: it looks after the HPA, and fleethpa does not write."""
        return self.hpa.row.origin == "cluster" and self.standing.mode != "enforce" and not self.standing.shown

    @property
    def status(self) -> dict[str, Any]:
        """The HPA's status before the evaluation."""
        return self.hpa.row.native_status if self.follows_native else own_status(self.hpa)

    def too_large(self, why: str) -> "Subject":
        """Give the subject by which nothing is decided after all, since no topic takes the decision that was made."""
        asked = asked_mode(self.namespace, self.hpa.id.name, self.settings)
        return structs.replace(self, ignores=True, standing=ignored(self.hpa, asked, self.settings, why))


class Observed(Struct, frozen=True, gc=False):
    """What an evaluation reads, beside its subject."""

    observation: Observation | JoinedObservation
    """Of a FleetHPA, the parts of its clusters, joined."""
    sources: list[str]
    """Per metric, the source position of the newest record that it is made of."""
    status: dict[str, Any]
    history: History
    change: dict[str, Any]
    """What moved the target since the evaluation before; empty: it was not moved."""
    moves: tuple[Stored, ...]
    restart: str
    """A restart of the log since the evaluation before, for which `history` is empty."""
    replicas: int | None
    """What the scale shows; None: it could not be read."""
    promql: tuple[str, ...]
    """The query of each metric for which a Prometheus was asked; empty: for none."""

    @property
    def ready(self) -> int:
        """The ready pods of the HPA's target. Pods that several HPAs would count are left out."""
        return 0 if self.observation.ambiguous else self.observation.pods.running_ready


def subject_of(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Subject:
    """Give the subject of an evaluation at the present record."""
    autoscaler, fleet = hpa.compiled_for(settings.controller.rules), hpa.row.fleet
    if fleet is not None:
        autoscaler = bounded_whole(autoscaler, fleet, state.now_ms, settings.sync_period_ms)
    return Subject(
        state,
        namespace,
        hpa,
        settings,
        autoscaler,
        standing(namespace, hpa, settings),
        bool(hpa.ignored),
        namespace.scales.get(hpa.target),
        as_of(state.now_ms, hpa.row.evaluated_ms, settings.sync_period_ms),
        None if fleet is None else _bounds_of(fleet, autoscaler, state, namespace, hpa, settings),
    )


def _bounds_of(
    fleet: FleetRow, autoscaler: Autoscaler, state: State, namespace: Namespace, hpa: Hpa, settings: Effective
) -> FleetBounds | None:
    is_enforced = standing(namespace, hpa, settings).mode == "enforce"
    return bounds_of(fleet, autoscaler, settings.controller, is_enforced, state.now_ms, settings.sync_period_ms)


def observe(subject: Subject) -> Observed:
    """Read the scale, the pods and an answer per metric; nothing changes."""
    row, scale_row = subject.hpa.row, subject.scale_row
    seen, sources = _observation(subject)
    replicas = seen.scale.spec_replicas if isinstance(seen.scale, Scale) else None
    change, moves = attribute(subject.hpa, scale_row), row.moves
    if (change or row.written is not None) and replicas is not None and scale_row is not None:
        written = row.written[0] if row.written is not None else None
        moves = with_observation(moves, subject.state.now_ms, replicas, change, written, scale_row.manager)
    _, restart = restart_since(subject.state, subject.hpa)
    history = EMPTY_HISTORY if restart else row.history
    if row.fleet is not None and replicas is not None:
        now_ms, period_ms = subject.state.now_ms, subject.settings.sync_period_ms
        history = with_past_of(history, row.fleet, beginning(row.fleet, now_ms, period_ms), now_ms, period_ms)
    promql = asked_of_prometheus(subject.namespace, subject.hpa.queries)
    return Observed(seen, sources, subject.status, history, change, moves, restart, replicas, promql)


def _observation(subject: Subject) -> tuple[Observation | JoinedObservation, list[str]]:
    fleet = subject.hpa.row.fleet
    if fleet is not None:
        is_enforced, period_ms = subject.standing.mode == "enforce", subject.settings.sync_period_ms
        seen = seen_by(fleet, subject.autoscaler, is_enforced, subject.state.now_ms, period_ms)
        return seen, [""] * len(subject.autoscaler.metrics)
    namespace, queries, now_ms = subject.namespace, subject.hpa.queries, subject.state.now_ms
    scale = observe_scale(namespace, subject.autoscaler, subject.scale_row, now_ms)
    if not isinstance(scale, Scale):
        return Observation(scale), [""] * len(queries)
    pods = namespace.membership.matching(scale.selector, subject.settings.controller.rules)
    read = [observe_metric(namespace, query, pods, subject.settings, now_ms) for query in queries]
    answers = tuple([answer for answer, _ in read])
    sharing = sharing_pods(subject.state, namespace, subject.hpa, scale.selector, pods)
    return Observation(scale, pods, answers, sharing), [each[1] for each in read]


def own_status(hpa: Hpa) -> dict[str, Any]:
    """Give the status from fleethpa's own decisions, else that of the native object."""
    own = hpa.row.own_status
    return hpa.row.native_status if own is None else own


def restart_since(state: State, hpa: Hpa) -> tuple[int, str]:
    """Give the offset of the newest restart in the log that concerns an HPA, and its reason; empty: it is known."""
    hands = state.row.hands.get(hpa.row.cluster) if state.row.hands else None
    back = NOTHING_APPLIED if hands is None else hands.restart_offset
    newest = max(state.row.restart_offset, back)
    if newest <= hpa.row.restart_seen:
        return newest, ""
    if back < state.row.restart_offset:
        return newest, state.row.restart_reason
    return newest, f"restart: the stand-in of cluster {hpa.row.cluster} gave it back to the hub"


def take_restart(state: State, hpa: Hpa) -> str:
    """Clear windows and scale events if the log had a restart since the last visit; give the reason."""
    newest, reason = restart_since(state, hpa)
    if reason:
        hpa.row.restart_seen, hpa.row.history = newest, EMPTY_HISTORY
    return reason


# --- the overlap check ------------------------------------------------------------------------------------------------


def sharing_pods(state: State, namespace: Namespace, hpa: Hpa, selector: str, pods: TargetPods) -> tuple[str, ...]:
    """Name the HPAs whose targets share a pod with this one (`namespace/name`, sorted, itself included); () if none."""
    if pods is NO_PODS:
        return ()
    if is_alone(namespace, hpa, selector):
        return ()
    own = hpa.id.name
    others = [
        name
        for text in namespace.membership.overlapping(selector)
        for name in namespace.registered.get(text, ())
        if name != own and _is_registered(state, namespace, hpa, name, text)
    ]
    return tuple(f"{namespace.name}/{name}" for name in sorted({own, *others})) if others else ()


def is_alone(namespace: Namespace, hpa: Hpa, selector: str) -> bool:
    """Tell whether no other selector matches one of these pods, and no other HPA has registered this one."""
    overlapping = namespace.membership.overlapping(selector)
    return len(overlapping) == 1 and namespace.registered.get(selector, (hpa.id.name,)) == (hpa.id.name,)


def _is_registered(state: State, namespace: Namespace, hpa: Hpa, name: str, selector: str) -> bool:
    other, shown = state.hpas.get(hpa.id._replace(name=name)), namespace.shown(name)
    if other is None or shown is None or shown.origin != hpa.row.origin:
        # A central HPA in shadow compares itself with the cluster's own: neither may stop the other by being there.
        return False
    return other.registered_selector(state.row.restart_offset) == selector


def register(state: State, namespace: Namespace, hpa: Hpa, selector: str) -> None:
    """Register a target's selector, which is well-formed, for the overlap check."""
    namespace.register(hpa.id.name, hpa.row.registered[1], selector)
    hpa.register(state.offset, selector, state.row.restart_offset)


# --- the last step: the record ----------------------------------------------------------------------------------------


class Decided(Struct, frozen=True, gc=False):
    """What the metrics ask for, or what takes their place."""

    evaluation: Evaluation
    replaced_by: str = ""
    """What took the place of what the metrics ask for (`streams.state.replacements`); empty: nothing did."""
    replaced: Step | None = None
    """The step that says so."""
    of_clusters: tuple[Step, ...] = ()
    """Of a FleetHPA: how its clusters bounded the total, and which of them do not have their shares."""


class Limited(Struct, frozen=True, gc=False):
    """What fleethpa's own limits leave of it: the write to want (None: none), and the result as long as it is not known
    what becomes of the write.
    """

    wanted: Pending | None
    result: ReconcileResult
    constraints: list[str]
    held: str = ""
    """Why the write that was asked for is not wanted: `paused` in the record. Empty: nothing holds it."""
    brake: Step | None = None


def record(subject: Subject, observed: Observed, decided: Decided, limits_: Limited, name: str) -> Draft:
    """Make the record of this id, field by field: one that is made of dictionaries (`records.identity`) takes three
    times as long. Raises OverLimitError: it is larger than a decision may be.
    """
    state, hpa, row = subject.state, subject.hpa, subject.hpa.row
    evaluation, wanted, result = decided.evaluation, limits_.wanted, limits_.result
    current, final = evaluation.current_replicas or 0, _final_replicas(evaluation, limits_)
    steps = records.with_replaced(records.steps_to(evaluation, final, limits_.brake), decided.replaced, evaluation)
    decision = Decision(
        id=name,
        seq=0,
        prev="",
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        time=records.print_time(state.now_ms),
        input=state.input_position(observed.sources),
        scale_target_ref=hpa.reference,
        target=records.target_of(subject.autoscaler),
        mode=subject.standing.mode,
        origin=row.origin,
        current_replicas=current,
        raw_desired_replicas=evaluation.proposal,
        final_desired_replicas=final,
        direction=records.direction(current, final),
        reason=records.reason_of(evaluation, result.status),
        selected_metric=evaluation.selected_metric,
        metrics=list(map(records.metric_decision, evaluation.metrics)),
        steps=[*steps, *decided.of_clusters],
        constraints_applied=limits_.constraints,
        wants=None if wanted is None else wanted.desired_replicas,
        expires=None if wanted is None else state.now_ms + WRITE_TTL_MS,
        observed=_shown(subject, observed),
        status=result.status if wanted is None else None,
        events=[*result.events, *result.events_after_write] if wanted is None else [],
        error=result.error,
        labels=records.labels(result) if wanted is None else {},
        paused=limits_.held,
        refused=subject.standing.refused,
        min_replicas=subject.autoscaler.min_replicas,
        max_replicas=subject.autoscaler.max_replicas,
        spec_hash=row.spec_hash,
        generation=row.generation,
        engine=state.row.engine,
        author=row.author,
        change_reason=row.change_reason,
        shows_refusal=subject.standing.shown,
        rules=subject.settings.rules,
    )
    # The record of the end of a wanted write has the status and the events instead.
    later = () if wanted is None else (result.status, result.events, result.events_after_write)
    value = encode(decision)
    limits.check(limits.DECISION, len(value) + len(encode(later)), f"HPA {hpa.id}")
    return Draft(name, subject.namespace.key, hpa.headers, decision, value)


def _final_replicas(evaluation: Evaluation, limits_: Limited) -> int:
    if limits_.wanted is not None:
        return limits_.wanted.desired_replicas
    if limits_.held or evaluation.desired_replicas is None:
        return evaluation.current_replicas or 0
    return evaluation.desired_replicas


def _shown(subject: Subject, observed: Observed) -> dict[str, Any]:
    """What was observed, as the record has it."""
    state, row, settings = subject.state, subject.hpa.row, subject.settings
    is_guarded = subject.standing.mode == "enforce" and settings.budgets.is_set
    ready = observed.ready if is_guarded else None
    shown = records.observed(observed.observation.scale, observed.change, observed.restart, ready, observed.promql)
    if row.fleet is not None:
        shown |= {"clusters": fleet.shown(row.fleet, state.now_ms, settings.sync_period_ms)}
    version = subject.scale_row.resource_version if subject.scale_row else ""
    return records.with_version(shown, version)


def decision_id(state: State, hpa: Hpa) -> str:
    """Give the id of the decision of an evaluation."""
    return f"{state.row.number}-{state.offset}-{hpa.row.uid}"
