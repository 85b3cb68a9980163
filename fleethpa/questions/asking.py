"""What every question to the past shares: the reading of what became of HPAs, and where its report goes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import click

from fleethpa.frame.errors import CommandError, usage
from fleethpa.show.formats import one, to_yaml
from fleethpa.show.html import page_of
from fleethpa.show.report import QuestionReport, report_lines
from schemas.keys import HpaId, partition_for
from streams.history.evaluations import Evaluated, HpaEvent, events_between, hpa_of

if TYPE_CHECKING:
    from fleethpa.frame.session import Session
    from streams.history.past import Past
    from streams.state.lostmetrics import EvaluationInputs

T = TypeVar("T")
MOST_HELD: Final = 300_000
"""Evaluations that are held at a time, some 4 KB each: a week of seven HPAs at 15 s."""
MOST_REDUCED: Final = 1_000_000
"""The same where a reader keeps some 500 bytes of each."""
WIDEST: Final = 120
"""Characters of a plot on a terminal, at most."""


class Window(NamedTuple):
    """From `since_ms` to before `until_ms` (log time)."""

    since_ms: int
    until_ms: int


class Reader(Protocol):
    """Takes in the evaluations of one HPA, in the order of the log, and keeps what its question needs of them."""

    def add(self, inputs: EvaluationInputs) -> None:
        """Take in an evaluation."""
        ...


R = TypeVar("R", bound=Reader)


def readers_by_hpa(
    past: Past, wanted: set[HpaId], window: Window, reader: Callable[[HpaId], R]
) -> AsyncGenerator[dict[HpaId, R], None]:
    """Readers that have taken in the evaluations of HPAs, some at a time, in the order of log partitions and names.

    Raises CommandError: the log does not reach back (exit 2).
    """

    def take(found: R, event: HpaEvent) -> None:
        if isinstance(event, Evaluated):
            found.add(event.inputs)

    return _by_hpa(past, wanted, window, reader, take, MOST_REDUCED, native=False)


def events_by_hpa(
    past: Past, wanted: set[HpaId], window: Window, *, native: bool = False
) -> AsyncGenerator[dict[HpaId, list[HpaEvent]], None]:
    """What became of HPAs, some at a time, as `readers_by_hpa`.

    `native`: with the syncs of the clusters' own controllers.
    """

    def nothing(_: HpaId) -> list[HpaEvent]:
        return []

    return _by_hpa(past, wanted, window, nothing, list.append, MOST_HELD, native=native)


async def _by_hpa(
    past: Past,
    wanted: set[HpaId],
    window: Window,
    begin: Callable[[HpaId], T],
    take: Callable[[T, HpaEvent], None],
    most: int,
    *,
    native: bool,
) -> AsyncGenerator[dict[HpaId, T], None]:
    """Read the log from the nearest snapshot on, one partition after the other.

    Where a partition's HPAs have more than `most` events, half of them are left for another reading of it.
    """
    count = await past.partitions()
    by_partition: dict[int, list[HpaId]] = {}
    for hpa in sorted(wanted):
        by_partition.setdefault(partition_for(hpa.namespace_key, count), []).append(hpa)
    for number, left in sorted(by_partition.items()):
        while left:
            found = {hpa: begin(hpa) for hpa in left}
            counts, held = dict.fromkeys(left, 0), 0
            between = events_between(past, number, *window, found.__contains__, native=native)
            async with aclosing(between) as events:
                async for event in events:
                    hpa = hpa_of(event)
                    if hpa not in found:  # left for later within its record
                        continue
                    take(found[hpa], event)
                    counts[hpa] += 1
                    held += 1
                    while held > most and len(found) > 1:
                        held -= sum(counts.pop(found.popitem()[0]) for _ in range(len(found) // 2))
            yield found
            left = left[len(found) :]


# --- where a report goes ----------------------------------------------------------------------------------------------


def _checked_folder(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Check, before anything is read, that a report can be written."""
    if path and not Path(path).absolute().parent.is_dir():
        raise usage(f"--html {path} cannot be written", cause="Its folder does not exist.")
    return path


html_option = click.option(
    "--html", metavar="FILE", callback=_checked_folder, help="Write the report as one HTML file."
)


def publish(
    session: Session,
    report: QuestionReport,
    output: str = "table",
    *,
    html: str | None = None,
    plot: bool = False,
    instead: str | None = None,
) -> None:
    """Print a report in an output format and, with `html`, write its page.

    `instead`: what stdout gets in place of the lines of a terminal, which then go to stderr.

    Raises CommandError: the page cannot be written (exit 2).
    """
    if output != "table":
        session.out(one(report.kind, report.document, output))
    else:
        width = min(WIDEST, shutil.get_terminal_size((80, 24)).columns) if plot else 0
        session.lines(report_lines(report, color=session.color, plot_width=width), err=instead is not None)
        session.out(instead or "")
    if html:
        try:
            Path(html).write_text(page_of(report), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"--html {html} cannot be written", cause=str(error), code=2) from error
        session.note(f"report: {html}")


def manifests(found: list[dict[str, Any]]) -> str:
    """Manifests as one YAML text."""
    return "---\n".join(to_yaml(each) + "\n" for each in found).rstrip("\n")
