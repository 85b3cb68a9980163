"""A cluster with its native controller, an agent of two replicas, and a hub that can be killed, stopped and cut off."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from fleethpa.lab.simulator.broker import EmbeddedBroker
from reconciler.clusters.manifests import AgentPlace, agent_manifests
from reconciler.core.fence import LEASE
from reconciler.core.objects import STAND_IN_LABEL
from schemas.agents import AgentSet, AgentTopics
from tests.kafka.fleet import Part
from tests.kubernetes.agents import register
from tests.kubernetes.backend import Demand
from tests.kubernetes.hub import HOME, SAME_SETTINGS, Hub, write_kubeconfig
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, deployment, hpa, resource
from tests.patience import PATIENCE_S

Json = dict[str, Any]

CLUSTER: Final = "east"
ACCOUNT: Final = "fleethpa-agent"
USER: Final = f"system:serviceaccount:{HOME}:{ACCOUNT}"
TOPICS: Final = AgentTopics(CLUSTER, 1)
AGENTS: Final = ("agent-a", "agent-b")
HUB_PARTS: Final = ("ingest", "decider", "router")
_CPU_MILLI: Final = 100
"""Demand for one replica: half of what the two containers of a pod request."""


def at(event: Json) -> float:
    """When a request of the audit log ended (Unix s)."""
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()


class BrokerProcess(EmbeddedBroker):
    """The embedded broker as a process of its own, which can be stopped for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""

    @property
    def bootstrap(self) -> str:
        """Its address, as host:port."""
        return self._address

    def start(self) -> str:
        """Start it and give its address."""
        command = [sys.executable, "-m", "tests.kit.simulated", "broker"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._address = json.loads(self._process.stdout.readline())["bootstrap"]
        return self._address

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it, also where it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Conflict(NamedTuple):
    """A write of one hand while the other was in charge, and when it was (Unix s)."""

    at: float
    text: str


@dataclass
class Rig:
    """The cluster, the hub, and when things were done to them."""

    site: Site
    hub: Hub
    broker: BrokerProcess
    names: tuple[str, ...]
    kubeconfig: Path
    _events: list[Json] = field(default_factory=list)
    _read: int = 0

    # --- what is done -------------------------------------------------------------------------------------------------

    def demand(self, replicas: int) -> None:
        """Demand so many replicas of every application."""
        for name in self.names:
            self.site.backend.demands[NAMESPACE, name] = Demand(cpu_milli=replicas * _CPU_MILLI, memory_mib=100)

    def enforce(self, utilization: int = 50, most: int = 8) -> None:
        """Apply and enforce the central HPAs, with this target and so many replicas at most."""
        central = [hpa(name, resource("cpu", averageUtilization=utilization), high=most) for name in self.names]
        file = self.hub.folder / "central.yaml"
        file.write_text(yaml.safe_dump_all(central))
        self.hub.run("apply", "-f", str(file), "-C", CLUSTER, "--mode", "enforce", "--yes", "--wait", "60s")

    def brake(self) -> None:
        """Switch the brakes on that the production profile has."""
        self.hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        brakes = ("removal-budget=30%/10m", "partial-view=true")
        self.hub.run("settings", CLUSTER, *brakes, "--yes", "--wait", "30s")

    def unbrake(self) -> None:
        """Switch them off."""
        brakes = ("removal-budget=off", "partial-view=false")
        self.hub.run("settings", CLUSTER, *brakes, "--yes", "--wait", "30s")

    def start_agents(self, names: Sequence[str] = AGENTS) -> None:
        """Start replicas of the agent."""
        for name in names:
            options = ("--contexts", CLUSTER, "--incarnation", str(TOPICS.incarnation), "--local-clock")
            self.hub.start(name, *options)

    def start_hub(self) -> None:
        """Start ingest, decider and router."""
        self.hub.start("ingest")
        self.hub.start("decider", "--session-timeout", "6")
        self.hub.start("router")

    def kill(self, *names: str) -> float:
        """Kill parts; when (Unix s)."""
        for name in names:
            self.hub.parts[name].kill()
        return time.time()

    def signal(self, number: signal.Signals, *names: str) -> float:
        """Send parts a signal, their children too; when (Unix s)."""
        for name in names:
            for pid in _tree(self.hub.parts[name]):
                with suppress(ProcessLookupError):
                    signal_process(pid, number)
        return time.time()

    def as_if_steady(self) -> None:
        """As if the hub, where it is in charge, had been so for long: else it must prove life for longer each time."""
        if self.holder().startswith("hub/"):
            long_ago = json.dumps({"spec": {"acquireTime": "2026-01-01T00:00:00.000000Z"}})
            self.site.plane.kubectl("patch", "lease", LEASE, "-n", HOME, "--type", "merge", "-p", long_ago)

    def leader(self) -> str:
        """The replica that leads, by what it last reported of itself."""
        return next((name for name in AGENTS if self._leads(name)), AGENTS[0])

    def _leads(self, name: str) -> bool:
        part = self.hub.parts[name]
        stated = [line for line in part.output.read_text().splitlines() if '"message": "leads' in line]
        return not part.ended and bool(stated) and '"leads"' in stated[-1]

    # --- what is seen -------------------------------------------------------------------------------------------------

    def holder(self) -> str:
        """Who is in charge, by the Lease."""
        return str(self._lease().get("holderIdentity") or "")

    def generation(self) -> int:
        """How often the cluster changed hands; 0 while the Lease is gone."""
        return int(self._lease().get("leaseTransitions") or 0)

    def _lease(self) -> Json:
        found = self.site.plane.get(f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/{LEASE}") or {}
        spec: Json = found.get("spec") or {}
        return spec

    def natives(self) -> dict[str, Json]:
        """The native HPAs of the stand-in."""
        path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers?labelSelector={STAND_IN_LABEL}"
        return {each["metadata"]["name"]: each for each in self._items(path)}

    def counts(self) -> dict[str, int]:
        """Replicas that the specs ask for."""
        found = self._items(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}

    def _items(self, path: str) -> list[Json]:
        return list((self.site.plane.get(path) or {}).get("items") or ())

    def until_at(self, replicas: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every application has so many replicas."""
        self.until(lambda: set(self.counts().values()) == {replicas}, f"{replicas} replicas each", timeout_s)

    def until(self, found: Any, what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait, or fail with what the parts printed."""
        try:
            until(found, what, timeout_s, every_s=0.25)
        except AssertionError as error:
            seen = f"holder {self.holder()!r}, replicas {self.counts()}, native {sorted(self.natives())}"
            raise AssertionError(f"{error}; {seen}\n{self.hub.tails()}") from error

    # --- what was, by the audit log -----------------------------------------------------------------------------------

    def conflicts(self) -> list["Conflict"]:
        """What two hands did at the same time, by the API server's own record; none: never two in charge."""
        events = sorted(self._done(), key=at)
        lives: dict[str, list[list[float]]] = {}
        found: list[Conflict] = []
        for event in events:
            reference, verb = event["objectRef"], event["verb"]
            name = reference.get("name") or ""
            if reference["resource"] == "horizontalpodautoscalers" and event["user"]["username"] == USER:
                if verb == "create" and "dryRun" not in event["requestURI"]:
                    lives.setdefault(name, []).append([at(event), float("inf")])
                elif verb == "delete" and lives.get(name):
                    lives[name][-1][1] = at(event)
        for event in events:
            if event["objectRef"].get("subresource") != "scale" or event["verb"] not in ("update", "patch"):
                continue
            name, when = event["objectRef"]["name"], at(event)
            has_native = any(begin < when < end for begin, end in lives.get(name, ()))
            is_ours = event["user"]["username"] == USER
            if is_ours == has_native:
                hand = "the hub's" if is_ours else "a native"
                text = f"{hand} write of {name} at {event['stageTimestamp']}, native: {lives.get(name)}"
                found.append(Conflict(when, text))
        return found

    def created_after(self, moment: float) -> list[float]:
        """When native HPAs were created after a moment (Unix s)."""
        return [
            at(event)
            for event in self._done()
            if event["objectRef"]["resource"] == "horizontalpodautoscalers"
            and event["verb"] == "create"
            and event["user"]["username"] == USER
            and "dryRun" not in event["requestURI"]
            and at(event) > moment
        ]

    def hub_writes_after(self, moment: float) -> list[float]:
        """When the hub's writes were applied after a moment (Unix s)."""
        return [
            at(event)
            for event in self._done()
            if event["objectRef"].get("subresource") == "scale"
            and event["verb"] == "update"
            and event["user"]["username"] == USER
            and at(event) > moment
        ]

    def _done(self) -> list[Json]:
        """The requests of both hands that succeeded; what the log has grown by is read."""
        with self.site.plane.audit_log.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if b"/scale" in line or b"horizontalpodautoscalers" in line:
                    event = json.loads(line)
                    if _is_done_by_a_hand(event):
                        self._events.append(event)
        return self._events


def _is_done_by_a_hand(event: Json) -> bool:
    # A request whose client went away before it was authenticated has no user name.
    is_hand = event["user"].get("username") == USER or "horizontal-pod-autoscaler" in event.get("userAgent", "")
    is_done = event.get("responseStatus", {}).get("code", 500) < 300
    return is_hand and is_done and event["stage"] == "ResponseComplete"


def signal_process(pid: int, number: signal.Signals) -> None:
    """Send one process a signal."""
    os.kill(pid, number)


def _tree(part: Part) -> list[int]:
    """The process of a part and those that it started."""
    pids = [part.running.pid]
    for pid in pids:
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pids += [int(child) for child in children]
    return pids


@contextmanager
def standin_rig(folder: Path, binaries: Path, hpas: int = 2) -> Iterator[Rig]:
    """Start everything: `hpas` central HPAs are enforced, and the hub is in charge."""
    names = tuple(f"web-{number}" for number in range(hpas))
    with ExitStack() as stack:
        site = stack.enter_context(Site(CLUSTER, folder / CLUSTER, binaries))
        token = folder / "token"
        token.write_text("")
        config = write_kubeconfig(folder / "kubeconfig", {token: site})
        broker = BrokerProcess()
        hub = stack.enter_context(Hub(folder / "hub", config, broker))
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        register(hub, AgentSet(cluster=CLUSTER, incarnation=TOPICS.incarnation))
        site.plane.apply([each for each in agent_manifests(AgentPlace(TOPICS, "none")) if each["kind"] != "Deployment"])
        token.write_text(site.plane.kubectl("create", "token", ACCOUNT, "-n", HOME, "--duration", "24h"))
        rig = Rig(site, hub, broker, names, config)
        rig.demand(2)
        site.plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        site.plane.apply([deployment(name) for name in names])
        hub.run("settings", CLUSTER, *SAME_SETTINGS, "--yes", "--wait", "30s")
        hub.start("decider", "--session-timeout", "6")
        hub.start("router")
        rig.start_agents()
        rig.enforce()
        rig.until(lambda: rig.holder().startswith("hub/"), "the hub is in charge")
        rig.demand(3)
        rig.until_at(3, 180.0)
        yield rig
