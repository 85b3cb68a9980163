"""What hints that a native HPA controller runs although it was proven absent. No I/O.

kube-controller-manager's HPA controller writes an HPA's status under the manager's name. Whoever may update an object
may also store such an entry in its `managedFields`, with any time, or remove one: it is a reason to ask a canary
(`nativecanary.py`), and no proof. Entries of `/scale` bear no time and are not looked at.

Source: pkg/controller/podautoscaler/horizontal.go, `updateStatus`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from reconciler.core.objectbodies import time_ms
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SettingsSet

NATIVE_MANAGER = "kube-controller-manager"
AHEAD_MS: Final = 300_000
"""How far the API server's clock may be ahead of the observer's; entries of later times are forged."""


class Evidence(NamedTuple):
    """A write of the native controller: when (ms, cut to the second by the API server), and a text that names both."""

    time_ms: int
    text: str


def native_status_write(hpa: Mapping[str, Any], now_ms: int) -> Evidence | None:
    """The native controller's newest write of an HPA's status; None: it made none that still shows, or that can be."""
    metadata = hpa["metadata"]
    writes = [
        (when_ms, str(entry["time"]))
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") == NATIVE_MANAGER and entry.get("subresource") == "status"
        if (when_ms := time_ms(entry.get("time"))) is not None and when_ms <= now_ms + AHEAD_MS
    ]
    if not writes:
        return None
    when_ms, when = max(writes)
    return Evidence(when_ms, f"it wrote the status of HPA {metadata['namespace']}/{metadata['name']} at {when}")


class NativeProofs:
    """Since when the native controller counts as absent, per cluster, folded from the settings."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str, int]] = {}
        self._refuted_ms: dict[str, int] = {}

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

    def refute(self, cluster: str, time_ms: int) -> None:
        """A canary made at `time_ms` showed that none runs: what was written until then is of somebody else."""
        self._refuted_ms[cluster] = time_ms

    def contradicts(self, cluster: str, evidence: Evidence | None) -> bool:
        """Whether something was written in the native controller's name after it counted as absent."""
        since_ms = self.absent_since_ms(cluster)
        if evidence is None or since_ms is None:
            return False
        return evidence.time_ms > max(since_ms, self._refuted_ms.get(cluster, 0))
