"""The hub is gone: the cluster's own controller scales within 45 s, and gives the cluster back."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.agent.clusterstore import ClusterStore
from reconciler.clusters.answers import ApiError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.credentials import APPLY_PATCH
from reconciler.standin.effective import KeptSpec
from reconciler.standin.objects import LEASE, native_body
from reconciler.standin.protocol import HpaKey
from tests.kubernetes.hub import HOME
from tests.kubernetes.standin_rig import AGENTS, CLUSTER, HUB_PARTS, Rig, standin_rig
from tests.kubernetes.workloads import NAMESPACE
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def rig(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with standin_rig(tmp_path_factory.mktemp("standin"), binaries) as made:
        yield made


_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
_HPAS: Final = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


async def _refusal(work: Awaitable[object]) -> str:
    try:
        await work
    except ApiError as error:
        return f"{error.status} {error}"
    return ""


async def test_the_api_server_refuses_what_comes_late(rig: Rig) -> None:
    """While the hub is in charge: no native HPA of ours is created, and no floor written under a made-up generation."""
    agent = ClusterClient(ClusterConfig(CLUSTER, str(rig.kubeconfig), CLUSTER))
    admin = ClusterClient(ClusterConfig(CLUSTER, str(rig.site.plane.kubeconfig), CLUSTER))
    scale = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{rig.names[0]}/scale"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": rig.names[0]}
    kept = KeptSpec(namespace=NAMESPACE, name="late", spec={"scaleTargetRef": target, "maxReplicas": 3})
    try:
        generation = (await agent.get(f"{_LEASES}/{LEASE}"))["spec"]["leaseTransitions"]
        for label in (generation, generation + 1):
            refused = await _refusal(agent.request("POST", _HPAS, body=native_body(kept, label, 0)))
            assert refused.startswith("403")
            assert "it is: hub/main/1" in refused
        assert not await _refusal(agent.request("POST", f"{_HPAS}?dryRun=All", body=native_body(kept, 0, 0)))
        assert not await _refusal(agent.put(scale, await agent.get(scale)))
        # Where the Lease names nobody that is known, nobody writes.
        lease = await admin.get(f"{_LEASES}/{LEASE}")
        rig.signal(signal.SIGSTOP, *AGENTS)
        closing = await admin.put(f"{_LEASES}/{LEASE}", _held_by(lease, "closing"))
        async with asyncio.timeout(PATIENCE_S):  # the API server's policies see the Lease a moment later
            while not (await _refusal(agent.put(scale, await agent.get(scale)))).startswith("403"):
                await asyncio.sleep(0.2)
        await admin.put(f"{_LEASES}/{LEASE}", _held_by(closing, lease["spec"]["holderIdentity"]))
        rig.signal(signal.SIGCONT, *AGENTS)
    finally:
        await agent.close()
        await admin.close()


async def test_an_agent_writes_no_configmap_of_its_namespace_but_those_with_its_specs(rig: Rig) -> None:
    agent = ClusterClient(ClusterConfig(CLUSTER, str(rig.kubeconfig), CLUSTER))
    admin = ClusterClient(ClusterConfig(CLUSTER, str(rig.site.plane.kubeconfig), CLUSTER))
    maps = f"/api/v1/namespaces/{HOME}/configmaps"
    try:
        foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign"}}
        own = foreign | {"metadata": {"name": "fleethpa-stand-in-9-0"}}
        made = await admin.request("POST", maps, body=foreign)
        changed = made | {"data": {"a": "b"}}
        other = foreign | {"metadata": {"name": "other"}}
        for verb, path, body in (("PUT", "/foreign", changed), ("DELETE", "/foreign", None), ("POST", "", other)):
            refused = await _refusal(agent.request(verb, maps + path, body=body))
            assert "of ConfigMaps fleethpa writes those alone" in refused, (verb, path)
        assert not await _refusal(agent.request("POST", maps, body=own))
        assert not await _refusal(agent.request("DELETE", f"{maps}/fleethpa-stand-in-9-0"))
        await admin.request("DELETE", f"{maps}/foreign")
    finally:
        await agent.close()
        await admin.close()


async def test_a_late_write_does_not_bring_a_deleted_lease_back(rig: Rig) -> None:
    admin = ClusterClient(ClusterConfig(CLUSTER, str(rig.site.plane.kubeconfig), CLUSTER))
    metadata = {"name": "deleted", "namespace": HOME}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
    try:
        made = await admin.request("POST", _LEASES, body=body)
        await admin.request("DELETE", f"{_LEASES}/deleted")
        assert "Precondition failed: UID" in await _refusal(admin.put(f"{_LEASES}/deleted", made))
        # The version alone would not do: a Lease may be created by an update.
        del made["metadata"]["uid"]
        assert not await _refusal(admin.put(f"{_LEASES}/deleted", made))
        await admin.request("DELETE", f"{_LEASES}/deleted")
    finally:
        await admin.close()


async def test_the_api_server_tells_a_native_hpa_of_the_stand_in_from_a_copy_of_it(rig: Rig) -> None:
    agent = ClusterClient(ClusterConfig(CLUSTER, str(rig.kubeconfig), CLUSTER))
    admin = ClusterClient(ClusterConfig(CLUSTER, str(rig.site.plane.kubeconfig), CLUSTER))
    store = ClusterStore(agent, HOME, (NAMESPACE,), lambda: 30_000)
    own, copied = HpaKey(NAMESPACE, "own"), HpaKey(NAMESPACE, "copied")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}
    rig.signal(signal.SIGSTOP, *AGENTS)  # they would hand it back
    try:
        # As an agent writes it, but for the policies, which do not hold an administrator back.
        spec = {"scaleTargetRef": target, "maxReplicas": 3}
        await admin.request("POST", _HPAS, body=native_body(KeptSpec(namespace=NAMESPACE, name="own", spec=spec), 1, 0))
        made = (await store.natives())[own]
        body = {key: made[key] for key in ("apiVersion", "kind", "spec") if key in made} | {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "copied", "labels": made["metadata"]["labels"]},
        }
        await admin.request("POST", f"{_HPAS}?fieldManager=kubectl-create", body=body)
        assert (set(await store.natives()), store.labelled) == ({own}, [copied])
        # Somebody replaces it whole, with the same label, and applies the label, too.
        named = {"name": "own", "labels": made["metadata"]["labels"]}
        edited = {**body, "metadata": named, "spec": {**spec, "maxReplicas": 4}}
        await admin.put(f"{_HPAS}/own?fieldManager=kubectl-replace", edited)
        applied = {**body, "metadata": named}
        await admin.request(
            "PATCH", f"{_HPAS}/own?fieldManager=gitops&force=true", body=applied, content_type=APPLY_PATCH
        )
        assert (set(await store.natives()), store.labelled) == ({own}, [copied])
    finally:
        for name in ("own", "copied"):
            await _refusal(admin.request("DELETE", f"{_HPAS}/{name}"))
        rig.signal(signal.SIGCONT, *AGENTS)
        await agent.close()
        await admin.close()


def _held_by(lease: dict[str, Any], holder: str) -> dict[str, Any]:
    return {**lease, "spec": {**lease["spec"], "holderIdentity": holder}}


def test_the_hub_is_killed_and_comes_back(rig: Rig) -> None:
    killed = rig.kill(*HUB_PARTS)
    rig.until(lambda: len(rig.natives()) == len(rig.names), "native HPAs", 60.0)
    assert max(rig.created_after(killed)) - killed <= 45.0
    rig.demand(5)
    rig.until_at(5)
    back = time.time()
    rig.start_hub()
    rig.until(lambda: rig.holder().startswith("hub/") and not rig.natives(), "handed back", 180.0)
    assert time.time() - back < 180
    rig.demand(2)
    rig.until_at(2)
    assert rig.hub_writes_after(back)
    assert rig.conflicts() == []
