"""The first step of an evaluation, which reads everything, and its last, which makes the record."""

from typing import Any

from schemas import limits
from schemas.codec import encode
from schemas.decisions import Decision
from streams.hpa.evaluation import EMPTY_HISTORY, Evaluation
from streams.hpa.observation import Scale
from streams.state import records
from streams.state.clustersettings import Effective
from streams.state.gather import asked_of_sources
from streams.state.guards import effective_mode
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.ledger import Draft
from streams.state.moves import attribute, with_observation
from streams.state.namespace import Namespace
from streams.state.needs import states
from streams.state.partitionstate import State
from streams.state.replacements.replacement import Replacement
from streams.state.rows import NOTHING_APPLIED
from streams.state.subject import Decided, Limited, Observed, Subject, SubjectKind, accounts_of
from streams.state.timing import as_of


def subject_of(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Subject:
    """Return the subject of an evaluation at the present record."""
    kind: SubjectKind = state.attached.kind_of(hpa.row)
    subject = Subject(
        state,
        namespace,
        hpa,
        settings,
        hpa.compiled_for(settings.controller.rules),
        effective_mode(namespace, hpa, settings),
        bool(hpa.ignored),
        namespace.scales.get(hpa.target),
        as_of(state.now_ms, hpa.row.evaluated_ms, settings.sync_period_ms),
        kind,
    )
    return kind.bounded(subject)


def observe(subject: Subject) -> Observed:
    """Read the scale, the pods and an answer per metric; nothing changes."""
    row, scale_row = subject.hpa.row, subject.scale_row
    seen, sources = subject.kind.read(subject)
    replicas = seen.scale.spec_replicas if isinstance(seen.scale, Scale) else None
    change, moves = attribute(subject.hpa, scale_row), row.moves
    if (change or row.written is not None) and replicas is not None and scale_row is not None:
        written = row.written[0] if row.written is not None else None
        moves = with_observation(moves, subject.state.now_ms, replicas, change, written, scale_row.manager)
    _, restart = restart_since(subject.state, subject.hpa)
    history = EMPTY_HISTORY if restart else row.history
    if replicas is not None:
        history = subject.kind.remembered(subject, history)
    asked = asked_of_sources(subject.namespace, subject.hpa.queries)
    return Observed(seen, sources, subject.status, history, change, moves, restart, replicas, asked)


def restart_since(state: State, hpa: Hpa) -> tuple[int, str]:
    """Return the offset of the newest restart in the log that concerns an HPA, and its reason; empty: it is known."""
    control = state.row.transfers.get(hpa.row.cluster) if state.row.transfers else None
    back = NOTHING_APPLIED if control is None else control.restart_offset
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
        mode=subject.effective_mode.mode,
        origin=row.origin,
        current_replicas=current,
        raw_desired_replicas=evaluation.proposal,
        final_desired_replicas=final,
        direction=records.direction(current, final),
        reason=records.reason_of(evaluation, result.status),
        selected_metric=evaluation.selected_metric,
        metrics=list(map(records.metric_decision, evaluation.metrics)),
        steps=[*steps, *decided.further],
        constraints_applied=limits_.constraints,
        wants=None if wanted is None else wanted.desired_replicas,
        expires=None if wanted is None else state.now_ms + WRITE_TTL_MS,
        observed=_shown(subject, observed),
        status=result.status if wanted is None else None,
        events=[*result.events, *result.events_after_write] if wanted is None else [],
        error=result.error,
        labels=records.labels(result) if wanted is None else {},
        paused=limits_.held,
        refused=subject.effective_mode.refused,
        min_replicas=subject.autoscaler.min_replicas,
        max_replicas=subject.autoscaler.max_replicas,
        spec_hash=row.spec_hash,
        generation=row.generation,
        engine=state.row.engine,
        author=row.author,
        change_reason=row.change_reason,
        shows_refusal=subject.effective_mode.shown,
        rules=subject.settings.rules,
        states=_states(subject, observed, decided),
    )
    # The record of the end of a wanted write has the status and the events instead.
    later = () if wanted is None else (result.status, result.events, result.events_after_write)
    value = encode(decision)
    limits.check(limits.DECISION, len(value) + len(encode(later)), f"HPA {hpa.id}")
    return Draft(name, subject.namespace.key, hpa.headers, decision, value)


def _states(subject: Subject, observed: Observed, decided: Decided) -> list[str]:
    replacements: tuple[Replacement, ...] = subject.state.attached.replacements
    hiding = [each.name for each in replacements if each.hides_metrics]
    return states(
        subject.autoscaler,
        decided.evaluation,
        observed.replicas,
        observed.moves,
        subject.state.now_ms,
        is_asked=decided.replaced_by not in hiding,
        is_blocked=bool(decided.blocked),
    )


def _final_replicas(evaluation: Evaluation, limits_: Limited) -> int:
    if limits_.wanted is not None:
        return limits_.wanted.desired_replicas
    if limits_.held or evaluation.desired_replicas is None:
        return evaluation.current_replicas or 0
    return evaluation.desired_replicas


def _shown(subject: Subject, observed: Observed) -> dict[str, Any]:
    """Return what was observed, as the record has it."""
    scale = observed.observation.scale
    counted: dict[str, Any] = {}
    for account in accounts_of(subject.state):
        counted |= account.shown(subject, observed)
    shown = records.observed(scale, counted, observed.change, observed.restart, observed.asked)
    shown |= subject.kind.shown(subject)
    version = subject.scale_row.resource_version if subject.scale_row else ""
    return records.with_version(shown, version)


def decision_id(state: State, hpa: Hpa) -> str:
    """Return the id of the decision of an evaluation."""
    return f"{state.row.number}-{state.offset}-{hpa.row.uid}"
