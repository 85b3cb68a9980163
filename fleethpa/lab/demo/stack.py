"""The development stack: embedded broker, simulated clusters and every part, started in order and ended together.

The broker and the clusters live in this process; ingest, observer and reconciler share a child, the crash-only decider
has one of its own and is started again whenever it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleethpa.fleet.state import read_state
from fleethpa.frame import configuration as devruntime
from fleethpa.frame.configuration import Config, DevStack
from fleethpa.frame.errors import CommandError, own_command, unreachable, usage
from fleethpa.frame.sources import open_past
from fleethpa.frame.writer import open_writer
from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.processes.parts import Child, Supervisor
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from schemas.topicconfigs import TOPICS
from streams.archive.layout import ArchiveError, Lock
from streams.history.past import Past
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from fleethpa.lab.simulator.cluster import Fleet

READY_S: Final = 60.0
AUTHOR: Final = "fleethpa dev"
_DECIDER: Final = ("--web-port", "0", "--session-timeout", "10")
"""Killed, it comes back when its session has ended; the embedded broker knows no static members."""
DEV_SETTINGS: Final = ClusterSettings(
    sync_period_ms=5_000,
    downscale_stabilization_ms=60_000,
    cpu_initialization_period_ms=10_000,
    initial_readiness_delay_ms=5_000,
    default_mode="enforce",
    # The simulated clusters have no controller manager at all, but for those that `NATIVE_SETTINGS` is for.
    native_controller="absent",
)
NATIVE_SETTINGS: Final = ClusterSettings(default_mode="shadow", native_controller="present")
"""What differs in a simulated cluster with an HPA controller of its own."""
SHADOW_SETTINGS: Final = ClusterSettings(default_mode="shadow", native_controller="unknown")


@dataclass
class StackPlan:
    """What to start.

    `fleet`: simulated clusters (None: `context` of `kubeconfig` is observed, read-only). `brokers`: empty starts the
    embedded one. `kafka_config`: their `client.properties`. `settings` are written for `*` before anything else
    happens.
    """

    folder: Path
    fleet: Fleet | None = None
    brokers: str = ""
    kafka_config: str = ""
    kubeconfig: str = ""
    context: str = ""
    settings: ClusterSettings = DEV_SETTINGS
    page_port: int = 0
    """Port of this machine on which the page is served; 0: it is not."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def _alone(folder: Path) -> Lock:
    """The right to write kubeconfig and logs there; a second stack would take the clusters away from the first.

    Raises CommandError: another stack has it (exit 2).
    """
    try:
        return Lock(folder)
    except ArchiveError as error:
        cause = "A second one would overwrite its kubeconfig and logs."
        step = "end it with Ctrl-C in its terminal, or name another folder with --dir DIR"
        raise usage(f"another stack runs in {folder}", cause=cause, next_step=step) from error


class Stack:
    """A running stack; `config` is what commands need to reach it."""

    def __init__(self, plan: StackPlan, report: Callable[[str], None] = lambda text: None) -> None:
        self._plan, self._report = plan, report
        self._exit = AsyncExitStack()
        self.supervisor = Supervisor(self._ended, lambda _: self._publish())
        self.config = Config()
        self.children: dict[str, Child] = {}

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters' names."""
        return tuple(self._plan.fleet.clusters) if self._plan.fleet else (self._plan.context,)

    async def __aenter__(self) -> Stack:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._exit.aclose)
            await self._start()
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def _start(self) -> None:
        plan = self._plan
        try:
            plan.folder.mkdir(parents=True, exist_ok=True)
            self._exit.callback(_alone(plan.folder).release)
        except OSError as error:
            raise usage(f"--dir {plan.folder} cannot be used: {error.strerror}") from error
        brokers = plan.brokers or await asyncio.to_thread(self._broker)
        kubeconfig = await self._clusters()
        self.config = Config(
            brokers=brokers,
            kafka_config=plan.kafka_config,
            kubeconfig=kubeconfig,
            contexts=self.clusters,
            author=AUTHOR,
        )
        await self._write_settings()
        self._exit.callback(devruntime.withdraw, self._running(), self._plan.environ)
        self._exit.push_async_callback(self.supervisor.stop)
        await asyncio.gather(*(self._child(name, arguments) for name, arguments in self._commands().items()))
        self._publish()

    def _broker(self) -> str:
        broker = EmbeddedBroker()
        bootstrap = broker.start()
        self._exit.callback(broker.stop)
        broker.ensure_topics([topic.name for topic in TOPICS])
        return bootstrap

    async def _clusters(self) -> str:
        plan = self._plan
        if plan.fleet is None:
            return plan.kubeconfig
        await plan.fleet.start()
        self._exit.push_async_callback(plan.fleet.stop)
        return str(plan.fleet.write_kubeconfig(plan.folder.resolve() / "kubeconfig"))

    async def _write_settings(self) -> None:
        async with open_writer(self.config) as writer:
            engine = EngineSet(engine=ENGINE, partitions=writer.partitions, author=AUTHOR, reason="first start")
            await writer.send("engine and settings", "*", "", [engine, _settings("*", self._plan.settings)])
            for name, cluster in self._plan.fleet.clusters.items() if self._plan.fleet else ():
                if cluster.native is not None:
                    await writer.send("settings", name, "", [_settings(name, NATIVE_SETTINGS)])

    def _commands(self) -> dict[str, Sequence[str]]:
        base = [*own_command(), "run"]
        reach = ["--brokers", self.config.brokers]
        reach += ["--kafka-config", self.config.kafka_config] if self.config.kafka_config else []
        members = ["--kubeconfig", self.config.kubeconfig, "--contexts", ",".join(self.clusters), "--web-port", "0"]
        read_only = [] if self._plan.fleet else ["--without", "reconciler"]
        commands: dict[str, Sequence[str]] = {
            "parts": [*base, "all", "--without", "decider", *read_only, *reach, *members],
            "decider": [*base, "decider", *reach, *_DECIDER],
        }
        if self._plan.page_port:
            commands["page"] = [*base[:-1], "page", "--port", str(self._plan.page_port), *reach]
        return commands

    async def _child(self, name: str, arguments: Sequence[str]) -> None:
        log = self._plan.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        child = Child(name, arguments, log, {"PYTHONUNBUFFERED": "1", "FLEETHPA_CONFIG": ""})
        self.children[name] = child
        await self.supervisor.start(child)

    def _ended(self, child: Child) -> None:
        self._report(f"{child.name} ended (code {child.last_exit}) and is started again; its log: {child.log}")

    def _publish(self) -> None:
        """Write where other terminals find the stack; a part that was started again is another process."""
        devruntime.publish(self._running(), self._plan.environ)

    def _running(self) -> DevStack:
        return DevStack(
            pid=os.getpid(),
            brokers=self.config.brokers,
            kubeconfig=self.config.kubeconfig,
            contexts=self.clusters,
            processes={name: child.pid for name, child in self.children.items()},
        )

    async def ready(self, hpas: int, timeout_s: float = READY_S) -> None:
        """Wait until every cluster has reported and the decider has recorded an evaluation of so many HPAs.

        Raises CommandError: they were not in time, or a part cannot start; names the log to read.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_recorded(hpas)
        except TimeoutError as error:
            raise self._not_ready(f"the stack was not ready within {timeout_s:.0f}s") from error

    async def _until_recorded(self, hpas: int) -> None:
        async with open_past("kafka", self.config) as past:
            while True:
                state = await read_state(past)
                evaluated = {view.id for view in state.hpas.values() if view.last_decision}
                received = all(name in state.clusters for name in self.clusters)
                if received and len(evaluated) >= hpas and await are_recorded(past, evaluated):
                    return
                if failing := [child for child in self.supervisor.children if child.restarts >= 3]:
                    raise self._not_ready(f"{failing[0].name} does not stay up")
                await asyncio.sleep(0.3)

    def _not_ready(self, what: str) -> CommandError:
        tails = [f"{child.log}:\n{child.tail()}" for child in self.supervisor.children]
        return unreachable(what, cause="\n".join(tails), next_step=f"read {self._plan.folder}/*.log")


def _settings(cluster: str, settings: ClusterSettings) -> SettingsSet:
    return SettingsSet(cluster=cluster, settings=settings, author=AUTHOR, reason="development stack")


async def are_recorded(past: Past, hpas: set[HpaId]) -> bool:
    """Whether the decisions topic holds an evaluation of each; the state, folded from the log, can be ahead of it."""
    count = await past.partitions()
    due: dict[int, set[HpaId]] = {}
    for hpa in hpas:
        due.setdefault(partition_for(hpa.namespace_key, count), set()).add(hpa)

    def reached(number: int, decisions: list[Recorded]) -> bool:
        return due[number] <= {recorded.hpa for recorded in decisions if recorded.decision.kind == "evaluation"}

    tails = await past.tail(reached, due)
    return all(reached(number, decisions) for number, decisions in tails.items())
