"""The brakes of one evaluation: what the budgets leave to it, and what it reserves of them.

The record of an evaluation, full or short, made of its parts.
"""

from typing import Any

from msgspec import structs

from schemas.decisions import Decision, InputPosition, ShortDecision, Step
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, Pending
from streams.state.budget import CONSTRAINT, Left, Way, changed_entry, given_back
from streams.state.clustersettings import Effective
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.records import Facts, metric_decision, print_time, target_of, values_of
from streams.state.rows import BudgetEntry, PendingWrite
from streams.state.samples import State


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


EXEMPT_ANNOTATION = "fleethpa.io/budget"
EXEMPT = "exempt"


class Brakes:
    """The budgets of one HPA at one record. Made only where a budget is set."""

    __slots__ = ("_claim", "_hpa", "_limited", "_settings", "_state", "step", "text")

    def __init__(self, state: State, hpa: Hpa, settings: Effective) -> None:
        self._state, self._hpa, self._settings = state, hpa, settings
        self._limited = hpa.annotation(EXEMPT_ANNOTATION) != EXEMPT
        self._claim: Way | None = None
        self.step: Step | None = None
        """The step of the decision, where a budget cut it."""
        self.text = ""
        """Why nothing is written, where it cut all of it."""

    def begin(self, replicas: int | None, before: int | None, *, ready: int, enforced: bool) -> None:
        """Count the HPA's size, and what other writers changed since the previous evaluation.

        In its cluster it counts for the replicas that have been ready: anybody may write a large number into a scale,
        but only pods that run can be lost. Their number falls with the scale only: pods that are not seen for a while
        must not make room for removals.

        Args:
            replicas: what the scale shows; None: it could not be read.
            before: what it showed then, or what was written since; None: not known.
            ready: pods of its target that run and are ready.
            enforced: fleethpa writes this HPA. Another one is not part of the budgets.
        """
        if replicas is None:
            return
        counts = enforced and self._limited
        moved = replicas - before if counts and before is not None else 0
        last = self._last()
        most = max(ready, 0 if last is None else last.ready)
        entry = changed_entry(
            None if last is None else structs.replace(last, claims_removal=False, claims_addition=False),
            offset=self._state.offset,
            now_ms=self._state.now_ms,
            replicas=replicas if counts else 0,
            ready=min(replicas, most) if counts else 0,
            removed=max(0, -moved),
            added=max(0, moved),
            claim=None,
        )
        if entry is not None and last is not None:
            claims = {"claims_removal": last.claims_removal, "claims_addition": last.claims_addition}
            entry = structs.replace(entry, **claims)
        self._add(entry)

    def left(self, way: Way) -> Left | None:
        """Say what the HPA may still remove or add; None: nothing bounds it."""
        if not self._limited:
            return None
        state, hpa = self._state, self._hpa
        return state.budget.left(
            way,
            hpa.id,
            self._hpa.row.budget,
            budgets=self._settings.budgets,
            now_ms=state.now_ms,
            offset=state.offset,
            period_ms=self._settings.sync_period_ms,
        )

    def within(self, pending: Pending) -> tuple[Pending, str]:
        """Cut a wanted write to what is left, and name the constraint that cut it; empty: none did."""
        current, desired = pending.current_replicas, pending.desired_replicas
        way: Way = "removal" if desired < current else "addition"
        left = self.left(way)
        if left is None or abs(desired - current) <= left.cap:
            return pending, ""
        cut = current - left.cap if way == "removal" else current + left.cap
        self.step, self._claim = left.step(way, desired, cut), way
        if cut == current:
            self.text = left.text(way)
        return structs.replace(pending, desired_replicas=cut, to_zero=pending.to_zero and cut == 0), CONSTRAINT[way]

    def end(self, wanted: Pending | None) -> None:
        """Reserve what the decision wants, and remember whether it was cut."""
        change = 0 if wanted is None or not self._limited else wanted.desired_replicas - wanted.current_replicas
        last = self._last()
        entry = changed_entry(
            last,
            offset=self._state.offset,
            now_ms=self._state.now_ms,
            replicas=0 if last is None else last.replicas,
            ready=0 if last is None else last.ready,
            removed=max(0, -change),
            added=max(0, change),
            claim=self._claim,
        )
        self._add(entry)

    def _last(self) -> BudgetEntry | None:
        own = self._hpa.row.budget
        return own[-1] if own else None

    def _add(self, entry: BudgetEntry | None) -> None:
        if entry is not None:
            add_entry(self._state, self._hpa, entry)


def add_entry(state: State, hpa: Hpa, entry: BudgetEntry) -> None:
    """Store an entry in the HPA's row and count it."""
    hpa.row.budget = (*hpa.row.budget, entry)
    hpa.dirty = True
    state.budget.add(hpa.id, entry)


def give_back(state: State, hpa: Hpa, write: PendingWrite) -> None:
    """Free what a write that failed had reserved."""
    own = hpa.row.budget
    change = write.pending.desired_replicas - write.pending.current_replicas
    removed, added = max(0, -change), max(0, change)
    if any(
        (each.time_ms, each.at_ms, each.removed, each.added) == (write.wanted_ms, 0, removed, added) for each in own
    ):
        add_entry(
            state,
            hpa,
            given_back(
                own[-1], offset=state.offset, now_ms=state.now_ms, removed=removed, added=added, at_ms=write.wanted_ms
            ),
        )


def leave_budget(state: State, hpa: Hpa) -> None:
    """Count an HPA that fleethpa no longer looks after as 0 replicas."""
    known = hpa.row.budget
    if known and known[-1].replicas:
        add_entry(state, hpa, BudgetEntry(state.offset, state.now_ms, 0, 0))
