"""The sync period that an HPA states for itself: the annotation `fleethpa.io/sync-period`."""

from msgspec import structs

from streams.state.clustersettings import PERIOD_ANNOTATION, Effective, own_period_ms
from streams.state.hpastate import Hpa
from streams.state.partitionstate import State
from streams.state.turns import is_waited_for


def settings_for(state: State, hpa: Hpa) -> Effective:
    """Return the settings by which an HPA is decided as of this record, with its own sync period where that counts."""
    settings = state.settings_of(hpa)
    stated_ms = _stated_ms(hpa)
    if stated_ms is None or _without_effect(state, hpa, stated_ms, settings):
        return settings
    return structs.replace(settings, sync_period_ms=stated_ms)


def period_without_effect(state: State, hpa: Hpa) -> str:
    """Return why the period that an HPA states does not count now; empty: it does, or none is stated."""
    stated_ms = _stated_ms(hpa)
    return "" if stated_ms is None else _without_effect(state, hpa, stated_ms, state.settings_of(hpa))


def due_now(state: State, hpa: Hpa) -> None:
    """Evaluate an HPA soon: the period that counted when it was last evaluated counts no longer."""
    hpa.row.next_due_ms = min(hpa.row.next_due_ms, state.now_ms)
    hpa.dirty = True
    state.schedule.plan(hpa)


def _stated_ms(hpa: Hpa) -> int | None:
    return own_period_ms(hpa.annotation(PERIOD_ANNOTATION)) if hpa.row.annotations else None


def _without_effect(state: State, hpa: Hpa, stated_ms: int, settings: Effective) -> str:
    if hpa.row.fleet is not None:
        return "one total over several clusters is decided in their sync period"
    if stated_ms < settings.asked_every_ms:
        return f"metrics of its cluster are asked for every {settings.asked_every_ms / 1000:g}s (sync-period)"
    if hpa.row.origin == "cluster" and hpa.row.mode != "enforce":
        return "its native controller evaluates it in the sync period of the cluster, and both are compared"
    if is_waited_for(state, hpa):
        return "others that share replicas with it, or its cluster's agent, wait for a decision in every sync period"
    return ""
