"""The record of an evaluation, full or short, made of its parts."""

from typing import Any

from schemas.decisions import Decision, InputPosition, ShortDecision, Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation
from streams.state.decisionrecords import Facts, metric_decision, print_time, values_of
from streams.state.hpastate import Hpa
from streams.state.schedule import WRITE_TTL_MS
from streams.state.subject import target_of


def full_record(
    name: str,
    hpa: Hpa,
    autoscaler: Autoscaler,
    evaluation: Evaluation,
    facts: Facts,
    *,
    now_ms: int,
    position: InputPosition,
    steps: list[Step],
    observed: dict[str, Any],
    status: dict[str, Any] | None,
    engine: int,
) -> Decision:
    """Fill in a full record field by field: one made of dictionaries (`identity`) takes three times as long.

    `status`: None in the record of a wanted write, whose end decides it.
    """
    row = hpa.row
    return Decision(
        id=name,
        seq=0,
        prev="",
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        time=print_time(now_ms),
        input=position,
        scale_target_ref=hpa.reference,
        target=target_of(autoscaler),
        mode=facts.mode,
        origin=row.origin,
        current_replicas=facts.current_replicas,
        raw_desired_replicas=evaluation.proposal,
        final_desired_replicas=facts.final_desired_replicas,
        direction=facts.direction,
        reason=facts.reason,
        selected_metric=facts.selected_metric,
        metrics=list(map(metric_decision, evaluation.metrics)),
        steps=steps,
        constraints_applied=facts.constraints_applied,
        wants=facts.wants,
        expires=None if facts.wants is None else now_ms + WRITE_TTL_MS,
        observed=observed,
        status=status,
        events=facts.events,
        error=facts.error,
        labels=facts.labels,
        paused=facts.paused,
        refused=facts.refused,
        min_replicas=autoscaler.min_replicas,
        max_replicas=autoscaler.max_replicas,
        spec_hash=row.spec_hash,
        generation=row.generation,
        engine=engine,
        author=row.author,
        change_reason=row.change_reason,
        shows_refusal=facts.shows_refusal,
    )


def short_record(
    name: str, same_as: str, evaluation: Evaluation, *, now_ms: int, position: InputPosition
) -> ShortDecision:
    """Make the record of an evaluation that differs from a full one, `same_as`, in the values of its metrics only."""
    return ShortDecision(
        id=name,
        seq=0,
        prev="",
        same_as=same_as,
        time=print_time(now_ms),
        input=position,
        m=list(map(values_of, evaluation.metrics)),
        raw_desired_replicas=evaluation.proposal,
        newest=[metric.newest_ms for metric in evaluation.metrics],
    )
