"""Prove that no native HPA controller runs: a canary HPA whose status stays empty.

The canary's target does not exist, so a native controller writes a condition to it within a sync period, and no one can
be scaled by it.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Literal

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ApiError, ClusterError
from reconciler.core.objectbodies import CANARY_LABEL
from reconciler.observer.troubles import ReadProblem, problem_of

log = logging.getLogger(__name__)

Verdict = Literal["absent", "present"]

_LOOK_EVERY_S = 1.0
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
RIGHTS = tuple(f"{verb} horizontalpodautoscalers.autoscaling" for verb in ("create", "get", "delete"))


class Canary:
    """The proof for one cluster.

    Args:
        namespace: where the canary lives.
        wait_s: how long its status must stay empty; well above the controller manager's sync period (15 s unless set
            otherwise) to prove anything.
        note: called with the problem that prevents the proof, or with None once there is none.
    """

    def __init__(
        self, client: ClusterClient, namespace: str, wait_s: float, note: Callable[[ReadProblem | None], None]
    ) -> None:
        self._client, self._wait_s, self._note = client, wait_s, note
        self._collection = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        self._left: set[str] = set()

    async def verdict(self) -> Verdict:
        """Find out whether a native controller runs. Failures are retried until there is an answer.

        An interrupted proof starts again: while the API server was away, a native controller could not write.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                found = await self.prove()
            except ClusterError as error:
                log.warning("the canary proved nothing", extra={"cluster": self._client.name, "error": str(error)})
                self._note(problem_of(error, *RIGHTS))
            else:
                self._note(None)
                return found
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def prove(self) -> Verdict:
        """Try once.

        Raises:
            ClusterError: the proof was interrupted, or the cluster refuses it.
        """
        for name in sorted(self._left):
            await self._delete(name)
        name = f"fleethpa-canary-{uuid.uuid4().hex[:8]}"
        self._left.add(name)  # a request without an answer may have made it
        try:
            await self._client.request("POST", self._collection, body=_canary(name))
        except ApiError:
            self._left.discard(name)
            raise
        try:
            return await self._watch_status(name)
        finally:
            await self._delete(name)

    async def _watch_status(self, name: str) -> Verdict:
        ends = time.monotonic() + self._wait_s
        while True:
            status = (await self._client.get(f"{self._collection}/{name}")).get("status") or {}
            if status.get("conditions") or status.get("observedGeneration"):
                return "present"
            if time.monotonic() >= ends:
                return "absent"
            await asyncio.sleep(min(_LOOK_EVERY_S, self._wait_s))

    async def _delete(self, name: str) -> None:
        path = f"{self._collection}/{name}"
        try:
            await self._client.request("DELETE", path)
        except ClusterError as error:
            if not (isinstance(error, ApiError) and error.status == 404):
                log.error("canary not deleted", extra={"cluster": self._client.name, "path": path, "error": str(error)})
                return
        self._left.discard(name)


def _canary(name: str) -> dict[str, object]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "labels": {CANARY_LABEL: "true"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 1,
        },
    }
