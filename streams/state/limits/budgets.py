"""Budgets: how many replicas fleethpa may remove or add in a namespace or cluster within a window."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import structs

from schemas.keys import HpaId
from schemas.pauses import is_in_force
from streams.hpa.evaluation import Pending
from streams.state.hpastate import Hpa
from streams.state.limits.budgetbook import CONSTRAINT, ENTRIES_KEPT_MS, BudgetBook, Budgets, Left, Way, trimmed
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.partitionstate import State
from streams.state.rows import BudgetEntry, Pause, PendingWrite
from streams.state.subject import Decided, HpaAccount, Limited, Observed, Subject

EXEMPT_ANNOTATION: Final = "fleethpa.io/budget"
EXEMPT: Final = "exempt"


class BudgetLimit(WriteLimit):
    """The budgets of removals, or those of additions: what the tightest leaves to an HPA."""

    reads_others = True

    def __init__(self, way: Way) -> None:
        self.way: Way = way
        self.name = CONSTRAINT[way]  # type: ignore[misc]  # one class for two limits
        self.settings = (f"{way}_budget", f"{way}_budgets")  # type: ignore[misc]

    def inputs(self, subject: Subject, observed: Observed) -> Left | None:
        return _left(subject, self.way)

    def apply(self, inputs: Left, write: LimitedWrite) -> LimitedWrite:
        if write.is_up != (self.way == "addition") or abs(write.change) <= inputs.cap:
            return write
        after = write.cut_to(inputs.cap).desired_replicas
        step = inputs.step(self.way, write.pending.desired_replicas, after)
        return write.cut(self.name, inputs.cap, inputs.text(self.way), step)


HOLDER: Final = "fleethpa"
"""The author of a pause that a budget with `then=hold` makes."""


def _hold_if_used_up(subject: Subject) -> None:
    """Pause the removals of a namespace or cluster whose budget is used up, has cut a removal, and says `then=hold`.

    It is a pause as any other: lists show it, it stops each further removal but those of HPAs that are exempt from
    budgets, and a `resume` ends it. Of a cluster whose
    namespaces are in several partitions of the log, each partition holds those of its own.
    """
    left = _left(subject, "removal")
    if left is None or not left.budget.holds or not left.is_used_up:
        return
    state, namespace = subject.state, subject.namespace
    why = f"the removal budget {left.budget.text} of {left.scope} is used up"
    pause = Pause(0, HOLDER, why, state.now_ms, by_budget=True)
    if left.scope == f"cluster {namespace.cluster}":
        known = state.row.pauses.get(namespace.cluster, {})
        if not _is_paused(known, state.now_ms):
            state.put_pauses(namespace.cluster, {**known, "scaleDown": pause})
        return
    mode, known = namespace.commands.get("", (None, {}))
    if not _is_paused(known, state.now_ms):
        namespace.put_command("", (mode, {**known, "scaleDown": pause}))


def _is_paused(known: Mapping[str, Pause], now_ms: int) -> bool:
    """Return whether removals of a scope are paused already."""
    pause = known.get("scaleDown")
    return pause is not None and is_in_force(pause.until_ms, now_ms)


_NOTHING: Final = BudgetEntry(0, 0, 0, 0)


def _left(subject: Subject, way: Way) -> Left | None:
    """Return what an HPA may still remove or add; None: nothing bounds it."""
    if not _is_bounded(subject):
        return None
    state = subject.state
    return BudgetBook.of(state).left(
        way,
        subject.hpa.id,
        subject.hpa.row.budget,
        budgets=_budgets(subject),
        now_ms=state.now_ms,
        period_ms=subject.settings.sync_period_ms,
    )


def _budgets(subject: Subject) -> Budgets:
    """Return the budgets by which an HPA is decided."""
    return BudgetBook.of(subject.state).budgets(subject.hpa.id.cluster, subject.settings.stated)


def _is_bounded(subject: Subject) -> bool:
    """Return whether budgets bound what fleethpa writes for an HPA."""
    return _budgets(subject).is_set and not is_exempt(subject.hpa)


def is_exempt(hpa: Hpa) -> bool:
    """Return whether an HPA is exempt from budgets, by its annotation."""
    return hpa.annotation(EXEMPT_ANNOTATION) == EXEMPT


class BudgetAccount(HpaAccount):
    """What each HPA has, removed, added and asked for, as its row keeps it for both budgets."""

    def before(self, subject: Subject, observed: Observed) -> None:
        """Count the HPA's size in the budgets, and what other writers changed since the previous evaluation.

        In its cluster it counts for the replicas that have been ready: anybody may write a large number into a scale,
        but only pods that run can be lost. Their number falls with the scale only: pods that are not seen for a while
        must not make room for removals. An HPA that fleethpa does not write is not part of the budgets.
        """
        row, replicas = subject.hpa.row, observed.replicas
        if replicas is None or not _budgets(subject).is_set:
            return
        last = _last(subject.hpa)
        counts = subject.effective_mode.mode == "enforce" and _is_bounded(subject)
        before = row.written[0] if row.written is not None else row.seen_replicas
        moved = replicas - before if counts and before is not None else 0
        ready = min(replicas, max(observed.ready, last.ready))
        entry = structs.replace(last, replicas=replicas if counts else 0, ready=ready if counts else 0)
        if moved or entry != last:
            _enter(subject.state, subject.hpa, entry, _counts(moved))

    def after(self, subject: Subject, observed: Observed, decided: Decided, limited: Limited) -> None:
        """Reserve in the budgets what a decision wants, and remember whether one of them cut it."""
        if not _budgets(subject).is_set:
            return
        wanted, last = limited.wanted, _last(subject.hpa)
        change = _change(wanted) if wanted is not None and _is_bounded(subject) else 0
        removal, addition = (CONSTRAINT[way] in limited.constraints for way in ("removal", "addition"))
        entry = structs.replace(last, claims_removal=removal, claims_addition=addition)
        if change or removal or addition or entry != last:
            _enter(subject.state, subject.hpa, entry, _counts(change))
        if removal:
            _hold_if_used_up(subject)

    def failed(self, state: State, hpa: Hpa, write: PendingWrite) -> None:
        removed, added = _counts(_change(write.pending))
        reserved = (write.wanted_ms, 0, removed, added)
        if any((each.time_ms, each.at_ms, each.removed, each.added) == reserved for each in hpa.row.budget):
            _enter(state, hpa, _last(hpa), (-removed, -added), write.wanted_ms)

    def shown(self, subject: Subject, observed: Observed) -> dict[str, Any]:
        """Return the ready pods where they are fewer than half of the replicas."""
        if subject.effective_mode.mode != "enforce" or not _budgets(subject).is_set or observed.replicas is None:
            return {}
        return {"readyPods": observed.ready} if 2 * observed.ready < observed.replicas else {}

    def left(self, state: State, hpa: Hpa) -> None:
        """Count the HPA as 0 replicas."""
        if hpa.row.budget and _last(hpa).replicas:
            _enter(state, hpa, _NOTHING)

    def tombstone_kept_ms(self, hpa: Hpa) -> int:
        return ENTRIES_KEPT_MS if hpa.row.budget else 0

    def forgotten(self, state: State, name: HpaId) -> None:
        BudgetBook.of(state).drop(name)

    def trim(self, hpa: Hpa, before_ms: int) -> None:
        if hpa.row.budget:
            hpa.row.budget = trimmed(hpa.row.budget, before_ms)


def _last(hpa: Hpa) -> BudgetEntry:
    return hpa.row.budget[-1] if hpa.row.budget else _NOTHING


def _counts(change: int) -> tuple[int, int]:
    """Return how many replicas a change removes, and how many it adds."""
    return max(0, -change), max(0, change)


def _enter(state: State, hpa: Hpa, entry: BudgetEntry, counts: tuple[int, int] = (0, 0), at_ms: int = 0) -> None:
    """Store an entry in the HPA's row as of now, with the replicas removed and added, and count it."""
    removed, added = counts
    after = structs.replace(entry, offset=state.offset, time_ms=state.now_ms, removed=removed, added=added, at_ms=at_ms)
    book = BudgetBook.of(state)
    hpa.row.budget = (*hpa.row.budget, after)
    hpa.dirty = True
    book.add(hpa.id, after)


def _change(pending: Pending) -> int:
    return pending.desired_replicas - pending.current_replicas
