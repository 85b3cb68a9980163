"""Which version of Kubernetes a cluster runs, and its feature gates.

The feature gates that change an HPA's decisions are those of kube-controller-manager, which no API shows. Installers
usually set them together with the API server's, which its metrics show; where they differ, settings state them.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from typing import Final

from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient
from schemas.kubernetes.apirules import CURRENT_API, api_rules
from schemas.observed import HPA_GATES

log = logging.getLogger(__name__)

VERSION_EVERY_S: Final = 300.0
"""How often the version of the API server is read again: an upgrade changes what its HPA controller decides."""
GATES_EVERY_S: Final = 3_600.0
"""How often gates of the same version are read again: the metrics of a large API server are megabytes."""
_VERSION_CHARACTERS: Final = 40
_METRICS: Final = "/metrics"
_METRICS_TIMEOUT_S: Final = 30.0
_ENABLED: Final = re.compile(
    rb'^kubernetes_feature_enabled\{[^}\n]*\bname="(\w{1,80})"[^}\n]*\} ([01])\s*$', re.MULTILINE
)


class ClusterVersion:
    """Reads the version and, once that is granted, the gates."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.text = ""
        """The version, and behind it the gates if they were read, as heartbeats state it; empty: not read yet."""
        self.rules = CURRENT_API
        """How an API server of this version answers; as 1.37 does while it is not known."""
        self._version = ""
        self._gates = ""
        self._gates_of, self._gates_at_s = "", 0.0
        """Of which version the gates are, and when they were read (monotonic)."""

    async def follow(self) -> None:
        """Read it, again every few minutes, until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(VERSION_EVERY_S)

    async def read(self) -> None:
        """Read it once; what cannot be read stays as it is."""
        try:
            version = str((await self._client.get("/version")).get("gitVersion", ""))[:_VERSION_CHARACTERS]
            version = version.partition(" ")[0]
            if version != self._version:
                self._version, self._gates = version, ""
                self.rules = api_rules(version)
            self._gates = await self._read_gates()
        except ClusterError as error:
            log.info("the version cannot be read", extra={"cluster": self._client.name, "error": str(error)})
        # Both at once: the log takes another version of a cluster once a minute.
        before, self.text = self.text, f"{self._version} {self._gates}".rstrip()
        if self.text != before:
            log.info("version of Kubernetes", extra={"cluster": self._client.name, "version": self.text})

    async def _read_gates(self) -> str:
        """The gates; empty where they may not be read, which is not worth a line in the log.

        The right is asked for: a request that is refused would be in the API server's audit log again and again.
        """
        if not await self._client.may(nonResourceAttributes={"path": _METRICS, "verb": "get"}):
            return ""
        if self._gates_of == self._version and self._gates and time.monotonic() - self._gates_at_s < GATES_EVERY_S:
            return self._gates
        gates = dict(enabled_gates(await self._client.get_bytes(_METRICS, timeout_s=_METRICS_TIMEOUT_S)))
        self._gates_of, self._gates_at_s = self._version, time.monotonic()
        return ",".join(f"{name}={str(gates[name]).lower()}" for name in HPA_GATES if name in gates)


def enabled_gates(metrics: bytes) -> Iterator[tuple[str, bool]]:
    """Read the feature gates in an API server's metrics.

    Source: k8s.io/component-base/metrics/prometheus/feature `kubernetes_feature_enabled`, 1 for one that is on.
    """
    for match in _ENABLED.finditer(metrics):
        yield match[1].decode(), match[2] == b"1"
