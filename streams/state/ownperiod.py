"""The sync period that an HPA states for itself: the annotation `fleethpa.io/sync-period`.

A longer one than its cluster's, or, down to the cluster's setting `min-sync-period`, a shorter one, in which observers
then ask for the metrics of its namespace.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from schemas.keys import HpaId
from schemas.syncperiods import PERIOD_ANNOTATION, least_own_period_ms, own_period_ms
from streams.state.clustersettings import Effective
from streams.state.guards import asked_mode
from streams.state.hpastate import Hpa
from streams.state.partitionstate import State
from streams.state.turns import is_waited_for


class OwnPeriod(NamedTuple):
    """The effect of the sync period that an HPA states.

    `period_ms`: the one that it has; None: its cluster's. `notice`: why that is not the stated one, as a predicate of
    the annotation; empty: it is.
    """

    period_ms: int | None
    notice: str = ""


NOTHING_STATED = OwnPeriod(None)


def settings_for(state: State, hpa: Hpa) -> Effective:
    """Return the settings by which an HPA is decided as of this record, with its own sync period where that counts, and
    with the period in which metrics are asked for in its namespace.
    """
    settings, asked_ms = state.settings_of(hpa), state.namespace_of(hpa).shortest_ms
    own_ms = own_period(state, hpa).period_ms
    if own_ms is None and asked_ms is None:
        return settings
    return structs.replace(
        settings, sync_period_ms=own_ms or settings.sync_period_ms, asked_every_ms=asked_ms or settings.asked_every_ms
    )


def own_period(state: State, hpa: Hpa) -> OwnPeriod:
    """Return the sync period of an HPA that states one, as it counts now."""
    stated_ms = own_period_ms(hpa.annotation(PERIOD_ANNOTATION)) if hpa.row.annotations else None
    return NOTHING_STATED if stated_ms is None else _counting(state, hpa, stated_ms, state.settings_of(hpa))


def due_soon(state: State, hpa: Hpa) -> None:
    """Evaluate an HPA by the period that it has from now on, at once; one that is shorter than its cluster's begins
    with the next answer, within that period, since the newest answer may be older than it holds by that.
    """
    period_ms, now_ms = settings_for(state, hpa).sync_period_ms, state.now_ms
    is_shorter = period_ms < state.settings_of(hpa).sync_period_ms
    hpa.row.next_due_ms = now_ms + period_ms if is_shorter else min(hpa.row.next_due_ms, now_ms)
    hpa.dirty = True
    state.schedule.plan(hpa)


def stated_periods(state: State) -> dict[HpaId, int]:
    """Return the sync periods that the HPAs which state one have now."""
    stating = [hpa for hpa in state.hpas.values() if hpa.row.is_live and hpa.annotation(PERIOD_ANNOTATION)]
    return {hpa.id: settings_for(state, hpa).sync_period_ms for hpa in stating}


def begin_shorter(state: State, before: Mapping[HpaId, int]) -> None:
    """Begin with the periods that settings have made shorter than they were, and than that of the cluster."""
    for name, period_ms in stated_periods(state).items():
        if period_ms < min(before[name], state.settings_of(state.hpas[name]).sync_period_ms):
            due_soon(state, state.hpas[name])


def _counting(state: State, hpa: Hpa, stated_ms: int, settings: Effective) -> OwnPeriod:
    row, cluster_ms = hpa.row, settings.sync_period_ms
    least_ms = least_own_period_ms(settings.stated, cluster_ms)
    if row.revision:
        return _without_effect("one total over several clusters is decided in their sync period")
    if row.origin == "cluster" and not _is_enforced(state, hpa, settings):
        return _without_effect(
            "its native controller evaluates it in the sync period of the cluster, and both are compared"
        )
    if stated_ms < least_ms == cluster_ms:
        return _without_effect(f"its cluster allows none below {least_ms / 1000:g}s (min-sync-period)")
    if stated_ms < least_ms:
        return OwnPeriod(least_ms, f"counts as {least_ms / 1000:g}s: its cluster allows none below (min-sync-period)")
    if stated_ms > cluster_ms and is_waited_for(state, hpa):
        return _without_effect(
            "others that share replicas with it, or its cluster's agent, wait for a decision in every sync period"
        )
    return OwnPeriod(stated_ms)


def _is_enforced(state: State, hpa: Hpa, settings: Effective) -> bool:
    """Return whether no native controller evaluates an object of the cluster, and fleethpa is to write for it."""
    return settings.native_absent and asked_mode(state.namespace_of(hpa), hpa.id.name, settings) == "enforce"


def _without_effect(why: str) -> OwnPeriod:
    return OwnPeriod(None, f"has no effect: {why}")
