"""What the audience sees: lines that stay, and on a terminal a table of the fleet below them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleethpa.cli.common.session import use_color
from runtime.jsonlog import clean

_BAR_WIDTH: Final = 10


@dataclass
class HpaPicture:
    """The newest picture of one HPA."""

    replicas: int | None = None
    wanted: int | None = None
    metric: str = ""
    state: str = ""
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
        """A promise of the story, kept or not, as the clusters' API tells."""
        self._say(f"   {'✔' if passed else '✘'} {text}", "bold green" if passed else "bold red")

    def plain(self, text: str, style: str = "") -> None:
        """A line without a time."""
        self._say(text, style)

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
