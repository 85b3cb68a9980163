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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fleethpa.fleet.members import cluster_sources, fixed_members
from fleethpa.frame.errors import CommandError, unreachable, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.session import Session
from runtime import ending

log = logging.getLogger(__name__)

Part = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event is set; anything it raises ends the process, a restart is the recovery."""


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
    if isinstance(error, CommandError):
        return error
    known = (ValueError, OSError, LookupError)
    text = str(error) or type(error).__name__
    if "AuthorizationFailed" in type(error).__name__:
        cause = f"Kafka denies this user access: {type(error).__name__}."
        return unreachable(f"{name} cannot continue: {text}", cause=cause, next_step=f"fleethpa topics acls {name}")
    if isinstance(error, known) or type(error).__module__.split(".")[0] in (
        "streams",
        "reconciler",
        "runtime",
        "schemas",
        "aiokafka",
    ):
        return unreachable(f"{name} cannot continue: {text}", next_step="fleethpa topics check")
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
    """Starts children, starts them again when they end, and ends them all."""

    def __init__(self, on_exit: Callable[[Child], None] | None = None) -> None:
        self.children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._ending = False
        self._on_exit = on_exit

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


def _part(name: str, start: Callable[..., Awaitable[None]], config: Any, *more: Any) -> Part:
    return lambda stop: start(config, stop, announce(name), *more)


def _shared(session: Session, options: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """The fields that the configurations of all Kafka processes share, and `own` ones that an option sets."""
    web = {name: options.get(name) for name in ("web_port", "web_host")}
    return {"kafka": session.config.kafka(), **web, **{name: value for name, value in own.items() if value}}


def _members(session: Session, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"clusters": fixed_members(session, dict(options)), "found": cluster_sources(session, dict(options))}


def ingest_part(session: Session, /, **options: Any) -> Part:
    """Make the ingest part."""
    from streams.ingest.mapping import IngestConfig, MappingError, load_mapping
    from streams.ingest.worker import run_ingest

    named = {name: options.get(name) for name in ("timestamp", "member")}
    timeout_s, path, mapping = options.get("session_timeout"), options.get("mapping"), None
    if path:
        try:
            mapping = load_mapping(Path(path).read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError, MappingError) as error:
            raise usage(f"--mapping {path} cannot be used", cause=str(error)) from error
    topics = tuple(options.get("sample_topics") or ())
    changes = {"mapping": mapping, "session_timeout_ms": round(1000 * timeout_s) if timeout_s else 0}
    return _part(
        "ingest", run_ingest, IngestConfig(**_shared(session, options, sample_topics=topics, **named, **changes))
    )


def observer_part(session: Session, /, **options: Any) -> Part:
    """Make the observer part."""
    from reconciler.observer.native import ObserverConfig
    from reconciler.observer.process import run_observer

    own = {name: options.get(name) for name in ("all_pods", "prove_native_absent", "instance")}
    own["namespaces"] = tuple(options.get("namespaces") or ())
    config = ObserverConfig(**_members(session, options), **_shared(session, options, **own))
    return _part("observer", run_observer, config)


def reconciler_part(session: Session, /, **options: Any) -> Part:
    """Make the reconciler part."""
    from reconciler.apply.process import ReconcilerConfig, run_reconciler

    config = ReconcilerConfig(**_members(session, options), **_shared(session, options, group=options.get("group")))
    return _part("reconciler", run_reconciler, config)


def agent_part(session: Session, /, **options: Any) -> Part:
    """Make the agent part."""
    from reconciler.agent.process import AgentConfig, run_agent
    from reconciler.agent.standin import StandIns

    members = fixed_members(session, options)
    if len(members) != 1:
        raise usage(
            f"an agent is of one cluster, not of {len(members)}",
            cause=f"These are meant: {', '.join(member.name for member in members)}.",
            next_step="add --in-cluster NAME, or --contexts NAME",
        )
    own = {name: options[name] for name in ("incarnation", "all_pods", "home", "region")}
    own |= {"namespaces": tuple(options["namespaces"]), "broker_time": not options["local_clock"]}
    config = AgentConfig(cluster=members[0], **(_shared(session, options) | own))
    return _part("agent", run_agent, config, [StandIns()] if options["stand_in"] else [])


def router_part(session: Session, /, *, for_agents: bool = False, **options: Any) -> Part:
    """Make the router part. `for_agents`: it waits until a cluster has an agent."""
    from reconciler.router.process import RouterConfig, run_router, run_router_for_agents

    config = RouterConfig(**_shared(session, options))
    return _part("router", run_router_for_agents if for_agents else run_router, config)


def scheduler_part(session: Session, /, **options: Any) -> Part:
    """Make the scheduler part."""
    every_ms = parse_duration_ms(options["every"], "--every")
    if every_ms < 1_000:
        raise usage(
            f"--every {options['every']} is too often", cause="Times of schedules are minutes; look from 1s on."
        )
    # Here, as every next step that names `run` imports this module, and these bring an HTTP server along.
    from fleethpa.processes.scheduler import SchedulerConfig, run_scheduler

    web = {name: options[name] for name in ("web_port", "web_host")}
    return _part("scheduler", run_scheduler, SchedulerConfig(config=session.config, every_s=every_ms / 1000, **web))


def breaker_part(session: Session, /, **options: Any) -> Part:
    """Make the breaker part."""
    from fleethpa.changes.settings import usable_guardrails
    from fleethpa.processes.breaker import BreakerConfig, run_breaker

    web = {name: options[name] for name in ("web_port", "web_host")}
    rules = usable_guardrails(options["file"]).rules
    return _part("breaker", run_breaker, BreakerConfig(config=session.config, rules=rules, **web))


def decider_part(session: Session, /, **options: Any) -> Part:
    """Make the decider part: a child process, kept running."""

    def report(child: Child) -> None:
        print(f"decider ended with code {child.last_exit}, starting it again", file=sys.stderr, flush=True)

    async def part(stop: Event) -> None:
        supervisor = Supervisor(report)
        arguments = [sys.executable, "-m", "fleethpa", *decider_arguments(session), *_decider_options(options)]
        try:
            await supervisor.start(Child("decider", arguments, Path("/dev/stderr")))
            await stop.wait()
        finally:
            await supervisor.stop()

    return part


def _decider_options(options: dict[str, Any]) -> list[str]:
    web = [] if options.get("web_port") is None else ["--web-port", str(options["web_port"])]
    return ["--log-level", options["log_level"], "--web-host", options["web_host"], *web]


def decider_arguments(session: Session) -> list[str]:
    """The arguments of a decider that talks to the same brokers."""
    config = session.config
    arguments = ["run", "decider"]
    if config.brokers:
        arguments += ["--brokers", config.servers]
    if config.kafka_config:
        arguments += ["--kafka-config", config.kafka_config]
    return arguments
