"""A stand-in for scheduler and kubelet: binds pods, makes them run and be ready, and lets deleted ones go.

A control plane without nodes makes pods and waits for ever. The stand-in needs nothing but the API server, as a real
kubelet does; after an outage it lists anew and continues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.client import ClusterClient
from tests.kubernetes.containers import Containers

Json = dict[str, Any]
Step = Callable[[Json], Awaitable[None]]

NAME: Final = "node-0"
READY_AFTER_S: Final = 1.0
"""From a pod's binding to its being ready."""
_AGAIN_S: Final = 0.5
_PODS: Final = "/api/v1/pods"
_MOVED_MEANWHILE: Final = (404, 409)

log = logging.getLogger(__name__)


class Node:
    """Moves the pods of one cluster. `pods`: those that it knows, by namespace and name, as the API server has them.

    `containers`: what really runs the pods of fleethpa; None: they are moved like all others, and nothing runs.
    """

    def __init__(
        self, client: ClusterClient, ready_after_s: float = READY_AFTER_S, *, containers: Containers | None = None
    ) -> None:
        self._client, self._ready_after_s, self._containers = client, ready_after_s, containers
        self.pods: dict[tuple[str, str], Json] = {}
        self._moving: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Move pods until cancelled."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    await self._follow(group)
            except* ClusterError as errors:
                log.info("the API server is away: %s", errors.exceptions[0])
                self._moving.clear()
                await asyncio.sleep(_AGAIN_S)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        listed = await self._client.get_object(_PODS)
        self.pods = {_key(pod): pod for pod in listed["items"]}
        for pod in listed["items"]:
            self._move(group, pod)
        path = f"{_PODS}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
        async for event in self._client.watch(path, silence_s=3_600.0):
            pod = event["object"]
            if event["type"] == "DELETED":
                self.pods.pop(_key(pod), None)
            else:
                self.pods[_key(pod)] = pod
                self._move(group, pod)

    def _move(self, group: asyncio.TaskGroup, pod: Json) -> None:
        """Take a pod one step further, unless a step of it is under way or there is none to take."""
        key = _key(pod)
        if key not in self._moving and (step := self._step(pod)) is not None:
            self._moving.add(key)
            group.create_task(self._take(group, step, pod))

    def _step(self, pod: Json) -> Step | None:
        if pod["metadata"].get("deletionTimestamp"):
            return self._remove
        if not pod["spec"].get("nodeName"):
            return self._bind
        if pod["status"].get("phase") == "Pending":
            return self._run_it
        return None

    async def _take(self, group: asyncio.TaskGroup, step: Step, pod: Json) -> None:
        key = _key(pod)
        try:
            await step(pod)
        except ApiError as error:
            if error.status not in _MOVED_MEANWHILE:
                raise
        self._moving.discard(key)
        if (newest := self.pods.get(key)) is not None:
            self._move(group, newest)  # what was seen while the step ran

    async def _bind(self, pod: Json) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
        metadata = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._client.request("POST", f"{_path(pod)}/binding", body=body)
        pod["spec"]["nodeName"] = NAME

    async def _run_it(self, pod: Json) -> None:
        if self._containers is not None and self._containers.runs(pod):
            self._containers.begin(pod)
            pod["status"]["phase"] = "Running"
            return
        await asyncio.sleep(self._ready_after_s)
        status = running(pod, _now())
        await self._client.merge_patch(f"{_path(pod)}/status", {"status": status})
        pod["status"]["phase"] = "Running"

    async def _remove(self, pod: Json) -> None:
        if self._containers is not None:
            await self._containers.end(pod)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._client.request("DELETE", _path(pod), body=body)
        self.pods.pop(_key(pod), None)


def running(pod: Json, now: str) -> Json:
    """The status that a kubelet gives a pod whose containers have just begun."""
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs, is ready, and is not being deleted."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    holds = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return holds and not pod["metadata"].get("deletionTimestamp")


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _path(pod: Json) -> str:
    namespace, name = _key(pod)
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
