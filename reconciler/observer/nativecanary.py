"""Prove that no native HPA controller runs: a canary HPA whose status stays empty.

The canary's target does not exist, so a native controller writes a condition to it within a sync period, and no one can
be scaled by it.
"""

import asyncio
import logging
import time
import uuid
from typing import Literal

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ApiError, ClusterError
from reconciler.core.objectbodies import CANARY_LABEL

log = logging.getLogger(__name__)

Verdict = Literal["absent", "present", "unknown"]

_LOOK_EVERY_S = 1.0


async def prove_native_absent(client: ClusterClient, namespace: str, wait_s: float) -> Verdict:
    """Make the canary, watch its status for `wait_s`, delete it. What cannot be found out is `unknown`.

    `wait_s` must be well above the controller manager's sync period (15 s unless set otherwise) to prove anything.
    """
    name = f"fleethpa-canary-{uuid.uuid4().hex[:8]}"
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    try:
        await client.request("POST", path, body=_canary(name))
    except ClusterError as error:
        log.warning("canary not made", extra={"cluster": client.name, "error": str(error)})
        return "unknown"
    try:
        return await _watch_status(client, f"{path}/{name}", wait_s)
    except ClusterError as error:
        log.warning("canary not read", extra={"cluster": client.name, "error": str(error)})
        return "unknown"
    finally:
        await _delete(client, f"{path}/{name}")


async def _watch_status(client: ClusterClient, path: str, wait_s: float) -> Verdict:
    ends = time.monotonic() + wait_s
    while True:
        status = (await client.get(path)).get("status") or {}
        if status.get("conditions") or status.get("observedGeneration"):
            return "present"
        if time.monotonic() >= ends:
            return "absent"
        await asyncio.sleep(min(_LOOK_EVERY_S, wait_s))


async def _delete(client: ClusterClient, path: str) -> None:
    try:
        await client.request("DELETE", path)
    except ApiError as error:
        if error.status != 404:
            log.error("canary not deleted", extra={"cluster": client.name, "path": path, "error": str(error)})
    except ClusterError as error:
        log.error("canary not deleted", extra={"cluster": client.name, "path": path, "error": str(error)})


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
