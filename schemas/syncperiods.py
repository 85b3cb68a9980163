"""The sync period that an HPA states in place of its cluster's, and what becomes of it.

Observers ask for metrics by it, and the decider expects answers by it.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.shape import JsonView
from schemas.limits import TEXT, shortened
from schemas.observed import Origin
from schemas.settings import ClusterSettings

PERIOD_ANNOTATION: Final = "fleethpa.io/sync-period"
LEAST_PERIOD_MS: Final = 100
"""As of the setting of a cluster (`PeriodMs`)."""
MOST_PERIOD_MS: Final = 3_600_000
"""For so long is remembered what a metric was (`streams.state.answers.REMEMBERED_MS`)."""
SHORTEST_PERIOD_MS: Final = 1_000
"""Metrics APIs are not asked more often, even if settings or HPAs ask for a shorter period."""
_LONGEST_TEXT: Final = 32


def own_period_ms(text: str) -> int | None:
    """Read the annotation, in milliseconds; None: it is empty or cannot be read, and the cluster's setting counts."""
    return _own_period(text) if text and len(text) <= _LONGEST_TEXT else None


@lru_cache(maxsize=256)
def _own_period(text: str) -> int | None:
    try:
        period_ms = parse_duration_ms(text.strip())
    except ValueError:
        return None
    return period_ms if LEAST_PERIOD_MS <= period_ms <= MOST_PERIOD_MS else None


def period_fault(text: str, spec: JsonView) -> str:
    """Return what is wrong with the annotation's text, and what to write; empty: nothing is."""
    return "" if own_period_ms(text) is not None else f"{shortened(text, TEXT)!r} must be from 100ms to 1h, such as 60s"


class StatedPeriod(NamedTuple):
    """The sync period that an HPA states, in milliseconds, and where the HPA lives."""

    period_ms: int
    origin: Origin


def least_own_period_ms(settings: ClusterSettings, sync_period_ms: int) -> int:
    """Return the shortest sync period that an HPA of a cluster may have, which is at most that of the cluster."""
    allowed_ms = settings.min_sync_period_ms
    return sync_period_ms if allowed_ms is None else min(sync_period_ms, max(allowed_ms, SHORTEST_PERIOD_MS))


def asked_sooner_ms(stated: StatedPeriod, settings: ClusterSettings, sync_period_ms: int) -> int | None:
    """Return in which period, shorter than its cluster's, metrics are asked for because of an HPA; None: of no shorter.

    Observers ask by it and the decider expects answers by it, so that it depends on what both know: settings and HPAs.
    An object of the cluster counts where no native controller evaluates it.

    Args:
        settings, sync_period_ms: of its cluster.
    """
    if stated.origin == "cluster" and settings.native_controller != "absent":
        return None
    period_ms = max(stated.period_ms, least_own_period_ms(settings, sync_period_ms))
    return period_ms if period_ms < sync_period_ms else None
