"""`python -m tests.kubernetes.hubfleet`: what the process of the hub's API costs, and how soon an object counts.

Objects are CentralHPAs in shadow. Those of the fleet at rest have no workload; those that are timed have one.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from reconciler.clusters.client import ClusterClient, ClusterConfig
from tests.kubernetes import binaries
from tests.kubernetes.controlplane import ControlPlane, kubeconfig
from tests.kubernetes.hub import Hub
from tests.kubernetes.test_hub_api import CLUSTER, central, made
from tests.kubernetes.workloads import deployment

Json = dict[str, Any]
IN_NAMESPACE: Final = 50
AT_ONCE: Final = 20
LONGEST_S: Final = 900.0


def _path(namespace: str, name: str = "") -> str:
    return f"/apis/fleethpa.io/v1alpha1/namespaces/{namespace}/centralhpas{name and '/'}{name}"


def _is_ready(item: Json) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_logged(item: Json) -> bool:
    """Whether the log has it, decided or not."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["reason"] != "Recording" for each in conditions)


async def _until(client: ClusterClient, path: str, holds: Callable[[Json], bool]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while not holds(await client.get(path)):
            await asyncio.sleep(0.05)


async def _fill(client: ClusterClient, count: int) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> None:
        async with turns:
            body = central(f"web-{number}", f"team-{number // IN_NAMESPACE}", mode="shadow")
            await client.request("POST", _path(body["metadata"]["namespace"]), body=body)

    for number in range(-(-count // IN_NAMESPACE)):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}"}}
        await client.request("POST", "/api/v1/namespaces", body=body)
    await asyncio.gather(*(create(number) for number in range(count)))
    async with asyncio.timeout(LONGEST_S):
        while True:
            found = [await client.get(_path(f"team-{number}")) for number in range(-(-count // IN_NAMESPACE))]
            ready = sum(_is_ready(item) for page in found for item in page["items"])
            if ready == count:
                return
            await asyncio.sleep(2)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(client: ClusterClient, pid: int, count: int, rest_s: float, samples: int) -> None:
    began = time.monotonic()
    await _fill(client, count)
    print(f"{count} objects created and ready in {time.monotonic() - began:.0f} s", flush=True)
    await asyncio.sleep(30)
    before = _cpu_s(pid)
    await asyncio.sleep(rest_s)
    print(f"at rest: {(_cpu_s(pid) - before) / rest_s:.3f} of a core", flush=True)
    logged, decided = [], []
    for number in range(samples):
        body, path = central(f"new-{number}", "team-0", mode="shadow"), _path("team-0", f"new-{number}")
        workload = deployment(f"new-{number}", 3, cpu="100m")
        workload["metadata"]["namespace"] = "team-0"
        await client.request("POST", "/apis/apps/v1/namespaces/team-0/deployments", body=workload)
        began = time.monotonic()
        await client.request("POST", _path("team-0"), body=body)
        await _until(client, path, _is_logged)
        logged.append(time.monotonic() - began)
        await _until(client, path, _is_ready)
        decided.append(time.monotonic() - began)
        print(f"  recorded {logged[-1]:.1f} s, decided {decided[-1]:.1f} s", flush=True)
    for name, delays in (("shown as recorded", logged), ("shown as decided", decided)):
        cuts = statistics.quantiles(delays, n=100)
        print(f"created to {name}, {samples} objects: p50 {cuts[49]:.1f} s, p99 {cuts[98]:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=2_000)
    parser.add_argument("--rest", type=float, default=120.0, metavar="S")
    parser.add_argument("--samples", type=int, default=50)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleethpa-hubfleet-"))
    with ControlPlane(CLUSTER, folder / "plane", binaries.built(), native=False) as plane:
        user = {"client-certificate": str(plane.admin_pem), "client-key": str(plane.admin_pem)}
        server = {"server": plane.url, "certificate-authority": str(plane.cafile)}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig({CLUSTER: (server, user)})))
        with Hub(folder / "hub", path) as hub:
            plane.kubectl("apply", "--server-side", "-f", "-", stdin=hub.run("hub", "manifests"))
            plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
            hub.start("ingest")
            hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
            hub.start("decider", "--session-timeout", "10")
            hub.start("observer")
            process = hub.start("hub", "--context", CLUSTER)
            plane.apply([made("FleetAccess", "all", {"namespaces": ["*"], "clusters": ["*"]})])
            pid = process.process.pid  # type: ignore[union-attr]

            async def work() -> None:
                client = ClusterClient(ClusterConfig(CLUSTER, str(path), CLUSTER))
                try:
                    await measure(client, pid, given.objects, given.rest, given.samples)
                finally:
                    await client.close()
                    print(hub.tails()[-2_000:])

            asyncio.run(work())


if __name__ == "__main__":
    main()
