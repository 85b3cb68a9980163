"""When an HPA of a cluster is evaluated: at its own time, or early."""

from streams.state.clustersettings import Effective
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.subject import accounts_of
from streams.state.timing import ANSWER_WAIT_MS, Turn, due_after_early, held_ms, recent, turn


def next_turn(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
    """Return whether the HPA is evaluated with this record."""
    row, now_ms, period_ms, asked_every_ms = hpa.row, state.now_ms, settings.sync_period_ms, settings.asked_every_ms
    arrivals = [recent(namespace.arrivals.get(key), now_ms) for key in hpa.awaits]
    polled, first_wait_ms = hpa.polled, ANSWER_WAIT_MS
    # An observer asks a new question within a period, once the scale has named the pods.
    if not row.evaluated_ms and polled and hpa.target in namespace.scales:
        first_wait_ms = max(ANSWER_WAIT_MS, held_ms(period_ms))
    return turn(now_ms, row.next_due_ms, row.evaluated_ms, period_ms, arrivals, polled, asked_every_ms, first_wait_ms)


def or_early(planned: Turn, state: State, hpa: Hpa, settings: Effective) -> Turn:
    """Evaluate now, too, if a sample has moved a metric or another partition has sent what the HPA waits for; an
    evaluation at its own time takes the place of that one.
    """
    row, now_ms = hpa.row, state.now_ms
    if row.early_ms and settings.sample_floor_ms is None:
        row.early_ms, hpa.dirty = 0, True
    if planned.evaluate:
        for account in accounts_of(state):
            account.in_time(hpa)
        return planned
    if any(account.calls_early(hpa) for account in accounts_of(state)) or 0 < row.early_ms <= now_ms:
        return Turn(True, due_after_early(planned.due_ms, now_ms, settings.sync_period_ms), now_ms)
    return planned


def is_waited_for(state: State, hpa: Hpa) -> bool:
    """Return whether somebody needs a decision of this HPA in every sync period, also from a decider that is behind:
    those to whom it reports with each, and an agent, whose stand-in takes over without any.
    """
    agent = state.row.agents.get(hpa.id.cluster)
    return any(account.reports(hpa) for account in accounts_of(state)) or (agent is not None and not agent.left)
