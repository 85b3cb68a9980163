"""Look at one HPA at one record: end its pending write, evaluate it, or forget it."""

from streams.state.endwrite import end_write
from streams.state.evaluator import Evaluator
from streams.state.guards import asked_mode
from streams.state.hpastate import Hpa
from streams.state.ledger import Draft
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.schedule import ANSWER_WAIT_MS, EARLY_ANSWER_MS


def look_at(state: State, hpa: Hpa) -> list[Draft]:
    """Do what is due for an HPA now and plan when to look at it again."""
    namespace = state.namespace(hpa.id.cluster, hpa.id.namespace)
    if hpa.row.gone or state.holds(hpa, namespace):
        hpa.outcome = None
        state.schedule.plan(hpa)
        return []
    drafts = []
    if hpa.row.pending is not None:
        drafts.extend(end_write(state, hpa, hpa.row.pending))
    if hpa.row.pending is None and state.now_ms >= hpa.row.next_due_ms:
        drafts.extend(_when_due(state, namespace, hpa))
    elif hpa.deadline < 0:
        state.schedule.plan(hpa)
    return drafts


def _when_due(state: State, namespace: Namespace, hpa: Hpa) -> list[Draft]:
    if hpa.row.deleted:
        hpa.forget()
        hpa.dirty = True
        state.refresh(hpa)
        return []
    settings = state.settings(hpa.id.cluster)
    if asked_mode(namespace, hpa.id.name, settings) == "off":
        hpa.parked = True
        return []
    if not _has_reason(state, namespace, hpa):
        state.schedule.at(hpa, hpa.row.next_due_ms + ANSWER_WAIT_MS)
        return []
    draft = Evaluator(state, namespace, hpa, settings).run()
    hpa.dirty = True
    state.schedule.plan(hpa)
    return [draft]


def _has_reason(state: State, namespace: Namespace, hpa: Hpa) -> bool:
    """An answer came with this record or just before the HPA was due, or it has waited long enough."""
    due_ms = hpa.row.next_due_ms
    if hpa.id in state.ready or state.now_ms >= due_ms + ANSWER_WAIT_MS:
        return True
    known = [namespace.answers.get(query.query) for query in hpa.queries if query.query is not None]
    return any(answer is not None and answer.row.time_ms >= due_ms - EARLY_ANSWER_MS for answer in known)
