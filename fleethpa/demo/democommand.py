"""`fleethpa demo`: the main job, seen working, in under two minutes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK
from fleethpa.cli.common.nextsteps import completed
from fleethpa.cli.common.parts import member_clusters
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.sources import open_past
from fleethpa.demo.demoarchive import Archiving
from fleethpa.demo.reports import DemoReport, until
from fleethpa.demo.screen import Screen, wants_live
from fleethpa.demo.stack import Stack, StackPlan

NEXT = (
    "make dev                              the same stack for your own commands, kubectl included",
    "fleethpa explain east/shop/checkout   (while it runs) every number behind a decision",
    "fleethpa get hpa -A --at 1m --from build/demo/archive   (now, with nothing running) a minute before the end",
    "fleethpa page --from build/demo/archive   the same in a browser: why every count was what it was",
    "fleethpa dev --context NAME           your own cluster, read-only, in shadow",
)


@click.command()
@click.option("--dir", "folder", default="build/demo", show_default=True, help="Folder for kubeconfig and logs.")
@command_options()
def demo(session: Session, folder: str) -> int:
    """Run five scenes on three simulated clusters and an embedded broker; exit 0 only if all checks pass."""
    return session.run(_demo(session, Path(folder)))


async def _demo(session: Session, folder: Path) -> int:
    from fleethpa.demo.acts import ACTS
    from fleethpa.demo.closingquestions import asked
    from fleethpa.demo.scene import HPAS, SETTINGS, demo_fleet

    began, fleet = time.monotonic(), demo_fleet()
    plan = StackPlan(folder, fleet=fleet, settings=SETTINGS, environ=dict(os.environ))
    with Screen(wants_live(session.options)) as screen:
        screen.plain(
            "fleethpa demo: an embedded Kafka broker, three simulated clusters, every part of fleethpa", "bold"
        )
        screen.line("starting …")
        async with (
            Stack(plan, screen.line) as stack,
            Archiving(folder, stack.config) as archiving,
            _following(stack, screen) as report,
        ):
            await stack.ready(len(HPAS))
            screen.line(f"up: {', '.join(stack.clusters)}; brokers {stack.config.brokers}")
            await _until_calm(report)
            for act in ACTS:
                await act(fleet, report)
            await archiving.verified(report)
            await asked(report, archiving.root)
        return _summary(report, time.monotonic() - began)


@asynccontextmanager
async def _following(stack: Stack, screen: Screen) -> AsyncIterator[DemoReport]:
    """Follow the decisions and the clusters of a stack, and tell them on the screen."""
    from fleethpa.demo.scene import HPAS
    from reconciler.clusters.client import ClusterClient

    async with AsyncExitStack() as exits:
        clients = {each.name: ClusterClient(each) for each in member_clusters(stack.config)}
        for client in clients.values():
            exits.push_async_callback(client.close)
        report = DemoReport(screen, clients, HPAS, stack.config.brokers)
        past = await exits.enter_async_context(open_past("kafka", stack.config))
        watching = [asyncio.create_task(report.follow_decisions(past)), asyncio.create_task(report.follow_clusters())]
        try:
            yield report
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


async def _until_calm(report: DemoReport) -> None:
    """Wait until every HPA has real metrics and what it wants."""

    def calm() -> bool:
        newest = [report.since(0, hpa)[-1:] for hpa in report.hpas]
        return all(
            found and not any(m.error for m in found[0].decision.metrics) and hpa in report.replicas
            for found, hpa in zip(newest, report.hpas, strict=True)
        )

    await until(calm, 20)


def _summary(report: DemoReport, took_s: float) -> int:
    screen, passed = report.screen, sum(ok for _, ok in report.checks)
    changes = [
        r
        for r in report.decisions
        if r.decision.kind == "evaluation" and r.decision.final_desired_replicas != r.decision.current_replicas
    ]
    screen.plain("")
    screen.plain(
        f"{len(report.decisions)} decisions recorded, {len(changes)} changed replicas; "
        f"{passed} of {len(report.checks)} promises kept, {took_s:.0f}s in all",
        "bold green" if passed == len(report.checks) else "bold red",
    )
    for text, ok in report.checks:
        if not ok:
            screen.plain(f"   ✘ {text}", "red")
    screen.plain("Next:")
    for line in NEXT:
        screen.plain(f"  {completed(line, {})}")
    return OK if report.checks and passed == len(report.checks) else ANSWER_IS_NO
