"""One decision of a FleetHPA again, with another spec: its total, and what each cluster would have of it.

What it read are the sums that clusters reported, so only what these hold can be tried.
"""

from collections.abc import Sequence

from msgspec import structs

from schemas.observed import FleetCluster
from streams.across.division import contradiction
from streams.analysis.answer import Answer
from streams.analysis.candidate import Candidate, CandidateError, metric_key
from streams.hpa.autoscaler import UTILIZATION
from streams.hpa.grouping import Groups
from streams.state.fleet import bounded_whole, divided
from streams.state.inputs import EvaluationInputs, FleetInputs

_WHOLE_REQUEST = 100
"""A missing pod counts with its request at least, in percent (`streams.hpa.grouping.group_by_pod`)."""


def with_spec(inputs: EvaluationInputs, known: FleetInputs, tried: Candidate) -> EvaluationInputs:
    """Give the inputs of a FleetHPA's evaluation with another spec of the whole.

    A cluster whose maxReplicas is that of the whole has the new one. Raises CandidateError: the reports do not hold
    what the spec asks for, or the bounds of the clusters contradict it.
    """
    autoscaler = structs.replace(tried.autoscaler, generation=inputs.generation)
    clusters = bounded(known.row.spec.clusters, inputs.spec["maxReplicas"], autoscaler.max_replicas)
    spec = structs.replace(known.row.spec, clusters=clusters)
    if problem := contradiction(spec.clusters, autoscaler.min_replicas, autoscaler.max_replicas):
        raise CandidateError(f"{inputs.hpa}: {problem}")
    row = structs.replace(known.row, spec=spec)
    joined = structs.replace(known.joined, answers=_answers(inputs, known, tried))
    return structs.replace(
        inputs,
        spec=tried.spec,
        autoscaler=bounded_whole(autoscaler, row, known.now_ms, inputs.period_ms),
        fleet=FleetInputs(joined, row, known.now_ms),
    )


def shares(inputs: EvaluationInputs, known: FleetInputs, made: Answer) -> dict[str, int]:
    """Give what each cluster that is not away would have of the total, as the decider divides it."""
    total = None if made.evaluation.desired_replicas is None else made.final
    most, is_enforced = inputs.spec["maxReplicas"], inputs.mode == "enforce"
    return dict(divided(known.row, total, most, is_enforced, known.now_ms, inputs.period_ms).shares)


def bounded(clusters: Sequence[FleetCluster], before: int, most: int) -> list[FleetCluster]:
    """Give the clusters after the whole's maxReplicas has become `most`: those that had no other have that, too."""
    return [structs.replace(each, max_replicas=most) if each.max_replicas == before else each for each in clusters]


def _answers(inputs: EvaluationInputs, known: FleetInputs, tried: Candidate) -> tuple[object, ...]:
    """Give the recorded sums in the order of the metrics that are tried."""
    read = zip(inputs.spec.get("metrics") or (), inputs.autoscaler.metrics, known.joined.answers, strict=True)
    found = {metric_key(metric): (spec, answer) for metric, spec, answer in read}
    made: list[object] = []
    for key, metric in zip(tried.asked, tried.autoscaler.metrics, strict=True):
        if key not in found:
            raise CandidateError(f"{inputs.hpa}: its clusters report nothing for {metric.name or metric.type}")
        spec, answer = found[key]
        if metric.calculation == UTILIZATION and spec.calculation != UTILIZATION:
            raise CandidateError(
                f"{inputs.hpa}: its clusters report no requests for {metric.name}, as it has no such target"
            )
        if isinstance(answer, Groups) and metric.calculation == UTILIZATION:
            before, after = [max(_WHOLE_REQUEST, each.target) for each in (spec, metric)]
            if before != after:
                # Sums cannot be truncated pod by pod: this is less than a milli-unit per missing pod too much.
                answer = structs.replace(answer, missing_fallback=answer.missing_request * after // 100)
        made.append(answer)
    return tuple(made)
