"""When an HPA of a cluster is evaluated: at its own time, or early."""

from msgspec import structs

from streams.state.clustersettings import Effective
from streams.state.hpastate import Hpa
from streams.state.limits import capacity
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.timing import ANSWER_WAIT_MS, Turn, due_after_early, held_ms, is_in_time, recent, turn


def next_turn(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
    """Say whether the HPA is evaluated with this record."""
    row, now_ms, period_ms = hpa.row, state.now_ms, settings.sync_period_ms
    came = namespace.arrivals.get(hpa.awaits[0]) if len(hpa.awaits) == 1 else None
    if came is not None and is_in_time(came, now_ms, row.next_due_ms, row.evaluated_ms, period_ms):
        return Turn(True, now_ms + period_ms, now_ms)
    arrivals = [recent(namespace.arrivals.get(key), now_ms) for key in hpa.awaits]
    polled, first_wait_ms = hpa.polled, ANSWER_WAIT_MS
    # An observer asks a new question within a period, once the scale has named the pods.
    if not row.evaluated_ms and polled and hpa.target in namespace.scales:
        first_wait_ms = max(ANSWER_WAIT_MS, held_ms(period_ms))
    return turn(now_ms, row.next_due_ms, row.evaluated_ms, period_ms, arrivals, polled, first_wait_ms)


def or_early(its: Turn, hpa: Hpa, now_ms: int, settings: Effective) -> Turn:
    """Evaluate now, too, if a sample has moved a metric or a share has come; an evaluation at its own time takes the
    place of that one.
    """
    row = hpa.row
    if its.evaluate and not row.early_ms and row.share is None:
        return its
    if row.early_ms and settings.sample_floor_ms is None:
        row.early_ms, hpa.dirty = 0, True
    has_share = (row.share is not None and row.share.is_new) or capacity.is_awaited(hpa)
    if its.evaluate or not (has_share or 0 < row.early_ms <= now_ms):
        if row.share is not None and row.share.is_new and its.evaluate:
            row.share = structs.replace(row.share, is_new=False)
        return its
    return Turn(True, due_after_early(its.due_ms, now_ms, settings.sync_period_ms), now_ms)


def is_waited_for(state: State, hpa: Hpa) -> bool:
    """Say whether somebody needs a decision of this HPA in every sync period, also from a decider that is behind: a
    FleetHPA or CapacityGroup, whose members report with each, and an agent, whose stand-in takes over without any.
    """
    agent = state.row.agents.get(hpa.id.cluster)
    return hpa.row.share is not None or bool(hpa.row.claims) or (agent is not None and not agent.left)
