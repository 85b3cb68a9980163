"""fleethpa's own limits of a write that an evaluation wants, in the order in which they are asked, and its budgets."""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import structs

from schemas.decisions import AppliedLimit, Step
from streams.hpa.evaluation import Evaluation, Pending
from streams.state.budget import CONSTRAINT, Left, Way, changed_entry, given_back
from streams.state.clustersettings import Effective
from streams.state.guards import overflow, pause_in_force
from streams.state.hpastate import Hpa
from streams.state.lostmetrics import LONGEST_HOLD_MS, partial_view, view_step
from streams.state.namespace import Namespace
from streams.state.rows import BudgetEntry, PendingWrite
from streams.state.samples import State

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


class AskedWrite(NamedTuple):
    """A write that an evaluation wants, and what fleethpa's own limits look at."""

    state: State
    namespace: Namespace
    hpa: Hpa
    settings: Effective
    evaluation: Evaluation
    pending: Pending
    brakes: Brakes | None


class LimitedWrite(NamedTuple):
    """What the limits leave of a wanted write.

    `constraints`: the limits that held or cut it. `held`: why nothing is written; empty: something is. `step`: the step
    of the decision that explains a brake.
    """

    pending: Pending
    constraints: tuple[str, ...] = ()
    held: str = ""
    step: Step | None = None


def limited(asked: AskedWrite) -> LimitedWrite:
    """Ask fleethpa's own limits. Every one that holds the write is named, and the first is the reason. A write that
    none holds is cut to what `maxStep` and then the budgets allow.
    """
    pending = asked.pending
    holding = {name: text for name, hold in HOLDS if (text := hold(asked))}
    if holding:
        partial = holding.get("PartialView")
        until_ms = asked.namespace.view.since_ms + LONGEST_HOLD_MS
        step = None if partial is None else view_step(pending, partial, until_ms)
        return LimitedWrite(pending, tuple(holding), next(iter(holding.values())), step)
    found = _within_step(pending, asked.settings.max_step)
    if asked.brakes is None:
        return found
    pending, constraint = asked.brakes.within(found.pending)
    if not constraint:
        return found
    return LimitedWrite(pending, (*found.constraints, constraint), asked.brakes.text, asked.brakes.step)


def _is_up(pending: Pending) -> bool:
    return pending.desired_replicas > pending.current_replicas


def _frozen(asked: AskedWrite) -> str:
    return f"cluster {asked.hpa.id.cluster} is frozen" if asked.settings.frozen else ""


def _paused(asked: AskedWrite) -> str:
    state = asked.state
    return pause_in_force(asked.namespace, asked.hpa.id.name, state.row, _is_up(asked.pending), state.now_ms)


def _partial(asked: AskedWrite) -> str:
    holds = asked.settings.partial_view and not _is_up(asked.pending)
    return partial_view(asked.namespace, asked.state.now_ms) if holds else ""


def _overflowed(asked: AskedWrite) -> str:
    wrapped = overflow(asked.evaluation) if asked.settings.hold_on_overflow else ""
    return f"held: {wrapped}" if wrapped else ""


HOLDS: Final[tuple[tuple[AppliedLimit, Callable[[AskedWrite], str]], ...]] = (
    ("Frozen", _frozen),
    ("Paused", _paused),
    ("PartialView", _partial),
    ("Overflow", _overflowed),
)
"""What holds a whole write, in the order in which it is asked; each gives its reason, or an empty text."""


def _within_step(pending: Pending, limit: int | None) -> LimitedWrite:
    """Limit the change to the cluster's `maxStep`."""
    current = pending.current_replicas
    if limit is None or abs(pending.desired_replicas - current) <= limit:
        return LimitedWrite(pending)
    desired = current + limit if _is_up(pending) else current - limit
    cut = structs.replace(pending, desired_replicas=desired, to_zero=pending.to_zero and desired == 0)
    return LimitedWrite(cut, ("MaxStep",))


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
