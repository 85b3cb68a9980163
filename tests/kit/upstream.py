"""What upstream's controller does and fleethpa does elsewhere: it reads pods in their API form and writes statuses."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from streams.hpa.evaluation import ReconcileResult
from streams.hpa.observation import ContainerRequests, PodTemplate


def status_write_failed(result: ReconcileResult, name: str, error: str) -> ReconcileResult:
    """Tell what the reconcile reports when its status write fails; the stored status then stays as it was."""
    event = ("Warning", "FailedUpdateStatus", error)
    failed = structs.replace(result, events=(*result.events, event))
    if not result.final:
        return failed
    return structs.replace(failed, error=f"failed to update status for {name}: {error}", error_label="internal")


def compile_template(pod_spec: Mapping[str, Any]) -> PodTemplate:
    """Compile `spec` of a pod in its API form."""
    init = [
        _container(each, sidecar=each.get("restartPolicy") == "Always") for each in pod_spec.get("initContainers") or ()
    ]
    return PodTemplate(
        [_container(each, sidecar=False) for each in pod_spec.get("containers") or ()],
        init,
        (pod_spec.get("resources") or {}).get("requests"),
        pod_spec.get("overhead"),
    )


def _container(container: Mapping[str, Any], *, sidecar: bool) -> ContainerRequests:
    return ContainerRequests(container["name"], (container.get("resources") or {}).get("requests") or {}, sidecar)
