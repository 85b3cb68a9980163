"""The simulated kubelet: what a change of one workload costs does not grow with the others."""

import asyncio
from typing import Any

import pytest

from fleethpa.lab.simulator.kubelet import Kubelet
from fleethpa.lab.simulator.resources import Key, Store
from runtime.log import wall_clock_ms
from tests.patience import PATIENCE_S

START_MS = 1_790_000_000_000


class CountingStore(Store):
    """Counts what is read of pods."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get(self, key: Key) -> dict[str, Any] | None:
        self.read += key[0] == "pods"
        return super().get(key)

    def listing(self, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        found = super().listing(resource, namespace)
        self.read += len(found) if resource == "pods" else 0
        return found


def deployment(name: str, replicas: int, image: str = "web:1") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
        },
    }


def put(store: Store, name: str, replicas: int, **more: str) -> None:
    store.put(("deployments.apps", "shop", name), deployment(name, replicas, **more))


def kubelet_of(store: Store) -> Kubelet:
    return Kubelet(store, lambda: START_MS, sample_ms=5_000)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def kubelet(store: Store) -> Kubelet:
    return kubelet_of(store)


def test_a_change_of_one_workload_reads_nothing_of_the_others() -> None:
    reads = []
    for others in (1, 100):
        store = CountingStore()
        kubelet = kubelet_of(store)
        for number in range(others):
            put(store, f"other-{number}", 1)
        put(store, "web", 1)
        kubelet.sync()
        store.read = 0
        put(store, "web", 3)
        kubelet.sync()
        reads.append(store.read)
    assert reads[0] == reads[1] > 0
    assert len([key for key in store.keys_in("shop") if key[0] == "pods" and key[2].startswith("web-")]) == 3


@pytest.mark.parametrize("turns", range(4))
async def test_it_ends_when_cancelled_at_the_moment_of_a_change(store: Store, turns: int) -> None:
    kubelet = Kubelet(store, wall_clock_ms, sample_ms=5_000)
    put(store, "web", 2)
    running = asyncio.create_task(kubelet.run())
    for _ in range(10):  # into its pause
        await asyncio.sleep(0)
    kubelet._wake.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
    assert done
