"""Controllers and kubelet in one: the pods of every workload live as its model says, and the store shows them."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from typing import Any

from fleethpa.lab.simulator.model import (
    ANNOTATION,
    SimulatedPod,
    SimulatedWorkload,
    Simulation,
    parse_simulation,
    short_hash,
)
from fleethpa.lab.simulator.resources import Change, Key, Store
from runtime.ending import set_within
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json

_DEFAULT_TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "simulated"}]}}


def template_of(workload: Json) -> Json:
    """Return the pod template of a workload; custom resources may have none."""
    return (workload.get("spec") or {}).get("template") or _DEFAULT_TEMPLATE


def revision_of(workload: Json) -> str:
    """Return a hash of the pod template, as names of pods carry it."""
    return short_hash(json.dumps(template_of(workload), sort_keys=True), 6)


def selector_of(workload: Json) -> Json:
    """Return the label selector of a workload; for a custom resource without one, its name."""
    selector: Json | None = (workload.get("spec") or {}).get("selector")
    return selector or {"matchLabels": {"app": workload["metadata"]["name"]}}


def new_pod(pod: SimulatedPod, workload: Json, uid: str, ip: str) -> Json:
    """Return a Pod as its controller creates it, without status. There are no ReplicaSets: the workload owns it."""
    template, metadata = template_of(workload), workload["metadata"]
    given = template.get("metadata") or {}
    owner = {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "controller": True}
    owner |= {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    own = {
        "name": pod.name,
        "namespace": metadata["namespace"],
        "uid": uid,
        "creationTimestamp": rfc3339_seconds(pod.created_ms),
        "labels": given.get("labels") or selector_of(workload).get("matchLabels") or {},
        "ownerReferences": [owner],
    }
    own |= {"annotations": given["annotations"]} if given.get("annotations") else {}
    spec = {"restartPolicy": "Always", "nodeName": "simulated"} | template["spec"]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": own, "spec": spec, "status": {"podIP": ip}}


def with_pod_state(document: Json, pod: SimulatedPod, now_ms: int) -> Json:
    """Return the Pod with status and deletion as the model has them."""
    metadata = document["metadata"]
    if pod.deleting_ms is not None and pod.gone_ms is not None:
        grace_s = max(1, (pod.gone_ms - pod.deleting_ms) // 1000)
        metadata = metadata | {"deletionTimestamp": rfc3339_seconds(pod.gone_ms), "deletionGracePeriodSeconds": grace_s}
    return document | {"metadata": metadata, "status": _pod_status(document, pod, now_ms)}


def _pod_status(document: Json, pod: SimulatedPod, now_ms: int) -> Json:
    phase, ready = pod.phase(now_ms), pod.ready(now_ms)
    changed_ms = pod.ready_at_ms if ready else pod.created_ms
    state = {"running": {"startedAt": rfc3339_seconds(pod.running_ms)}}
    if phase == "Pending":
        state = {"waiting": {"reason": "ContainerCreating"}}
    container = {"imageID": "", "ready": ready, "restartCount": 0, "state": state, "lastState": {}}
    containers = document["spec"]["containers"]
    return {
        "phase": phase,
        "conditions": [
            _condition("PodScheduled", True, pod.created_ms),
            _condition("Initialized", True, pod.created_ms),
            _condition("ContainersReady", ready, changed_ms),
            _condition("Ready", ready, changed_ms),
        ],
        "startTime": rfc3339_seconds(pod.created_ms),
        "podIP": document["status"]["podIP"],
        "hostIP": "127.0.0.1",
        "containerStatuses": [container | {"name": c["name"], "image": c.get("image", "")} for c in containers],
    }


def _condition(kind: str, holds: bool, since_ms: int) -> Json:
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": rfc3339_seconds(since_ms)}


def workload_status(workload: Json, model: SimulatedWorkload) -> Json:
    """Return the status that a workload's controller would write."""
    alive, ready = model.alive(), len(model.ready_pods())
    status: Json = {"observedGeneration": workload["metadata"]["generation"], "replicas": len(alive)}
    status["readyReplicas"] = ready
    if workload["kind"] in ("Deployment", "StatefulSet"):
        updated = sum(pod.revision == model.revision for pod in alive)
        return status | {"updatedReplicas": updated, "availableReplicas": ready}
    if workload["kind"] == "ReplicaSet":
        return status | {"fullyLabeledReplicas": len(alive), "availableReplicas": ready}
    labels = selector_of(workload).get("matchLabels") or {}
    return status | {"labelSelector": ",".join(f"{k}={v}" for k, v in sorted(labels.items()))}


log = logging.getLogger(__name__)

WORKLOADS = ("deployments.apps", "statefulsets.apps", "replicasets.apps", "widgets.example.com")


class Running:
    """A workload's model with what it was last made from."""

    def __init__(self, model: SimulatedWorkload, uid: str) -> None:
        self.model, self.uid = model, uid
        self.simulation = Simulation()
        self.seen_version = ""
        self.annotation: str | None = None
        self.due_ms = 0
        self.shown: set[str] = set()


class Kubelet:
    """Lives in its own task; `sync` brings everything up to the time of the clock at once."""

    def __init__(self, store: Store, now_ms: Callable[[], int], *, sample_ms: int) -> None:
        self._store, self._now_ms, self._sample_ms = store, now_ms, sample_ms
        self._running: dict[Key, Running] = {}
        self._by_pod: dict[tuple[str, str], Key] = {}
        self._addresses = 0
        self._wake = asyncio.Event()

    def workload(self, namespace: str, name: str) -> Running:
        """Return the running workload of that name. Raises KeyError: there is none."""
        for resource in WORKLOADS:
            if running := self._running.get((resource, namespace, name)):
                return running
        raise KeyError(f"no workload {namespace}/{name} runs")

    def workloads(self, namespace: str = "") -> list[tuple[Key, Running]]:
        """Return the running workloads of a namespace, or of all."""
        return [(key, run) for key, run in self._running.items() if not namespace or key[1] == namespace]

    def delete_pod(self, namespace: str, name: str) -> bool:
        """Begin to terminate a pod, if a workload owns it."""
        key = self._by_pod.get((namespace, name))
        if key is None:
            return False
        self._running[key].model.kill(name)
        self._show(key, self._running[key])
        return True

    async def run(self) -> None:
        """Follow the clock and the store until cancelled."""
        changes = self._store.subscribe()
        forward = asyncio.create_task(self._follow(changes))
        try:
            while True:
                self._wake.clear()
                self.sync()
                await self._pause()
        finally:
            forward.cancel()
            self._store.unsubscribe(changes)

    async def _follow(self, changes: asyncio.Queue[Any]) -> None:
        while True:
            change = await changes.get()
            if isinstance(change, Change) and change.key[0] in WORKLOADS:
                self._wake.set()

    async def _pause(self) -> None:
        """Wait until something happens by itself, or a workload changes."""
        due_ms = min((run.due_ms for run in self._running.values()), default=None)
        wait_s = None if due_ms is None else max(0.0, (due_ms - self._now_ms()) / 1000) + 0.001
        await set_within(self._wake, wait_s)

    def sync(self) -> None:
        """Create, move on and remove models and the documents that show them."""
        now_ms, seen = self._now_ms(), set()
        for resource in WORKLOADS:
            for workload in self._store.listing(resource):
                key = (resource, workload["metadata"]["namespace"], workload["metadata"]["name"])
                seen.add(key)
                self._sync_workload(key, workload, now_ms)
        for key in self._running.keys() - seen:
            self._remove(key)

    def _sync_workload(self, key: Key, workload: Json, now_ms: int) -> None:
        run = self._running.get(key)
        if run is not None and run.uid != workload["metadata"]["uid"]:
            self._remove(key)
            run = None
        if run is None:
            run = self._running[key] = self._start(workload, now_ms)
        if run.seen_version != workload["metadata"]["resourceVersion"]:
            self._configure(run, workload, now_ms)
        elif run.due_ms > now_ms:
            return
        run.model.advance_to(now_ms)
        self._show(key, run)

    def _start(self, workload: Json, now_ms: int) -> Running:
        metadata = workload["metadata"]
        model = SimulatedWorkload(
            name=metadata["name"],
            now_ms=now_ms,
            replicas=0,
            revision=revision_of(workload),
            ordinals=workload["kind"] == "StatefulSet",
            sample_ms=self._sample_ms,
        )
        return Running(model, metadata["uid"])

    def _configure(self, run: Running, workload: Json, now_ms: int) -> None:
        # The time before the change belongs to the old settings.
        run.model.advance_to(now_ms)
        text = (workload["metadata"].get("annotations") or {}).get(ANNOTATION, "")
        if text != run.annotation:
            run.annotation = text
            self._apply_simulation(run, text, workload)
        run.model.replicas = (workload.get("spec") or {}).get("replicas", 1)
        run.model.revision = revision_of(workload)

    def _apply_simulation(self, run: Running, text: str, workload: Json) -> None:
        try:
            run.simulation = parse_simulation(text)
        except ValueError as error:
            # A typing mistake in a live annotation keeps the behaviour that the workload has.
            log.warning(
                "simulation not changed", extra={"workload": workload["metadata"]["name"], "reason": str(error)}
            )
            return
        run.model.profile = run.simulation.profile
        run.model.set_load(run.simulation.load)

    def _show(self, key: Key, run: Running) -> None:
        """Write pods and the status of one workload where they differ from the store."""
        workload = self._store.get(key)
        if workload is None:
            return
        for pod in run.model.pods.values():
            self._show_pod(key, run, workload, pod)
        for name in run.shown - run.model.pods.keys():
            self._drop_pod(key[1], name)
        run.shown = set(run.model.pods)
        status = workload_status(workload, run.model)
        if workload.get("status") != status:
            workload = self._store.put(key, workload | {"status": status})
        run.seen_version = workload["metadata"]["resourceVersion"]
        run.due_ms = run.model.next_change_ms()

    def _show_pod(self, key: Key, run: Running, workload: Json, pod: SimulatedPod) -> None:
        place = ("pods", key[1], pod.name)
        stored = self._store.get(place)
        if stored is None:
            self._by_pod[key[1], pod.name] = key
            stored = new_pod(pod, workload, str(uuid.uuid4()), self._address())
        shown = with_pod_state(stored, pod, run.model.now_ms)
        if shown != stored:
            self._store.put(place, shown)

    def _address(self) -> str:
        self._addresses += 1
        return f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"

    def _drop_pod(self, namespace: str, name: str) -> None:
        del self._by_pod[namespace, name]
        if self._store.get(("pods", namespace, name)) is not None:
            self._store.remove(("pods", namespace, name))

    def _remove(self, key: Key) -> None:
        """Remove what belongs to a workload that is gone; its pods go at once."""
        for name in self._running.pop(key).shown:
            self._drop_pod(key[1], name)
