"""The hub is gone: the cluster's own controller scales within 45 s, and gives the cluster back."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.standin.effective import KeptSpec
from reconciler.agents.standin.objects import native_body
from reconciler.agents.standin.protocol import CreateNative, HpaKey
from reconciler.clusters.answers import ApiError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.credentials import APPLY_PATCH
from reconciler.core.fence import GENERATION_LABEL, LEASE
from reconciler.core.objects import STAND_IN_LABEL
from tests.kubernetes.hub import HOME
from tests.kubernetes.standin_rig import AGENTS, CLUSTER, HUB_PARTS, USER, Rig, at, standin_rig
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


async def test_a_native_hpa_of_the_stand_in_is_known_by_the_uid_that_it_recorded(rig: Rig) -> None:
    """Not by anything that a tenant can write."""
    agent = ClusterClient(ClusterConfig(CLUSTER, str(rig.kubeconfig), CLUSTER))
    admin = ClusterClient(ClusterConfig(CLUSTER, str(rig.site.plane.kubeconfig), CLUSTER))
    store = ClusterStore(agent, HOME, (NAMESPACE,), lambda: 30_000)
    own, copied = HpaKey(NAMESPACE, "own"), HpaKey(NAMESPACE, "copied")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}
    rig.signal(signal.SIGSTOP, *AGENTS)  # they would hand it back
    try:
        # As an agent writes it, but for the policies, which do not hold an administrator back.
        kept = KeptSpec(namespace=NAMESPACE, name="own", spec={"scaleTargetRef": target, "maxReplicas": 3})
        await store.plan_natives({own}, 1, ())
        as_agent = ClusterStore(admin, HOME, (NAMESPACE,), lambda: 30_000)
        await as_agent.load_own()
        made = await as_agent.create_native(kept, CreateNative(own, 1), 0, has_fence=True)
        body = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "spec": made["spec"],
            "metadata": {part: made["metadata"][part] for part in ("labels", "annotations")} | {"name": "copied"},
        }
        await admin.request("POST", f"{_HPAS}?fieldManager=fleethpa", body=body)
        assert (set(await store.natives()), set(store.labelled)) == ({own}, {copied})
        await store.record_uids()
        # Somebody replaces it whole, and applies it, which changes the managed fields: it stays the same object.
        again = {**body, "metadata": {**body["metadata"], "name": "own"}}
        await admin.put(
            f"{_HPAS}/own?fieldManager=kubectl-replace", {**again, "spec": {**made["spec"], "maxReplicas": 4}}
        )
        await admin.request(
            "PATCH", f"{_HPAS}/own?fieldManager=gitops&force=true", body=again, content_type=APPLY_PATCH
        )
        assert (set(await store.natives()), set(store.labelled)) == ({own}, {copied})
        # Somebody puts another in its place, with all that it had.
        await admin.request("DELETE", f"{_HPAS}/own")
        await admin.request("POST", f"{_HPAS}?fieldManager=fleethpa", body=again)
        later = ClusterStore(agent, HOME, (NAMESPACE,), lambda: 30_000)
        assert (await later.natives(), set(later.labelled)) == ({}, {own, copied})
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


TENANT: Final = "tenant"
"""A user who may do everything with the HPAs of one namespace, and nothing else."""


def _as_tenant(rig: Rig, *arguments: str, stdin: str = "") -> None:
    rig.site.plane.kubectl(*arguments, "-n", NAMESPACE, "--as", TENANT, stdin=stdin)


def _admit_tenant(rig: Rig) -> None:
    subject = {"kind": "User", "name": TENANT, "apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["*"]}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": TENANT, "namespace": NAMESPACE}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    role = {**head, "kind": "Role", "rules": [rule]}
    rig.site.plane.apply([role, {**head, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}])


def _lists_of_natives(rig: Rig, after_s: float) -> int:
    """How often the agent looked for native HPAs since a moment (Unix s)."""
    return sum(
        f"labelSelector={STAND_IN_LABEL.replace('/', '%2F')}" in event["requestURI"] and at(event) > after_s
        for event in rig.site.plane.audit(USER)
    )


def test_a_tenant_does_not_take_its_cluster_from_the_hub_by_an_hpa_in_fleethpas_name(rig: Rig) -> None:
    _admit_tenant(rig)
    rig.until(lambda: rig.holder().startswith("hub/"), "the hub is in charge", 180.0)
    before, begun_s = rig.generation(), time.time()
    forged = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "forged",
            "labels": {STAND_IN_LABEL: "true", GENERATION_LABEL: str(before)},
            "finalizers": ["example.com/never"],
        },
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}, "maxReplicas": 2},
    }
    _as_tenant(rig, "create", "--field-manager", "fleethpa", "-f", "-", stdin=json.dumps(forged))
    try:
        rig.until(lambda: _lists_of_natives(rig, begun_s) >= 2, "the agent has seen it", 150.0)
        rig.demand(4)
        rig.until_at(4)
        assert (rig.holder().startswith("hub/"), rig.generation()) == (True, before)
        assert "deletionTimestamp" not in rig.natives()["forged"]["metadata"]
    finally:
        _as_tenant(rig, "patch", "hpa", "forged", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        _as_tenant(rig, "delete", "hpa", "forged")


@pytest.mark.parametrize("has_native", [True, False], ids=["native controller", "none"])
def test_a_tenant_holds_up_its_own_target_alone_by_a_finalizer(rig: Rig, has_native: bool) -> None:
    _admit_tenant(rig)
    held, other = rig.names[0], rig.names[1]
    rig.until(lambda: rig.holder().startswith("hub/"), "the hub is in charge", 180.0)
    rig.as_if_steady()
    rig.kill(*HUB_PARTS)
    rig.until(lambda: len(rig.natives()) == len(rig.names), "native HPAs", 60.0)
    _as_tenant(rig, "patch", "hpa", held, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/never"]}}')
    if not has_native:
        rig.site.plane.set_native(False)
    begun_s = time.time()
    rig.start_hub()
    if not has_native:
        rig.hub.run("settings", CLUSTER, "native-controller=absent", "--yes", "--wait", "30s")
    rig.until(lambda: rig.holder().startswith("hub/"), "handed back", 180.0)
    generation = rig.generation()
    rig.demand(6)
    rig.until(lambda: rig.counts()[other] == 6, "the other one is scaled", 120.0)
    assert set(rig.natives()) == {held}
    if has_native:
        rig.until(lambda: f"{NAMESPACE}/{held}" in rig.hub.run("get", "clusters", "-o", "json", codes=(0, 1)), "shown")
    else:
        rig.until_at(6)
    assert rig.hub_writes_after(begun_s)
    _as_tenant(rig, "patch", "hpa", held, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    rig.until(lambda: not rig.natives(), "it is gone")
    rig.demand(2)
    rig.until_at(2, 180.0)
    assert (rig.holder().startswith("hub/"), rig.generation()) == (True, generation)
    if not has_native:
        rig.hub.run("settings", CLUSTER, "native-controller=present", "--yes", "--wait", "30s")
        rig.site.plane.set_native(True)
