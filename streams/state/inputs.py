"""What one evaluation reads, as a value, and what takes the place of its metrics: an override or the fallback.

An override, of a person and for a while, is kept with the pauses of the HPA, ends by log time, by a command, or when
the HPA's own mode is no longer enforce, and stays within minReplicas and maxReplicas. fleethpa's other limits hold or
cut its write as any other. The metrics are evaluated on, so that windows are right when it ends. It does not apply
where upstream scales nothing at all: at 0 replicas, or while the scale cannot be read. The fallback for lost metrics is
what the annotation `fleethpa.io/fallback` names, as KEDA's.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, structs

from schemas.decisions import Step
from schemas.inforce import OVERRIDE, is_in_force
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.observed import Mode, Origin
from streams.across.allotments import CapacityLeft, FleetRow
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult, new_status
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation
from streams.state.budget import Left, Way
from streams.state.rows import Pause

FALLBACK_ANNOTATION: Final = "fleethpa.io/fallback"
FALLBACK: Final = "Fallback"
_FORM: Final = re.compile(r"failureThreshold=([1-9][0-9]{0,5}),\s*replicas=([0-9]{1,9})", re.ASCII)
CONSTRAINT: Final = "Override"


class Override(Struct, frozen=True, gc=False):
    """What is wanted, until when (Unix milliseconds), by whom and why."""

    replicas: int
    until_ms: int
    author: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """It in words."""
        by = f" by {self.author}" if self.author else ""
        why = f": {self.reason}" if self.reason else ""
        return f"override to {self.replicas} replicas{by} until {rfc3339_seconds(self.until_ms)}{why}"


def override_in_force(pauses: Mapping[str, Pause], now_ms: int) -> Override | None:
    """Give the override among the pauses of an HPA; None: there is none now."""
    found = pauses.get(OVERRIDE)
    if found is None or not is_in_force(found.until_ms, now_ms):
        return None
    return Override(found.replicas, found.until_ms, found.author, found.reason)


def with_override(
    evaluation: Evaluation, autoscaler: Autoscaler, override: Override | None, status: dict[str, Any]
) -> tuple[Evaluation, Step | None]:
    """Give the evaluation with the override's replicas in place of its own, and the step that says so.

    Args:
        status: the HPA's status before the evaluation.
    """
    current = evaluation.current_replicas or 0
    if override is None or not current:
        return evaluation, None
    wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, override.replicas))
    asked = current if evaluation.desired_replicas is None else evaluation.desired_replicas
    detail = {"replicas": override.replicas, "author": override.author}
    step = Step(step="override", in_=asked, out=wanted, detail=detail, until=override.until_ms)
    return replaced_by(wanted, override.text, evaluation, autoscaler, status), step


def replaced_by(
    wanted: int, reason: str, evaluation: Evaluation, autoscaler: Autoscaler, status: dict[str, Any]
) -> Evaluation:
    """Give the evaluation with other replicas in place of what the metrics ask for. `status`: before the evaluation."""
    pending, result = evaluation.pending, evaluation.result
    if wanted == evaluation.current_replicas:
        if pending is not None:
            result = without_write(pending, status, evaluation.history)
        pending = None
    else:
        pending, result = write_to(wanted, reason, evaluation, autoscaler), None
    return structs.replace(
        evaluation, desired_replicas=wanted, reason=reason, pending=pending, result=result, raised_to_min=False
    )


def write_to(wanted: int, reason: str, evaluation: Evaluation, autoscaler: Autoscaler) -> Pending | None:
    """Give a write of replicas that the metrics did not ask for; None: the evaluation is of no scale."""
    current, pending, result = evaluation.current_replicas, evaluation.pending, evaluation.result
    rules = autoscaler.scale_up if wanted > (current or 0) else autoscaler.scale_down
    longest_ms = rules.longest_ms if rules is not None else None
    if pending is not None:
        return structs.replace(
            pending, desired_replicas=wanted, reason=reason, to_zero=False, longest_period_ms=longest_ms
        )
    if result is None or current is None:
        return None
    return Pending(
        current_replicas=current,
        desired_replicas=wanted,
        reason=reason,
        name=autoscaler.name,
        reference=autoscaler.reference,
        generation=autoscaler.generation,
        to_zero=False,
        conditions=list(result.status.get("conditions") or []),
        current_metrics=result.status.get("currentMetrics"),
        events=(*result.events, *result.events_after_write),
        error=result.error,
        error_label=result.error_label,
        metric_results=result.metric_results,
        longest_period_ms=longest_ms,
    )


def without_write(pending: Pending, status: dict[str, Any], history: History) -> ReconcileResult:
    """Show an evaluation without the write that it wants: the replicas stay. `status`: so far; `history`: to keep."""
    current = pending.current_replicas
    shown = new_status(
        pending.generation, status.get("lastScaleTime"), current, current, pending.current_metrics, pending.conditions
    )
    return ReconcileResult(
        status=shown,
        events=pending.events,
        error=pending.error,
        error_label=pending.error_label,
        metric_results=pending.metric_results,
        history=history,
    )


# --- the fallback -----------------------------------------------------------------------------------------------------


class Fallback(Struct, frozen=True, gc=False):
    """`failure_threshold`: failed evaluations in a row (one per sync period); `replicas`: what to scale to then."""

    failure_threshold: int
    replicas: int


@lru_cache(maxsize=1024)
def parse_fallback(text: str) -> Fallback | None:
    """Read the annotation; None: it is empty or cannot be read, and there is no fallback then."""
    form = _FORM.fullmatch(text.strip())
    return Fallback(int(form[1]), int(form[2])) if form is not None else None


def is_lost(evaluation: Evaluation) -> bool:
    """Tell whether no metric gave a number, or one is missing and the others would scale down."""
    return evaluation.path == "metricsFailed"


def with_fallback(
    evaluation: Evaluation, autoscaler: Autoscaler, fallback: Fallback | None, failures: int
) -> tuple[Evaluation, Step | None]:
    """Give the evaluation with a write to the fallback's replicas, and its step; unchanged where it does not apply.

    Args:
        failures: evaluations in a row that failed, this one included.
    """
    result = evaluation.result
    if fallback is None or result is None or not is_lost(evaluation) or failures < fallback.failure_threshold:
        return evaluation, None
    current = evaluation.current_replicas or 0
    wanted = max(autoscaler.min_replicas, min(autoscaler.max_replicas, fallback.replicas))
    detail = {"failures": failures, "failureThreshold": fallback.failure_threshold}
    step = Step(step="fallback", in_=current, out=wanted, detail=detail)
    if wanted == current or not current:
        return evaluation, step if current else None
    reason = f"fallback, as the metrics have failed {fallback.failure_threshold} times in a row"
    pending = write_to(wanted, reason, evaluation, autoscaler)
    changed = structs.replace(evaluation, desired_replicas=wanted, reason=reason, result=None, pending=pending)
    return changed, step


# --- all that one evaluation reads ------------------------------------------------------------------------------------


class Guards(Struct, frozen=True, gc=False):
    """What may hold or cut a wanted write of an enforced HPA, as `streams.state.brakes.limited` asks for it.

    `frozen`, `paused_*`: why, empty where it is not. `removal`, `addition`: what the budgets leave to it, for a probe;
    None: no budget bounds it.
    """

    frozen: str = ""
    paused_up: str = ""
    paused_down: str = ""
    hold_on_overflow: bool = True
    max_step: int | None = None
    removal: Left | None = None
    addition: Left | None = None
    partial_view: str = ""
    """Why scale-downs in the namespace are held, and until when at most; empty: they are not."""
    partial_until_ms: int = 0
    capacity: CapacityLeft | None = None
    """What the HPA's CapacityGroups leave to it; None: none bounds it."""

    def left(self, way: Way) -> Left | None:
        """What the budgets leave to removals or to additions; None: nothing bounds them."""
        return self.removal if way == "removal" else self.addition


class FleetInputs(Struct, frozen=True, gc=False):
    """What an evaluation of a FleetHPA reads: the parts that its clusters reported, added up, and what it knew of them
    before it. `now_ms`: log time.
    """

    joined: JoinedObservation
    row: FleetRow
    now_ms: int


class EvaluationInputs(Struct, frozen=True, kw_only=True):
    """Everything that one evaluation reads: `decide` and the guards give its decision from nothing else.

    `status`: the stored status before it. `history`: memory before it, already emptied at a restart in the log
    (`restart`: why). `now_ms`: time as of which it decides, up to 2 s ahead of the log (`streams.state.timing.as_of`).
    `native_moves`: (from, to, time ms) of the native controller's writes since the evaluation before.
    `moves`: the last changes of the replicas, up to what this evaluation sees (`streams.state.moves.Move`); no decision
    depends on them.
    """

    decision: str
    hpa: HpaId
    partition: int
    offset: int
    now_ms: int
    mode: Mode
    origin: Origin
    generation: int
    spec: dict[str, Any]
    autoscaler: Autoscaler
    status: dict[str, Any]
    observation: Observation
    history: History
    settings: ControllerSettings
    period_ms: int
    guards: Guards
    restart: str = ""
    fallback: Fallback | None = None
    """Replicas for lost metrics; counts where `failures`, the evaluations in a row that failed, this one as well if it
    does, reach its threshold."""
    failures: int = 0
    override: Override | None = None
    native_moves: tuple[tuple[int, int, int], ...] = ()
    moves: tuple[tuple[int, int, int, str], ...] = ()
    follows_native: bool = False
    """In shadow beside a native controller, whose writes take the place of outcomes: its scale events are the HPA's."""
    fleet: FleetInputs | None = None
    """Of a FleetHPA, whose `observation` has the scale alone."""


class WriteEnded(Struct, frozen=True, kw_only=True):
    """A wanted write came to its end. `evaluated_ms`: the time of its scale event, as of which it was wanted.

    `restart`: a restart in the log since; the memory was emptied.
    """

    hpa: HpaId
    decision: str
    current_replicas: int
    desired_replicas: int
    now_ms: int
    wanted_ms: int
    evaluated_ms: int
    applied: bool
    restart: bool


Probe = Callable[[EvaluationInputs | WriteEnded], None]
"""What is called with the inputs of each evaluation and the end of each write."""
