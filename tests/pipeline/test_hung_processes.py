"""A process of the development stack that hangs is named at the top of what people look at, and nothing else is.

Slow: a process that hangs is known by what does not come of it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from confluent_kafka import Producer

from fleethpa.frame.writer import open_writer
from fleethpa.lab.demo.stack import DEV_SETTINGS, Stack, StackPlan
from fleethpa.lab.simulator.cluster import default_fleet
from fleethpa.show import words
from reconciler.agents.agent.process import HOME
from schemas.agents import AgentSet
from schemas.decisions import NO_OUTCOME
from tests.kafka.broker import free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow
HPAS = 9
NAMED_S = 3 * (DEV_SETTINGS.sync_period_ms or 0) / 1000
"""Three sync periods of the development stack."""
LINES = {
    "decider": "the decider hangs or does not run",
    "ingest": "ingest hangs or does not run",
    "observer": r"the observer of [a-z0-9, ]+ hangs or does not run",
    "reconciler": r"the reconciler of [a-z0-9, ]+ hangs or does not run",
    "router": "the router hangs, does not run, may not commit heartbeats, or its clock is behind",
    "scheduler": "the scheduler hangs, does not run, may not commit heartbeats, or its clock is behind",
    "archiver": "the archiver hangs, does not run, may not commit heartbeats, or its clock is behind",
    "agent": "the agent of west hangs, does not run, does not reach Kafka or is not read",
}
NEXT = {
    "archiver": "fleethpa admin archive --to DIR",
    "agent": "kubectl --context west -n fleethpa-system logs deployment/fleethpa-agent",
}
"""The next command, where it is not `fleethpa run PROCESS`."""
OF_CLUSTERS = {
    "observer": "its observer has been silent",
    "reconciler": "its reconciler has been silent",
    "agent": "west  its observer has been silent",
}
"""What `doctor` finds with each cluster, instead of a line about the process."""
WEST = AgentSet(cluster="west", incarnation=1)
AGENT = ("--incarnation", "1", "--no-stand-in", "--local-clock", "--web-port", "0")
READS: tuple[tuple[str, ...], ...] = (
    ("get", "hpa", "-A"),
    ("get", "clusters"),
    ("explain", "east/shop/checkout"),
    ("decisions", "-A", "--last", "1"),
)

FURTHER_READS: tuple[tuple[str, ...], ...] = (
    ("get", "capacitygroups"),
    ("describe", "east/shop/checkout"),
    ("what-if", "east/shop/checkout", "--set", "maxReplicas=30"),
    ("history", "east/shop/checkout"),
    ("settings", "north"),
    ("schedule", "list"),
    ("rollout", "status"),
    ("backtest", "-A", "--set", "maxReplicas=30", "--since", "1m"),
    ("tune", "east/shop/checkout"),
    ("shadow-report", "-A", "--since", "1m"),
    ("export", "decisions", "-A", "--since", "1m", "-o", "csv"),
    ("decisions", "-A", "--last", "1"),
    ("diff", "-f", "examples/checkout.yaml"),
    ("upgrade-preview", "-A", "--to", "1.36", "--since", "1m"),
)
"""What else is asked of a fleet: all verbs read its state in one way, so that one process that hangs shows it."""


class _Separate(Stack):
    """The stack with a child for each part, and an agent in west."""

    def _broker(self) -> str:
        brokers = super()._broker()
        asker = Producer({"bootstrap.servers": brokers})
        for topic in WEST.topics.reports, WEST.topics.commands:
            asker.list_topics(topic, timeout=10)  # which brings it into being
        return brokers

    async def _write_settings(self) -> None:
        await super()._write_settings()
        async with open_writer(self.config) as writer:
            await writer.send("agent", WEST.cluster, "", [WEST])

    def _commands(self) -> dict[str, Sequence[str]]:
        together = super()._commands()
        run = [sys.executable, "-m", "fleethpa", "run"]
        reach = ["--brokers", self.config.brokers, "--web-port", "0"]
        kubeconfig = ["--kubeconfig", self.config.kubeconfig, "--contexts"]
        members = [*kubeconfig, ",".join(name for name in self.clusters if name != WEST.cluster)]
        commands: dict[str, Sequence[str]] = {
            "ingest": [*run, "ingest", *reach],
            "observer": [*run, "observer", *reach, *members],
            "reconciler": [*run, "reconciler", *reach, *members],
            "router": [*run, "router", *reach],
            "scheduler": [*run, "scheduler", *reach],
            "agent": [*run, "agent", *reach, *kubeconfig, WEST.cluster, *AGENT],
            "archiver": [*run[:-1], "admin", "archive", *reach, "--to", str(self._plan.folder / "archive")],
        }
        return commands | {name: together[name] for name in ("decider", "page")}


class _Viewer:
    """A person with a terminal and a browser."""

    def __init__(self, stack: Stack, folder: Path, port: int, environ: Mapping[str, str]) -> None:
        self.stack, self.port, self.environ = stack, port, environ
        self.archive = ("--from", str(folder / "archive"))

    async def stderr_of(self, *arguments: str) -> str:
        out, err = await self.ask(*arguments)
        assert "no outcome" not in out, f"{arguments}: {out}"
        return err

    async def ask(self, *arguments: str) -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fleethpa", *arguments),
            *(() if "--from" in arguments else ("--brokers", self.stack.config.brokers)),
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return out.decode(), err.decode()

    async def page(self, path: str, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Look at a page until a line is there: it reads the state every two seconds."""
        deadline = time.monotonic() + timeout_s
        async with aiohttp.ClientSession() as client:
            while True:
                async with client.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                    shown = await answer.text()
                if re.search(text, shown):
                    return shown
                assert time.monotonic() < deadline, f"{text!r} is not on {path} after {timeout_s} s: {shown}"

    async def until(self, text: str, is_named: bool, deadline_s: float, *arguments: str) -> str:
        """Ask until a line is there or no longer is; a question that begins in time counts."""
        while True:
            began_s = time.monotonic()
            if bool(re.search(text, stated := await self.stderr_of(*arguments))) == is_named:
                return stated
            assert began_s < deadline_s, f"{text!r} is {'not ' * is_named}in {arguments} in time: {stated}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[_Viewer]:
    folder = tmp_path_factory.mktemp("stack")
    (port,) = free_ports(1)
    environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(folder), "COLUMNS": "200"}
    fleet = default_fleet()
    fleet.clusters[WEST.cluster].apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    async with _Separate(StackPlan(folder, fleet=fleet, page_port=port, environ=environ)) as stack:
        await stack.ready(HPAS)
        yield _Viewer(stack, folder, port, environ)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", LINES)
async def test_a_process_that_hangs_is_named_by_every_read_verb_and_the_page(viewer: _Viewer, name: str) -> None:
    await viewer.until(r" hangs\b", False, time.monotonic() + PATIENCE_S, "get", "clusters")
    pid = viewer.stack.children[name].pid
    deadline_s = time.monotonic() + NAMED_S
    os.kill(pid, signal.SIGSTOP)
    try:
        # The last record of each partition has its own age: a question about one HPA may have to wait longer than one
        # about all of them.
        for arguments in READS:
            stated = await viewer.until(LINES[name], True, deadline_s, *arguments)
            assert re.match(f"warning: {LINES[name]}", stated), (arguments, stated)
            assert stated.count(" hangs") == 1, (arguments, stated)
            assert NEXT.get(name, f"fleethpa run {name}") in stated.splitlines()[0], stated
        for arguments in FURTHER_READS if name == "decider" else ():
            assert re.match(f"warning: {LINES[name]}", await viewer.stderr_of(*arguments)), arguments
        line = OF_CLUSTERS.get(name, f"{name}  {LINES[name]}")
        # An agent is reconciler and observer, of which either may be silent first.
        while line not in (found := (await viewer.ask("doctor"))[0]):
            assert time.monotonic() < deadline_s, found
        # After two sync periods without answers, HPAs have no metric either, and theirs is no other cause.
        causes = [line for line in found.splitlines() if " hangs" in line and words.NO_METRIC not in line]
        assert len(causes) == (name not in OF_CLUSTERS), found
        if name == "archiver":
            stated = await viewer.until(LINES[name], True, deadline_s, "get", "hpa", "-A", *viewer.archive)
            assert re.match(f"warning: {LINES[name]}", stated), stated
        for path in ("/", "/clusters", "/changes", "/hpa/east/shop/checkout", "/rollouts", "/audit", "/try"):
            shown = await viewer.page(path, LINES[name])
            assert f"<title>{name} hangs" in shown, path
            assert '<div id="state" data-ill' in shown, path
            assert (">Live<" in shown) == (name not in ("ingest", "decider")), path
            # The lists of an HPA's changes have what was recorded: outcomes that did not come are facts there.
            assert NO_OUTCOME not in shown or path not in ("/", "/clusters"), path
    finally:
        os.kill(pid, signal.SIGCONT)
