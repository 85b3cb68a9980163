"""Process one HPA at one log record: end its pending write by an outcome or by time, evaluate it, or remove it; and
plan when it is processed next, also because of pushed samples.
"""

from typing import Any

import msgspec

from schemas.decisions import NO_OUTCOME, Decision
from schemas.entries import Outcome
from schemas.keys import HpaId
from streams.hpa.evaluation import ReconcileResult, ScaleApplied, ScaleFailed
from streams.hpa.metrics import evaluate_metric, tolerance_band
from streams.hpa.observation import Scale
from streams.hpa.reconcile import complete
from streams.hpa.rules import CURRENT_TEXT, rules_named
from streams.state import records as decisionrecords
from streams.state.clustersettings import Effective
from streams.state.evaluate import evaluate
from streams.state.folding import SILENCE_MS
from streams.state.gather import observe_metric, observe_scale
from streams.state.guards import asked_mode
from streams.state.hpastate import OUTCOME_WAIT_MS, WRITE_TTL_MS, Hpa
from streams.state.inputs import WriteEnded
from streams.state.ledger import Draft
from streams.state.moves import with_lost, with_write
from streams.state.namespace import Namespace
from streams.state.ownperiod import settings_for
from streams.state.partitionstate import State
from streams.state.records import identity, labels
from streams.state.rows import PendingWrite
from streams.state.steps import take_restart
from streams.state.subject import SubjectKind, accounts_of, own_status

_OUTCOME_TEXTS = {
    "superseded": "a newer decision took its place",
    "stale": f"it was not made within {WRITE_TTL_MS // 1000}s",
    "refused": "it was refused",
    "failed": "it failed",
}
_LATE_TEXT = f"{NO_OUTCOME} within {(WRITE_TTL_MS + OUTCOME_WAIT_MS) // 1000}s"


def end_write(state: State, hpa: Hpa, write: PendingWrite) -> list[Draft]:
    """End a write whose outcome has arrived or whose time has passed; give its completion, or none while pending."""
    outcome, row = hpa.outcome, hpa.row
    hpa.outcome = None
    if outcome is None and state.now_ms < write.expires_ms + OUTCOME_WAIT_MS:
        return []
    restart = take_restart(state, hpa)
    applied = outcome is not None and outcome.result == "applied"
    if state.probe is not None:
        state.probe(_write_ended(state, hpa, write, applied, bool(restart)))
    error = _why_missing(state, hpa) if outcome is None else outcome.error or _OUTCOME_TEXTS.get(outcome.result, "")
    end = ScaleApplied() if applied else ScaleFailed(error)
    rules = rules_named(write.rules or CURRENT_TEXT)
    result = complete(write.pending, own_status(hpa), row.history, end, state.now_ms, write.evaluated_ms, rules)
    row.history, row.pending = result.history, None
    if write.uid == row.uid:
        row.keep_status(result.status)
    if outcome is None:
        row.lost = with_lost(row.lost, write)
    if applied:
        row.lost = ()
        row.written = (write.pending.desired_replicas, write.decision)
        row.moves = with_write(row.moves, state.now_ms, write.pending.current_replicas, write.pending.desired_replicas)
    else:
        for account in accounts_of(state):
            account.failed(state, hpa, write)
    if row.due_again:
        row.next_due_ms, row.due_again = state.now_ms, False
    hpa.dirty = True
    state.schedule.plan(hpa)
    return [_completion(state, hpa, write, outcome or error, result, restart)]


def _write_ended(state: State, hpa: Hpa, write: PendingWrite, applied: bool, restart: bool) -> WriteEnded:
    return WriteEnded(
        hpa=hpa.id,
        decision=write.decision,
        current_replicas=write.pending.current_replicas,
        desired_replicas=write.pending.desired_replicas,
        now_ms=state.now_ms,
        wanted_ms=write.wanted_ms,
        evaluated_ms=write.evaluated_ms,
        applied=applied,
        restart=restart,
    )


def _why_missing(state: State, hpa: Hpa) -> str:
    """Return why no outcome arrived: no reconciler serves the cluster, or it was too slow."""
    if not state.row.served:
        # A log in which no reconciler ever reported its clusters does not say who serves what.
        return _LATE_TEXT
    served = state.row.served.get(hpa.id.cluster)
    if served is None or state.now_ms - served.reported_ms > SILENCE_MS:
        return f"no reconciler serves cluster {hpa.id.cluster}"
    return _LATE_TEXT


def _completion(
    state: State, hpa: Hpa, write: PendingWrite, outcome: Outcome | str, result: ReconcileResult, restart: str
) -> Draft:
    row, pending = hpa.row, write.pending
    shown: dict[str, Any] = {"result": "timeout", "error": outcome}
    if isinstance(outcome, Outcome):
        shown = msgspec.to_builtins(outcome)
        for known in ("kind", "decision", "name", "uid"):
            shown.pop(known, None)
    decision = Decision(
        **identity(state, hpa, f"{state.row.number}-{state.offset}-{write.uid}-c"),
        kind="completion",
        mode="enforce",
        current_replicas=pending.current_replicas,
        final_desired_replicas=pending.desired_replicas if result.action != "none" else pending.current_replicas,
        direction=decisionrecords.direction(pending.current_replicas, pending.desired_replicas),
        reason=pending.reason,
        observed={"restart": restart} if restart else {},
        completes=write.decision,
        outcome=shown,
        status=result.status,
        events=list(result.events),
        error=result.error,
        labels=labels(result),
    )
    row.last_decision, row.last_decision_ms, row.last_offset = decision.id, state.now_ms, state.offset
    return Draft(decision.id, hpa.id.namespace_key, hpa.headers, decision)


def process(state: State, hpa: Hpa) -> list[Draft]:
    """Do what is due for an HPA now, and plan when it is processed next."""
    namespace = state.namespace_of(hpa)
    if hpa.row.gone:
        hpa.outcome = None
        state.schedule.plan(hpa)
        return []
    pending = hpa.row.pending
    drafts = [] if pending is None else end_write(state, hpa, pending)
    if hpa.row.pending is None:
        return drafts + _take_turn(state, namespace, hpa)
    if hpa.deadline < 0:
        state.schedule.plan(hpa)
    return drafts


def _take_turn(state: State, namespace: Namespace, hpa: Hpa) -> list[Draft]:
    settings, row = settings_for(state, hpa), hpa.row
    if row.deleted or asked_mode(namespace, hpa.id.name, settings) == "off":
        if state.now_ms >= row.next_due_ms:
            _leave(state, hpa)
        else:
            state.schedule.plan(hpa)
        return []
    kind: SubjectKind = state.attached.kind_of(row)
    turn = kind.turn(state, namespace, hpa, settings)
    drafts = []
    if turn.evaluate:
        drafts.append(evaluate(state, namespace, hpa, settings))
        hpa.dirty = True
    if turn.due_ms != row.next_due_ms:
        row.next_due_ms, hpa.dirty = turn.due_ms, True
    if turn.evaluate:
        state.schedule.plan(hpa)
    else:
        state.schedule.at(hpa, min(turn.look_ms, row.early_ms) if row.early_ms else turn.look_ms)
    return drafts


def _leave(state: State, hpa: Hpa) -> None:
    """End the evaluations of an HPA that is deleted, or off until its spec, a command or the settings change; nothing
    bounds others for it any more.
    """
    for account in accounts_of(state):
        account.left(state, hpa)
    if hpa.row.deleted:
        hpa.forget(state.now_ms)
        hpa.dirty = True
        state.refresh(hpa)


# --- evaluations by pushed samples ------------------------------------------------------------------------------------

_OF_PODS = ("Resource", "ContainerResource", "Pods")


def plan_sampled(state: State) -> None:
    """Plan an evaluation of the HPAs whose metrics this record's samples have moved; what they moved back is not.

    With `evaluateOn: sample`, a sample brings an evaluation if with it a metric asks for other replicas than there are
    and its ratio has left the tolerance around what the last evaluation saw. What a sample brought is kept in the row
    (`early_ms`), so that no rebalance moves it; only records with samples change it.
    """
    for name in sorted(_sampled(state)):
        hpa = state.hpas[name]
        namespace = state.namespace(name.cluster, name.namespace)
        settings = settings_for(state, hpa)
        floor_ms, row = settings.sample_floor_ms, hpa.row
        if floor_ms is None or row.deleted or len(row.ratios) != len(hpa.queries):
            continue
        if hpa.autoscaler is None or asked_mode(namespace, name.name, settings) == "off":
            continue
        moved = _has_moved(state, namespace, hpa, settings)
        early_ms = max(row.evaluated_ms + floor_ms, state.now_ms) if moved else 0
        if moved is not None and early_ms != row.early_ms:
            row.early_ms, hpa.dirty = early_ms, True
            state.schedule.plan(hpa)
    state.sampled.clear()


def _sampled(state: State) -> set[HpaId]:
    """Return the HPAs of which this record has samples: of pods of their targets, or of a series that has no pods."""
    hpas: set[HpaId] = set()
    for (key, series), pods in state.sampled.items():
        namespace = state.namespaces[key]
        for name in namespace.watchers.get(series, ()):
            scale = namespace.scales.get(state.hpas[name].target)
            if scale is not None and (series[0] not in _OF_PODS or namespace.membership.has_any(scale.selector, pods)):
                hpas.add(name)
    return hpas


def _has_moved(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> bool | None:
    """Return whether a pushed metric has moved since the last evaluation; None: the scale cannot be read."""
    autoscaler, now_ms = hpa.compiled, state.now_ms
    scale = observe_scale(namespace, autoscaler, namespace.scales.get(hpa.target), now_ms)
    if not isinstance(scale, Scale):
        return None
    pods, band = (
        namespace.membership.matching(scale.selector, settings.controller.rules),
        tolerance_band(autoscaler, settings.controller),
    )
    for query, spec, before in zip(hpa.queries, autoscaler.metrics, hpa.row.ratios, strict=True):
        if query.series is None or before is None:
            continue
        answer, _ = observe_metric(namespace, query, pods, settings, now_ms)
        calculation = evaluate_metric(spec, answer, scale, pods, band, settings.controller, now_ms).calculation
        if calculation is None or calculation.proposal == scale.spec_replicas:
            continue
        if calculation.ratio < band[0] * before or calculation.ratio > band[1] * before:
            return True
    return False
