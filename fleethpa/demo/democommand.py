"""`fleethpa demo`: the main job, seen working, in under two minutes; it leaves a verified archive behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import click

from fleethpa.demo.screen import DemoReport, Screen, until
from fleethpa.demo.stack import Stack, StackPlan
from fleethpa.fleet.members import member_clusters
from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, completed, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import open_past
from fleethpa.processes.parts import Child, Supervisor


class Archiving:
    """`fleethpa archive` as a child process; `root` is the archive."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.root = folder / "archive"
        self._log = folder / "archive.log"
        self._brokers = config.brokers
        self._supervisor = Supervisor()

    async def __aenter__(self) -> Archiving:
        if (self.root / "archive.json").exists():
            shutil.rmtree(self.root)
        self._log.unlink(missing_ok=True)
        arguments = ["archive", "--to", str(self.root), "--brokers", self._brokers, "--segment-time", "30s"]
        command = [sys.executable, "-m", "fleethpa", *arguments]
        await self._supervisor.start(Child("archive", command, self._log, {"FLEETHPA_CONFIG": ""}))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.stop()

    async def verified(self, shown: DemoReport) -> None:
        """End the archive as it is and re-derive every decision in it."""
        shown.screen.act(
            7, "Everything is verified", f"`fleethpa audit verify --from {self.root}`: every decision is re-derived."
        )
        await self._supervisor.stop()
        began = time.monotonic()
        found = await shown.ask_document("audit", "verify", "--from", str(self.root))
        for fault in found.get("faults", ["it prints nothing"]):
            shown.screen.line(fault)
        shown.promise(
            f"{found.get('decisions', 0)} decisions re-derived from the archived log, identical to the byte "
            f"({time.monotonic() - began:.1f}s)",
            bool(found.get("ok") and found["decisions"]),
        )


NEXT = (
    "make dev                              the same stack for your own commands, kubectl included",
    "fleethpa explain east/shop/checkout   (while it runs) every number behind a decision",
    "fleethpa get hpa -A --at 1m --from build/demo/archive   (now, with nothing running) a minute before the end",
    "fleethpa page --from build/demo/archive   the same in a browser: why every count was what it was",
    "fleethpa dev --context NAME           your own cluster, read-only, in shadow",
)


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@click.option("--dir", "folder", default="build/demo", help="Folder for kubeconfig and logs.")
@command_options()
def demo(session: Session, folder: str) -> int:
    """Watch fleethpa do its main job, in under two minutes; `demo day` writes the archive of a recorded day.

    Nine scenes run on three simulated clusters and an embedded broker; exit 0 only if all checks pass.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return OK
    return session.run(_demo(session, Path(folder)))


DAY_NEXT = (
    "fleethpa get hpa -A --from {root}",
    "fleethpa regret -A --price 0.04/h --from {root}",
    "fleethpa tune east/web/search --from {root}",
    "fleethpa shadow-report -A -C north --from {root}",
    "fleethpa guardrails test -f {rules} --from {root}",
    "fleethpa rollout status --from {root}",
    "fleethpa page --from {root}",
)


@demo.command("day")
@click.option("--dir", "folder", default="build/day", help="Folder for the archive.")
@command_options()
def demo_day(session: Session, folder: str) -> int:
    """Write the archive of a recorded day of 20 HPAs in 2 clusters, in under a minute; the same one each time.

    In it: a native controller with fleethpa in shadow beside it, a wasteful spec, one that flaps, an hour without
    metrics, a guardrail that trips, and a rollout that is reverted. No broker and no cluster is needed.
    """
    from fleethpa.demo.day import HOURS, RULES_FILE, write_day

    began, path = time.monotonic(), Path(folder)
    live = sys.stderr.isatty() and not session.quiet

    def report(hour: int) -> None:
        if live:
            sys.stderr.write(f"\r{hour:>2} of {HOURS} hours" + "\n" * (hour == HOURS))
            sys.stderr.flush()

    try:
        day = write_day(path, report)
    except OSError as error:
        raise usage(f"--dir {folder} cannot be written: {error.strerror}") from error
    records = day.records
    session.out(
        f"{path / 'archive'}: a day of {len(day.world.apps)} HPAs in 2 clusters, {records['log']:,} log records, "
        f"{records['decisions']:,} decisions ({time.monotonic() - began:.0f}s)"
    )
    places = {"root": path / "archive", "rules": path / RULES_FILE}
    session.lines(["Next:", *(f"  {completed(line.format(**places), {})}" for line in DAY_NEXT)])
    return OK


async def _demo(session: Session, folder: Path) -> int:
    from fleethpa.demo.story import ACTS, HPAS, SETTINGS, apply_whole, asked, demo_fleet

    began, fleet = time.monotonic(), demo_fleet()
    plan = StackPlan(folder, fleet=fleet, settings=SETTINGS, environ=dict(os.environ))
    screen = Screen(session.color)
    screen.plain("fleethpa demo: an embedded Kafka broker, three simulated clusters, every part of fleethpa", "bold")
    screen.line("starting …")
    async with (
        Stack(plan, screen.line) as stack,
        Archiving(folder, stack.config) as archiving,
        _following(stack, screen) as report,
    ):
        await stack.ready(len(HPAS))
        screen.line(f"up: {', '.join(stack.clusters)}; brokers {stack.config.brokers}")
        await asyncio.gather(_until_calm(report), apply_whole(report))
        for act in ACTS:
            await act(fleet, report)
        await archiving.verified(report)
        await asked(report, archiving.root)
    return _summary(report, time.monotonic() - began)


@asynccontextmanager
async def _following(stack: Stack, screen: Screen) -> AsyncIterator[DemoReport]:
    """Follow the decisions and the clusters of a stack, and show them on the screen."""
    from fleethpa.demo.story import CARTS, HPAS
    from reconciler.clusters.client import ClusterClient

    async with AsyncExitStack() as exits:
        clients = {each.name: ClusterClient(each) for each in member_clusters(stack.config)}
        for client in clients.values():
            exits.push_async_callback(client.close)
        report = DemoReport(screen, clients, HPAS, stack.config.brokers, carts=CARTS)
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
        "green" if passed == len(report.checks) else "red",
    )
    for text, ok in report.checks:
        if not ok:
            screen.plain(f"   ✘ {text}", "red")
    screen.plain("Next:")
    for line in NEXT:
        screen.plain(f"  {completed(line, {})}")
    return OK if report.checks and passed == len(report.checks) else ANSWER_IS_NO
