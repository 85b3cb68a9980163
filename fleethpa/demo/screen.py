"""What the audience sees: lines, a table of the fleet, decisions from the topic, replicas from the clusters' API."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleethpa.frame.session import use_color
from fleethpa.show import words
from fleethpa.show.words import number
from reconciler.clusters.answers import ApiError, UnreachableError
from runtime.log import clean
from schemas.keys import FLEET, HpaId
from streams.history.past import Past
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient


_BAR_WIDTH: Final = 10


@dataclass
class HpaPicture:
    """The newest picture of one HPA."""

    replicas: int | None = None
    wanted: int | None = None
    metric: str = ""
    away: bool = False


@dataclass
class Screen:
    """Prints the story. `live`: a terminal with colours; otherwise plain lines."""

    live: bool
    pictures: dict[str, HpaPicture] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    _console: Any = None
    _display: Any = None

    def __enter__(self) -> Screen:
        if self.live:
            self._console = Console(highlight=False)
            self._display = Live(
                get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True
            )
            self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._display is not None:
            self._display.__exit__(*error)

    def _say(self, text: str, style: str = "") -> None:
        if self._console is None:
            print(text, flush=True)
            return

        self._console.print(Text(text, style=style))

    def stamp(self) -> str:
        """Seconds since the story began."""
        return f"{time.monotonic() - self.began:5.1f}s"

    def act(self, number: int, title: str, what: str) -> None:
        """Begin an act."""
        self._say("")
        self._say(f"{number}  {title}", "bold cyan")
        self._say(f"   {what}", "dim")

    def line(self, text: str, style: str = "") -> None:
        """A line of the story."""
        self._say(f"   {self.stamp()}  {text}", style)

    def decision(self, who: str, change: str, why: str, *, held: bool = False) -> None:
        """A change, or what was held, with its decision."""
        self._say(f"   {self.stamp()}  {who:22} {change:>7}   {clean(why)}", "yellow" if held else "green")

    def check(self, text: str, passed: bool) -> None:
        """A promise of the story, kept or not, as the clusters' API shows."""
        self._say(f"   {'✔' if passed else '✘'} {text}", "bold green" if passed else "bold red")

    def plain(self, text: str, style: str = "") -> None:
        """A line without a time."""
        self._say(text, style)

    def quoted(self, text: str) -> None:
        """What a command has printed."""
        for line in text.splitlines():
            self._say(f"     {line}")

    def _table(self) -> Any:
        table = Table(box=None, padding=(0, 2, 0, 0), expand=False)
        table.add_column("HPA", no_wrap=True, min_width=max(map(len, self.pictures), default=3))
        table.add_column("REPLICAS", no_wrap=True, min_width=8)
        table.add_column("", no_wrap=True, min_width=_BAR_WIDTH)
        table.add_column("METRICS", no_wrap=True)
        for name, seen in self.pictures.items():
            count = "?" if seen.replicas is None else str(seen.replicas)
            metric = "no answer" if seen.away else seen.metric
            style = "dim" if seen.away else ""
            table.add_row(name, count, Text(_bar(seen), "cyan"), metric, style=style)
        return table


def _bar(seen: HpaPicture) -> str:
    """Filled: replicas; hollow: what the metrics ask for beyond them."""
    have = seen.replicas or 0
    more = max(0, (seen.wanted or 0) - have)
    return ("■" * have + "□" * more)[:_BAR_WIDTH].ljust(_BAR_WIDTH)


def wants_live(choice: Mapping[str, Any]) -> bool:
    """Whether stdout is a terminal that takes colours and moving parts."""
    return bool(sys.stdout.isatty()) and use_color(str(choice.get("color") or "auto"), sys.stdout)


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
        """Take decisions from the topic and show those that change or hold something."""
        async for recorded in past.follow():
            self.decisions.append(recorded)
            self._picture(recorded)
            self._show(recorded)

    async def follow_clusters(self) -> None:
        """Ask each cluster's API for the replicas, again and again."""
        while True:
            await asyncio.gather(*(self._look(hpa) for hpa in (*self.hpas, *self.carts)))
            self.highest_of_carts = max(self.highest_of_carts, sum(self.replicas.get(hpa, 0) for hpa in self.carts))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, hpa: HpaId) -> None:
        seen = self.screen.pictures.setdefault(str(hpa), HpaPicture())
        path = f"/apis/apps/v1/namespaces/{hpa.namespace}/deployments/{hpa.name}/scale"
        try:
            scale = await self.clients[hpa.cluster].get(path, timeout_s=1.0)
        except (ApiError, UnreachableError):
            seen.away = True
            return
        count = int(scale["spec"].get("replicas", 0))
        seen.away, seen.replicas = False, count
        self.replicas[hpa] = count
        self.highest[hpa] = max(self.highest.get(hpa, 0), count)

    def _picture(self, recorded: Recorded) -> None:
        decision = recorded.decision
        seen = self.screen.pictures.setdefault(str(recorded.hpa), HpaPicture())
        if decision.kind != "evaluation":
            return
        if decision.cluster == FLEET:
            seen.replicas = decision.current_replicas
        seen.wanted = decision.raw_desired_replicas
        seen.metric = "  ".join(_metric(metric) for metric in decision.metrics)

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
        """Note and show whether a promise was kept."""
        self.checks.append((text, passed))
        self.screen.check(text, passed)

    async def ask(self, *arguments: str, stdin: str = "") -> str:
        """Run a command as a user would, against the stack's brokers, and return what it prints."""
        command = [sys.executable, "-m", "fleethpa", *arguments, "--brokers", self.brokers]
        asked = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        printed, _ = await asked.communicate(stdin.encode())
        return printed.decode()

    async def ask_document(self, *arguments: str) -> dict[str, Any]:
        """The same as a document; empty where the command failed."""
        found: dict[str, Any] = orjson.loads(await self.ask(*arguments, "-o", "json") or "{}")
        return found

    async def pods(self, hpa: HpaId) -> list[dict[str, Any]]:
        """The target's pods, from the cluster's API."""
        found = await self.clients[hpa.cluster].get(f"/api/v1/namespaces/{hpa.namespace}/pods")
        items: list[dict[str, Any]] = found.get("items") or []
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


def _metric(metric: Any) -> str:
    name = words.short_name(metric)
    if metric.error:
        return f"{name} missing"
    if metric.utilization is not None:
        return f"{name} {metric.utilization}%/{metric.target_utilization}%"
    return f"{name} {number(metric.value or 0)}/{number(metric.target or 0)}"
