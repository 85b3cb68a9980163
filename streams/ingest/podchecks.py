"""Checks of pods: names, times and requests."""

from collections.abc import Mapping
from functools import lru_cache

from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.limits import POD_QUANTITY
from schemas.pods import Container, Pod, PodList
from streams.ingest.keynames import check_namespace, check_object
from streams.ingest.numberchecks import check_chunk, check_moment
from streams.ingest.pieces import Refusal


def check_pod_list(body: PodList) -> None:
    """Check a chunk of a full list.

    Raises:
        Refusal: naming the first pod at fault: a list with a hole would remove that pod.
    """
    check_chunk(body.list_id, body.chunk, body.chunks)
    for pod in body.pods:
        check_pod(pod)


def check_pod(pod: Pod) -> None:
    """Check one pod.

    Raises:
        Refusal: naming the pod and the field.
    """
    check_object(pod.name, "pod name")
    check_moment(pod.start, f"start of pod {pod.name}")
    check_moment(pod.ready_at, f"readyAt of pod {pod.name}")
    for container in (*pod.containers, *pod.init_containers):
        _container(container, pod.name)
    _amounts(pod.pod_requests or {}, f"podRequests of pod {pod.name}")
    _amounts(pod.overhead, f"overhead of pod {pod.name}")


def _container(container: Container, pod: str) -> None:
    check_namespace(container.name)
    _amounts(container.requests, f"requests of {pod}/{container.name}")


def _amounts(amounts: Mapping[str, str], field: str) -> None:
    for resource, text in amounts.items():
        # Checked before the cache, which would keep whatever is sent.
        if problem := _problem(text) if len(text) <= POD_QUANTITY.most else "longer than any quantity":
            raise Refusal("invalid", f"{field}: {resource} {text[:40]!r}: {problem}")


@lru_cache(maxsize=16_384)
def _problem(text: str) -> str:
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        return str(error)
    return "must not be negative" if quantity.sign() < 0 else ""
