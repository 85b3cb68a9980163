"""`fleethpa dev`: a whole fleet on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Final

import click

from fleethpa.demo.stack import SHADOW_SETTINGS, Stack, StackPlan
from fleethpa.frame.errors import OK, program, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.processes.parts import stop_on_signals
from reconciler.clusters.answers import ConfigError

USUAL_PAGE_PORT: Final = 7080
HPAS: Final = "horizontalpodautoscalers.autoscaling"


@click.command()
@click.option("--context", help="Observe this context of your own kubeconfig instead, read-only and in shadow mode.")
@click.option("--dir", "folder", default="build/dev", help="Folder for kubeconfig and logs.")
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the simulated clusters' switches; 0 takes a free one.",
)
@click.option(
    "--page-port",
    type=click.IntRange(0, 65535),
    help="Port of the page [default: 7080, or a free one where that is taken; 0: no page].",
)
@command_options()
async def dev(session: Session, context: str | None, folder: str, control_port: int, page_port: int | None) -> int:
    """Run everything on this machine: an embedded broker, four simulated clusters and all parts; Ctrl-C ends it.

    With --brokers it uses your Kafka, with --context your own cluster, read-only.
    """
    plan = _plan(session, context, Path(os.environ.get("FLEETHPA_RUNTIME_DIR") or folder), control_port)
    plan.page_port = _page_port() if page_port is None else page_port
    return await _serve(session, plan)


def _page_port() -> int:
    """The usual port of the page, or a free one."""
    for port in (USUAL_PAGE_PORT, 0):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    return 0


def _plan(session: Session, context: str | None, folder: Path, control_port: int) -> StackPlan:
    from fleethpa.simulator.switches import default_fleet

    kafka_config = str(session.options.get("kafka_config") or "")
    # Without brokers and a client.properties the embedded broker is started.
    named = session.config.kafka().bootstrap_servers if kafka_config else ""
    brokers = str(session.options.get("brokers") or "") or named
    if context is None:
        return StackPlan(
            folder, fleet=default_fleet(control_port=control_port), brokers=brokers, kafka_config=kafka_config
        )
    kubeconfig = str(session.options.get("kubeconfig") or os.environ.get("KUBECONFIG") or Path.home() / ".kube/config")
    known = _contexts(kubeconfig)
    if context not in known:
        cause = f"It has {', '.join(known) or 'none'}."
        raise usage(
            f"kubeconfig {kubeconfig} has no context {context!r}", cause=cause, next_step="fleethpa dev --context NAME"
        )
    return StackPlan(
        folder,
        kubeconfig=kubeconfig,
        context=context,
        settings=SHADOW_SETTINGS,
        brokers=brokers,
        kafka_config=kafka_config,
    )


def _contexts(kubeconfig: str) -> list[str]:
    from reconciler.clusters.client import clusters_of

    try:
        return [cluster.context for cluster in clusters_of(kubeconfig)]
    except ConfigError as error:
        raise usage(
            f"kubeconfig {kubeconfig} cannot be used", cause=str(error), next_step="add --kubeconfig FILE"
        ) from error


async def _serve(session: Session, plan: StackPlan) -> int:
    stop = stop_on_signals()
    began = time.monotonic()
    session.note("starting: broker, clusters, ingest, observer, decider, reconciler …")
    async with Stack(plan, session.note) as stack:
        hpas = _expected_hpas(plan)
        waiting = asyncio.create_task(stack.ready(hpas))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
            session.out("\n".join(banner(stack, plan, time.monotonic() - began)))
            await stop.wait()
        else:
            waiting.cancel()
        stopping.cancel()
        session.note("ending …")
    return OK


def _expected_hpas(plan: StackPlan) -> int:
    """How many HPAs the simulated clusters hold; a cluster of the user's may hold none."""
    if plan.fleet is None:
        return 0
    return sum(len(cluster.store.listing(HPAS, "")) for cluster in plan.fleet.clusters.values())


def banner(stack: Stack, plan: StackPlan, took_s: float) -> list[str]:
    """What runs where, and what to try next."""
    config = stack.config
    broker = "Kafka" if plan.brokers else "embedded broker: memory only, not Kafka, not for production"
    clusters = (
        f"{len(stack.clusters)} simulated clusters"
        if plan.fleet
        else f"your cluster {plan.context}, read-only, in shadow"
    )
    kubectl = f"kubectl --kubeconfig {config.kubeconfig}"
    context = f" --context {stack.clusters[0]}"
    lines = [
        f"fleethpa is up after {took_s:.1f}s",
        f"  brokers     {config.brokers}  ({broker})",
        f"  clusters    {', '.join(stack.clusters)}  ({clusters})",
        f"  kubeconfig  {config.kubeconfig}",
        f"  logs        {plan.folder}/*.log",
    ]
    if plan.fleet:
        lines.append(f"  switches    {plan.fleet.control.url}  (load, faults: docs/quickstart.md)")
    if plan.page_port:
        lines.append(f"  page        http://127.0.0.1:{plan.page_port}/  (the fleet in a browser)")
    lines.append(
        "  decider     pid " + str(stack.children["decider"].pid) + "  (kill -9 it: it comes back where it was)"
    )
    some = "east/shop/checkout" if plan.fleet else f"{plan.context}/NAMESPACE/NAME"
    lines += [
        "Next, in another terminal:",
        f"  {program()} get hpa -A",
        f"  {program()} describe {some}",
        f"  {program()} explain {some}",
        f"  {program()} decisions -A --follow --changes",
        f"  {kubectl}{context} get hpa,pods -A",
    ]
    if native := plan.fleet and next((c for c in plan.fleet.clusters.values() if c.native is not None), None):
        first = native.store.listing(HPAS, "")[0]["metadata"]
        one = f"{native.name}/{first['namespace']}/{first['name']}"
        lines += [
            f"Cluster {native.name} has an HPA controller of its own, with fleethpa in shadow beside it:",
            f"  {program()} shadow-report -A -C {native.name}",
            f"  {program()} adopt {one}",
            f"  {program()} release {one}",
        ]
    return [*lines, "Ctrl-C ends it."]
