"""`fleethpa upgrade-preview`: which recorded decisions another version of Kubernetes would have made otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from fleethpa.changes.versions import version_named
from fleethpa.fleet import selection as selecting
from fleethpa.fleet.filters import closed_window
from fleethpa.fleet.finding import chosen
from fleethpa.fleet.selection import Selection
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, not_found
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import jobs_for, progress
from fleethpa.questions.upgradereport import changed, report
from streams.analysis.upgrade import PreviewTask, previews, read_previews
from streams.history.parallel import ReplayPool

if TYPE_CHECKING:
    from fleethpa.fleet.views import HpaView
    from schemas.keys import HpaId
    from streams.analysis.upgrade import Preview
    from streams.history.past import Past
    from streams.hpa.rules import Rules

_MEASURES: Final = {"changed": ConditionMeasure("changed")}


class _Counts(NamedTuple):
    changed: int


@click.command("upgrade-preview")
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option("--to", required=True, metavar="1.NN", help="The version of Kubernetes to compare with.")
@click.option("--gates", default="", metavar="NAME=true,…", help="Feature gates of its controller manager.")
@click.option("--since", default="7d", show_default=True, metavar="7d|TIME", help="Start at this time.")
@click.option("--until", metavar="1h|TIME", help="End at this time [default: now].")
@click.option("--fail-if", metavar="changed>N", help="Exit 1 if so many HPAs would be scaled otherwise.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def upgrade_preview(
    session: Session,
    selection: Selection,
    to: str,
    gates: str,
    since: str,
    until: str | None,
    fail_if: str | None,
    html: str | None,
    output: str,
) -> int:
    """Show which decisions would have been different after an upgrade of Kubernetes, and because of which change.

    Decides each recorded evaluation again with the rules of the other version. Reads the log or an archive and writes
    nothing.
    """
    rules, name = version_named("--to", to, gates)
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    window = closed_window(since, until, session.now_ms())
    found = session.run(_previews(session, selection, window, rules))
    session.publish(report(found, name), output, html=html)
    counts = _Counts(changed(found))
    return ANSWER_IS_NO if gate is not None and gate.holds(_Counts(0), counts) else OK


async def _previews(session: Session, selection: Selection, window: tuple[int, int], rules: Rules) -> list[Preview]:
    async with session.past() as past:
        views = chosen(await read_state(past), selection)
        made: dict[HpaId, Preview] = {}
        tasks, jobs = _tasks(past, views, window, rules), jobs_for(past)
        if len(tasks) == 1 or jobs == 1:
            for task in tasks:
                made |= await previews(task)
        else:
            pool = ReplayPool(read_previews, jobs)
            async with progress(session, "reading", pool):
                async for part in pool.run(tasks):
                    made |= part
    found = [each for view in views if (each := made[view.id]).evaluations]
    if not found:
        raise not_found(
            f"no evaluation of {selection} in this window",
            cause="The preview decides recorded evaluations again.",
            next_step="fleethpa decisions -A --since 30d, to see when there are some",
        )
    return found


def _tasks(past: Past, views: Sequence[HpaView], window: tuple[int, int], rules: Rules) -> list[PreviewTask]:
    """One task per log partition, those with the most HPAs first: partitions are read beside each other."""
    hpas: dict[int, list[HpaId]] = {}
    for view in views:
        hpas.setdefault(view.partition, []).append(view.id)
    ordered = sorted(hpas.values(), key=len, reverse=True)
    return [PreviewTask(past, frozenset(each), window, rules) for each in ordered]
