"""Controllers and kubelet in one: the pods of every workload live as its model says, and the store shows them.

Pods, ReplicaSets and workload statuses as documents: the model's state in the API's words. Pure.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
import zlib
from typing import Any

from fleethpa.simulator.model import ANNOTATION, Rollout, SimulatedPod, SimulatedWorkload, Simulation, parse_simulation
from fleethpa.simulator.store import Change, Key, SimClock, Store
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json

_DEFAULT_TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "simulated"}]}}


def template_of(workload: Json) -> Json:
    """Return the pod template of a workload; custom resources may have none."""
    return (workload.get("spec") or {}).get("template") or _DEFAULT_TEMPLATE


def revision_of(workload: Json) -> str:
    """Return a hash of the pod template, as ReplicaSet names carry it."""
    text = json.dumps(template_of(workload), sort_keys=True)
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number = zlib.crc32(text.encode()) << 16 | zlib.adler32(text.encode()) & 0xFFFF
    return "".join(letters[(number // 27**place) % 27] for place in range(9))


def selector_of(workload: Json) -> Json:
    """Return the label selector of a workload; for a custom resource without one, its name.

    A ReplicationController's is a plain map of labels, and by default the labels of its pods.
    """
    spec = workload.get("spec") or {}
    selector: Json | None = spec.get("selector")
    if workload["kind"] == "ReplicationController":
        labels = selector or (template_of(workload).get("metadata") or {}).get("labels")
        selector = {"matchLabels": labels} if labels else None
    return selector or {"matchLabels": {"app": workload["metadata"]["name"]}}


def owner_reference(owner: Json) -> Json:
    """Return the controller reference that dependents carry."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return reference | {"controller": True, "blockOwnerDeletion": True}


def new_pod(pod: SimulatedPod, workload: Json, owner: Json, uid: str, ip: str) -> Json:
    """Return a Pod as its controller creates it, without status."""
    template = template_of(workload)
    labels = dict((template.get("metadata") or {}).get("labels") or selector_of(workload).get("matchLabels") or {})
    labels |= {"pod-template-hash": pod.revision} if owner["kind"] == "ReplicaSet" else {}
    metadata = {
        "name": pod.name,
        "namespace": workload["metadata"]["namespace"],
        "uid": uid,
        "creationTimestamp": rfc3339_seconds(pod.created_ms),
        "labels": labels,
        "ownerReferences": [owner_reference(owner)],
    }
    if annotations := (template.get("metadata") or {}).get("annotations"):
        metadata["annotations"] = annotations
    spec = {"restartPolicy": "Always", "nodeName": "simulated"} | template["spec"]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"podIP": ip}}


def with_pod_state(document: Json, pod: SimulatedPod, now_ms: int) -> Json:
    """Return the Pod with status and deletion as the model has them."""
    metadata = document["metadata"]
    if pod.deleting_ms is not None and pod.gone_ms is not None:
        grace_s = max(1, (pod.gone_ms - pod.deleting_ms) // 1000)
        metadata = metadata | {"deletionTimestamp": rfc3339_seconds(pod.gone_ms), "deletionGracePeriodSeconds": grace_s}
    return document | {"metadata": metadata, "status": _pod_status(document, pod, now_ms)}


def _pod_status(document: Json, pod: SimulatedPod, now_ms: int) -> Json:
    phase, ready = pod.phase(now_ms), pod.ready(now_ms)
    changed_ms = pod.ready_at_ms if ready and pod.ready_at_ms is not None else pod.unready_since_ms
    conditions = [
        _condition("PodScheduled", True, pod.created_ms),
        _condition("Initialized", True, pod.created_ms),
        _condition("ContainersReady", ready, changed_ms),
        _condition("Ready", ready, changed_ms),
    ]
    address = {"podIP": document["status"]["podIP"], "hostIP": "127.0.0.1"} if phase == "Running" else {}
    kept = {"podIP": document["status"]["podIP"]} | address
    status: Json = {"phase": phase, "conditions": conditions, "startTime": rfc3339_seconds(pod.created_ms), **kept}
    if phase == "Failed":
        status |= {"reason": "Evicted", "message": "The simulated node was low on resource: memory."}
    state = _container_state(pod, phase)
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": ready,
            "restartCount": pod.restarts,
            "state": state,
            "lastState": {},
        }
        for container in document["spec"]["containers"]
    ]
    return status


def _container_state(pod: SimulatedPod, phase: str) -> Json:
    if phase == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    if phase == "Failed":
        return {"terminated": {"exitCode": 137, "reason": "Evicted"}}
    return {"running": {"startedAt": rfc3339_seconds(pod.running_ms)}}


def _condition(kind: str, holds: bool, since_ms: int) -> Json:
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": rfc3339_seconds(since_ms)}


def replica_set(deployment: Json, revision: str, pods: list[SimulatedPod], now_ms: int) -> Json:
    """Return the spec and status of the ReplicaSet of one revision of a Deployment."""
    mine = [pod for pod in pods if pod.alive() and pod.revision == revision]
    ready = sum(pod.ready(now_ms) for pod in mine)
    template = template_of(deployment)
    hashed = {"pod-template-hash": revision}
    labels = ((template.get("metadata") or {}).get("labels") or {}) | hashed
    selector = selector_of(deployment)
    selector = selector | {"matchLabels": (selector.get("matchLabels") or {}) | hashed}
    template = template | {"metadata": (template.get("metadata") or {}) | {"labels": labels}}
    return {
        "spec": {"replicas": len(mine), "selector": selector, "template": template},
        "status": {"replicas": len(mine), "readyReplicas": ready, "availableReplicas": ready},
        "labels": labels,
    }


def workload_status(workload: Json, model: SimulatedWorkload) -> Json:
    """Return the status that a workload's controller would write."""
    alive = model.alive()
    ready = len(model.ready_pods())
    updated = sum(pod.revision == model.revision for pod in alive)
    status: Json = {"observedGeneration": workload["metadata"]["generation"], "replicas": len(alive)}
    status["readyReplicas"] = ready
    if workload["kind"] == "Deployment":
        return status | _deployment_status(workload, model, ready, updated)
    if workload["kind"] == "StatefulSet":
        revision = f"{model.name}-{model.revision}"
        status |= {"availableReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated}
        return status | {"currentRevision": revision, "updateRevision": revision, "collisionCount": 0}
    if workload["kind"] in ("ReplicaSet", "ReplicationController"):
        return status | {"availableReplicas": ready}
    from_selector = selector_of(workload).get("matchLabels") or {}
    return status | {"labelSelector": ",".join(f"{k}={v}" for k, v in sorted(from_selector.items()))}


def _deployment_status(workload: Json, model: SimulatedWorkload, ready: int, updated: int) -> Json:
    before = {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or ()}
    enough = ready >= model.replicas - model.rollout.max_unavailable
    available = _deployment_condition("Available", enough, before, model.now_ms)
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    text = "Deployment has minimum availability." if enough else "Deployment does not have minimum availability."
    available |= {"reason": reason, "message": text}
    progressing = _deployment_condition("Progressing", True, before, model.now_ms)
    progressing |= {"reason": "NewReplicaSetAvailable", "message": "ReplicaSet has successfully progressed."}
    status = {"updatedReplicas": updated, "availableReplicas": ready, "conditions": [available, progressing]}
    unavailable = model.replicas - ready
    return status | ({"unavailableReplicas": unavailable} if unavailable > 0 else {})


def _deployment_condition(kind: str, holds: bool, before: Json, now_ms: int) -> Json:
    old = before.get(kind)
    condition = _condition(kind, holds, now_ms)
    del condition["lastProbeTime"]
    if old and old["status"] == condition["status"]:
        condition["lastTransitionTime"] = old["lastTransitionTime"]
    return condition


log = logging.getLogger(__name__)

WORKLOADS = ("deployments.apps", "statefulsets.apps", "replicationcontrollers", "widgets.example.com")


class Running:
    """A workload's model with what it was last made from."""

    def __init__(self, model: SimulatedWorkload, simulation: Simulation, uid: str) -> None:
        self.model, self.simulation, self.uid = model, simulation, uid
        self.seen_version = ""
        self.annotation: str | None = None
        self.due_ms = 0
        self.shown: set[str] = set()
        self.replica_sets: set[str] = set()


class Kubelet:
    """Lives in its own task; `sync` brings everything up to the clock's time at once."""

    def __init__(self, store: Store, clock: SimClock, *, sample_ms: int) -> None:
        self._store, self._clock, self._sample_ms = store, clock, sample_ms
        self._running: dict[Key, Running] = {}
        self._by_pod: dict[tuple[str, str], Key] = {}
        self._addresses = 0
        self._wake = asyncio.Event()
        clock.on_jump(self._wake.set)

    def workload(self, namespace: str, name: str) -> Running:
        """Return the running workload of that name. Raises KeyError: no such pod."""
        for resource in WORKLOADS:
            if found := self._running.get((resource, namespace, name)):
                return found
        raise KeyError(f"no workload {namespace}/{name} runs")

    def workloads(self, namespace: str = "") -> list[tuple[Key, Running]]:
        """Return the running workloads of a namespace, or of all."""
        return [(key, run) for key, run in self._running.items() if not namespace or key[1] == namespace]

    def of_pod(self, namespace: str, pod: str) -> SimulatedWorkload:
        """Return the model that a pod belongs to. Raises KeyError: No workload has this pod."""
        return self._running[self._by_pod[namespace, pod]].model

    def delete_pod(self, namespace: str, name: str) -> bool:
        """Begin to terminate a pod, if a workload owns it."""
        key = self._by_pod.get((namespace, name))
        if key is None:
            return False
        self._running[key].model.kill(name)
        self._show(key, self._running[key])
        return True

    def show_now(self, namespace: str, pod: str) -> None:
        """Write the state of a pod's workload into the store without waiting for the next change."""
        key = self._by_pod[namespace, pod]
        self._show(key, self._running[key])

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
        due = min((run.due_ms for run in self._running.values()), default=None)
        speed = self._clock.speed
        if due is None or speed == 0:
            await self._wake.wait()
            return
        wait_s = max(0.0, (due - self._clock.now_ms()) / 1000 / speed)
        try:
            # Not wait_for: Python 3.11's loses a cancellation that comes together with the end of the wait.
            async with asyncio.timeout(wait_s + 0.001):
                await self._wake.wait()
        except TimeoutError:
            return

    def sync(self) -> None:
        """Create, move on and remove models and the documents that show them."""
        now_ms, seen = self._clock.now_ms(), set()
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
        metadata, stateful = workload["metadata"], workload["kind"] == "StatefulSet"
        model = SimulatedWorkload(
            name=metadata["name"],
            now_ms=now_ms,
            replicas=0,
            revision=revision_of(workload),
            ordinals=stateful,
            sample_ms=self._sample_ms,
            rollout=Rollout(0, 1) if stateful else Rollout(1, 0),
        )
        return Running(model, Simulation(), metadata["uid"])

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
        """Write pods, ReplicaSets and the status of one workload where they differ from the store."""
        workload = self._store.get(key)
        if workload is None:
            return
        model, namespace = run.model, key[1]
        for pod in model.pods.values():
            self._show_pod(key, run, workload, pod)
        for name in run.shown - model.pods.keys():
            self._drop_pod(namespace, name)
        run.shown = set(model.pods)
        if workload["kind"] == "Deployment":
            self._show_replica_sets(namespace, run, workload)
        status = workload_status(workload, model)
        if workload.get("status") != status:
            workload = self._store.put(key, workload | {"status": status})
        run.seen_version = workload["metadata"]["resourceVersion"]
        run.due_ms = model.next_change_ms()

    def _show_pod(self, key: Key, run: Running, workload: Json, pod: SimulatedPod) -> None:
        namespace, now_ms = key[1], run.model.now_ms
        stored = self._store.get(("pods", namespace, pod.name))
        if stored is None:
            self._by_pod[namespace, pod.name] = key
            owner = workload if workload["kind"] != "Deployment" else self._replica_set(run, workload, pod.revision)
            stored = new_pod(pod, workload, owner, str(uuid.uuid4()), self._address())
            self._store.put(("pods", namespace, pod.name), with_pod_state(stored, pod, now_ms))
            return
        shown = with_pod_state(stored, pod, now_ms)
        if shown != stored:
            self._store.put(("pods", namespace, pod.name), shown)

    def _address(self) -> str:
        self._addresses += 1
        return f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"

    def _drop_pod(self, namespace: str, name: str) -> None:
        del self._by_pod[namespace, name]
        if self._store.get(("pods", namespace, name)) is not None:
            self._store.remove(("pods", namespace, name))

    def _replica_set(self, run: Running, deployment: Json, revision: str) -> Json:
        """Return the stored ReplicaSet of a revision; it is created when its first pod needs it."""
        metadata = deployment["metadata"]
        key = ("replicasets.apps", metadata["namespace"], f"{metadata['name']}-{revision}")
        run.replica_sets.add(key[2])
        found = self._store.get(key)
        if found is not None:
            return found
        parts = replica_set(deployment, revision, [], 0)
        own = {
            "name": key[2],
            "namespace": key[1],
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "labels": parts["labels"],
        }
        own |= {"creationTimestamp": rfc3339_seconds(self._clock.now_ms())}
        own["ownerReferences"] = [owner_reference(deployment)]
        document = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": own}
        return self._store.put(key, document | {"spec": parts["spec"], "status": parts["status"]})

    def _show_replica_sets(self, namespace: str, run: Running, deployment: Json) -> None:
        for key in self._replica_sets_of(namespace, run):
            stored = self._store.get(key)
            if stored is None:  # somebody deleted it
                run.replica_sets.discard(key[2])
                continue
            revision = stored["metadata"]["labels"]["pod-template-hash"]
            parts = replica_set(deployment, revision, list(run.model.pods.values()), run.model.now_ms)
            spec = stored["spec"] | {"replicas": parts["spec"]["replicas"]}
            if (spec, parts["status"]) != (stored["spec"], stored["status"]):
                self._store.put(key, stored | {"spec": spec, "status": parts["status"]})

    def _replica_sets_of(self, namespace: str, run: Running) -> list[Key]:
        return [("replicasets.apps", namespace, name) for name in sorted(run.replica_sets)]

    def _remove(self, key: Key) -> None:
        """Remove what belongs to a workload that is gone; its pods go at once."""
        run = self._running.pop(key)
        for name in run.shown:
            self._drop_pod(key[1], name)
        for own in self._replica_sets_of(key[1], run):
            if self._store.get(own) is not None:
                self._store.remove(own)
