"""What an observer reads of a real API server: its version, its feature gates once reading them is granted, and which
events of HPAs.
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import structs

from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.manifests import gates_manifests
from reconciler.clusters.nativehpas import NativeHpas, hpa_path
from reconciler.core.objects import FIELD_MANAGER, is_status_of, kept_hpa
from reconciler.core.statusplan import LiveHpa
from reconciler.observer.clusterview import ClusterState
from reconciler.observer.native import ClusterVersion
from reconciler.observer.ownechoes import OwnEchoes
from schemas.codec import encode
from schemas.observed import HPA_GATES
from streams.hpa.rules import RELEASED, rules_named, rules_of
from streams.state.clustersettings import effective
from tests.kubernetes.access import refused
from tests.kubernetes.controlplane import ControlPlane, kubeconfig
from tests.kubernetes.hub import ACCOUNT, HOME, USER
from tests.kubernetes.site import until


def account_of(plane: ControlPlane, folder: Path) -> ClusterConfig:
    """An account that may do what everybody who has signed in may."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": HOME}}
    plane.apply([home, account])
    user = {"token": plane.kubectl("create", "token", ACCOUNT, "-n", HOME).strip()}
    server = {"server": plane.url, "certificate-authority": str(plane.cafile)}
    file = folder / "kubeconfig-of-account"
    file.write_text(json.dumps(kubeconfig({plane.name: (server, user)})))
    return ClusterConfig(plane.name, str(file), plane.name)


def read(config: ClusterConfig) -> str:
    """The version and gates as a heartbeat carries them."""

    async def work() -> str:
        client = ClusterClient(config)
        try:
            found = ClusterVersion(client)
            await found.read()
            return found.text
        finally:
            await client.close()

    return asyncio.run(work())


def test_version_and_gates_are_read_and_nothing_is_refused(binaries: Path, tmp_path: Path) -> None:
    with ControlPlane("versioned", tmp_path, binaries, native=False) as plane:
        config = account_of(plane, tmp_path)
        before = read(config)
        plane.apply(gates_manifests(service_account=ACCOUNT, home=HOME))
        after = until(lambda: text if " " in (text := read(config)) else "", "the gates are read")

        assert before.startswith(f"v1.{RELEASED}.")
        assert after == f"{before} {','.join(f'{name}=true' for name in HPA_GATES)}"
        assert effective({}, "versioned", after).controller.rules == rules_of(RELEASED) == rules_named(f"1.{RELEASED}")
        assert refused(plane.audit(USER)) == []


WEB = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "default", "labels": {"team": "a"}},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9},
}


STATUSES = 6


async def statuses_seen(config: ClusterConfig, edit: Callable[[], object]) -> tuple[list[str], list[str]]:
    """The types of the events that an observer reads of fleethpa's statuses: of the first, and of those after an edit
    (the edit's own event included).
    """
    client, state = ClusterClient(config), ClusterState()
    hpas, echoes, seen = NativeHpas(client), OwnEchoes(state), list[str]()

    async def show(live: LiveHpa, usage: int) -> LiveHpa:
        cpu = {"name": "cpu", "current": {"averageValue": f"{usage}m"}}
        ready = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "a > b & c"}
        status = {"conditions": [ready], "currentMetrics": [{"type": "Resource", "resource": cpu}]}
        return await hpas.show("default", "web", structs.replace(live, status=encode(status)))

    try:
        live = await hpas.live("default", "web")
        watched = client.watch(
            f"{hpa_path('default')}?watch=true&resourceVersion={live.version}", silence_s=30, read=echoes.read
        )
        for usage in range(STATUSES):
            live = await show(live, usage)
        await asyncio.to_thread(edit)
        live = await hpas.live("default", "web")
        for usage in range(STATUSES, 2 * STATUSES):
            live = await show(live, usage)
        async for event in watched:
            seen.append(event["type"])
            if event["type"] == "MODIFIED":
                item = event["object"]
                own = is_status_of(item, FIELD_MANAGER)
                state.namespace("default").hpas["web"] = echoes.known(item, kept_hpa(item), own_status=own)
            if len(seen) == 2 * STATUSES + 1:
                break
        return seen[:STATUSES], seen[STATUSES:]
    finally:
        await client.close()


def test_of_the_statuses_of_fleethpas_own_only_the_first_after_a_change_is_read(binaries: Path, tmp_path: Path) -> None:
    """One more is read when the clock's second changes: the API server lists who manages fields by the second and,
    within it, by name, so that fleethpa's entry moves to the end once.
    """
    with ControlPlane("echoing", tmp_path, binaries, native=False) as plane:
        plane.apply([WEB])
        config = ClusterConfig(plane.name, str(plane.kubeconfig), plane.name)
        label = partial(plane.kubectl, "label", "hpa", "web", "team=b", "--overwrite")
        for seen in asyncio.run(statuses_seen(config, label)):
            assert seen[0] == "MODIFIED"
            assert seen.count("MODIFIED") <= 2
            assert seen.count("BOOKMARK") >= STATUSES - 2
