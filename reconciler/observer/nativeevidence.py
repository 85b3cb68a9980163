"""What shows that a native HPA controller runs although it was proven absent. No I/O.

kube-controller-manager's HPA controller is the only part of it that writes an HPA's status or a `/scale`, and it does
so under the manager's name.

Source: pkg/controller/podautoscaler/horizontal.go, `updateStatus` and `Scales(namespace).Update`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reconciler.core.objectbodies import time_ms
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SettingsSet

NATIVE_MANAGER = "kube-controller-manager"


class Evidence(NamedTuple):
    """A write of the native controller: when (ms, cut to the second by the API server), and a text that names both."""

    time_ms: int
    text: str


def native_status_write(hpa: Mapping[str, Any]) -> Evidence | None:
    """The native controller's newest write of an HPA's status; None: it made none that still shows."""
    return _newest(hpa["metadata"], "status", f"the status of HPA {_name(hpa)}")


def native_scale_write(parent: Mapping[str, Any], kind: str) -> Evidence | None:
    """The native controller's newest write of an object's `/scale`; None: it made none that still shows."""
    return _newest(parent["metadata"], "scale", f"the scale of {kind} {_name(parent)}")


def _name(item: Mapping[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _newest(metadata: Mapping[str, Any], subresource: str, what: str) -> Evidence | None:
    writes = [
        (time_ms(entry.get("time")) or 0, str(entry.get("time")))
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") == NATIVE_MANAGER and entry.get("subresource") == subresource
    ]
    if not writes:
        return None
    when_ms, when = max(writes)
    return Evidence(when_ms, f"it wrote {what} at {when}")


class NativeProofs:
    """Since when the native controller counts as absent, per cluster, folded from the settings."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str, int]] = {}

    def apply(self, entry: SettingsSet, time_ms: int) -> None:
        """Take a change in, made at `time_ms`."""
        if "nativeController" in entry.unset:
            self._newest.pop(entry.cluster, None)
        if entry.settings.native_controller is not None:
            self._newest[entry.cluster] = entry.settings.native_controller, time_ms

    def absent_since_ms(self, cluster: str) -> int | None:
        """When it was proven or set that no native controller runs in the cluster; None: that does not hold."""
        found = self._newest.get(cluster) or self._newest.get(EVERY_CLUSTER)
        return found[1] if found is not None and found[0] == "absent" else None

    def contradicts(self, cluster: str, evidence: Evidence | None) -> bool:
        """Whether the native controller wrote something after it counted as absent."""
        since_ms = self.absent_since_ms(cluster)
        return evidence is not None and since_ms is not None and evidence.time_ms > since_ms
