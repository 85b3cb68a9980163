"""The end of the story: one decision explained and one other spec tried, from the archive that it leaves behind."""

from __future__ import annotations

import shutil
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleethpa.cli.common.backtesting import Window, Wish, events_by_hpa, notes, run
from fleethpa.cli.common.changes import changed_spec, checked
from fleethpa.cli.common.explanation import explanation
from fleethpa.cli.common.failures import CommandError
from fleethpa.cli.common.finding import find_decision
from fleethpa.cli.common.sources import archive_past
from fleethpa.cli.output.backtestpage import Reported, page
from fleethpa.demo.scene import EAST
from streams.analysis.counterfactual import counterfactuals
from streams.analysis.openloop import open_loop
from streams.archive.segments import ArchiveError
from streams.history.evaluationinputs import Evaluated, evaluation_of

if TYPE_CHECKING:
    from fleethpa.demo.reports import DemoReport
    from streams.history.past import Past

CHANGE: Final = "maxReplicas=6"
_WIDEST: Final = 100


async def asked(report: DemoReport, root: Path) -> None:
    """Explain the newest rescale of east, and try a lower maximum on what has just happened."""
    past = archive_past(str(root))
    try:
        await _explained(report, past)
        await _tried(report, past)
    except (CommandError, ArchiveError) as error:
        report.promise(f"the archive answers: {error}", False)


async def _explained(report: DemoReport, past: Past) -> None:
    what = f"`fleethpa explain {EAST} --change --from {past.name}`: why, and what would have changed it."
    report.screen.act(7, "Any decision can be asked why", what)
    found, ending = await find_decision(past, str(EAST), None, change=True)
    would = counterfactuals((await evaluation_of(past, found)).inputs)
    now_ms = time.time_ns() // 1_000_000
    for line in explanation(found.decision, ending.decision if ending else None, now_ms=now_ms, would=would):
        report.screen.plain(f"     {line}")
    report.promise(
        f"other metric values that change this answer: {len(would.flips)}, each evaluated again to prove it",
        bool(would.flips) and would.final == found.decision.final_desired_replicas,
    )


async def _tried(report: DemoReport, past: Past) -> None:
    what = f"`fleethpa backtest {EAST} --set {CHANGE} --plot --from {past.name}`: the last minutes, once more."
    report.screen.act(8, "Another spec is tried on what has just happened", what)
    async with aclosing(events_by_hpa(past, {EAST}, await past.partitions(), Window(0, 1 << 62))) as parts:
        events = await anext(parts)
    spec = next(e.inputs.spec for e in reversed(events[EAST]) if isinstance(e, Evaluated))
    body = {"metadata": {"name": EAST.name, "namespace": EAST.namespace}, "spec": spec}
    wish = Wish(EAST, body | {"spec": checked(body, changed_spec(spec, (CHANGE,)), "--set")}, spec)
    result = run([wish], events, "closed")[0]
    width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns - 5)
    for line in page(Reported(result, wish.changes, notes(result)), plot=True, width=width):
        report.screen.plain(f"     {line}")
    compared = open_loop(events[EAST], None)
    report.promise(
        f"the deployed spec, asked at all {len(compared)} evaluations, answers as recorded",
        bool(compared) and all(each.agrees for each in compared),
    )
