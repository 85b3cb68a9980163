"""The steps of an evaluation around its decision: the first, which reads everything, and the last two, which make the
record and remember in the HPA's row what later evaluations read.
"""

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
from streams.state.inputs import EvaluationInputs
from streams.state.ledger import Draft
from streams.state.limits.limit import limits_now
from streams.state.moves import attribute, with_observation
from streams.state.namespace import Namespace
from streams.state.needs import states
from streams.state.partitionstate import State
from streams.state.replacements.replacement import Replacement, replacements_now
from streams.state.rows import NOTHING_APPLIED, NOTHING_SHOWN, PendingWrite, kept_status
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


def inputs_now(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> EvaluationInputs:
    """Return what an evaluation now would read; nothing changes."""
    subject = subject_of(state, namespace, hpa, settings)
    return inputs_of(subject, observe(subject))


def inputs_of(subject: Subject, observed: Observed) -> EvaluationInputs:
    """Return what an evaluation reads, as replays take it."""
    seen, fleet = subject.kind.replayed(subject, observed)
    state, hpa, row, settings = subject.state, subject.hpa, subject.hpa.row, subject.settings
    return EvaluationInputs(
        decision=decision_id(state, hpa),
        hpa=hpa.id,
        partition=state.row.number,
        offset=state.offset,
        now_ms=subject.evaluated_ms,
        mode=subject.effective_mode.mode,
        origin=row.origin,
        generation=row.generation,
        spec=hpa.spec,
        autoscaler=subject.kind.decided_by(subject, observed),
        status=observed.status,
        observation=seen,
        history=observed.history,
        settings=settings.controller,
        period_ms=settings.sync_period_ms,
        limits=limits_now(subject, observed),
        replacements=replacements_now(subject),
        restart=observed.restart,
        native_moves=row.native_moves,
        moves=observed.moves,
        follows_native=subject.follows_native,
        fleet=fleet,
    )


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


def record(subject: Subject, observed: Observed, decided: Decided, left: Limited, name: str) -> Draft:
    """Make the record of this id, field by field: one that is made of dictionaries (`records.identity`) takes three
    times as long. Raises OverLimitError: it is larger than a decision may be.
    """
    state, hpa, row = subject.state, subject.hpa, subject.hpa.row
    evaluation, wanted, result = decided.evaluation, left.wanted, left.result
    current, final = evaluation.current_replicas or 0, _final_replicas(evaluation, left)
    steps = records.with_replaced(records.steps_to(evaluation, final, left.brake), decided.replaced, evaluation)
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
        constraints_applied=left.constraints,
        wants=None if wanted is None else wanted.desired_replicas,
        expires=None if wanted is None else state.now_ms + WRITE_TTL_MS,
        observed=_shown(subject, observed),
        status=result.status if wanted is None else None,
        events=[*result.events, *result.events_after_write] if wanted is None else [],
        error=result.error,
        labels=records.labels(result) if wanted is None else {},
        paused=left.held,
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


def _final_replicas(evaluation: Evaluation, left: Limited) -> int:
    if left.wanted is not None:
        return left.wanted.desired_replicas
    if left.held or evaluation.desired_replicas is None:
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


def remember(subject: Subject, observed: Observed, decided: Decided, left: Limited, name: str) -> None:
    """Change the HPA's row to what later evaluations and read verbs need of this one, whose record has this id."""
    state, row, evaluation = subject.state, subject.hpa.row, decided.evaluation
    take_restart(state, subject.hpa)
    row.history = evaluation.history
    row.evaluated_ms, row.early_ms = subject.evaluated_ms, 0
    row.ratios = ()
    if subject.settings.sample_floor_ms is not None:
        calculations = [each.calculation for each in evaluation.metrics]
        row.ratios = tuple([None if each is None else each.ratio for each in calculations])
    row.native_moves, row.written = (), None
    row.last_decision, row.last_decision_ms, row.last_offset = name, state.now_ms, state.offset
    row.moves = observed.moves
    if observed.change:
        row.lost = ()
    row.blocked, row.wants = decided.blocked, decided.asked
    if observed.replicas is not None:
        row.seen_replicas = observed.replicas
    row.mode, row.refused = subject.effective_mode.mode, subject.effective_mode.refused
    row.paused = left.held
    follows_native, wanted = subject.follows_native, left.wanted
    row.shadow_status = kept_status(left.result.status) if follows_native else NOTHING_SHOWN
    if follows_native or wanted is None:
        row.keep_status(None if follows_native else left.result.status)
    if wanted is not None:
        current, expires_ms = evaluation.current_replicas or 0, state.now_ms + WRITE_TTL_MS
        rules, evaluated_ms = subject.settings.rules, subject.evaluated_ms
        row.pending = PendingWrite(name, row.uid, wanted, state.now_ms, expires_ms, current, evaluated_ms, rules)


def decision_id(state: State, hpa: Hpa) -> str:
    """Return the id of the decision of an evaluation."""
    return f"{state.row.number}-{state.offset}-{hpa.row.uid}"
