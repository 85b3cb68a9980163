"""`fleethpa run`: the long-running parts, one or all."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from fleethpa.fleet.members import fixed_options, found_options
from fleethpa.fleet.polledsources import source_options
from fleethpa.frame.errors import OK, SuggestingGroup, usage
from fleethpa.frame.options import Decorator, DurationMs, together, web_options
from fleethpa.frame.session import Session, command_options
from fleethpa.processes import parts as processes
from runtime.log import look_for_cycles_seldom, set_up_logging
from schemas.connection import DEFAULT_HUB, MOST_HUB_CHARACTERS

# Every hint at `fleethpa run` loads this module, also those of verbs that answer at once: what a part needs is loaded
# where it starts.

LEVELS = click.Choice(["debug", "info", "warning", "error"])


_SAMPLE_TOPICS = click.option(
    "--sample-topic", "sample_topics", multiple=True, help="An additional topic with samples; repeatable."
)
_NAMESPACES = click.option("--namespace", "namespaces", multiple=True, help="Watch only this namespace; repeatable.")


def _checked_hub(_: click.Context, __: click.Parameter, hub: str) -> str:
    if not 0 < len(hub) <= MOST_HUB_CHARACTERS:
        raise usage(f"--hub is a name of 1 to {MOST_HUB_CHARACTERS} characters")
    return hub


_HUB = click.option(
    "--hub",
    metavar="NAME",
    default=DEFAULT_HUB,
    callback=_checked_hub,
    help="The name of the hub, which is in the log: another one is refused while this one works.",
)
_ALL_PODS = click.option("--all-pods", is_flag=True, help="Also report the pods of namespaces without HPAs.")
_PROVE_NATIVE_ABSENT = click.option(
    "--prove-native-absent", is_flag=True, help="Create a canary HPA to prove that no native HPA controller runs."
)
_INSTANCE = click.option("--instance", metavar="NAME", help="Observer name, kept over restarts [default: the host's].")


_common = together(web_options, click.option("--log-level", type=LEVELS, default="info"))


@click.group(cls=SuggestingGroup)
def run() -> None:
    """Run one process: ingest, decider, reconciler, observer, agent, router, scheduler, hub, or all."""
    # The command line does not collect garbage, for commands that answer once; these processes run for months.
    gc.enable()


def _process(name: str, part: Callable[..., processes.Part], about: str, *options: Decorator) -> None:
    """Add the verb that runs one process. `part`: makes it of the session and the options. `about`: its help."""

    @run.command(name, help=about)
    @together(*options, _common)
    @command_options()
    def process(session: Session, /, **given: Any) -> int:
        return _run(session, given["log_level"], {name: part(session, **given)})


_process(
    "ingest",
    processes.ingest_part,
    "Merge the public topics into one ordered log.",
    _SAMPLE_TOPICS,
    _HUB,
    click.option("--mapping", metavar="FILE", help="Mapping of external series to metrics (YAML)."),
    click.option("--timestamp", type=click.Choice(["append", "source"]), default="append"),
    click.option("--member", help="Static member name, kept over restarts."),
    click.option(
        "--session-timeout",
        "session_timeout_ms",
        type=float,
        default=10.0,
        callback=lambda _context, _option, seconds: round(1000 * seconds),
        help="Seconds.",
    ),
)
_process(
    "observer",
    processes.observer_part,
    "Watch member clusters and poll their metrics APIs.",
    *(_NAMESPACES, _ALL_PODS, _PROVE_NATIVE_ABSENT, _INSTANCE, source_options, found_options, fixed_options),
)
_process(
    "reconciler",
    processes.reconciler_part,
    "Write decided replicas, HPA status and Events to member clusters.",
    click.option("--group", hidden=True, help="Consumer group."),
    found_options,
    fixed_options,
)
_process(
    "agent",
    processes.agent_part,
    """Observe and write one cluster from inside it; it connects to Kafka, and nothing connects to it.

    Run two replicas: one leads, by a Lease, and the other takes over within 20 s.
    """,
    click.option(
        "--incarnation",
        type=click.IntRange(1),
        required=True,
        help="Number in the names of the cluster's topics, as `fleethpa admin clusters add` prints it.",
    ),
    _NAMESPACES,
    _ALL_PODS,
    click.option("--home", default="fleethpa-system", metavar="NAMESPACE", help="Where the agent's Lease is."),
    click.option(
        "--stand-in/--no-stand-in",
        default=True,
        help="Let the cluster's own HPA controller scale while the hub is away; needs "
        "`fleethpa admin clusters rbac --stand-in`.",
    ),
    click.option("--region", default="main", metavar="NAME", help="The hub's region, as it is written into the Lease."),
    click.option(
        "--local-clock",
        "broker_time",
        flag_value=False,
        default=True,
        hidden=True,
        help="The brokers stamp no append time: use this clock.",
    ),
    source_options,
    fixed_options,
)
_process("router", processes.router_part, "Copy decisions, settings and central HPAs to the topics of agents.")
_process(
    "scheduler",
    processes.scheduler_part,
    "Change the specs of central HPAs at the times of their schedules (`fleethpa schedule`).",
    click.option("--every", "every_ms", type=DurationMs(), default="15s", help="How often to look."),
)


_process(
    "hub",
    processes.hub_part,
    "Put what objects of the hub's Kubernetes API state into the log, and show on them what became of it.",
    click.option(
        "--context", metavar="NAME", help="Kubeconfig context of the hub's cluster [default: this process's]."
    ),
    click.option(
        "--every", "every_ms", type=DurationMs(), default="20s", help="How often to look, besides at changes."
    ),
)


@run.command("decider")
@click.option("--instance-id", help="Kafka static member name. The worker keeps its partitions across a restart.")
@_HUB
@click.option("--playback", is_flag=True, help="Take the time of the records as log time; append no ticks.")
@click.option(
    "--rebuild", is_flag=True, help="Rebuild lost state from what the log still holds, record that in the log, and end."
)
@click.option("--archive", metavar="DIR", help="With --rebuild: read what the log no longer holds from this archive.")
@click.option("--session-timeout", "session_timeout_s", type=float, default=15.0, help="Seconds.")
@click.option("--no-ticks", "ticks", flag_value=False, default=True, hidden=True, help="Append no ticks to the log.")
@click.option(
    "--stall-seconds", "stall_s", type=float, default=90.0, hidden=True, help="End the process after this idle time."
)
@click.option(
    "--recovery-seconds", "recovery_s", type=float, default=300.0, hidden=True, help="The longest time for a recovery."
)
@_common
@command_options()
def run_decider(session: Session, /, *, rebuild: bool, archive: str | None, **options: Any) -> None:
    """Read the log and decide. Any fault ends the process; restart it to recover."""
    from streams.decider import app
    from streams.decider.assignment import DeciderConfig

    if archive and not rebuild:
        raise usage("--archive needs --rebuild", cause="Without --rebuild a decider reads the topics only.")
    set_up_logging(options["log_level"])
    ticks = options["ticks"] and not options["playback"]
    config = processes.configured(DeciderConfig, options | {"ticks": ticks}, kafka=session.config.kafka())
    if rebuild:
        app.run_rebuild(config, Path(archive) if archive else None)
    else:
        app.run_decider(config)


@run.command("all")
@click.option("--without", multiple=True, type=click.Choice(["ingest", "observer", "reconciler", "decider", "router"]))
@_SAMPLE_TOPICS
@_HUB
@_NAMESPACES
@_PROVE_NATIVE_ABSENT
@_INSTANCE
@source_options
@found_options
@fixed_options
@_common
@command_options()
def run_all(session: Session, /, without: tuple[str, ...], **options: Any) -> int:
    """Run everything: ingest, observer and reconciler in this process, the decider as a child that is restarted.

    A router runs from when a cluster has an agent. --web-port is the port of ingest; observer, reconciler, decider and
    router use the four ports after it.
    """
    makers: dict[str, Callable[..., Any]] = {
        "ingest": processes.ingest_part,
        "observer": processes.observer_part,
        "reconciler": processes.reconciler_part,
        "decider": processes.decider_part,
        "router": partial(processes.router_part, for_agents=True),
    }
    first = options.pop("web_port")
    ports = {name: first + number if first else first for number, name in enumerate(makers)}
    parts = {
        name: make(session, **options, web_port=ports[name]) for name, make in makers.items() if name not in without
    }
    return _run(session, options["log_level"], parts)


def _run(session: Session, level: str, parts: dict[str, Any]) -> int:
    set_up_logging(level)
    look_for_cycles_seldom()
    processes.run_parts(session, parts)
    return OK
