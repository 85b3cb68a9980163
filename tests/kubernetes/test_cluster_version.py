"""What an observer reads of a real API server: its version, and its feature gates once reading them is granted."""

import asyncio
import json
from pathlib import Path

from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.manifests import gates_manifests
from reconciler.observer.clusterversion import ClusterVersion
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
