"""The fast path of an evaluation that can only repeat the one before in all but its values, and its self-check.

In a fleet at rest nearly every evaluation gives a short record: the same conditions, texts and steps as before, with
other values. `evaluate` then need not make what the record does not hold. After an evaluation that wants no write a
`Memo` of it is kept with the HPA: in memory only, never in rows, so that a restart has no effect but that the next
evaluation takes the general path. `find` gives what the next evaluation changes, or None: the general path decides.

Why it gives the same bytes. How the scale, the pods and those that share them are read (again only after a change of
the namespace's scales, pods or registered selectors), the calculation of each metric (`evaluate_metric`), the windows
and limits (`normalize`) and what is counted in budgets are the same functions on both paths. So is how answers are
read, but for a packed one that names exactly the active pods, all of which count: of such samples `group` reads nothing
but the sum, which is taken without looking at each pod (`observe_total`). Left out are mode and refusal, the
conditions, the status around `currentMetrics`, and the digest that decides whether the record is short. Mode and
refusal follow from the settings, the spec and what `Namespace.drivers` stands for, and all three are the same objects
as in the memo. The evaluation of the memo had the digest of the newest full record. The digest covers:

- spec, mode, settings, rules and engine: they are the same objects or values as in the memo, which is checked;
- scale, ready pods, PromQL, and who moved the target: they are the same, nobody moved it, no restart;
- of each metric its counts of pods and its direction, and how stabilization and limits ended: an
  `EvaluationOutcome`, compared with that of the memo;
- texts of reason, labels and conditions: made of the above alone. The conditions of the new status are those of the
  old one with three of them set to what an outcome says, and setting them again to the same changes nothing: not the
  order of members, nor a transition time. The old status is the very object that the memo's evaluation gave.

An HPA whose status is a native controller's is left out, since that status changes by itself; so are one that is
refused or ignored in its own status, one that wants a write, one of which a metric has failed,
and one with an override in force. The HPA of a FleetHPA in a cluster wants its share, whatever its metrics ask for: it
takes the fast path while the share is the same and is what the scale shows. Number and decision of the allotment
are in full records only. Where the share is less than the minimum of the whole, no metric is evaluated, only reported.
A FleetHPA itself takes it while its clusters have, and were allotted, what they had and the total is divided as before.

Both paths run for one of CHECK_EVERY evaluations that could take this one. If they differ, the general result is
recorded, the difference is kept for the log of the process, and the HPA takes the general path from then on.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from schemas.codec import encode
from schemas.decisions import ShortDecision
from streams.across.allotments import KEEP, FleetRow
from streams.hpa.evaluation import Evaluation, History, MetricEvaluation, Normalization, Status
from streams.hpa.grouping import Groups
from streams.hpa.metrics import evaluate_metric, grouped_total, largest, status_of, tolerance_band
from streams.hpa.normalize import normalize
from streams.hpa.observation import MetricReading, Scale, TargetPods
from streams.hpa.parts import PartObservation, summed_answers
from streams.state import fleet, records
from streams.state.clustersettings import Effective
from streams.state.gather import asked_of_prometheus, is_silent, observe_metric, observe_scale, observe_total
from streams.state.hpastate import Hpa
from streams.state.inputs import override_in_force
from streams.state.memo import EvaluationOutcome, Memo, MetricOutcome, shared_outcome
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.rows import HpaRow, decoded_status, metrics_place, with_metrics
from streams.state.steps import Observed, Subject, is_alone, restart_since, sharing_pods
from streams.state.timing import as_of


class Repeated(Struct, frozen=True, gc=False):
    """What an evaluation on the fast path gives: the new status and windows, and the short record."""

    evaluated_ms: int
    """Time as of which it decided."""
    metrics: tuple[MetricEvaluation, ...]
    history: History
    status: Raw
    record: ShortDecision
    part: PartObservation | None
    """What the HPA in a cluster of a FleetHPA reports; None: it is of none."""
    fleet: FleetRow | None
    """Of a FleetHPA, what it knows of its clusters after the evaluation."""


def learn(subject: Subject, observed: Observed, evaluation: Evaluation, status: Status) -> Memo | None:
    """Give the memo of an evaluation that the row remembers already; None: the evaluation after it cannot take the fast
    path.
    """
    normalization, current, seen = evaluation.normalization, evaluation.current_replicas, observed.observation
    if not current or evaluation.desired_replicas != current or evaluation.result is None or evaluation.result.error:
        return None
    if observed.change or observed.restart or subject.ignores or subject.standing.shown or subject.follows_native:
        return None
    row, state = subject.hpa.row, subject.state
    if not isinstance(seen.scale, Scale) or not (row.fleet is None or _is_at_rest(subject, row.fleet, current)):
        return None
    outcome = None
    if normalization is not None:
        reported = observed.status.get("currentReplicas", 0)
        made = _outcome(reported, evaluation.metrics, evaluation.selected_metric, normalization, current)
        outcome = None if made is None else shared_outcome(made)
    share, place = _share_of(row), metrics_place(status)
    if place is None or seen.ambiguous or share == KEEP or (outcome is None and evaluation.path != "belowMin"):
        return None
    return Memo(
        subject.autoscaler,
        subject.settings,
        subject.namespace.drivers,
        seen.scale,
        None,
        seen.pods,
        None,
        0,
        tolerance_band(subject.autoscaler, subject.settings.controller),
        observed.promql,
        state.row.engine,
        row.full_decision,
        outcome,
        row.status,
        place,
        status.get("currentReplicas", 0),
        share,
        row.fleet,
    )


def _is_at_rest(subject: Subject, known: FleetRow, total: int) -> bool:
    is_enforced, period_ms = subject.standing.mode == "enforce", subject.settings.sync_period_ms
    return fleet.is_at_rest(known, subject.autoscaler, total, is_enforced, subject.state.now_ms, period_ms)


def find(memo: Memo, state: State, namespace: Namespace, hpa: Hpa, settings: Effective, name: str) -> Repeated | None:
    """Give what an evaluation changes that repeats that of the memo; None: it may not repeat it. Nothing changes."""
    if not _reads_the_same(memo, state, namespace, hpa, settings):
        return None
    autoscaler, controller, row, scale, pods = memo.autoscaler, settings.controller, hpa.row, memo.scale, memo.pods
    now_ms = as_of(state.now_ms, row.evaluated_ms, settings.sync_period_ms)
    read: Sequence[MetricReading | Groups | None] | None = None
    part = whole = None
    if memo.fleet is not None and row.fleet is not None:
        period_ms = settings.sync_period_ms
        found = fleet.seen_at_rest(row.fleet, memo.fleet, autoscaler, scale, state.now_ms, period_ms)
        if found is None or found[0].scale != scale or found[0].pods != pods or found[0].ambiguous:
            return None
        if fleet.is_raised(row.fleet, autoscaler, settings, scale.spec_replicas, state.now_ms):
            return None
        read, whole = found[0].answers, found[1]
        read = None if asked_of_prometheus(namespace, hpa.queries) != memo.promql else read
    elif type(pods) is TargetPods:
        read = _read(memo, pods, state, namespace, hpa, settings, now_ms)
        if memo.share is not None and read is not None:
            part = summed_answers(autoscaler, scale, pods, read, controller, now_ms)
    if read is None:
        return None
    if memo.outcome is None:
        record = records.short_record(state, name, memo.full_decision, (), None)
        return Repeated(now_ms, (), row.history, memo.status, record, part, whole)
    made = []
    for spec, answer in zip(autoscaler.metrics, read, strict=True):
        made.append(evaluate_metric(spec, answer, scale, pods, memo.band, controller, now_ms))
    metrics = tuple(made)
    proposal, selected = largest(metrics)
    proposal, current = max(proposal, 0), scale.spec_replicas
    normalization, history = normalize(autoscaler, current, proposal, row.history, controller, now_ms)
    outcome = _outcome(memo.reported, metrics, selected if proposal else "", normalization, current)
    if outcome is None or outcome != memo.outcome:
        return None
    return Repeated(
        now_ms,
        metrics,
        history,
        with_metrics(memo.status, memo.metrics_place, list(map(status_of, metrics))),
        records.short_record(state, name, memo.full_decision, metrics, proposal),
        part,
        whole,
    )


def _share_of(row: HpaRow) -> int | None:
    """Give the share that a FleetHPA has allotted, as a memo keeps it."""
    return None if row.share is None else row.share.replicas


def _read(
    memo: Memo, pods: TargetPods, state: State, namespace: Namespace, hpa: Hpa, settings: Effective, evaluated_ms: int
) -> Sequence[MetricReading | Groups | None] | None:
    """Read the answers: the groups of the pods, where they follow from the sum of the values. None: another Prometheus
    query was asked than in the evaluation of the memo.
    """
    read: list[MetricReading | Groups | None] = []
    for spec, query in zip(memo.autoscaler.metrics, hpa.queries, strict=True):
        total = observe_total(namespace, query, pods, settings, state.now_ms)
        groups = None if total is None else grouped_total(spec, pods, *total, settings.controller, evaluated_ms)
        read.append(groups)
    if not memo.promql and None not in read:
        return read
    if asked_of_prometheus(namespace, hpa.queries) != memo.promql:
        return None
    for at, query in enumerate(hpa.queries):
        if read[at] is None:
            read[at] = observe_metric(namespace, query, pods, settings, state.now_ms)[0]
    return read


def _reads_the_same(memo: Memo, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> bool:
    """Tell whether all but the metrics is as in the evaluation of the memo, and nobody has moved the target since."""
    row, now_ms, commands = hpa.row, state.now_ms, namespace.commands
    return (
        row.status is memo.status
        and hpa.autoscaler is memo.autoscaler
        and settings is memo.settings
        and namespace.drivers is memo.drivers
        and row.full_decision == memo.full_decision
        and now_ms - row.full_ms < records.FULL_EVERY_MS
        and row.written is None
        and row.seen_replicas == memo.scale.spec_replicas
        and row.history.recommended is not None
        and (row.share is None if memo.share is None else _share_of(row) == memo.share)
        and (row.share is None or fleet.share_now(row.share, now_ms, settings.sync_period_ms) is row.share)
        and state.row.engine == memo.engine
        and state.row.restart_offset <= row.restart_seen
        and not (state.row.hands and restart_since(state, hpa)[1])
        and not (commands and (known := commands.get(hpa.id.name)) and override_in_force(known[1], now_ms))
        and (memo.fleet is None) == (row.fleet is None)
        and (row.fleet is not None or _shows_the_same(memo, state, namespace, hpa, settings))
    )


def _shows_the_same(memo: Memo, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> bool:
    """Tell whether scale and pods are those of the memo, and no other HPA has such a pod; note in the memo until which
    change that holds.
    """
    if namespace.targets is memo.targets and namespace.membership.changes == memo.changes and memo.scale_row:
        return not is_silent(namespace, memo.scale_row, state.now_ms)
    row, selector, pods = namespace.scales.get(hpa.target), memo.scale.selector, memo.pods
    if observe_scale(namespace, memo.autoscaler, row, state.now_ms) != memo.scale or type(pods) is not TargetPods:
        return False
    if namespace.membership.matching(selector, settings.controller.rules) is not pods:
        return False
    if is_alone(namespace, hpa, selector):
        memo.scale_row, memo.targets, memo.changes = row, namespace.targets, namespace.membership.changes
        return True
    return not sharing_pods(state, namespace, hpa, selector, pods)


def _outcome(
    reported: int, metrics: tuple[MetricEvaluation, ...], selected: str, normalization: Normalization, current: int
) -> EvaluationOutcome | None:
    """Give the outcome of an evaluation; None: a metric has failed."""
    parts: tuple[MetricOutcome, ...] = ()
    for metric in metrics:
        made = metric.calculation
        if made is None:
            return None
        way = (made.proposal > reported) - (made.proposal < reported)
        parts = (*parts, (made.used, made.not_ready, made.missing, made.ignored, way))
    desired, stabilized = normalization.desired, normalization.stabilized
    return EvaluationOutcome(
        parts,
        selected,
        (desired > current) - (desired < current),
        not desired,
        stabilized,
        stabilized != desired,
        normalization.limited,
        normalization.bound,
        bool(normalization.policies),
    )


def difference(
    found: Repeated,
    record: Any,
    metrics: tuple[MetricEvaluation, ...],
    history: History,
    status: Any,
    part: PartObservation | None,
    whole: FleetRow | None,
) -> str:
    """Compare with what the general path gave; empty: the same bytes."""
    pairs = (
        ("record", found.record, record),
        ("metrics", [each.calculation for each in found.metrics], [each.calculation for each in metrics]),
        ("history", found.history, history),
        ("status", decoded_status(found.status), status),
        ("part", found.part, part),
        ("clusters", found.fleet, whole),
    )
    for what, fast, general in pairs:
        if encode(fast) != encode(general):
            return f"{what}: fast path {encode(fast).decode()}, general path {encode(general).decode()}"
    return ""
