"""A whole cluster for tests: control plane, node and metrics backend, the last two in a thread of their own."""

import asyncio
import json
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from reconciler.clusters.client import ClusterClient, ClusterConfig
from tests.kafka.broker import free_ports
from tests.kubernetes.backend import Backend
from tests.kubernetes.containers import Containers
from tests.kubernetes.controlplane import METRICS_GROUPS, ControlPlane, metrics_manifests
from tests.kubernetes.node import NAME, Node
from tests.kubernetes.widgets import operate
from tests.patience import PATIENCE_S

Json = dict[str, Any]
T = TypeVar("T")

_SERVED_S: Final = 60.0


class Site:
    """A running cluster. `backend`: what its metrics APIs answer; `containers`: what runs its pods of fleethpa;
    `groups`: the metrics APIs, each with its version.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        binaries: Path,
        *,
        native: bool = True,
        runs_fleethpa: bool = False,
        groups: Sequence[tuple[str, str]] = METRICS_GROUPS,
    ) -> None:
        self.name, self._groups = name, groups
        self.plane = ControlPlane(name, folder, binaries, native=native)
        self._client = ClusterClient(ClusterConfig(name, str(self.plane.kubeconfig), name))
        self.containers = (
            Containers(self._client, folder / "pods", self.plane.cafile, self.plane.url) if runs_fleethpa else None
        )
        self.node = Node(self._client, containers=self.containers)
        self.backend = Backend(lambda: self.node.pods, groups)
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"node and metrics of {name}")
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.plane.start()
            (port,) = free_ports(1)
            asyncio.run_coroutine_threadsafe(self._begin(port), self._loop).result()
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
            self.plane.apply([node, *metrics_manifests(self.plane.cafile, port, self._groups)])
            until(self._is_served, "the metrics APIs are served", _SERVED_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def _begin(self, port: int) -> None:
        serving = asyncio.Event()
        served = self.backend.serve(port, self.plane.metrics_pem, self.plane.front_cafile, serving)
        self._tasks = [asyncio.create_task(work) for work in (served, self.node.run(), operate(self._client))]
        await serving.wait()

    def _end(self) -> None:
        """End everything; what went wrong in the thread is raised."""
        try:
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.plane.stop()

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.containers is not None:
            await self.containers.close()
        await self._loop.shutdown_asyncgens()
        await self._client.close()
        # The other end is gone before the connections are: each then ends at once, and none is left to the collector.
        self.plane.stop()
        while len(self._selector.get_map()) > 1:  # one is the loop's own
            await asyncio.sleep(0.01)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def _is_served(self) -> bool:
        found = json.loads(self.plane.kubectl("get", "apiservices", "-o", "json"))["items"]
        available = {each["metadata"]["name"] for each in found if _is_available(each)}
        return {f"{version}.{group}" for group, version in self._groups} <= available

    # --- what tests ask -----------------------------------------------------------------------------------------------

    def replicas(self, namespace: str, resource: str, name: str) -> int:
        """What the spec of a target asks for."""
        return int(self.plane.kubectl("get", resource, name, "-n", namespace, "-o", "jsonpath={.spec.replicas}"))

    def hpas(self, namespace: str) -> Mapping[str, Json]:
        """The HPA objects of a namespace by name."""
        found = self.plane.objects("horizontalpodautoscalers.v2.autoscaling", namespace)
        return {hpa["metadata"]["name"]: hpa for hpa in found}


def _is_available(api_service: Json) -> bool:
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def until(found: Callable[[], T], what: str, timeout_s: float = PATIENCE_S, every_s: float = 0.5) -> T:
    """Ask until the answer is true, and return it.

    Raises:
        AssertionError: it was not within `timeout_s`; names `what`.
    """
    deadline = time.monotonic() + timeout_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)
    return result
