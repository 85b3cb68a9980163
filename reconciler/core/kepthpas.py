"""HPAs as an observer keeps them: what each asks for, and the rest encoded, a quarter of the size. No I/O."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from reconciler.core.objectbodies import spec_manager, target_of
from schemas.codec import encode, encode_to_keep
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON
from schemas.fitting import over_limits
from schemas.kubernetes.jsontypes import JsonView
from schemas.kubernetes.selectors import SelectorError
from schemas.metricqueries import Query, metric_query
from schemas.scales import Target

_REFUSALS = (REFUSAL_REASON, IGNORED_REASON)


class Asking(Struct, frozen=True, gc=False):
    """What an HPA scales and asks metrics APIs for.

    `metrics`: type and query of each metric that can be asked for, the selector of the target's pods left out; of one
    whose own selector cannot be read there is none.
    """

    target: Target
    metrics: tuple[tuple[str, Query], ...] = ()


class KeptHpa(Struct, frozen=True, gc=False):
    """An HPA as it was seen last: encoded are its metadata without managed fields and with an empty resource version,
    its spec, and its status (None: it has none) without `currentMetrics`, which are the `values` (None: it has none).

    `manager`: who last wrote its spec in the cluster, and when in ms; empty and 0 where the API does not show it.
    """

    asking: Asking
    api_version: str
    resource_version: str | None
    metadata: bytes
    spec: bytes
    status: bytes | None
    values: bytes | None
    manager: tuple[str, int]


def asking_of(hpa: JsonView) -> Asking:
    """What an HPA asks for, by its spec. One that is ignored for its size asks for nothing."""
    asked = () if over_limits(dict(hpa), "") else _queries(encode(hpa["spec"].get("metrics") or ()))
    return Asking(target_of(hpa), asked)


@lru_cache(maxsize=1024)  # of a fleet, many HPAs have the same metrics
def _queries(metrics: bytes) -> tuple[tuple[str, Query], ...]:
    found = []
    for metric in msgspec.json.decode(metrics):
        try:
            query = metric_query(metric, "")
        except SelectorError:
            continue
        if query is not None:
            found.append((metric["type"], query))
    return tuple(found)


def kept_hpa(hpa: JsonView, before: KeptHpa | None = None) -> KeptHpa:
    """What is kept of an HPA as the API server gives it. `before`: what was kept of it; equal parts are shared."""
    metadata = {name: value for name, value in hpa["metadata"].items() if name != "managedFields"}
    version = metadata.get("resourceVersion")
    if version is not None:
        metadata["resourceVersion"] = ""
    spec, status = encode_to_keep(hpa["spec"]), hpa.get("status")
    is_same_spec = before is not None and before.spec == spec
    return KeptHpa(
        asking=before.asking if before is not None and is_same_spec else asking_of(hpa),
        api_version=hpa.get("apiVersion") or "autoscaling/v2",
        resource_version=version,
        metadata=encode_to_keep(metadata),
        spec=before.spec if before is not None and is_same_spec else spec,
        status=None if status is None else encode_to_keep(_without_values(status)),
        values=encode_to_keep(status["currentMetrics"]) if status and "currentMetrics" in status else None,
        manager=spec_manager(hpa["metadata"]),
    )


def reported_hpa(known: KeptHpa) -> dict[str, Any]:
    """The HPA as it goes out, see `hpa_body`."""
    metadata = msgspec.json.decode(known.metadata)
    if known.resource_version is not None:
        metadata["resourceVersion"] = known.resource_version
    body = {
        "apiVersion": known.api_version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": msgspec.json.decode(known.spec),
    }
    if known.status is not None:
        body["status"] = msgspec.json.decode(known.status)
    if known.values is not None:
        body["status"]["currentMetrics"] = msgspec.json.decode(known.values)
    return body


def hpa_tells_the_same(before: KeptHpa | None, now: KeptHpa, *, own_status: bool) -> bool:
    """Whether an HPA differs from what was reported in nothing that a decision or a reader uses.

    The resource version alone is not used. In a status that fleethpa wrote (`own_status`), new metric values are not
    used either: they are those of its own decision, which has just been recorded. Everything else of a status is told
    (counts, conditions, when it last scaled), since it tells of writes, and counts again once the HPA is no longer
    enforced. A status that shows why enforcing is refused is told whole: the next evaluation starts from it.
    """
    if before is None or _told(before) != _told(now):
        return False
    return before.values == now.values or (own_status and not _shows_refusal(now.status))


def _told(hpa: KeptHpa) -> tuple[Any, ...]:
    return (hpa.spec, hpa.status, hpa.metadata, hpa.manager)


def _without_values(status: JsonView) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != "currentMetrics"}


def _shows_refusal(status: bytes | None) -> bool:
    if status is None or not any(encode(reason) in status for reason in _REFUSALS):
        return False
    conditions = msgspec.json.decode(status).get("conditions") or ()
    return any(each.get("reason") in _REFUSALS for each in conditions)
