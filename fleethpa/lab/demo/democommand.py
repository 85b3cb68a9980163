"""`fleethpa demo` and `dev`: the main job, seen working, in two minutes; a whole fleet on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import click

from fleethpa.fleet.members import member_clusters
from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, completed, own_command, program, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import open_past
from fleethpa.lab.demo.screen import DemoReport, Screen, until
from fleethpa.lab.demo.stack import SHADOW_SETTINGS, Stack, StackPlan
from fleethpa.processes.parts import Child, Supervisor, stop_on_signals
from reconciler.clusters.answers import ConfigError

# --- demo -------------------------------------------------------------------------------------------------------------


class Archiving:
    """`fleethpa admin archive` as a child process; `root` is the archive."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.root = folder / "archive"
        self._log = folder / "archive.log"
        self._brokers = config.brokers
        self._supervisor = Supervisor()

    async def __aenter__(self) -> Archiving:
        if (self.root / "archive.json").exists():
            shutil.rmtree(self.root)
        self._log.unlink(missing_ok=True)
        arguments = ["admin", "archive", "--to", str(self.root), "--brokers", self._brokers, "--segment-time", "30s"]
        command = [*own_command(), *arguments]
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
        verification = await shown.ask_document("audit", "verify", "--from", str(self.root))
        for fault in verification.get("faults", ["it prints nothing"]):
            shown.screen.line(fault)
        shown.promise(
            f"{verification.get('decisions', 0)} decisions re-derived from the archived log, identical to the byte "
            f"({time.monotonic() - began:.1f}s)",
            bool(verification.get("ok") and verification["decisions"]),
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
    "fleethpa tune -A --price 0.04/h --from {root}",
    "fleethpa tune east/web/search --from {root}",
    "fleethpa shadow-report -A -C north --from {root}",
    "fleethpa decisions -A -C east --limited-by RemovalBudget --since 24h --from {root}",
    "fleethpa rollout status --from {root}",
    "fleethpa page --from {root}",
)


@demo.command("day")
@click.option("--dir", "folder", default="build/day", help="Folder for the archive.")
@command_options()
def demo_day(session: Session, folder: str) -> int:
    """Write the archive of a recorded day of 20 HPAs in 2 clusters, in under a minute; the same one each time.

    In it: a native controller with fleethpa in shadow beside it, a wasteful spec, one that flaps, an hour without
    metrics, a removal budget that holds, and a rollout that is reverted. No broker and no cluster is needed.
    """
    from fleethpa.lab.demo.day import HOURS, write_day

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
    session.lines(["Next:", *(f"  {completed(line.format(root=path / 'archive'), {})}" for line in DAY_NEXT)])
    return OK


async def _demo(session: Session, folder: Path) -> int:
    from fleethpa.lab.demo.story import ACTS, HPAS, SETTINGS, apply_fleet_hpa, asked, demo_fleet

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
        await asyncio.gather(_until_calm(report), apply_fleet_hpa(report))
        for act in ACTS:
            await act(fleet, report)
        await archiving.verified(report)
        await asked(report, archiving.root)
    return _summary(report, time.monotonic() - began)


@asynccontextmanager
async def _following(stack: Stack, screen: Screen) -> AsyncIterator[DemoReport]:
    """Follow the decisions and the clusters of a stack, and show them on the screen."""
    from fleethpa.lab.demo.story import CARTS, HPAS
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
            last and not any(m.error for m in last[0].decision.metrics) and hpa in report.replicas
            for last, hpa in zip(newest, report.hpas, strict=True)
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


# --- dev --------------------------------------------------------------------------------------------------------------

USUAL_PAGE_PORT: Final = 7080
HPA_OBJECTS: Final = "horizontalpodautoscalers.autoscaling"


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
    from fleethpa.lab.simulator.cluster import default_fleet

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
    return sum(len(cluster.store.listing(HPA_OBJECTS, "")) for cluster in plan.fleet.clusters.values())


def banner(stack: Stack, plan: StackPlan, took_s: float) -> list[str]:
    """Return what runs where, and what to try next."""
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
        first = native.store.listing(HPA_OBJECTS, "")[0]["metadata"]
        one = f"{native.name}/{first['namespace']}/{first['name']}"
        lines += [
            f"Cluster {native.name} has an HPA controller of its own, with fleethpa in shadow beside it:",
            f"  {program()} shadow-report -A -C {native.name}",
            f"  {program()} adopt {one}",
            f"  {program()} release {one}",
        ]
    return [*lines, "Ctrl-C ends it."]
