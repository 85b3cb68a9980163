"""The record of an evaluation: what was decided, what fleethpa's own limits left of it, and the decision."""

from typing import Any

from msgspec import Struct

from schemas import limits
from schemas.codec import encode
from schemas.decisions import TOLERANCE, Decision, Step
from streams.hpa.evaluation import Evaluation, Pending, ReconcileResult
from streams.state import fleet, records
from streams.state.budget import Way
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.ledger import Draft
from streams.state.observe import Observed, Subject
from streams.state.samples import State


class Decided(Struct, frozen=True, gc=False):
    """What the metrics, the fallback for lost ones or an override ask for."""

    evaluation: Evaluation
    failures: int
    """Evaluations in a row that found no metrics, as far as they are counted."""
    replaced: Step | None = None
    """The fallback or the override that took the place of what the metrics ask for."""


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
    claim: Way | None = None
    """The budget that cut the write, and of which the HPA asks for more."""


class DraftRecord(Struct, frozen=True, gc=False):
    """The decision record. `digest`: of all in a full one but its values; None: it is a short one."""

    draft: Draft
    digest: bytes | None = None


def record(subject: Subject, observed: Observed, decided: Decided, limits_: Limited, name: str) -> DraftRecord:
    """Make the record of this id. Raises OverLimitError: it is larger than a decision may be."""
    state, hpa, row = subject.state, subject.hpa, subject.hpa.row
    evaluation, wanted, result = decided.evaluation, limits_.wanted, limits_.result
    facts = _facts(subject, evaluation, limits_)
    guarded = subject.standing.mode == "enforce" and subject.settings.budgets.is_set
    scale = observed.observation.scale
    ready = observed.ready if guarded else None
    shown = records.observed(scale, observed.change, observed.restart, ready, observed.promql)
    final = facts.final_desired_replicas
    shape = records.shape_of(evaluation, final, result.status)
    if row.fleet is not None:
        shown |= {"clusters": fleet.shown(row.fleet, state.now_ms, subject.settings.sync_period_ms)}
    rules = subject.settings.rules
    own = (facts, shown, shape, row.spec_hash, row.origin, row.generation, state.row.engine)
    digest = records.digest((*own, rules) if rules else own)
    if wanted is None and records.repeats(row, digest, state.now_ms):
        short = records.short_record(state, name, row.full_decision, evaluation.metrics, evaluation.proposal)
        return DraftRecord(Draft(name, subject.namespace.key, hpa.headers, short))
    decision = _decision(subject, observed, decided, limits_, facts, shown, name)
    # The record of the end of a wanted write has the status and the events instead.
    later = () if wanted is None else (result.status, result.events, result.events_after_write)
    value = encode(decision)
    limits.check(limits.DECISION, len(value) + len(encode(later)), f"HPA {hpa.id}")
    return DraftRecord(Draft(name, subject.namespace.key, hpa.headers, decision, value), digest)


def _decision(
    subject: Subject,
    observed: Observed,
    decided: Decided,
    limits_: Limited,
    facts: records.Facts,
    shown: dict[str, Any],
    name: str,
) -> Decision:
    """Make a full record, field by field: one that is made of dictionaries (`records.identity`) takes three times as
    long. `shown`: what was observed.
    """
    state, hpa, row = subject.state, subject.hpa, subject.hpa.row
    evaluation, wanted = decided.evaluation, limits_.wanted
    steps = records.steps_to(evaluation, facts.final_desired_replicas, limits_.brake)
    version = subject.scale_row.resource_version if subject.scale_row else ""
    return Decision(
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
        mode=facts.mode,
        origin=row.origin,
        current_replicas=facts.current_replicas,
        raw_desired_replicas=evaluation.proposal,
        final_desired_replicas=facts.final_desired_replicas,
        direction=facts.direction,
        reason=facts.reason,
        selected_metric=facts.selected_metric,
        metrics=list(map(records.metric_decision, evaluation.metrics)),
        steps=records.with_replaced(steps, decided.replaced, evaluation),
        constraints_applied=limits_.constraints,
        wants=facts.wants,
        expires=None if wanted is None else state.now_ms + WRITE_TTL_MS,
        observed=records.with_version(shown, version),
        status=limits_.result.status if wanted is None else None,
        events=facts.events,
        error=facts.error,
        labels=facts.labels,
        paused=facts.paused,
        refused=facts.refused,
        min_replicas=subject.autoscaler.min_replicas,
        max_replicas=subject.autoscaler.max_replicas,
        spec_hash=row.spec_hash,
        generation=row.generation,
        engine=state.row.engine,
        author=row.author,
        change_reason=row.change_reason,
        shows_refusal=facts.shows_refusal,
        rules=subject.settings.rules,
    )


def decision_id(state: State, hpa: Hpa) -> str:
    """Give the id of the decision of an evaluation."""
    return f"{state.row.number}-{state.offset}-{hpa.row.uid}"


def _facts(subject: Subject, evaluation: Evaluation, limits_: Limited) -> records.Facts:
    wanted, result, current = limits_.wanted, limits_.result, evaluation.current_replicas or 0
    final = current if limits_.held or evaluation.desired_replicas is None else evaluation.desired_replicas
    if wanted is not None:
        final = wanted.desired_replicas
    return records.Facts(
        mode=subject.standing.mode,
        current_replicas=current,
        final_desired_replicas=final,
        direction=records.direction(current, final),
        reason=records.reason_of(evaluation, result.status),
        selected_metric=evaluation.selected_metric,
        constraints_applied=[each for each in limits_.constraints if each != TOLERANCE],
        wants=wanted.desired_replicas if wanted is not None else None,
        events=[*result.events, *result.events_after_write] if wanted is None else [],
        error=result.error,
        paused=limits_.held,
        refused=subject.standing.refused,
        labels=records.labels(result) if wanted is None else {},
        shows_refusal=subject.standing.shown,
    )
