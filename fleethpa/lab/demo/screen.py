"""What the audience sees: lines of a story, decisions from the topic, replicas from the clusters' API."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from fleethpa.frame.errors import own_command
from fleethpa.show import words
from fleethpa.show.text import paint
from reconciler.clusters.answers import ApiError, UnreachableError
from runtime.log import clean
from schemas.keys import HpaId
from streams.history.past import Past
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient


@dataclass
class Screen:
    """Prints the story. `color`: in colours."""

    color: bool
    began: float = field(default_factory=time.monotonic)

    def plain(self, text: str, style: str = "") -> None:
        """A line without a time."""
        print(paint(text, style, color=self.color), flush=True)

    def act(self, number: int, title: str, what: str) -> None:
        """Begin an act."""
        self.plain(f"\n{number}  {title}", "cyan")
        self.plain(f"   {what}", "dim")

    def line(self, text: str, style: str = "") -> None:
        """A line of the story, with the seconds since it began."""
        self.plain(f"   {time.monotonic() - self.began:5.1f}s  {text}", style)

    def decision(self, who: str, change: str, why: str, *, held: bool = False) -> None:
        """A change, or what was held, with its decision."""
        self.line(f"{who:22} {change:>7}   {clean(why)}", "yellow" if held else "green")

    def quoted(self, text: str) -> None:
        """What a command has printed."""
        for line in text.splitlines():
            self.plain(f"     {line}")


LOOK_EVERY_S = 0.25


@dataclass
class DemoReport:
    """Everything seen so far; acts ask it."""

    screen: Screen
    clients: dict[str, ClusterClient]
    hpas: tuple[HpaId, ...]
    brokers: str = ""
    decisions: list[Recorded] = field(default_factory=list)
    replicas: dict[HpaId, int] = field(default_factory=dict)
    highest: dict[HpaId, int] = field(default_factory=dict)
    checks: list[tuple[str, bool]] = field(default_factory=list)
    carts: tuple[HpaId, ...] = ()
    """HPAs that share a maximum."""
    highest_of_carts: int = 0
    """The most replicas that they had together."""
    _shown: dict[HpaId, str] = field(default_factory=dict)

    # --- following ----------------------------------------------------------------------------------------------------

    async def follow_decisions(self, past: Past) -> None:
        """Read decisions from the topic and show those that change or hold something."""
        async for recorded in past.follow():
            self.decisions.append(recorded)
            self._show(recorded)

    async def follow_clusters(self) -> None:
        """Ask each cluster's API for the replicas, again and again."""
        while True:
            await asyncio.gather(*(self._check(hpa) for hpa in (*self.hpas, *self.carts)))
            self.highest_of_carts = max(self.highest_of_carts, sum(self.replicas.get(hpa, 0) for hpa in self.carts))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _check(self, hpa: HpaId) -> None:
        path = f"/apis/apps/v1/namespaces/{hpa.namespace}/deployments/{hpa.name}/scale"
        try:
            scale = await self.clients[hpa.cluster].get(path, timeout_s=1.0)
        except (ApiError, UnreachableError):
            return
        count = int(scale["spec"].get("replicas", 0))
        self.replicas[hpa] = count
        self.highest[hpa] = max(self.highest.get(hpa, 0), count)

    def _show(self, recorded: Recorded) -> None:
        decision = recorded.decision
        if decision.kind != "evaluation":
            return
        name = str(recorded.hpa)
        if decision.final_desired_replicas != decision.current_replicas:
            self._shown.pop(recorded.hpa, None)
            self.screen.decision(name, words.change(decision), words.why(decision))
            return
        held = holding(recorded)
        # A hold is shown once, not every two seconds.
        if held and self._shown.get(recorded.hpa) != held:
            self._shown[recorded.hpa] = held
            self.screen.decision(name, words.change(decision), words.why(decision), held=True)

    # --- asking -------------------------------------------------------------------------------------------------------

    def since(self, mark: int, hpa: HpaId) -> list[Recorded]:
        """Evaluations of an HPA after a mark (`len(report.decisions)`)."""
        return [r for r in self.decisions[mark:] if r.hpa == hpa and r.decision.kind == "evaluation"]

    def promise(self, text: str, passed: bool) -> None:
        """Record and show whether a promise was kept."""
        self.checks.append((text, passed))
        self.screen.plain(f"   {'✔' if passed else '✘'} {text}", "green" if passed else "red")

    async def ask(self, *arguments: str, stdin: str = "") -> str:
        """Run a command as a user would, against the stack's brokers or `--from` its archive; return what it prints."""
        reach = () if "--from" in arguments else ("--brokers", self.brokers)
        command = [*own_command(), *arguments, *reach]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        printed, _ = await process.communicate(stdin.encode())
        return printed.decode()

    async def ask_document(self, *arguments: str) -> dict[str, Any]:
        """The same as a document; empty where the command failed."""
        document: dict[str, Any] = orjson.loads(await self.ask(*arguments, "-o", "json") or "{}")
        return document

    async def pods(self, hpa: HpaId) -> list[dict[str, Any]]:
        """The target's pods, from the cluster's API."""
        answer = await self.clients[hpa.cluster].get(f"/api/v1/namespaces/{hpa.namespace}/pods")
        items: list[dict[str, Any]] = answer.get("items") or []
        return [pod for pod in items if (pod["metadata"].get("labels") or {}).get("app") == hpa.name]


def holding(recorded: Recorded) -> str:
    """Which rule held a change of the count: `window`, `missing`, or empty."""
    decision = recorded.decision
    if "StabilizationWindow" in decision.constraints_applied and decision.raw_desired_replicas is not None:
        return "window" if decision.raw_desired_replicas < decision.current_replicas else ""
    if missing_held(recorded):
        return "missing"
    return ""


def missing_held(recorded: Recorded) -> bool:
    """Whether a metric is missing while another asks for fewer replicas."""
    decision = recorded.decision
    failed = any(metric.error for metric in decision.metrics)
    lower = any(m.proposal is not None and m.proposal < decision.current_replicas for m in decision.metrics)
    return failed and lower and decision.final_desired_replicas >= decision.current_replicas


async def until(true: Callable[[], bool | Awaitable[bool]], timeout_s: float) -> bool:
    """Wait until something holds; False when it did not in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = true()
                if answer if isinstance(answer, bool) else await answer:
                    return True
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
