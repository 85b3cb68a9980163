"""Pods, ReplicaSets and workload statuses as documents: the model's state in the API's words. Pure."""

from __future__ import annotations

import json
import zlib

from fleethpa.simulator.model import SimulatedPod, SimulatedWorkload
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.jsontypes import Json

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
