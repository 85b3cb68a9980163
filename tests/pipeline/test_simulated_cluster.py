"""Simulated clusters as real clients see them: kubectl, the official Python client, and the control endpoint."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.watch import Watch

from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster, default_fleet, write_kubeconfig
from fleethpa.lab.simulator.model import ConstantLoad
from fleethpa.lab.simulator.server import MetricsFault
from tests.kit.clusters import Denial, Fault, ManualCluster
from tests.patience import PATIENCE_S

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    fleethpa.io/simulation: |
      load: 120
      pod: {cpu_milli_per_unit: 5, idle_cpu_milli: 10}
      metrics:
        - {type: Pods, name: rps}
        - {type: Object, name: total_rps, object: {kind: Service, name: web}}
        - {type: External, name: backlog, labels: {queue: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: main, image: "web:1", resources: {requests: {cpu: 500m}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 10, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: press, namespace: shop}
spec: {replicas: 1, selector: {matchLabels: {app: press}}}
"""

MERGE = "application/merge-patch+json"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"


@pytest.fixture
async def cluster() -> AsyncIterator[ManualCluster]:
    """A cluster whose time does not advance until a test moves it; its pods are ready."""
    made = ManualCluster("east", START_MS)
    made.apply_yaml(MANIFESTS)
    async with made:
        made.advance(0)
        made.advance(10)
        yield made


@pytest.fixture
async def api(cluster: ManualCluster, tmp_path: Path) -> AsyncIterator[client.ApiClient]:
    settings = client.Configuration()
    file = write_kubeconfig(tmp_path / "config", [cluster])
    await config.load_kube_config(str(file), client_configuration=settings)
    async with client.ApiClient(settings) as made:
        yield made


async def raw(cluster: SimulatedCluster, path: str, method: str = "GET", **more: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {cluster.token}"} | more.pop("headers", {})
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.request(method, cluster.url + path, headers=headers, **more) as response,
    ):
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else await response.text()


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


class Kubectl:
    """The real kubectl with a kubeconfig and cache of its own."""

    def __init__(self, folder: Path, clusters: list[SimulatedCluster]) -> None:
        binary = shutil.which("kubectl")
        if binary is None:
            pytest.skip("NO KUBECTL ON THIS MACHINE: nothing shows that simulated clusters speak to it")
        self.config = write_kubeconfig(folder / "kubeconfig", clusters)
        self.environ: dict[str, str] | None = None
        self.command = [
            binary,
            f"--kubeconfig={self.config}",
            f"--cache-dir={folder / 'cache'}",
            "--request-timeout=15s",
        ]

    async def __call__(self, line: str, *, stdin: str = "", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            *line.split(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environ,
        )
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate(stdin.encode())
        assert (process.returncode != 0) is fails, output.decode()
        return output.decode()


@pytest.fixture
def kubectl(cluster: ManualCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, [cluster])


def stored(cluster: ManualCluster, resource: str, name: str) -> dict[str, Any]:
    found = cluster.store.get((resource, "shop", name))
    assert found is not None
    return found


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


# -- kubectl ---------------------------------------------------------------------------------------------------------


async def test_kubectl_get_prints_the_usual_columns(kubectl: Kubectl) -> None:
    lines = squeezed(await kubectl("get hpa,pods,deploy -A"))
    assert lines[0] == "NAMESPACE NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE"
    assert lines[1] == "shop horizontalpodautoscaler.autoscaling/web Deployment/web cpu: <unknown>/80% 1 10 0 10s"
    assert lines[2] == "NAMESPACE NAME READY STATUS RESTARTS AGE"
    assert [line.split()[2:] for line in lines[3:6]] == [["1/1", "Running", "0", "10s"]] * 3
    assert lines[-1] == "shop deployment.apps/web 2/2 2 2 10s"


async def test_kubectl_describes_an_hpa_with_its_events(cluster: ManualCluster, kubectl: Kubectl) -> None:
    uid = stored(cluster, "horizontalpodautoscalers.autoscaling", "web")["metadata"]["uid"]
    about = {"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": "web", "uid": uid}
    event: dict[str, Any] = {
        "metadata": {"name": "web.1", "namespace": "shop"},
        "involvedObject": about,
        "type": "Normal",
    }
    event |= {"reason": "SuccessfulRescale", "message": "New size: 4; reason: All metrics below target", "count": 1}
    event |= {"source": {"component": "horizontal-pod-autoscaler"}, "lastTimestamp": "2026-01-01T00:00:09Z"}
    assert (await raw(cluster, "/api/v1/namespaces/shop/events", "POST", json=event))[0] == 201
    lines = squeezed(await kubectl("-n shop describe hpa web"))
    assert "Reference: Deployment/web" in lines
    assert "resource cpu on pods (as a percentage of request): <unknown> / 80%" in lines
    assert any("SuccessfulRescale" in line and "New size: 4" in line for line in lines)


async def test_kubectl_applies_creates_changes_and_keeps(cluster: ManualCluster, kubectl: Kubectl) -> None:
    manifest = MANIFESTS.replace("name: web", "name: api").replace("app: web", "app: api")
    stated = [
        squeezed(await kubectl("apply -f -", stdin=text)) for text in (manifest, manifest.replace("web:1", "web:2"))
    ]
    stated.append(squeezed(await kubectl("apply -f -", stdin=manifest.replace("web:1", "web:2"))))
    words = [[line.rpartition(" ")[2] for line in lines] for lines in stated]
    # the annotation of an earlier non-apply creation is missing on press: kubectl then configures it once
    assert [line[:2] for line in words] == [["created", "created"], ["configured", "unchanged"], ["unchanged"] * 2]
    api = stored(cluster, "deployments.apps", "api")
    assert api["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    assert api["metadata"]["generation"] == 2


async def test_kubectl_scale_moves_replicas_and_says_who_did(cluster: ManualCluster, kubectl: Kubectl) -> None:
    assert await kubectl("-n shop scale deployment web --replicas=5") == "deployment.apps/web scaled\n"
    assert await kubectl("-n shop scale widget press --replicas=3") == "widget.example.com/press scaled\n"
    web = stored(cluster, "deployments.apps", "web")
    owners = {
        e["manager"]: e["fieldsV1"]["f:spec"] for e in web["metadata"]["managedFields"] if "f:spec" in e["fieldsV1"]
    }
    assert owners["kubectl"] == {"f:replicas": {}}
    assert "f:replicas" not in owners["fleethpa-dev"]
    cluster.advance(0)
    assert len(cluster.store.listing("pods", "shop")) == 8


async def test_kubectl_deletes_and_the_pods_go_too(cluster: ManualCluster, kubectl: Kubectl) -> None:
    assert 'deployment.apps "web" deleted' in await kubectl("-n shop delete deployment web --timeout=10s")
    await until(lambda: len(cluster.store.listing("pods", "shop")) == 1, "the pods go with their owner")
    assert "(NotFound)" in await kubectl("-n shop get deployment web", fails=True)


async def test_kubectl_edit_changes_one_field(cluster: ManualCluster, kubectl: Kubectl, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/web:1/web:3/' \"$1\"\n")
    editor.chmod(0o700)
    kubectl.environ = {**os.environ, "KUBE_EDITOR": str(editor)}
    assert await kubectl("-n shop edit deployment web") == "deployment.apps/web edited\n"
    container = {"name": "main", "image": "web:3", "resources": {"requests": {"cpu": "500m"}}}
    assert stored(cluster, "deployments.apps", "web")["spec"]["template"]["spec"]["containers"] == [container]


async def test_kubectl_top_and_the_list_of_resources(kubectl: Kubectl) -> None:
    assert [line.split()[1] for line in squeezed(await kubectl("-n shop top pods -l app=web"))[1:]] == ["310m"] * 2
    assert "simulated" in await kubectl("version -o json")
    assert "widgets" in await kubectl("api-resources")
    described = squeezed(await kubectl("-n shop describe deployment web"))
    assert "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in described


async def test_kubectl_shows_who_may_not_scale(cluster: ManualCluster, kubectl: Kubectl) -> None:
    cluster.deny([Denial(resource="deployments/scale", verb="patch")])
    assert "forbidden" in await kubectl("-n shop scale deployment web --replicas=3", fails=True)


async def test_kubectl_watch_shows_a_scaling(cluster: ManualCluster, kubectl: Kubectl) -> None:
    process = await asyncio.create_subprocess_exec(
        *kubectl.command, "-n", "shop", "get", "deploy", "-w", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        await process.stdout.readline()
        first = (await process.stdout.readline()).decode().split()
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await raw(
            cluster, "/apis/apps/v1/namespaces/shop/deployments/web/scale", "PATCH", **merge({"spec": {"replicas": 4}})
        )
        later = (await process.stdout.readline()).decode().split()
    process.terminate()
    await process.wait()
    assert (first[1], later[1]) == ("2/2", "2/4")


async def test_kubectl_shows_what_the_api_server_refuses(kubectl: Kubectl) -> None:
    manifest = MANIFESTS.split("---")[1].replace("maxReplicas: 10", "maxReplicas: 0")
    stated = await kubectl("apply -f -", stdin=manifest, fails=True)
    assert "spec.maxReplicas: Required value" in stated


# -- the official client ---------------------------------------------------------------------------------------------


def merge(body: dict[str, Any]) -> dict[str, Any]:
    return {"data": json.dumps(body), "headers": {"Content-Type": MERGE}}


async def test_list_then_watch_misses_nothing(cluster: ManualCluster, api: client.ApiClient) -> None:
    core, seen = client.CoreV1Api(api), []
    listed = await core.list_namespaced_pod("shop", label_selector="app=web")
    cluster.apply_yaml(MANIFESTS.replace("replicas: 2", "replicas: 3"))  # happens between list and watch
    cluster.advance(0)
    async with Watch() as watch, asyncio.timeout(PATIENCE_S):
        version = listed.metadata.resource_version
        async for event in watch.stream(
            core.list_namespaced_pod, "shop", label_selector="app=web", resource_version=version, timeout_seconds=30
        ):
            seen.append((event["type"], event["object"].status.phase))
            if len(seen) == 1:
                cluster.advance(1)
            if len(seen) == 2:
                break
    assert len(listed.items) == 2
    assert seen == [("ADDED", "Pending"), ("MODIFIED", "Running")]


async def test_a_stale_scale_write_conflicts_and_a_fresh_one_applies(
    cluster: ManualCluster, api: client.ApiClient
) -> None:
    apps = client.AppsV1Api(api)
    scale = await apps.read_namespaced_deployment_scale("web", "shop")
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (2, 2, "app=web")
    await apps.patch_namespaced_deployment_scale("web", "shop", {"spec": {"replicas": 3}}, field_manager="other-hand")
    scale.spec.replicas = 4
    with pytest.raises(ApiException, match="the object has been modified") as stale:
        await apps.replace_namespaced_deployment_scale("web", "shop", scale)
    assert (stale.value.status, json.loads(stale.value.body)["reason"]) == (409, "Conflict")
    body = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "spec": {"replicas": 4}}
    with pytest.raises(ApiException, match="Precondition failed: UID in precondition"):
        await apps.patch_namespaced_deployment_scale("web", "shop", body)
    fresh = await apps.read_namespaced_deployment_scale("web", "shop")
    fresh.spec.replicas = 5
    assert (await apps.replace_namespaced_deployment_scale("web", "shop", fresh)).spec.replicas == 5
    assert stored(cluster, "deployments.apps", "web")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("name", "replicas", "status"),
    [
        pytest.param("web", -1, 422, id="negative replicas are invalid"),
        pytest.param("absent", 1, 404, id="a target that is not there is not found"),
        pytest.param("web", 0, 200, id="zero is a count like any other"),
    ],
)
async def test_scale_writes_answer_as_upstream(cluster: ManualCluster, name: str, replicas: int, status: int) -> None:
    path = f"/apis/apps/v1/namespaces/shop/deployments/{name}/scale"
    code, body = await raw(cluster, path, "PATCH", **merge({"spec": {"replicas": replicas}}))
    assert (code, body["kind"]) == (status, "Scale" if status == 200 else "Status")


async def test_a_watch_from_forgotten_history_is_answered_with_410(
    cluster: ManualCluster, api: client.ApiClient
) -> None:
    core = client.CoreV1Api(api)
    version = (await core.list_namespaced_pod("shop")).metadata.resource_version
    cluster.create_namespace("later")
    cluster.expire_watches()
    async with Watch() as watch, asyncio.timeout(PATIENCE_S):
        events = watch.stream(core.list_namespaced_pod, "shop", resource_version=version)
        with pytest.raises(ApiException, match="too old resource version") as gone:
            await anext(events)
    assert gone.value.status == 410


async def test_the_custom_resource_is_found_by_discovery_and_scales(
    cluster: ManualCluster, api: client.ApiClient
) -> None:
    dynamic = await DynamicClient(api)
    widgets = await dynamic.resources.get(api_version="example.com/v1", kind="Widget")
    assert "scale" in widgets.subresources
    scale = await widgets.scale.get(name="press", namespace="shop")
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=press")
    await widgets.scale.patch(name="press", namespace="shop", body={"spec": {"replicas": 3}}, content_type=MERGE)
    cluster.advance(0)
    assert len([p for p in cluster.store.listing("pods", "shop") if p["metadata"]["labels"]["app"] == "press"]) == 3


async def test_an_hpa_is_defaulted_and_its_status_is_apart(cluster: ManualCluster, api: client.ApiClient) -> None:
    scaling = client.AutoscalingV2Api(api)
    status = {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": None}
    body = {"status": status, "spec": {"maxReplicas": 99}}
    await scaling.patch_namespaced_horizontal_pod_autoscaler_status("web", "shop", body, _content_type=MERGE)
    found = await scaling.read_namespaced_horizontal_pod_autoscaler("web", "shop")
    assert (found.spec.max_replicas, found.status.desired_replicas, found.metadata.generation) == (10, 3, 1)
    assert found.spec.min_replicas == 1


# -- metrics ---------------------------------------------------------------------------------------------------------


async def test_metrics_show_the_load_of_each_pod(cluster: ManualCluster) -> None:
    _, found = await raw(cluster, METRICS + "?labelSelector=app%3Dweb")
    assert [item["containers"][0]["usage"]["cpu"] for item in found["items"]] == ["310000000n"] * 2
    assert {(item["timestamp"], item["window"]) for item in found["items"]} == {("2026-01-01T00:00:10Z", "5s")}
    _, found = await raw(cluster, CUSTOM + "/pods/*/rps?labelSelector=app%3Dweb")
    assert [item["value"] for item in found["items"]] == ["60", "60"]
    _, found = await raw(cluster, CUSTOM + "/services/web/total_rps")
    assert [item["value"] for item in found["items"]] == ["120"]
    _, found = await raw(
        cluster, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/backlog?labelSelector=queue%3Dweb"
    )
    assert [item["value"] for item in found["items"]] == ["0"]


async def test_metrics_change_with_load_at_the_next_sample_only(cluster: ManualCluster) -> None:
    cluster.set_load("shop", "web", ConstantLoad(200))
    assert (await raw(cluster, CUSTOM + "/services/web/total_rps"))[1]["items"][0]["value"] == "120"
    cluster.advance(5)
    assert (await raw(cluster, CUSTOM + "/services/web/total_rps"))[1]["items"][0]["value"] == "200"


@pytest.mark.parametrize(
    ("fault", "status", "values"),
    [
        pytest.param(MetricsFault(), 503, None, id="an API that is down answers 503"),
        pytest.param(MetricsFault(status=404, message="gone"), 404, None, id="a missing API answers 404"),
        pytest.param(MetricsFault(namespace="other"), 200, ["100"] * 2, id="other namespaces are well"),
    ],
)
async def test_metrics_faults_hit_the_apis_that_they_name(
    cluster: ManualCluster, fault: MetricsFault, status: int, values: list[str] | None
) -> None:
    cluster.set_load("shop", "web", ConstantLoad(200))
    cluster.advance(5)
    cluster.set_metrics_faults([fault])
    code, found = await raw(cluster, CUSTOM + "/pods/*/rps")
    assert code == status
    assert [item["value"] for item in found["items"]] == values if values is not None else found["kind"] == "Status"


async def test_a_metric_that_nobody_offers_is_not_found(cluster: ManualCluster) -> None:
    assert (await raw(cluster, CUSTOM + "/pods/*/unheard"))[0] == 404
    assert (await raw(cluster, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/unheard"))[0] == 404


# -- faults and life -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic abc"])
async def test_a_wrong_token_is_unauthorized(cluster: ManualCluster, token: str) -> None:
    code, body = await raw(cluster, "/api/v1/pods", headers={"Authorization": token})
    assert (code, body["reason"]) == (401, "Unauthorized")


async def test_a_denied_namespace_is_forbidden_and_others_are_not(cluster: ManualCluster) -> None:
    cluster.deny([Denial(namespace="shop")])
    code, body = await raw(cluster, "/apis/apps/v1/namespaces/shop/deployments")
    assert code == 403
    assert (
        'User "fleethpa" cannot list resource "deployments" in API group "apps" in the namespace "shop"'
        in body["message"]
    )
    assert (await raw(cluster, "/apis/apps/v1/namespaces/default/deployments"))[0] == 200


async def test_an_object_is_validated_before_its_name_is_found_to_be_taken(cluster: ManualCluster) -> None:
    hpas = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
    _, taken = await raw(cluster, f"{hpas}/web")
    broken = {"metadata": {"name": "web"}, "spec": taken["spec"] | {"maxReplicas": 0}}
    code, body = await raw(cluster, hpas, "POST", json=broken)
    assert (code, body["reason"]) == (422, "Invalid")
    code, body = await raw(cluster, f"{hpas}/web", "DELETE", json={"preconditions": {"uid": "another"}})
    assert (code, "the UID in the precondition (another) does not match" in body["message"]) == (409, True)


async def test_a_fault_hits_its_route_as_often_as_it_was_given(cluster: ManualCluster) -> None:
    cluster.add_fault(Fault(path="/scale$", method="GET", status=429, retry_after_s=3, remaining=2))
    path = "/apis/apps/v1/namespaces/shop/deployments/web"
    answers = [await raw(cluster, f"{path}/scale") for _ in range(3)]
    assert [code for code, _ in answers] == [429, 429, 200]
    assert answers[0][1]["details"]["retryAfterSeconds"] == 3
    assert (await raw(cluster, path))[0] == 200


async def test_a_write_can_happen_although_its_answer_is_lost(cluster: ManualCluster) -> None:
    cluster.add_fault(Fault(path="/scale$", method="PATCH", action="drop", after=True))
    path = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
    with pytest.raises(aiohttp.ClientError):
        await raw(cluster, path, "PATCH", **merge({"spec": {"replicas": 7}}))
    assert stored(cluster, "deployments.apps", "web")["spec"]["replicas"] == 7


async def test_a_hanging_request_goes_on_when_the_fault_is_cleared(cluster: ManualCluster) -> None:
    cluster.add_fault(Fault(path="/pods", action="hang"))
    asked = asyncio.create_task(raw(cluster, "/api/v1/pods"))
    await until(lambda: bool(cluster.api.waiting), "the request is under way")
    assert not asked.done()
    cluster.clear_faults()
    assert (await asked)[0] == 200


async def test_a_stopped_api_server_refuses_and_comes_back_where_it_was(cluster: ManualCluster) -> None:
    before = cluster.url
    await cluster.stop_api()
    with pytest.raises(aiohttp.ClientConnectorError):
        await raw(cluster, "/version")
    await cluster.start_api()
    assert cluster.url == before
    assert len((await raw(cluster, "/api/v1/namespaces/shop/pods"))[1]["items"]) == 3


async def test_a_restart_can_reset_resource_versions(cluster: ManualCluster) -> None:
    version = int((await raw(cluster, "/api/v1/pods"))[1]["metadata"]["resourceVersion"])
    await cluster.stop_api()
    await cluster.start_api()
    assert (await raw(cluster, "/api/v1/pods"))[1]["metadata"]["resourceVersion"] == str(version)
    await cluster.restart_from_backup()
    assert int((await raw(cluster, "/api/v1/pods"))[1]["metadata"]["resourceVersion"]) < version
    code, body = await raw(cluster, f"/api/v1/pods?watch=1&resourceVersion={version}")
    assert (code, body["reason"]) == (504, "Timeout")


async def test_the_control_endpoint_drives_a_cluster_from_outside(cluster: ManualCluster) -> None:
    fleet = Fleet([cluster])
    await fleet.control.start()
    try:
        async with aiohttp.ClientSession(fleet.control.url) as session:

            async def post(action: str, body: dict[str, Any]) -> tuple[int, Any]:
                async with session.post(f"/_sim/east/{action}", json=body) as response:
                    return response.status, await response.json()

            assert await post("load", {"namespace": "shop", "workload": "web", "load": 40}) == (200, {})
            cluster.advance(5)
            assert await post("api", {"do": "stop"}) == (200, {})
            assert await post("api", {"do": "start"}) == (200, {})
            code, answer = await post("load", {"namespace": "shop", "workload": "absent", "load": 1})
            assert (code, "absent" in answer["error"]) == (400, True)
            code, answer = await post("metrics-faults", {"faults": [{"kindd": "x"}]})
            assert (code, "kindd" in answer["error"]) == (400, True)
        assert (await raw(cluster, CUSTOM + "/services/web/total_rps"))[1]["items"][0]["value"] == "40"
    finally:
        await fleet.control.stop()


async def test_the_default_fleet_runs_and_covers_every_metric_type(tmp_path: Path) -> None:
    async with default_fleet() as fleet:
        for cluster in fleet.clusters.values():
            cluster.kubelet.sync()
            hpas = cluster.store.listing("horizontalpodautoscalers.autoscaling")
            assert all(len(cluster.store.listing("pods", hpa["metadata"]["namespace"])) for hpa in hpas)
        kinds = {
            metric["type"]
            for cluster in fleet.clusters.values()
            for hpa in cluster.store.listing("horizontalpodautoscalers.autoscaling")
            for metric in hpa["spec"]["metrics"]
        }
        assert kinds == {"Resource", "ContainerResource", "Pods", "Object", "External"}
        assert (await raw(fleet["north"], "/version"))[0] == 200


async def test_an_api_server_that_forgets_ends_open_watches_with_410(cluster: ManualCluster) -> None:
    path = cluster.url + "/api/v1/namespaces/shop/pods?watch=1&resourceVersion=" + str(cluster.store.version)
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(path, headers=headers) as response,
        asyncio.timeout(PATIENCE_S),
    ):
        cluster.expire_watches()
        event = orjson.loads(await response.content.readline())
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_bookmarks_carry_the_newest_version(cluster: ManualCluster) -> None:
    cluster.api.bookmark_s = 0.05
    path = "/api/v1/namespaces/shop/pods?watch=1&allowWatchBookmarks=true&resourceVersion=" + str(cluster.store.version)
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(cluster.url + path, headers=headers) as response,
        asyncio.timeout(PATIENCE_S),
    ):
        cluster.create_namespace("elsewhere")
        event = orjson.loads(await response.content.readline())
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["resourceVersion"] == str(cluster.store.version)


async def test_live_pods_become_ready_in_real_time(tmp_path: Path) -> None:
    """With a running clock nobody has to move time: the kubelet's own task does."""
    made = SimulatedCluster("live", sample_ms=1_000)
    made.apply_yaml(MANIFESTS.replace("pod: {", "pod: {ready_ms: 100, stop_ms: 100, "))
    async with made:
        ready = {"deployments.apps": 2, "widgets.example.com": 1}

        def settled() -> bool:
            found = {kind: made.store.listing(kind, "shop")[0].get("status", {}) for kind in ready}
            return {kind: status.get("readyReplicas") for kind, status in found.items()} == ready

        await until(settled, "all pods are ready")
        await raw(
            made, "/apis/apps/v1/namespaces/shop/deployments/web/scale", "PATCH", **merge({"spec": {"replicas": 0}})
        )
        await until(lambda: len(made.store.listing("pods", "shop")) == 1, "the pods of web are gone")


DOCUMENTED = """
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: frontend
  namespace: shop
  annotations:
    fleethpa.io/simulation: |
      load: 100
      metrics:
        - {type: Object, name: requests-per-second, object: {kind: Ingress, name: main-route}}
spec:
  replicas: 3
  selector: {matchLabels: {tier: frontend}}
  template:
    metadata: {labels: {tier: frontend}}
    spec: {containers: [{name: php-redis, image: "gb-frontend:v5", resources: {requests: {cpu: 100m}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: main-route, namespace: shop}
spec: {ingressClassName: nginx, rules: [{host: shop.example.com}]}
"""


async def test_replica_sets_and_ingresses_of_the_kubernetes_documentation(
    cluster: ManualCluster, kubectl: Kubectl
) -> None:
    assert squeezed(await kubectl("apply -f -", stdin=DOCUMENTED)) == [
        "replicaset.apps/frontend created",
        "ingress.networking.k8s.io/main-route created",
    ]
    assert await kubectl("-n shop scale rs frontend --replicas=4") == "replicaset.apps/frontend scaled\n"
    cluster.advance(0)
    cluster.advance(10)
    assert squeezed(await kubectl("-n shop get rs frontend"))[1].startswith("frontend 4 4 4")
    assert squeezed(await kubectl("-n shop get ing"))[1].startswith("main-route nginx shop.example.com")
    code, scale = await raw(cluster, "/apis/apps/v1/namespaces/shop/replicasets/frontend/scale")
    assert (code, scale["spec"]["replicas"], scale["status"]["selector"]) == (200, 4, "tier=frontend")
    base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"
    code, values = await raw(cluster, f"{base}/ingresses.networking.k8s.io/main-route/requests-per-second")
    assert (code, values["items"][0]["describedObject"]["name"]) == (200, "main-route")
