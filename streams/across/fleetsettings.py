"""The settings by which a FleetHPA decides, whose clusters each have some of their own."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, structs

from schemas.keys import FLEET
from schemas.settings import ClusterSettings
from streams.state.clustersettings import Effective, effective

_OF_CONTROLLER: Final = {
    "tolerance": "tolerance",
    "downscale-stabilization": "downscale_stabilization_ms",
    "cpu-initialization-period": "cpu_initialization_period_ms",
    "initial-readiness-delay": "initial_readiness_delay_ms",
}
"""Settings of a controller that decide a total as they decide a count, and their fields."""


class FleetSettings(Struct, frozen=True):
    """The settings by which a FleetHPA decides. `differing`: those of which a cluster has another value: the setting,
    its value in each cluster (ms, or the tolerance), and the one that is used.
    """

    effective: Effective
    differing: tuple[tuple[str, tuple[tuple[str, float], ...], float], ...] = ()


def fleet_settings(known: dict[str, ClusterSettings], clusters: Sequence[str]) -> FleetSettings:
    """Return the settings of a FleetHPA: its own (those of cluster `@fleet`), else those of its clusters, as their own
    controllers would decide. Where these differ, the largest value is used: it waits the longest and moves the least.
    """
    own, base = known.get(FLEET, ClusterSettings()), effective(known, FLEET)
    of_clusters = {name: effective(known, name) for name in clusters}
    if not of_clusters:
        return FleetSettings(base)
    differing = []
    used_values: dict[str, Any] = {}
    for name, field in {"sync-period": "sync_period_ms", **_OF_CONTROLLER}.items():
        holders = {cluster: each if name == "sync-period" else each.controller for cluster, each in of_clusters.items()}
        values = {cluster: getattr(holder, field) for cluster, holder in holders.items()}
        is_own = getattr(own, field) is not None
        used = getattr(base if name == "sync-period" else base.controller, field) if is_own else max(values.values())
        used_values[field] = used
        if any(each != used for each in values.values()):
            differing.append((name, tuple(values.items()), used))
    period_ms = used_values.pop("sync_period_ms", base.sync_period_ms)
    shared = structs.replace(
        base,
        sync_period_ms=period_ms,
        asked_every_ms=period_ms,
        controller=structs.replace(base.controller, **used_values),
    )
    return FleetSettings(shared, tuple(differing))
