"""fleethpa's own limits of a write that an evaluation wants, in the order in which they are asked, and its budgets."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from schemas.decisions import AppliedLimit, Step
from streams.across.allotments import CONSTRAINT as CAPACITY_CONSTRAINT
from streams.across.allotments import CapacityLeft
from streams.hpa.evaluation import Evaluation, Pending
from streams.hpa.observation import SeenPods
from streams.state.budget import CONSTRAINT, Left, Way
from streams.state.capacity import capacity_left
from streams.state.guards import overflow, pause_in_force
from streams.state.hpastate import Hpa
from streams.state.inputs import Guards
from streams.state.partialview import LONGEST_HOLD_MS, partial_view, view_step
from streams.state.partitionstate import State
from streams.state.rows import BudgetEntry, PendingWrite
from streams.state.steps import Observed, Subject

EXEMPT_ANNOTATION = "fleethpa.io/budget"
EXEMPT = "exempt"


class LimitedWrite(NamedTuple):
    """What the limits leave of a wanted write.

    `constraints`: the limits that held or cut it. `held`: why nothing is written; empty: something is. `step`: the step
    of the decision that explains a brake. `claim`: the budget that cut it.
    """

    pending: Pending
    constraints: tuple[str, ...] = ()
    held: str = ""
    step: Step | None = None
    claim: Way | None = None


def limited(
    guards: Guards, left: Callable[[Way], Left | None], evaluation: Evaluation, pending: Pending
) -> LimitedWrite:
    """Ask fleethpa's own limits. Every one that holds the write is named, and the first is the reason. A write that
    none holds is cut to what `maxStep`, then the budgets and then its CapacityGroups allow.

    `left`: what the budgets leave to removals or to additions; None: nothing bounds them.
    """
    holding = _holding(guards, evaluation, _is_up(pending))
    if holding:
        partial = holding.get("PartialView")
        step = None if partial is None else view_step(pending, partial, guards.partial_until_ms)
        return LimitedWrite(pending, tuple(holding), next(iter(holding.values())), step)
    return _within_capacity(guards.capacity, _within_budget(left, _within_step(pending, guards.max_step)))


def _holding(guards: Guards, evaluation: Evaluation, is_up: bool) -> dict[AppliedLimit, str]:
    """What holds a whole write, in the order in which it is asked, and why."""
    wrapped = overflow(evaluation) if guards.hold_on_overflow else ""
    asked: dict[AppliedLimit, str] = {
        "Frozen": guards.frozen,
        "Paused": guards.paused_up if is_up else guards.paused_down,
        "PartialView": "" if is_up else guards.partial_view,
        "Overflow": f"held: {wrapped}" if wrapped else "",
    }
    return {name: why for name, why in asked.items() if why}


def guards_of(subject: Subject, pods: SeenPods) -> Guards:
    """Give what may hold or cut a write of an HPA now, without what the budgets leave."""
    namespace, settings, state = subject.namespace, subject.settings, subject.state
    up, down = (
        pause_in_force(namespace, subject.hpa.id.name, state.row, is_up, state.now_ms) for is_up in (True, False)
    )
    return Guards(
        frozen=f"cluster {namespace.cluster} is frozen" if settings.frozen else "",
        paused_up=up,
        paused_down=down,
        hold_on_overflow=settings.hold_on_overflow,
        max_step=settings.max_step,
        partial_view=partial_view(namespace, state.now_ms) if settings.partial_view else "",
        partial_until_ms=namespace.view.since_ms + LONGEST_HOLD_MS,
        capacity=capacity_left(state, subject.hpa, settings, pods),
    )


def _is_up(pending: Pending) -> bool:
    return pending.desired_replicas > pending.current_replicas


def _cut(pending: Pending, most: int) -> Pending:
    """Give a write that changes no more than so many replicas."""
    current = pending.current_replicas
    desired = current + most if _is_up(pending) else current - most
    return structs.replace(pending, desired_replicas=desired, to_zero=pending.to_zero and desired == 0)


def _change(pending: Pending) -> int:
    return pending.desired_replicas - pending.current_replicas


def _within_step(pending: Pending, limit: int | None) -> LimitedWrite:
    """Limit the change to the cluster's `maxStep`."""
    if limit is None or abs(_change(pending)) <= limit:
        return LimitedWrite(pending)
    return LimitedWrite(_cut(pending, limit), ("MaxStep",))


def _within_capacity(left: CapacityLeft | None, found: LimitedWrite) -> LimitedWrite:
    """Cut a wanted write that adds replicas to what the HPA's CapacityGroups leave."""
    pending = found.pending
    if left is None or found.held or not _is_up(pending) or pending.desired_replicas <= left.most:
        return found
    room = max(0, left.most - pending.current_replicas)
    cut = _cut(pending, room)
    step = left.step(pending.desired_replicas, cut.desired_replicas)
    held = "" if room else left.text
    return LimitedWrite(cut, (*found.constraints, CAPACITY_CONSTRAINT), held, step, found.claim)


# --- budgets ----------------------------------------------------------------------------------------------------------


def _within_budget(asked: Callable[[Way], Left | None], found: LimitedWrite) -> LimitedWrite:
    """Cut a wanted write to what the budgets leave."""
    pending = found.pending
    way: Way = "addition" if _is_up(pending) else "removal"
    left = asked(way)
    if left is None or abs(_change(pending)) <= left.cap:
        return found
    cut = _cut(pending, left.cap)
    step = left.step(way, pending.desired_replicas, cut.desired_replicas)
    held = "" if left.cap else left.text(way)
    return LimitedWrite(cut, (*found.constraints, CONSTRAINT[way]), held, step, way)


def _is_bounded(subject: Subject) -> bool:
    """Whether budgets bound what fleethpa writes for an HPA."""
    return subject.settings.budgets.is_set and subject.hpa.annotation(EXEMPT_ANNOTATION) != EXEMPT


def budget_left(subject: Subject, way: Way) -> Left | None:
    """Say what the HPA may still remove or add; None: nothing bounds it."""
    if not _is_bounded(subject):
        return None
    state, settings = subject.state, subject.settings
    return state.budget.left(
        way,
        subject.hpa.id,
        subject.hpa.row.budget,
        budgets=settings.budgets,
        now_ms=state.now_ms,
        period_ms=settings.sync_period_ms,
    )


def count_size(subject: Subject, observed: Observed) -> None:
    """Count the HPA's size in the budgets, and what other writers changed since the previous evaluation.

    In its cluster it counts for the replicas that have been ready: anybody may write a large number into a scale, but
    only pods that run can be lost. Their number falls with the scale only: pods that are not seen for a while must not
    make room for removals. An HPA that fleethpa does not write is not part of the budgets.
    """
    row, replicas = subject.hpa.row, observed.replicas
    if replicas is None or not subject.settings.budgets.is_set:
        return
    last = _last(subject.hpa)
    counts = subject.standing.mode == "enforce" and _is_bounded(subject)
    before = row.written[0] if row.written is not None else row.seen_replicas
    moved = replicas - before if counts and before is not None else 0
    ready = min(replicas, max(observed.ready, last.ready))
    entry = structs.replace(last, replicas=replicas if counts else 0, ready=ready if counts else 0)
    if moved or entry != last:
        _enter(subject.state, subject.hpa, entry, _counts(moved))


def reserve(subject: Subject, wanted: Pending | None, claim: Way | None) -> None:
    """Reserve in the budgets what a decision wants, and remember whether it was cut."""
    if not subject.settings.budgets.is_set:
        return
    change = _change(wanted) if wanted is not None and _is_bounded(subject) else 0
    last = _last(subject.hpa)
    entry = structs.replace(last, claims_removal=claim == "removal", claims_addition=claim == "addition")
    if change or claim or entry != last:
        _enter(subject.state, subject.hpa, entry, _counts(change))


_NOTHING = BudgetEntry(0, 0, 0, 0)


def _last(hpa: Hpa) -> BudgetEntry:
    return hpa.row.budget[-1] if hpa.row.budget else _NOTHING


def _counts(change: int) -> tuple[int, int]:
    """Give how many replicas a change removes, and how many it adds."""
    return max(0, -change), max(0, change)


def _enter(state: State, hpa: Hpa, entry: BudgetEntry, counts: tuple[int, int] = (0, 0), at_ms: int = 0) -> None:
    """Store an entry in the HPA's row as of now, with the replicas removed and added, and count it."""
    removed, added = counts
    made = structs.replace(entry, offset=state.offset, time_ms=state.now_ms, removed=removed, added=added, at_ms=at_ms)
    hpa.row.budget = (*hpa.row.budget, made)
    hpa.dirty = True
    state.budget.add(hpa.id, made)


def give_back(state: State, hpa: Hpa, write: PendingWrite) -> None:
    """Free what a write that failed had reserved."""
    removed, added = _counts(_change(write.pending))
    reserved = (write.wanted_ms, 0, removed, added)
    if any((each.time_ms, each.at_ms, each.removed, each.added) == reserved for each in hpa.row.budget):
        _enter(state, hpa, _last(hpa), (-removed, -added), write.wanted_ms)


def leave_budget(state: State, hpa: Hpa) -> None:
    """Count an HPA that fleethpa no longer looks after as 0 replicas."""
    if _last(hpa).replicas:
        _enter(state, hpa, _NOTHING)
