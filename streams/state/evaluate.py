"""Evaluate one HPA at one log record: observe → decide → replace → limit → record → remember.

Each step gives a value that has all that later steps need. State changes in few places only: accounts
(`Attached.accounts`), `finish` and `remember` change the HPA's row, and `register` the overlap check. A refusal is
shown in the HPA's own status and Events. Upstream has no such condition.
"""

from functools import partial
from typing import Any

from msgspec import structs

from schemas import limits
from schemas.codec import encode
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON
from schemas.limits import OverLimitError
from streams.hpa import reconcile
from streams.hpa.evaluation import (
    Conditions,
    Evaluation,
    History,
    MetricEvaluation,
    ReconcileResult,
    ScaleApplied,
    new_status,
)
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import NO_PODS, Observation, Scale
from streams.hpa.reconcile import complete
from streams.state import records
from streams.state.clustersettings import Effective
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.inputs import EvaluationInputs
from streams.state.ledger import Draft, StateError
from streams.state.limits.limit import limited, limits_now
from streams.state.namespace import Namespace
from streams.state.needs import blocked
from streams.state.overlap import register
from streams.state.partitionstate import State
from streams.state.replacements.replacement import replaced, replacements_now
from streams.state.replacements.writes import without_write
from streams.state.rows import NOTHING_SHOWN, PendingWrite, kept_status
from streams.state.steps import decision_id, observe, record, subject_of, take_restart
from streams.state.subject import Decided, Limited, Observed, Subject, accounts_of

_LARGE_CONDITIONS = limits.DECISION.most // 4
"""JSON of conditions that an ignored HPA does not keep: the decision that shows it as ignored must be small."""


def evaluate(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Draft:
    """Evaluate an HPA at the present record of the log, remember what later evaluations need, and give the record."""
    name, probe = decision_id(state, hpa), state.probe
    subject = subject_of(state, namespace, hpa, settings)
    observed = observe(subject)
    accounts = accounts_of(state)
    for account in accounts:
        account.before(subject, observed)
    if probe is not None and not subject.ignores:
        probe(probed(subject, observed))
    decided = decide(subject, observed)
    _register(subject, observed, decided.evaluation)
    limits_ = limit(subject, observed, decided)
    decided, limits_ = subject.kind.finish(subject, observed, decided, limits_)
    try:
        draft = record(subject, observed, decided, limits_, name)
    except OverLimitError as error:
        subject = subject.too_large(f"fleethpa ignores this HPA: {error}")
        nothing = _ignored(observed, decided.evaluation.history, hpa.row.generation)
        decided = Decided(nothing)
        limits_ = limit(subject, observed, decided)
        draft = record(subject, observed, decided, limits_, name)
    for account in accounts:
        account.after(subject, observed, decided, limits_)
    subject.kind.tell(subject, name)
    remember(subject, observed, decided, limits_, name)
    return draft


def inputs_now(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> EvaluationInputs:
    """Return what an evaluation now would read; nothing changes."""
    subject = subject_of(state, namespace, hpa, settings)
    return probed(subject, observe(subject))


# --- decide -----------------------------------------------------------------------------------------------------------


def decide(subject: Subject, observed: Observed) -> Decided:
    """Decide as upstream does, and let what replaces the metrics take their place."""
    if subject.ignores:
        return Decided(_ignored(observed, observed.history, subject.hpa.row.generation))
    autoscaler = subject.kind.decided_by(subject, observed)
    evaluation = reconcile.decide(
        autoscaler,
        observed.status,
        observed.observation,
        observed.history,
        subject.settings.controller,
        subject.evaluated_ms,
    )
    replacements = subject.state.attached.replacements
    replaced_ = replaced(
        replacements, lambda each: each.inputs(subject), evaluation, subject.autoscaler, observed.status
    )
    blocked_: tuple[int, ...] = ()
    if observed.replicas is not None:
        band = partial(tolerance_band, subject.autoscaler, subject.settings.controller)
        blocked_ = blocked(evaluation.metrics, observed.replicas, band)
    return Decided(replaced_.evaluation, replaced_.name, replaced_.step, blocked_, evaluation.proposal)


def _ignored(observed: Observed, history: History, generation: int) -> Evaluation:
    """Return an evaluation that decides nothing."""
    status, current = observed.status, observed.replicas
    conditions = status.get("conditions") or []
    kept = conditions if len(encode(conditions)) <= _LARGE_CONDITIONS else []
    replicas = status.get("currentReplicas", 0) if current is None else current
    shown = new_status(generation, status.get("lastScaleTime"), replicas, replicas, None, kept)
    result = ReconcileResult(status=shown, history=history)
    return Evaluation(path="ignored", history=history, current_replicas=current, reason=IGNORED_REASON, result=result)


def _register(subject: Subject, observed: Observed, evaluation: Evaluation) -> None:
    """Register the selector for the overlap check, once an evaluation asked for metrics with a valid one."""
    seen = observed.observation
    if not isinstance(seen, Observation) or seen.pods is NO_PODS or not isinstance(seen.scale, Scale):
        return  # without pods of its own
    if evaluation.path in ("metrics", "metricsFailed"):
        register(subject.state, subject.namespace, subject.hpa, seen.scale.selector)


# --- limit ------------------------------------------------------------------------------------------------------------


def limit(subject: Subject, observed: Observed, decided: Decided) -> Limited:
    """Return what the mode and fleethpa's own limits leave of what was decided."""
    evaluation, effective_mode, now_ms = decided.evaluation, subject.effective_mode, subject.state.now_ms
    rules = subject.settings.controller.rules
    constraints = records.constraints(evaluation)
    if decided.replaced_by:
        constraints.append(decided.replaced_by)
    pending = evaluation.pending
    if pending is None:
        if evaluation.result is None:
            raise StateError(f"HPA {subject.hpa.id}: an evaluation gave neither a result nor a write")
        return Limited(None, _with_refusal(subject, evaluation.result, observed.status), constraints)
    if effective_mode.shown:
        result = without_write(pending, observed.status, evaluation.history)
        return Limited(None, _with_refusal(subject, result, observed.status), constraints)
    # The status of a write that succeeds. In shadow mode nothing is written, and the record shows what upstream would
    # have made of its own write. In enforce mode `end_write` decides what the write ends as, and the record of a wanted
    # write holds no status; this one says whether the record of its end will be small enough.
    if effective_mode.mode != "enforce":
        return Limited(
            None,
            complete(pending, observed.status, evaluation.history, ScaleApplied(), now_ms, rules=rules),
            constraints,
        )
    limits_, by = subject.state.attached.limits, decided.replaced_by
    left = limited(limits_, lambda each: each.inputs(subject, observed), evaluation, pending, by)
    constraints += left.constraints
    if left.held:
        result = without_write(pending, observed.status, evaluation.history)
        return Limited(None, result, constraints, left.held, left.step)
    result = complete(left.pending, observed.status, evaluation.history, ScaleApplied(), now_ms, rules=rules)
    return Limited(left.pending, result, constraints, "", left.step)


def _with_refusal(subject: Subject, result: ReconcileResult, before: dict[str, Any]) -> ReconcileResult:
    """Show in the HPA's AbleToScale and Events why nothing is written, if no native controller does so.

    The condition's transition time stays while it is False for the same HPA: the evaluation has set it True in between.
    """
    if not subject.effective_mode.shown and not subject.ignores:
        return result
    text, reason = subject.effective_mode.refused, IGNORED_REASON if subject.ignores else REFUSAL_REASON
    own = [condition for condition in before.get("conditions") or () if condition["type"] == "AbleToScale"]
    conditions = Conditions(result.status.get("conditions"), subject.state.now_ms)
    if own:
        conditions.items = [own[0] if each["type"] == "AbleToScale" else each for each in conditions.items]
    conditions.set("AbleToScale", "False", reason, text)
    status = {**result.status, "conditions": conditions.items}
    return structs.replace(result, status=status, events=(*result.events, ("Warning", reason, text)))


# --- remember ---------------------------------------------------------------------------------------------------------


def remember(subject: Subject, observed: Observed, decided: Decided, limits_: Limited, name: str) -> None:
    """Note in the HPA's row what later evaluations read."""
    state, row, wanted = subject.state, subject.hpa.row, limits_.wanted
    evaluation, follows_native = decided.evaluation, subject.follows_native
    take_restart(state, subject.hpa)
    _note(state, subject.hpa, subject.settings, subject.evaluated_ms, evaluation.history, evaluation.metrics, name)
    row.moves = observed.moves
    if observed.change:
        row.lost = ()
    row.blocked, row.wants = decided.blocked, decided.asked
    if observed.replicas is not None:
        row.seen_replicas = observed.replicas
    row.mode, row.refused = subject.effective_mode.mode, subject.effective_mode.refused
    row.paused = limits_.held
    row.shadow_status = kept_status(limits_.result.status) if follows_native else NOTHING_SHOWN
    if follows_native or wanted is None:
        row.keep_status(None if follows_native else limits_.result.status)
    if wanted is not None:
        current, expires_ms = evaluation.current_replicas or 0, state.now_ms + WRITE_TTL_MS
        rules, evaluated_ms = subject.settings.rules, subject.evaluated_ms
        row.pending = PendingWrite(name, row.uid, wanted, state.now_ms, expires_ms, current, evaluated_ms, rules)


def _note(
    state: State,
    hpa: Hpa,
    settings: Effective,
    evaluated_ms: int,
    history: History,
    metrics: tuple[MetricEvaluation, ...],
    name: str,
) -> None:
    """Note what every evaluation leaves in the HPA's row."""
    row = hpa.row
    row.history = history
    row.evaluated_ms, row.early_ms = evaluated_ms, 0
    row.ratios = ()
    if settings.sample_floor_ms is not None:
        row.ratios = tuple([None if each.calculation is None else each.calculation.ratio for each in metrics])
    row.native_moves, row.written = (), None
    row.last_decision, row.last_decision_ms, row.last_offset = name, state.now_ms, state.offset


def probed(subject: Subject, observed: Observed) -> EvaluationInputs:
    """Return what an evaluation reads, for a probe."""
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
