"""When a namespace's metrics are asked for: on its own phase of the sync period, so that a fleet's load spreads."""

from schemas.keys import murmur2


def phase_ms(key: str, period_ms: int) -> int:
    """Offset of a `cluster/namespace` within the period, in [0, period)."""
    return murmur2(key.encode()) % period_ms


def next_poll_ms(key: str, period_ms: int, now_ms: int) -> int:
    """The first moment after `now_ms` that lies on the namespace's phase."""
    phase = phase_ms(key, period_ms)
    return now_ms - (now_ms - phase) % period_ms + period_ms
