"""Scale events: the memory that policies count. Source: upstream `storeScaleEvent`, v1.37.1."""

from streams.hpa.evaluation import History
from streams.hpa.gofloat import wrap32

ScaleEvents = tuple[tuple[int, int, bool], ...]


def store_scale_event(history: History, change: int, longest_ms: int, now_ms: int) -> History:
    """Remember a rescale by `change` replicas (positive: up; not wrapped: the direction is that of the two counts).

    What is stored is an int32, so a change of more than 2^31 replicas wraps. Events older than the direction's longest
    policy period are marked outdated for good; the last outdated slot is reused.
    """
    recommendations, ups, downs = history.recommendations, history.scale_up_events, history.scale_down_events
    if change > 0:
        return History(recommendations, _stored(ups, wrap32(change), longest_ms, now_ms), downs)
    return History(recommendations, ups, _stored(downs, wrap32(-change), longest_ms, now_ms))


def _stored(events: ScaleEvents, change: int, longest_ms: int, now_ms: int) -> ScaleEvents:
    cutoff_ms = now_ms - longest_ms
    marked = [(size, time_ms, outdated or time_ms < cutoff_ms) for size, time_ms, outdated in events]
    slot = max((index for index, event in enumerate(marked) if event[2]), default=None)
    if slot is None:
        return (*marked, (change, now_ms, False))
    marked[slot] = (change, now_ms, False)
    return tuple(marked)
