"""The simulated API server beside the real one: the same requests, in the same order, get the same answers."""

import asyncio
import json
import re
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.kit.clusters import Denial, ManualCluster
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, WIDGETS, definition, deployment, hpa, namespace, resource, widget

Json = dict[str, Any]

_APPS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_HPAS: Final = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_WIDGETS: Final = f"/apis/example.com/v1/namespaces/{NAMESPACE}/widgets"
_MERGE: Final = "application/merge-patch+json"
START_MS: Final = 1_767_225_600_000
_RANDOM: Final = frozenset(
    {
        *("uid", "resourceVersion", "creationTimestamp", "managedFields", "lastTransitionTime", "continue"),
        "storageVersionHash",
    }
)
"""Fields that are different at each run; that they are there is compared."""


@dataclass(frozen=True)
class Request:
    """One request, by an administrator or by an account without any permission."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    admin: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _scale(name: str, replicas: Any, version: str, collection: str = "deployments") -> Request:
    path = f"{_APPS}/{collection}/{name}/scale"
    metadata = {"name": name, "namespace": NAMESPACE} | ({"resourceVersion": version} if version else {})
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}
    return Request("PUT", path, body)


def _event(name: str, count: int = 1) -> Json:
    about = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "involvedObject": about,
        "reason": "SuccessfulRescale",
        "message": "New size: 3",
        "type": "Normal",
        "source": {"component": "horizontal-pod-autoscaler"},
        "firstTimestamp": "2026-11-21T12:00:00Z",
        "lastTimestamp": "2026-11-21T12:00:00Z",
        "count": count,
    }


def _changed(manifest: Json, **spec: Any) -> Json:
    return {**manifest, "spec": {**manifest["spec"], **spec}}


_HPA: Final = hpa("other", resource("cpu", averageUtilization=50))
OBJECTS: Final = (
    deployment("web"),
    deployment("db", kind="StatefulSet"),
    widget("sorter"),
    hpa("web", resource("cpu", averageUtilization=50)),
    hpa("db", resource("cpu", averageUtilization=50), target=("apps/v1", "StatefulSet")),
)
REQUESTS: Final = (
    # Scales of every kind, read and written.
    Request("GET", f"{_APPS}/deployments/web/scale"),
    Request("GET", f"{_APPS}/statefulsets/db/scale"),
    Request("GET", f"{_WIDGETS}/sorter/scale"),
    Request("GET", f"{_APPS}/deployments/gone/scale"),
    Request("GET", f"{_APPS}/statefulsets/gone/scale"),
    Request("GET", f"{_WIDGETS}/gone/scale"),
    _scale("web", 2, ""),
    _scale("web", 3, "1"),
    _scale("web", -1, ""),
    _scale("gone", 3, ""),
    _scale("db", 2, "", "statefulsets"),
    Request("PATCH", f"{_APPS}/statefulsets/db/scale", {"spec": {"replicas": 2}}, _MERGE),
    Request("PATCH", f"{_APPS}/deployments/web/scale", {"metadata": {"uid": "other"}, "spec": {"replicas": 2}}, _MERGE),
    # HPAs: made, refused, updated, deleted.
    Request("GET", f"{_HPAS}/web"),
    Request("GET", f"{_HPAS}/gone"),
    Request("POST", _HPAS, _HPA),
    Request("POST", _HPAS, _HPA),
    Request("POST", _HPAS, _changed(_HPA, maxReplicas=0)),
    Request("POST", _HPAS, {**_HPA, "metadata": {"name": "Not_A_Name"}}),
    Request("POST", _HPAS, _changed(hpa("zero", resource("cpu", averageUtilization=50)), minReplicas=0)),
    Request("POST", _HPAS, {"kind": "HorizontalPodAutoscaler"}),
    Request("PUT", f"{_HPAS}/other/status", {**_HPA, "status": {"currentReplicas": 1, "desiredReplicas": 2}}),
    Request("GET", f"{_HPAS}/other"),
    Request("DELETE", f"{_HPAS}/other", {"preconditions": {"uid": "another"}}),
    Request("DELETE", f"{_HPAS}/other"),
    Request("DELETE", f"{_HPAS}/other"),
    # Events.
    Request("POST", _EVENTS, _event("web.1")),
    Request("POST", _EVENTS, _event("web.1")),
    Request("GET", f"{_EVENTS}/web.1"),
    Request("PATCH", f"{_EVENTS}/web.1", {"count": 2}, _MERGE),
    Request("PATCH", f"{_EVENTS}/web.1", {"metadata": {"resourceVersion": "1"}, "count": 3}, _MERGE),
    Request("GET", f"{_EVENTS}/gone"),
    # Lists.
    Request("GET", f"{_APPS}/deployments?labelSelector=app%3Dnothing"),
    # What is not there, and what is not allowed.
    Request("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/nothings"),
    Request("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web/nothing"),
    Request("GET", "/apis/apps/v7"),
    Request("GET", "/apis/example.com"),
    Request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", admin=False),
    Request("GET", "/api/v1/pods", admin=False),
    Request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/some", admin=False),
    Request("GET", f"{_APPS}/deployments/web/scale", admin=False),
    Request("GET", f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods", admin=False),
    # Metrics.
    Request("GET", f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dnothing"),
)


def normal(found: Any, key: str = "") -> Any:
    """An answer without what is different at each run."""
    if isinstance(found, dict):
        return {name: "some" if name in _RANDOM else normal(each, name) for name, each in found.items()}
    if isinstance(found, list):
        # The order of verbs and of resources in discovery says nothing.
        items = [normal(each) for each in found]
        return sorted(items, key=str) if key == "verbs" else sorted(items, key=_name) if key == "resources" else items
    if isinstance(found, str):
        found = re.sub(r'User "[^"]*"', "User …", found)
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", found)
    return found


def _name(item: Json) -> str:
    return str(item["name"])


async def answer(session: aiohttp.ClientSession, request: Request) -> tuple[int, Any]:
    """Status and body of an answer, without what is different at each run."""
    data = None if request.body is None else json.dumps(request.body)
    headers = {"Content-Type": request.content_type}
    async with session.request(request.method, request.path, data=data, headers=headers) as response:
        text = await response.text()
        is_json = response.content_type == "application/json"
        return response.status, normal(json.loads(text)) if is_json else text


class Caller:
    """Who sends requests to one API server: an administrator, and an account without any permission."""

    def __init__(self, admin: aiohttp.ClientSession, nobody: aiohttp.ClientSession) -> None:
        self._admin, self._nobody = admin, nobody

    async def answers(self) -> list[tuple[int, Any]]:
        """The answers to all requests, in their order."""
        return [await answer(self._admin if each.admin else self._nobody, each) for each in REQUESTS]


def session(url: str, *, token: str = "", context: ssl.SSLContext) -> aiohttp.ClientSession:
    """A session with one API server."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return aiohttp.ClientSession(url, headers=headers, connector=aiohttp.TCPConnector(ssl=context))


async def real_answers(folder: Path, binaries: Path) -> list[tuple[int, Any]]:
    with Site("real", folder / "real", binaries, native=False) as site:
        plane = site.plane
        plane.apply([namespace(), definition(WIDGETS, "Widget", "wd")])
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
        plane.kubectl("create", "serviceaccount", "nobody", "-n", NAMESPACE)
        token = plane.kubectl("create", "token", "nobody", "-n", NAMESPACE)
        await asyncio.to_thread(until, partial(_are_ready, site), "the pods are ready")
        admin = ssl.create_default_context(cafile=str(plane.cafile))
        admin.load_cert_chain(plane.admin_pem)
        context = ssl.create_default_context(cafile=str(plane.cafile))
        async with session(plane.url, context=admin) as one, session(plane.url, token=token, context=context) as other:
            return await Caller(one, other).answers()


def _are_ready(site: Site) -> bool:
    widgets = [each.get("status", {}).get("replicas") for each in site.plane.objects(WIDGETS, NAMESPACE)]
    found = site.plane.objects("deployments,statefulsets", NAMESPACE)
    return widgets == [2] and [each["status"].get("readyReplicas") for each in found] == [2] * 3


async def simulated_answers() -> list[tuple[int, Any]]:
    cluster = ManualCluster("simulated", START_MS)
    for manifest in [namespace(), *OBJECTS]:
        cluster.apply(manifest)
    cluster.api.tokens["nobody"] = "nobody"
    cluster.api.denials = [Denial(user="nobody")]
    async with cluster:
        cluster.advance(60)
        context = ssl.create_default_context(cadata=cluster.certificate_pem.decode())
        async with (
            session(cluster.url, token=cluster.token, context=context) as one,
            session(cluster.url, token="nobody", context=context) as other,
        ):
            return await Caller(one, other).answers()


async def test_the_simulated_api_server_answers_as_the_real_one(binaries: Path, tmp_path: Path) -> None:
    real, simulated = await real_answers(tmp_path, binaries), await simulated_answers()
    different = [
        f"{request}\n  real:      {one}\n  simulated: {other}"
        for request, one, other in zip(REQUESTS, real, simulated, strict=True)
        if one != other
    ]
    assert not different, "\n".join(different)
