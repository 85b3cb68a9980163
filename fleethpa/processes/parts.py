"""The processes of `fleethpa run`: from the options of a verb to processes that run together until a stop event.

Processes are imported where they are started, so that one that is not started costs no start-up time. A child process
that ends is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from asyncio import Event
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from fleethpa.fleet.members import cluster_sources, fixed_members, hub_cluster
from fleethpa.fleet.polledsources import polled_sources
from fleethpa.frame.errors import CommandError, own_command, read_text, unreachable, usage
from fleethpa.frame.session import Session
from runtime import ending
from runtime.errors import NextStepError

if TYPE_CHECKING:
    from runtime.process import PartHealth
    from streams.ingest.mapping import Mapping as SeriesMapping

log = logging.getLogger(__name__)
C = TypeVar("C")

Part = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event is set; anything it raises ends the process, a restart is the recovery."""


class HealthyPart(Protocol):
    """A part that serves its health while it runs."""

    health: PartHealth

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""


def run_parts(session: Session, parts: Mapping[str, Part]) -> None:
    """Run parts until SIGINT or SIGTERM; one that fails ends all. The end takes no longer than `runtime.ending` allows.

    Raises CommandError: a part could not go on; names it and says why (exit 3).
    """
    try:
        session.run(_run_together(parts))
    finally:
        ending.over()


async def _run_together(parts: Mapping[str, Part]) -> None:
    stop = stop_on_signals()
    tasks = {name: asyncio.create_task(_until(part, stop), name=name) for name, part in parts.items()}
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks.values(), stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    ended = [f"{name}: {task.exception()!r}" for name, task in tasks.items() if task.done() and not task.cancelled()]
    ending.begin("; ".join(ended) or "a signal asked for it", asyncio.get_running_loop())
    stop.set()
    _, hung = await asyncio.wait(tasks.values(), timeout=ending.CANCELLED_S)
    if hung:
        data = {"parts": [task.get_name() for task in hung], "tasks": ending.unfinished(asyncio.get_running_loop())}
        log.warning("ended before its work was done: the next process repeats it", extra=data)
        for task in hung:
            task.cancel()
        await asyncio.wait(hung, timeout=ending.ENDED_S - ending.CANCELLED_S)
    for name, task in tasks.items():
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            raise _failed(name, error) from error


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set from now on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _until(part: Part, stop: asyncio.Event) -> None:
    await part(stop)


def _failed(name: str, error: BaseException) -> BaseException:
    from runtime.process import PortTakenError

    if isinstance(error, CommandError):
        return error
    text = str(error) or type(error).__name__
    if "AuthorizationFailed" in type(error).__name__:
        cause = f"Kafka denies this user access: {type(error).__name__}."
        return unreachable(
            f"{name} cannot continue: {text}", cause=cause, next_step=f"fleethpa admin topics acls {name}"
        )
    if type(error).__name__ in ("KafkaTimeoutError", "RequestTimedOutError"):
        step = "check that Kafka runs, then the address in --brokers and the network in between"
        return unreachable(f"{name} cannot continue: {text}", cause="Kafka does not answer in time.", next_step=step)
    if isinstance(error, PortTakenError):
        return usage(f"{name} cannot continue: {text}")
    if isinstance(error, NextStepError) and error.next_step:
        return unreachable(f"{name} cannot continue: {error.what}", next_step=error.next_step)
    if isinstance(error, ValueError | OSError | LookupError) or type(error).__module__.split(".")[0] in (
        "streams",
        "reconciler",
        "runtime",
        "schemas",
        "aiokafka",
    ):
        return unreachable(f"{name} cannot continue: {text}", next_step="fleethpa admin topics check")
    return error


def announce(name: str) -> Callable[[int], None]:
    """Say on stderr where a part serves its health."""

    def report(port: int) -> None:
        where = f", health and metrics on http://127.0.0.1:{port}" if port else ""
        print(f"{name} is running{where}", file=sys.stderr, flush=True)

    return report


STOP_S: Final = 8.0
"""How long a child may take to end after SIGTERM."""
_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 10.0
_SETTLED_S: Final = 30.0
_DIE_WITH_PARENT: Final = 1
"""prctl(PR_SET_PDEATHSIG)."""


@dataclass
class Child:
    """A process and its log file; `restarts` counts how often it was started again."""

    name: str
    arguments: Sequence[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    last_exit: int | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 while it does not run."""
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    def tail(self, lines: int = 5) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Supervisor:
    """Starts children, starts them again when they end, and ends them all.

    `on_exit` and `on_restart`: are called with a child that has ended, and that was started again.
    """

    def __init__(
        self, on_exit: Callable[[Child], None] | None = None, on_restart: Callable[[Child], None] | None = None
    ) -> None:
        self.children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._ending = False
        self._on_exit, self._on_restart = on_exit, on_restart

    async def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        self.children.append(child)
        await self._spawn(child)
        self._keepers.append(asyncio.create_task(self._keep(child), name=f"keep {child.name}"))

    async def stop(self) -> None:
        """End all children: SIGTERM, and SIGKILL for one that does not heed it."""
        self._ending = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(self._end(child) for child in self.children))

    async def _spawn(self, child: Child) -> None:
        child.log.parent.mkdir(parents=True, exist_ok=True)
        with child.log.open("ab") as log:
            child.process = await asyncio.create_subprocess_exec(
                *child.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | dict(child.environ),
                # Ctrl-C in the terminal is ours to handle, in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    async def _keep(self, child: Child) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ending:
            started = time.monotonic()
            assert child.process is not None
            child.last_exit = await child.process.wait()
            if self._on_exit:
                self._on_exit(child)
            pause_s = _FIRST_PAUSE_S if time.monotonic() - started > _SETTLED_S else min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
            child.restarts += 1
            await self._spawn(child)
            if self._on_restart:
                self._on_restart(child)

    async def _end(self, child: Child) -> None:
        process = child.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(ending.left_s(STOP_S)):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _die_with_parent() -> None:
    """Ask the kernel to end this child when its parent is gone, however that ended."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def configured(type_: type[C], options: Mapping[str, Any], **made: Any) -> C:
    """Make the configuration of a process: an option that was given sets the field of its name.

    `made`: values that no single option gives.
    """
    names = {each.name for each in fields(cast(Any, type_))}
    given = {name: value for name, value in options.items() if name in names and value not in (None, "", ())}
    return type_(**given | made)


def _part(name: str, make: Callable[[], HealthyPart]) -> Part:
    async def run(stop: asyncio.Event) -> None:
        part = make()
        await part.health.accompany(part.run(stop), announce(name))

    return run


def _members(session: Session, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"clusters": fixed_members(session, dict(options)), "found": cluster_sources(session, dict(options))}


def ingest_part(session: Session, /, **options: Any) -> Part:
    """Make the ingest part."""
    from streams.ingest.preflight import IngestConfig
    from streams.ingest.worker import run_ingest

    mapping = ingest_mapping(options.get("mapping"))
    config = configured(IngestConfig, options, kafka=session.config.kafka(), mapping=mapping)
    return lambda stop: run_ingest(config, stop, announce("ingest"))


def ingest_mapping(path: str | None) -> SeriesMapping:
    """The mapping of a file; without one it maps nothing. Raises CommandError: it cannot be used (exit 2)."""
    from streams.ingest.mapping import Mapping, MappingError, load_mapping

    if not path:
        return Mapping()
    try:
        return load_mapping(read_text(path, f"--mapping {path}"), path)
    except MappingError as error:
        raise usage(f"--mapping {path} cannot be used", cause=str(error)) from error


def observer_part(session: Session, /, **options: Any) -> Part:
    """Make the observer part."""
    from reconciler.observer.clusterview import ObserverConfig
    from reconciler.observer.process import Observer

    members = _members(session, options)
    members["polled"] = polled_sources(options)
    config = configured(ObserverConfig, options, kafka=session.config.kafka(), **members)
    return _part("observer", lambda: Observer(config))


def reconciler_part(session: Session, /, **options: Any) -> Part:
    """Make the reconciler part."""
    from reconciler.apply.process import Reconciler, ReconcilerConfig

    members = _members(session, options)
    config = configured(ReconcilerConfig, options, kafka=session.config.kafka(), **members)
    return _part("reconciler", lambda: Reconciler(config))


def agent_part(session: Session, /, **options: Any) -> Part:
    """Make the agent part."""
    from reconciler.agents.agent.process import Agent, AgentConfig

    members = fixed_members(session, options)
    if len(members) != 1:
        raise usage(
            f"an agent is of one cluster, not of {len(members)}",
            cause=f"These are meant: {', '.join(member.name for member in members)}.",
            next_step="add --in-cluster NAME, or --contexts NAME",
        )
    given = {"clusters": members, "polled": polled_sources(options)}
    config = configured(AgentConfig, options, kafka=session.config.kafka(), **given)
    return _part("agent", lambda: Agent(config))


def router_part(session: Session, /, *, for_agents: bool = False, **options: Any) -> Part:
    """Make the router part. `for_agents`: it waits until a cluster has an agent."""
    from reconciler.agents.router.process import Router, RouterConfig, has_agents

    config = configured(RouterConfig, options, kafka=session.config.kafka())
    part = _part("router", lambda: Router(config))

    async def once_there_are_agents(stop: asyncio.Event) -> None:
        if await has_agents(config.kafka, stop):
            await part(stop)

    return once_there_are_agents if for_agents else part


def scheduler_part(session: Session, /, *, every_ms: int, **options: Any) -> Part:
    """Make the scheduler part."""
    if every_ms < 1_000:
        raise usage(f"--every {every_ms}ms is too often", cause="Times of schedules are minutes; look from 1s on.")
    # Here, as every next step that names `run` imports this module, and these bring an HTTP server along.
    from fleethpa.processes.scheduler import Scheduler, SchedulerConfig

    config = configured(SchedulerConfig, options, config=session.config, every_s=every_ms / 1000)
    return _part("scheduler", lambda: Scheduler(config))


def hub_part(session: Session, /, *, context: str | None = None, every_ms: int, **options: Any) -> Part:
    """Make the part that puts what objects of the hub's API state into the log."""
    if every_ms < 1_000:
        raise usage(f"--every {every_ms}ms is too often", cause="Changes of objects are seen at once anyway.")
    from fleethpa.hub.process import Hub, HubConfig

    api = hub_cluster(session.config, context)
    config = configured(HubConfig, options, config=session.config, api=api, every_s=every_ms / 1000)
    return _part("hub", lambda: Hub(config))


def decider_part(session: Session, /, **options: Any) -> Part:
    """Make the decider part: a child process, kept running."""

    def report(child: Child) -> None:
        print(f"decider ended with code {child.last_exit}, starting it again", file=sys.stderr, flush=True)

    async def part(stop: Event) -> None:
        supervisor = Supervisor(report)
        arguments = [*own_command(), *decider_arguments(session, options)]
        try:
            await supervisor.start(Child("decider", arguments, Path("/dev/stderr")))
            await stop.wait()
        finally:
            await supervisor.stop()

    return part


def decider_arguments(session: Session, options: Mapping[str, Any]) -> list[str]:
    """The arguments of a decider that talks to the same brokers, and is served and logs as this process."""
    config = session.config
    given = {
        "--brokers": config.servers if config.brokers else "",
        "--kafka-config": config.kafka_config,
        "--hub": options.get("hub"),
        "--log-level": options["log_level"],
        "--web-host": options["web_host"],
        "--web-port": "" if options.get("web_port") is None else str(options["web_port"]),
    }
    return ["run", "decider", *(word for name, value in given.items() if value for word in (name, value))]
