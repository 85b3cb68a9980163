"""Evaluate one HPA at one record: observe, decide as upstream does, apply fleethpa's own limits, remember, record.

A refusal is shown in the HPA's own status and Events. Upstream has no such condition.
"""

from typing import Any

from msgspec import structs

from schemas import limits
from schemas.codec import encode
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON, Step
from schemas.limits import OverLimitError
from streams.hpa.complete import complete
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult, ScaleApplied, new_status
from streams.hpa.observation import NO_PODS, MetricReading, Observation, Scale, TargetPods
from streams.hpa.reconcile import decide
from streams.hpa.status import Conditions
from streams.state import records as decisionrecords
from streams.state.brakes import AskedWrite, Brakes, limited
from streams.state.clustersettings import Effective
from streams.state.gather import observe_metric, observe_scale
from streams.state.guards import Standing, asked_mode, ignored, pause_in_force, standing
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.ledger import Draft, StateError
from streams.state.lostmetrics import ANNOTATION as FALLBACK_ANNOTATION
from streams.state.lostmetrics import CONSTRAINT as FALLBACK
from streams.state.lostmetrics import (
    LONGEST_HOLD_MS,
    EvaluationInputs,
    ProbeGuards,
    is_lost,
    parse_fallback,
    partial_view,
    with_fallback,
)
from streams.state.moves import attribute, with_observation
from streams.state.namespace import Namespace
from streams.state.records import Facts, compiled, full_record, labels, own_status, short_record, take_restart
from streams.state.rows import PendingWrite, ScaleRow
from streams.state.samples import State, ratios_of
from streams.state.selectoroverlap import register, sharing_pods
from streams.state.timing import as_of

_LARGE_CONDITIONS = limits.DECISION.most // 4
"""JSON of conditions that an ignored HPA does not keep: the decision that shows it as ignored must be small."""


def ignored_evaluation(
    status: dict[str, Any], history: History, generation: int, current: int | None, reason: str
) -> Evaluation:
    """Give an evaluation that decides nothing. `status`: so far; `current`: replicas, None: the scale is not known."""
    conditions = status.get("conditions") or []
    kept = conditions if len(encode(conditions)) <= _LARGE_CONDITIONS else []
    replicas = status.get("currentReplicas", 0) if current is None else current
    shown = new_status(generation, status.get("lastScaleTime"), replicas, replicas, None, kept)
    result = ReconcileResult(status=shown, before=None, history=history)
    return Evaluation(path="ignored", history=history, current_replicas=current, reason=reason, result=result)


def show_refusal(
    result: ReconcileResult, before: dict[str, Any], text: str, now_ms: int, reason: str = REFUSAL_REASON
) -> ReconcileResult:
    """Give a result whose condition AbleToScale is False, with an Event; `before` is the status so far.

    The condition's transition time stays while it is False for the same HPA: the evaluation has set it True in between.
    """
    own = [condition for condition in before.get("conditions") or () if condition["type"] == "AbleToScale"]
    conditions = Conditions(result.status.get("conditions"), now_ms)
    if own:
        conditions.items = [own[0] if each["type"] == "AbleToScale" else each for each in conditions.items]
    conditions.set("AbleToScale", "False", reason, text)
    return structs.replace(
        result,
        status={**result.status, "conditions": conditions.items},
        before=None,
        events=(*result.events, ("Warning", reason, text)),
    )


def without_write(pending: Pending, status: dict[str, Any], history: History) -> ReconcileResult:
    """Show an evaluation without the write that it wants: the replicas stay. `status`: so far; `history`: to keep."""
    current = pending.current_replicas
    shown = new_status(
        pending.generation, status.get("lastScaleTime"), current, current, pending.current_metrics, pending.conditions
    )
    return ReconcileResult(
        status=shown,
        before=None,
        events=pending.events,
        error=pending.error,
        error_label=pending.error_label,
        metric_results=pending.metric_results,
        history=history,
    )


class Evaluator:
    """One evaluation of one HPA; its steps share the state in this object."""

    __slots__ = (
        "autoscaler",
        "brake",
        "brakes",
        "change",
        "constraints",
        "evaluated_ms",
        "fallback",
        "held",
        "hpa",
        "ignores",
        "namespace",
        "now_ms",
        "row",
        "scale_row",
        "settings",
        "sources",
        "standing",
        "state",
    )

    def __init__(self, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> None:
        self.state = state
        self.namespace = namespace
        self.hpa = hpa
        self.row = hpa.row
        self.settings = settings
        self.now_ms = state.now_ms
        self.evaluated_ms = as_of(state.now_ms, hpa.row.evaluated_ms, settings.sync_period_ms)
        self.autoscaler = compiled(hpa)
        self.standing: Standing = standing(namespace, hpa, settings)
        self.scale_row: ScaleRow | None = namespace.scales.get(hpa.target)
        self.change: dict[str, Any] = {}
        self.ignores = bool(hpa.ignored)
        """Nothing is decided by this HPA, since it or what would be recorded is too large."""
        self.constraints: list[str] = []
        self.held = ""
        """The first reason why the wanted write is not made, `paused` in the record; empty: nothing holds it."""
        self.brakes: Brakes | None = Brakes(state, hpa, settings) if settings.budgets.is_set else None
        self.fallback: Step | None = None
        self.brake: Step | None = None
        """The step of the brake that held or cut the write."""
        self.sources: list[str] = []

    def run(self) -> Draft:
        """Evaluate and give the record."""
        row, state = self.row, self.state
        restart = take_restart(state, self.hpa)
        follows_native = self._follows_native
        if follows_native:
            row.status = None
        status = own_status(self.hpa)
        observation = self._observe()
        self._note_move(observation)
        if self.brakes is not None:
            self._begin_brakes(self.brakes, observation)
        if state.probe is not None and not self.ignores:
            state.probe(self._inputs(status, observation, restart))
        evaluation = self._evaluate(status, observation)
        row.history = evaluation.history
        self._register(observation, evaluation)
        guarded = self.standing.mode == "enforce" and self.brakes is not None
        ready = _ready(observation) if guarded else None
        observed = decisionrecords.observed(observation.scale, self.change, restart, ready)
        wanted, result = self._end(evaluation, status)
        try:
            draft = self._draft(evaluation, result, observed, wanted)
        except OverLimitError as error:
            evaluation = self._ignore(f"fleethpa ignores this HPA: {error}", status, observation)
            wanted, result = self._end(evaluation, status)
            draft = self._draft(evaluation, result, observed, wanted)
        if self.brakes is not None:
            self.brakes.end(wanted)
        if follows_native:
            row.shadow_status = result.status
        else:
            row.shadow_status = {}
            if wanted is None:
                row.status = result.status
        self._remember(observation, draft)
        row.early_ms = 0
        row.ratios = () if self.settings.sample_floor_ms is None else ratios_of(evaluation)
        if wanted is not None:
            current, expires_ms = evaluation.current_replicas or 0, self.now_ms + WRITE_TTL_MS
            row.pending = PendingWrite(draft.id, row.uid, wanted, self.now_ms, expires_ms, current, self.evaluated_ms)
        return draft

    def _evaluate(self, status: dict[str, Any], observation: Observation) -> Evaluation:
        row = self.row
        if self.ignores:
            return self._ignored(status, observation)
        evaluation = decide(
            self.autoscaler, status, observation, row.history, self.settings.controller, self.evaluated_ms
        )
        if row.annotations:
            evaluation = self._fall_back(evaluation)
        return evaluation

    def _ignore(self, why: str, status: dict[str, Any], observation: Observation) -> Evaluation:
        """Decide nothing after all: no topic takes the decision that was made."""
        asked = asked_mode(self.namespace, self.hpa.id.name, self.settings)
        self.ignores, self.standing = True, ignored(self.hpa, asked, self.settings, why)
        self.fallback = None
        return self._ignored(status, observation)

    def _ignored(self, status: dict[str, Any], observation: Observation) -> Evaluation:
        row, scale = self.row, observation.scale
        current = scale.spec_replicas if isinstance(scale, Scale) else None
        return ignored_evaluation(status, row.history, row.generation, current, IGNORED_REASON)

    def _fall_back(self, evaluation: Evaluation) -> Evaluation:
        """Count evaluations without metrics, and scale to the replicas that the HPA's annotation names for that."""
        row, fallback = self.row, parse_fallback(self.hpa.annotation(FALLBACK_ANNOTATION))
        row.failures = row.failures + 1 if fallback is not None and is_lost(evaluation) else 0
        evaluation, self.fallback = with_fallback(evaluation, self.autoscaler, fallback, row.failures)
        return evaluation

    @property
    def _follows_native(self) -> bool:
        """Whether the HPA's status is the native controller's: it looks after the HPA, and fleethpa does not write."""
        return self.row.origin == "cluster" and self.standing.mode != "enforce" and not self.standing.shown

    def inputs(self) -> EvaluationInputs:
        """Say what an evaluation now would read; nothing changes."""
        status = self.row.native_status if self._follows_native else own_status(self.hpa)
        return self._inputs(status, self._observe(), "")

    def _remember(self, observation: Observation, draft: Draft) -> None:
        row = self.row
        row.evaluated_ms = self.evaluated_ms
        if isinstance(observation.scale, Scale):
            row.seen_replicas = observation.scale.spec_replicas
        row.native_moves, row.written = (), None
        row.mode, row.refused, row.paused = self.standing.mode, self.standing.refused, self.held
        row.last_decision, row.last_decision_ms, row.last_offset = draft.id, self.now_ms, self.state.offset

    def _inputs(self, status: dict[str, Any], observation: Observation, restart: str) -> EvaluationInputs:
        """Say for a probe what this evaluation reads."""
        row, state, settings = self.row, self.state, self.settings
        name = self.hpa.id.name
        paused_up, paused_down = (
            pause_in_force(self.namespace, name, state.row, up, self.now_ms) for up in (True, False)
        )
        return EvaluationInputs(
            decision=f"{state.row.number}-{state.offset}-{row.uid}",
            hpa=self.hpa.id,
            partition=state.row.number,
            offset=state.offset,
            now_ms=self.evaluated_ms,
            mode=self.standing.mode,
            origin=row.origin,
            generation=row.generation,
            spec=self.hpa.spec,
            autoscaler=self.autoscaler,
            status=status,
            observation=observation,
            history=row.history,
            settings=settings.controller,
            period_ms=settings.sync_period_ms,
            guards=ProbeGuards(
                settings.frozen,
                paused_up,
                paused_down,
                settings.hold_on_overflow,
                settings.max_step,
                None if self.brakes is None else self.brakes.left("removal"),
                None if self.brakes is None else self.brakes.left("addition"),
                partial_view(self.namespace, self.now_ms) if settings.partial_view else "",
                self.namespace.view.since_ms + LONGEST_HOLD_MS,
            ),
            restart=restart,
            fallback=parse_fallback(self.hpa.annotation(FALLBACK_ANNOTATION)),
            failures=row.failures + 1,
            native_moves=row.native_moves,
            moves=row.moves,
            follows_native=self._follows_native,
        )

    # observing

    def _observe(self) -> Observation:
        namespace, queries = self.namespace, self.hpa.queries
        scale = observe_scale(namespace, self.autoscaler, self.scale_row, self.now_ms)
        if not isinstance(scale, Scale):
            self.sources = [""] * len(queries)
            return Observation(scale)
        pods = namespace.membership.matching(scale.selector)
        answers = self._answers(pods)
        return Observation(scale, pods, answers, sharing_pods(self.state, namespace, self.hpa, scale.selector, pods))

    def _answers(self, pods: TargetPods) -> tuple[MetricReading | None, ...]:
        answers = []
        for query in self.hpa.queries:
            answer, source = observe_metric(self.namespace, query, pods, self.settings, self.now_ms)
            answers.append(answer)
            self.sources.append(source)
        return tuple(answers)

    def _register(self, observation: Observation, evaluation: Evaluation) -> None:
        """Register the selector for the overlap check, once an evaluation asked for metrics with a valid one."""
        scale = observation.scale
        if observation.pods is NO_PODS or not isinstance(scale, Scale):
            return
        if evaluation.path in ("metrics", "metricsFailed"):
            register(self.state, self.namespace, self.hpa, scale.selector)

    def _note_move(self, observation: Observation) -> None:
        """Note who moved the target since the evaluation before."""
        row, scale_row = self.row, self.scale_row
        self.change = attribute(self.hpa, scale_row)
        if not self.change and row.written is None:
            return
        if isinstance(observation.scale, Scale) and scale_row is not None:
            written = row.written[0] if row.written is not None else None
            replicas = observation.scale.spec_replicas
            row.moves = with_observation(row.moves, self.now_ms, replicas, self.change, written, scale_row.manager)

    # the end of it

    def _end(self, evaluation: Evaluation, status: dict[str, Any]) -> tuple[Pending | None, ReconcileResult]:
        """Give the write to want (None: none) and the result before its outcome is known."""
        self.constraints, self.held, self.brake = decisionrecords.constraints(evaluation), "", None
        if self.fallback is not None:
            self.constraints.append(FALLBACK)
        pending = evaluation.pending
        if pending is None:
            if evaluation.result is None:
                raise StateError(f"HPA {self.hpa.id}: an evaluation gave neither a result nor a write")
            return None, self._with_refusal(evaluation.result, status)
        if self.standing.shown:
            return None, self._with_refusal(without_write(pending, status, self.row.history), status)
        if self.standing.mode != "enforce":
            # In shadow mode nothing is written, and the record shows what upstream would have made of its own write.
            return None, complete(pending, status, self.row.history, ScaleApplied(), self.now_ms)
        asked = AskedWrite(self.state, self.namespace, self.hpa, self.settings, evaluation, pending, self.brakes)
        pending, constraints, self.held, self.brake = limited(asked)
        self.constraints += constraints
        if self.held:
            return None, without_write(pending, status, self.row.history)
        # What the write ends as is decided once, at its end (`end_write`), and the record of a wanted write holds no
        # status. The status of a write that succeeds is computed here all the same: the row's `full_digest` covers it,
        # and `verify` compares rows with archived snapshots byte for byte.
        return pending, complete(pending, status, self.row.history, ScaleApplied(), self.now_ms)

    def _with_refusal(self, result: ReconcileResult, before: dict[str, Any]) -> ReconcileResult:
        """Show in the HPA's own conditions and Events why nothing is written, if no native controller does so."""
        if not self.standing.shown and not self.ignores:
            return result
        reason = IGNORED_REASON if self.ignores else REFUSAL_REASON
        return show_refusal(result, before, self.standing.refused, self.now_ms, reason)

    def _begin_brakes(self, brakes: Brakes, observation: Observation) -> None:
        scale, row = observation.scale, self.row
        replicas = scale.spec_replicas if isinstance(scale, Scale) else None
        before = row.written[0] if row.written is not None else row.seen_replicas
        brakes.begin(replicas, before, ready=_ready(observation), enforced=self.standing.mode == "enforce")

    # the record

    def _draft(
        self, evaluation: Evaluation, result: ReconcileResult, observed: dict[str, Any], wanted: Pending | None
    ) -> Draft:
        """Make the record. Raises OverLimitError: it is larger than a decision may be; nothing has changed then."""
        row, state = self.row, self.state
        name = f"{state.row.number}-{state.offset}-{row.uid}"
        facts = self._facts(evaluation, result, wanted)
        shape = (
            facts,
            observed,
            decisionrecords.shape_of(evaluation, facts.final_desired_replicas, result.status),
            row.spec_hash,
            row.origin,
            row.generation,
            state.row.engine,
        )
        digest = decisionrecords.digest(shape)
        if wanted is None and self._repeats(digest):
            position = state.input_position([])
            short = short_record(name, row.full_decision, evaluation, now_ms=self.now_ms, position=position)
            return Draft(name, self.namespace.key, self.hpa.headers, short)
        status = result.status if wanted is None else None
        version = self.scale_row.resource_version if self.scale_row else ""
        decision = full_record(
            name,
            self.hpa,
            self.autoscaler,
            evaluation,
            facts,
            now_ms=self.now_ms,
            position=state.input_position(self.sources),
            steps=self._steps(evaluation, facts.final_desired_replicas),
            observed=decisionrecords.with_version(observed, version),
            status=status,
            engine=state.row.engine,
        )
        # The record of the end of a wanted write has the status and the events instead.
        later = () if wanted is None else (result.status, result.events, result.events_after_write)
        limits.check(limits.DECISION, len(encode(decision)) + len(encode(later)), f"HPA {self.hpa.id}")
        row.full_decision, row.full_ms, row.full_digest = name, self.now_ms, digest
        return Draft(name, self.namespace.key, self.hpa.headers, decision)

    def _steps(self, evaluation: Evaluation, final: int) -> list[Step]:
        made = decisionrecords.steps_to(evaluation, final, self.brake)
        return made if self.fallback is None else [self.fallback, *made]

    def _facts(self, evaluation: Evaluation, result: ReconcileResult, wanted: Pending | None) -> Facts:
        current = evaluation.current_replicas or 0
        final = self._final(evaluation, wanted, current)
        return Facts(
            mode=self.standing.mode,
            current_replicas=current,
            final_desired_replicas=final,
            direction=decisionrecords.direction(current, final),
            reason=decisionrecords.reason_of(evaluation, result.status),
            selected_metric=evaluation.selected_metric,
            constraints_applied=self.constraints,
            wants=wanted.desired_replicas if wanted is not None else None,
            events=[*result.events, *result.events_after_write] if wanted is None else [],
            error=result.error,
            paused=self.held,
            refused=self.standing.refused,
            labels=labels(result) if wanted is None else {},
            shows_refusal=self.standing.shown,
        )

    def _final(self, evaluation: Evaluation, wanted: Pending | None, current: int) -> int:
        if wanted is not None:
            return wanted.desired_replicas
        if self.held or evaluation.desired_replicas is None:
            return current
        return evaluation.desired_replicas

    def _repeats(self, digest: bytes) -> bool:
        """Tell whether the last full record differs in values only."""
        row = self.row
        if not row.full_decision or self.now_ms - row.full_ms >= decisionrecords.FULL_EVERY_MS:
            return False
        return row.full_digest == digest


def _ready(observation: Observation) -> int:
    """Give the ready pods of an HPA's target. Pods that several HPAs would count are nobody's."""
    return 0 if observation.ambiguous else observation.pods.running_ready
