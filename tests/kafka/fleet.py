"""A whole fleet on Apache Kafka: simulated clusters in this process, every part of fleethpa as a process of its own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aiokafka import ConsumerRecord

from fleethpa.frame.configuration import Config
from fleethpa.frame.writer import open_writer
from fleethpa.lab.simulator.cluster import Fleet
from fleethpa.lab.simulator.model import ConstantLoad, LoadCurve
from runtime import topicneeds
from schemas.connection import KafkaSettings
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from tests.kafka.broker import KafkaBroker
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.kit.clusters import FaultyCluster
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
DECIDER_SESSION_S: Final = 6.0
SYNC_MS: Final = 2_000
SETTINGS: Final = ClusterSettings(
    sync_period_ms=SYNC_MS,
    downscale_stabilization_ms=8_000,
    cpu_initialization_period_ms=4_000,
    initial_readiness_delay_ms=2_000,
    default_mode="enforce",
    native_controller="absent",
)
WINDOWS_S: Final = (8, 20)
"""Stabilization windows of scale-down, by turns."""
MAX_REPLICAS: Final = 12

_WORKLOAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {namespace}
  annotations:
    fleethpa.io/simulation: |
      load: {{shape: sine, base: 300, amplitude: 250, period_s: {period}}}
      pod: {{schedule_ms: 200, ready_ms: 1000, stop_ms: 500, cpu_milli_per_unit: 4, noise: 0.01}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: server, image: "app:1", resources: {{requests: {{cpu: 500m}}}}}}]
"""
_AUTOSCALER: Final = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: {namespace}, labels: {{space: {namespace}}}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 2
  maxReplicas: {most}
  metrics:
    - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: {window}
      policies: [{{type: Percent, value: 100, periodSeconds: 5}}]
"""


class World:
    """Simulated clusters with namespaces whose keys spread over all partitions, under loads that swing."""

    def __init__(self, clusters: int = 3, namespaces: int = 3, hpas: int = 2) -> None:
        self.hpas: dict[HpaId, int] = {}
        """Its window in seconds by HPA."""
        made = []
        for number in range(clusters):
            cluster = FaultyCluster(f"c{number}", sample_ms=1_000)
            for index in range(namespaces * hpas):
                hpa = HpaId(cluster.name, f"n{index // hpas}", f"app{index % hpas}")
                self.hpas[hpa] = WINDOWS_S[index % 2]
                cluster.apply_yaml(_manifest(hpa, self.hpas[hpa], period_s=30 + 7 * (number + index) % 40))
            made.append(cluster)
        self.fleet = Fleet(made)

    def settle(self, units: float = 275.0) -> None:
        """From now on the load of every workload is this one.

        By default one that asks for 4 replicas from every count, well away from where the tolerance (10 %) would keep
        another one until noise (1 %) moves it: 3 pods are at 73 % of a target of 60, 4 at 55 %.
        """
        self.load(ConstantLoad(units))

    def load(self, load: LoadCurve) -> None:
        """Put every workload under this load."""
        for hpa in self.hpas:
            self.fleet[hpa.cluster].set_load(hpa.namespace, hpa.name, load)

    def replicas(self, hpa: HpaId) -> int:
        """What the target's spec says in the cluster."""
        live = self.fleet[hpa.cluster].store.get(("deployments.apps", hpa.namespace, hpa.name))
        assert live is not None, f"{hpa} has no target"
        return int(live["spec"]["replicas"])


def workload(namespace: str, name: str, period_s: int) -> str:
    """A Deployment of 3 replicas under a load that swings."""
    return _WORKLOAD.format(name=name, namespace=namespace, period=period_s)


def _manifest(hpa: HpaId, window_s: int, period_s: int) -> str:
    autoscaler = _AUTOSCALER.format(name=hpa.name, namespace=hpa.namespace, window=window_s, most=MAX_REPLICAS)
    return f"{workload(hpa.namespace, hpa.name, period_s)}---{autoscaler}"


class Part:
    """One long-running part: `fleethpa run …`, or another module, as a process, its output in a file.

    Args:
        cwd: where it runs.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        *,
        cwd: Path = ROOT,
        module: str = "fleethpa",
    ) -> None:
        self.name, self._cwd, self._module = name, cwd, module
        self.arguments = arguments
        self.output = folder / f"{name}.txt"
        self._environ = environ
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, crash_at: str = "") -> None:
        """Start it; `crash_at`: a marked step at which it kills itself."""
        module = "tests.kafka.chaos.armed" if crash_at else self._module
        environ = os.environ | self._environ | ({"FLEETHPA_CRASH_AT": crash_at} if crash_at else {})
        self.starts += 1
        with self.output.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *self.arguments],
                stdout=stream,
                stderr=stream,
                cwd=self._cwd,
                env=environ,
            )

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        """Its process.

        Raises:
            RuntimeError: it was never started.
        """
        if self.process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self.process

    @property
    def ended(self) -> bool:
        """Whether it has ended, or never began."""
        return self.process is None or self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.running.send_signal(number)

    def kill(self) -> None:
        """End it at once, also when it is stopped."""
        if not self.ended:
            self.running.kill()
            self.running.wait()

    async def terminate(self, timeout_s: float = PATIENCE_S) -> tuple[int, float]:
        """SIGTERM; its exit code and how many seconds it took."""
        begun = time.monotonic()
        self.running.terminate()
        code = await asyncio.to_thread(self.running.wait, timeout_s)
        return code, time.monotonic() - begun

    def stated(self, after: int) -> str:
        """What it printed after so many bytes."""
        return self.output.read_bytes()[after:].decode(errors="replace")

    def tail(self, length: int = 3_000) -> str:
        """The end of what it printed."""
        return f"{self.name}:\n{self.output.read_text(errors='replace')[-length:]}"


class Rig:
    """Broker, clusters and parts, as an async context. Parts are started with `add`.

    Args:
        static: whether decider and ingest are static members of their groups.
        settings: how the rig itself, as an administrator, gets in; None: without security.
        properties: kind of part, or `operator`, → its `client.properties`.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        folder: Path,
        world: World,
        *,
        static: bool = True,
        settings: KafkaSettings | None = None,
        properties: Mapping[str, Path] | None = None,
    ) -> None:
        self.broker, self.world = broker, world
        self.settings = settings or KafkaSettings(bootstrap_servers=broker.bootstrap)
        self._properties = {kind: str(path) for kind, path in (properties or {}).items()}
        self.config = Config(
            brokers=broker.bootstrap, kafka_config=self._properties.get("operator", ""), author="tests"
        )
        self.parts: dict[str, Part] = {}
        self.exits: Counter[tuple[str, int]] = Counter()
        self.cut_log: dict[int, list[ConsumerRecord]] = {}
        """Records that the log held before faults deleted them, by partition."""
        self.harmed_until = 0.0
        """Monotonic time from which on a fault repairs what it has harmed; 0: the harness repairs."""
        self.log_time_stands_until = 0.0
        """Monotonic time at which the broker's clock is past the newest log time again."""
        self.parts_folder, self._static = folder, static
        self._environ = {"FLEETHPA_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"}

    async def __aenter__(self) -> "Rig":
        self.parts_folder.mkdir(parents=True, exist_ok=True)
        await make_topics(self.settings, topicneeds.wanted(PARTITIONS, 1))
        await self.world.fleet.start()
        self._kubeconfig = str(self.world.fleet.write_kubeconfig(self.parts_folder / "kubeconfig"))
        await self.write_settings()
        return self

    async def write_settings(self) -> None:
        """Record engine and settings, as an operator does."""
        async with open_writer(self.config) as writer:
            engine = EngineSet(engine=ENGINE, partitions=PARTITIONS, author="tests", reason="first start")
            settings = SettingsSet(cluster="*", settings=SETTINGS, author="tests", reason="first start")
            await writer.send("engine and settings", "*", "", [engine, settings])

    async def __aexit__(self, *_: object) -> None:
        for part in self.parts.values():
            part.kill()
        await self.world.fleet.stop()

    def add(self, name: str, *options: str, crash_at: str = "", signed_in_as: str = "") -> Part:
        """Start a part by name: `decider-0`, `ingest-1`, `reconciler-0`, `observer-0`; again, if it was stopped."""
        if name not in self.parts:
            arguments = self._arguments(name, signed_in_as or name.split("-")[0])
            self.parts[name] = Part(name, [*arguments, *options], self.parts_folder, self._environ)
        self.parts[name].start(crash_at)
        return self.parts[name]

    def add_all(self) -> None:
        """One of each."""
        for kind in ("ingest", "decider", "reconciler", "observer"):
            self.add(f"{kind}-0")

    def of_kind(self, kind: str) -> list[Part]:
        """The parts of a kind."""
        return [part for name, part in self.parts.items() if name.startswith(kind)]

    def _arguments(self, name: str, user: str) -> list[str]:
        kind = name.split("-")[0]
        arguments = ["run", kind, "--brokers", self.broker.bootstrap]
        if user in self._properties:
            arguments += ["--kafka-config", self._properties[user]]
        if kind == "decider":
            member = ["--instance-id", name] if self._static else []
            return [*arguments, "--session-timeout", str(DECIDER_SESSION_S), *member]
        if kind == "ingest":
            return [*arguments, *(["--member", name] if self._static else [])]
        return [*arguments, "--kubeconfig", self._kubeconfig]

    def heal(self) -> None:
        """Start again what has ended, as a supervisor would."""
        for part in self.parts.values():
            if part.ended:
                self.exits[(part.name.split("-")[0], int(part.running.returncode))] += 1
                part.start()

    async def stop(self, name: str, within_s: float = 60.0) -> float:
        """SIGTERM to a part, which must end with 0; how many seconds it took."""
        part = self.parts.pop(name)
        if part.ended:
            raise AssertionError(f"{name} has ended with {part.running.returncode}\n{part.tail()}")
        code, took_s = await part.terminate(within_s)
        assert code == 0, f"{name} ended with {code} on SIGTERM\n{part.tail()}"
        return took_s

    def tails(self) -> str:
        """The end of what each part printed."""
        return "\n".join(part.tail(1_500) for part in self.parts.values())
