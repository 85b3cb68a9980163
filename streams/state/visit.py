"""Visit one HPA at one log record: end its pending write, evaluate it, or remove it."""

from streams.state.brakes import leave_budget
from streams.state.clustersettings import Effective
from streams.state.endwrite import end_write
from streams.state.evaluator import Evaluator
from streams.state.guards import asked_mode
from streams.state.hpastate import Hpa
from streams.state.ledger import Draft
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.timing import ANSWER_WAIT_MS, Turn, due_after_early, held_ms, recent, turn


def look_at(state: State, hpa: Hpa) -> list[Draft]:
    """Do what is due for an HPA now and plan its next visit."""
    namespace = state.namespace(hpa.id.cluster, hpa.id.namespace)
    if hpa.row.gone or state.holds(hpa, namespace):
        hpa.outcome = None
        state.schedule.plan(hpa)
        return []
    pending = hpa.row.pending
    drafts = [] if pending is None else end_write(state, hpa, pending)
    if hpa.row.pending is None:
        return drafts + _take_turn(state, namespace, hpa)
    if hpa.deadline < 0:
        state.schedule.plan(hpa)
    return drafts


def _take_turn(state: State, namespace: Namespace, hpa: Hpa) -> list[Draft]:
    settings, row = state.settings(hpa.id.cluster), hpa.row
    is_due = state.now_ms >= row.next_due_ms
    if row.deleted and is_due:
        if row.budget:
            leave_budget(state, hpa)
        hpa.forget(state.now_ms)
        hpa.dirty = True
        state.refresh(hpa)
        return []
    if row.deleted or asked_mode(namespace, hpa.id.name, settings) == "off":
        if not is_due:
            state.unpark(hpa)
            state.schedule.plan(hpa)
            return []
        state.park(hpa)
        if row.budget:
            leave_budget(state, hpa)
        return []
    its = _or_early(next_turn(state, namespace, hpa, settings), hpa, state.now_ms, settings)
    drafts = []
    if its.evaluate:
        drafts.append(Evaluator(state, namespace, hpa, settings).run())
        hpa.dirty = True
    if its.due_ms != row.next_due_ms:
        row.next_due_ms, hpa.dirty = its.due_ms, True
    if its.evaluate:
        state.schedule.plan(hpa)
    else:
        state.schedule.at(hpa, min(its.look_ms, row.early_ms) if row.early_ms else its.look_ms)
    return drafts


def _or_early(its: Turn, hpa: Hpa, now_ms: int, settings: Effective) -> Turn:
    """Evaluate now, too, if a sample has moved a metric; an evaluation at its own time takes the place of that one."""
    row = hpa.row
    if row.early_ms and settings.sample_floor_ms is None:
        row.early_ms, hpa.dirty = 0, True
    if its.evaluate or not 0 < row.early_ms <= now_ms:
        return its
    return Turn(True, due_after_early(its.due_ms, now_ms, settings.sync_period_ms), now_ms)


def next_turn(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
    """Say whether the HPA is evaluated with this record."""
    row = hpa.row
    arrivals = [recent(namespace.arrivals.get(key), state.now_ms) for key in hpa.awaits]
    # An observer asks a new question within a period, once the scale has named the pods.
    is_asked = hpa.polled and hpa.target in namespace.scales
    first_wait_ms = max(ANSWER_WAIT_MS, held_ms(settings.sync_period_ms)) if is_asked else ANSWER_WAIT_MS
    period_ms, polled = settings.sync_period_ms, hpa.polled
    return turn(state.now_ms, row.next_due_ms, row.evaluated_ms, period_ms, arrivals, polled, first_wait_ms)
