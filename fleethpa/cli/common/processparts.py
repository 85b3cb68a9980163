"""The long-running processes as `fleethpa run` starts them: from the options of a verb to what `run_together` runs.

Each `…_part` returns a function that runs the process until its stop event is set. The verbs and their options are in
`fleethpa.cli.run`. Processes are imported where they are made: one that is not started must not cost start-up time.
"""

from __future__ import annotations

import sys
from asyncio import Event
from pathlib import Path
from typing import Any

from fleethpa.cli.common.durations import parse_duration_ms
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.memberoptions import cluster_sources, fixed_members
from fleethpa.cli.common.parts import announce
from fleethpa.cli.common.session import Session


def ingest_part(session: Session, /, **options: Any) -> Any:
    """Make the ingest part."""
    from streams.ingest.ingestconfig import IngestConfig
    from streams.ingest.ingestworker import run_ingest as start

    changes: dict[str, Any] = {}
    if options.get("mapping"):
        changes["mapping"] = _mapping(options["mapping"])
    if options.get("session_timeout"):
        changes["session_timeout_ms"] = round(1000 * options["session_timeout"])
    config = IngestConfig(
        kafka=session.config.kafka(),
        sample_topics=tuple(options.get("sample_topics") or ()),
        timestamp=options.get("timestamp") or "append",
        member=options.get("member") or "",
        web_port=options.get("web_port"),
        web_host=options["web_host"],
        **changes,
    )
    return lambda stop: start(config, stop, announce("ingest"))


def _mapping(path: str) -> Any:
    from streams.ingest.mapping import MappingError, load_mapping

    try:
        return load_mapping(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError, MappingError) as error:
        raise usage(f"--mapping {path} cannot be used", cause=str(error)) from error


def observer_part(session: Session, /, **options: Any) -> Any:
    """Make the observer part."""
    from reconciler.observer.observerconfig import ObserverConfig
    from reconciler.observer.observerprocess import run_observer as start

    named = {"instance": options["instance"]} if options.get("instance") else {}
    config = ObserverConfig(
        kafka=session.config.kafka(),
        clusters=fixed_members(session, options),
        found=cluster_sources(session, options),
        namespaces=tuple(options.get("namespaces") or ()),
        all_pods=bool(options.get("all_pods")),
        prove_native_absent=bool(options.get("prove_native_absent")),
        web_port=options.get("web_port"),
        web_host=options["web_host"],
        **named,
    )
    return lambda stop: start(config, stop, announce("observer"))


def reconciler_part(session: Session, /, **options: Any) -> Any:
    """Make the reconciler part."""
    from reconciler.apply.reconcilerconfig import ReconcilerConfig
    from reconciler.apply.reconcilerprocess import run_reconciler as start

    grouped = {"group": options["group"]} if options.get("group") else {}
    config = ReconcilerConfig(
        kafka=session.config.kafka(),
        clusters=fixed_members(session, options),
        found=cluster_sources(session, options),
        web_port=options.get("web_port"),
        web_host=options["web_host"],
        **grouped,
    )
    return lambda stop: start(config, stop, announce("reconciler"))


def agent_part(session: Session, /, **options: Any) -> Any:
    """Make the agent part."""
    from reconciler.agent.agentconfig import AgentConfig
    from reconciler.agent.agentprocess import run_agent as start
    from reconciler.agent.standinterms import StandIns

    members = fixed_members(session, options)
    if len(members) != 1:
        raise usage(
            f"an agent is of one cluster, not of {len(members)}",
            cause=f"These are meant: {', '.join(member.name for member in members)}.",
            next_step="add --in-cluster NAME, or --contexts NAME",
        )
    config = AgentConfig(
        kafka=session.config.kafka(),
        cluster=members[0],
        incarnation=options["incarnation"],
        namespaces=tuple(options["namespaces"]),
        all_pods=options["all_pods"],
        home=options["home"],
        region=options["region"],
        broker_time=not options["local_clock"],
        web_port=options["web_port"],
        web_host=options["web_host"],
    )
    companions = [StandIns()] if options["stand_in"] else []
    return lambda stop: start(config, stop, announce("agent"), companions)


def router_part(session: Session, /, **options: Any) -> Any:
    """Make the router part."""
    from reconciler.router.routerprocess import RouterConfig
    from reconciler.router.routerprocess import run_router as start

    config = RouterConfig(kafka=session.config.kafka(), web_port=options["web_port"], web_host=options["web_host"])
    return lambda stop: start(config, stop, announce("router"))


def router_for_agents_part(session: Session, /, **options: Any) -> Any:
    """Make the router part that waits until a cluster has an agent."""
    from reconciler.router.firstagent import run_router_for_agents as start
    from reconciler.router.routerprocess import RouterConfig

    config = RouterConfig(kafka=session.config.kafka(), web_port=options["web_port"], web_host=options["web_host"])
    return lambda stop: start(config, stop, announce("router"))


def scheduler_part(session: Session, /, **options: Any) -> Any:
    """Make the scheduler part."""
    every_ms = parse_duration_ms(options["every"], "--every")
    if every_ms < 1_000:
        raise usage(
            f"--every {options['every']} is too often", cause="Times of schedules are minutes; look from 1s on."
        )
    # Here, as every next step that names `run` imports this module, and these bring an HTTP server along.
    from fleethpa.cli.common.schedulerpart import SchedulerConfig
    from fleethpa.cli.common.schedulerpart import run_scheduler as start_scheduler

    config = SchedulerConfig(
        config=session.config, every_s=every_ms / 1000, web_port=options["web_port"], web_host=options["web_host"]
    )
    return lambda stop: start_scheduler(config, stop, announce("scheduler"))


def breaker_part(session: Session, /, **options: Any) -> Any:
    """Make the breaker part."""
    from fleethpa.cli.common.breakerpart import BreakerConfig
    from fleethpa.cli.common.breakerpart import run_breaker as start_breaker
    from fleethpa.cli.common.guardrailfiles import usable_guardrails

    config = BreakerConfig(
        config=session.config,
        rules=usable_guardrails(options["file"]).rules,
        web_port=options["web_port"],
        web_host=options["web_host"],
    )
    return lambda stop: start_breaker(config, stop, announce("breaker"))


def decider_part(session: Session, /, **options: Any) -> Any:
    """Make the decider part: a child process, kept running."""
    from fleethpa.cli.common.supervisor import Child, Supervisor

    def tell(child: Child) -> None:
        print(f"decider ended with code {child.last_exit}, starting it again", file=sys.stderr, flush=True)

    async def part(stop: Event) -> None:
        supervisor = Supervisor(tell)
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
