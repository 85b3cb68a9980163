"""`fleethpa tune`: propose a better spec for HPAs from their own past, with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, selection_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import price_for
from fleethpa.frame.options import html_option, output_option, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import showing_progress
from fleethpa.questions.tunings import Asked, Kept, Progress, TuneFinding, parse_within, run
from fleethpa.show.formats import to_yaml, to_yaml_documents
from fleethpa.show.report import Grid, Notes, Preformatted, QuestionReport, Scatter, Section, Sentences, Spot, verdict
from fleethpa.show.text import rfc3339, span
from fleethpa.show.words import counted
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.shape import Json
from schemas.kubernetes.versions import complete_behavior
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.revisions import differences
from streams.analysis.tuning.recording import LEAST_GAIN, WORTH_RELIEF, CurvePoint, Objective, Side, Tuning
from streams.history.parallel import Faults, cores


@click.command()
@selection_options()
@click.option(
    "--objective",
    type=click.Choice(["cost", "safety", "balanced"]),
    default="balanced",
    help="What is better; see above.",
)
@period_options("14d")
@click.option(
    "--within",
    "limits",
    metavar="SPEC",
    help="What a proposal must keep to: 'target=40..80,minReplicas=2..,maxReplicas=..30,window=60..600'; "
    "also tolerance and scaleUpPercent.",
)
@click.option("--resume", metavar="FILE", help="Save results in this file, and continue from those that it holds.")
@price_option
@click.option("--emit-yaml", is_flag=True, help="Print the proposed manifests to stdout, the report to stderr.")
@html_option
@output_option(formats=("table", "wide", "json", "yaml"))
@command_options(reads=True)
def tune(
    session: Session,
    selection: Selection,
    objective: Objective,
    period: AskedPeriod,
    limits: str | None,
    resume: str | None,
    emit_yaml: bool,
    html: str | None,
    price: Decimal | None,
    output: str,
) -> int:
    """Propose specs from the recorded past: target, windows, policies, tolerances, minReplicas and maxReplicas.

    They are chosen on the first two thirds of the recording and scored on the rest. Nothing is written anywhere. A spec
    is proposed only if it is better than the deployed one on both parts. balanced: fewer replica-hours with
    no more overload. cost: fewer replica-hours, overload for up to 0.5 % more of the time. safety: half the overload or
    less, at up to 50 % more cost if necessary (the report says so); else less overload at no more cost. The
    same recording gives the same proposal. Several HPAs are tuned on all cores.
    """
    within = parse_within(limits)
    begin, end = period.window(session.now_ms())
    asked = Asked(since_ms=begin, until_ms=end, objective=objective, within=within)
    kept = Kept(Path(resume) if resume else None, asked)
    found, used, faults = session.run(_tuned(session, selection, kept, price))
    emitted = to_yaml_documents([each.manifest for each in found if each.manifest is not None]) if emit_yaml else None
    wide = output == "wide" or html is not None
    session.publish(report(found, used, wide=wide), output, html=html, instead=emitted)
    return session.failed(faults)


async def _tuned(
    session: Session, selection: Selection, kept: Kept, given: Decimal | None
) -> tuple[list[Tuned], Decimal | None, Faults]:
    """What was found, the price of a replica-hour, and the faults."""
    async with session.past() as past:
        state = await read_state(past)
        views = alone(chosen_some(state, selection), "tune", session.note)
        progress = Progress(len(views), sum(view.id in kept.known for view in views))
        if progress.done:
            session.note(f"{progress.done} of {progress.total} HPAs were tuned before; the period is the one of then")
        async with showing_progress(session, progress.text):
            faults = await run(past, [view.id for view in views], kept, progress, cores())
    refused = {hpa: TuneFinding(hpa=hpa, refused=f"internal error: {fault.error}") for hpa, fault in faults.items()}
    known = kept.known | refused
    tuned = [Tuned(view.id, view.hpa, known[view.id].found, known[view.id].refused) for view in views]
    return tuned, price_for(given, state.settings, {view.id.cluster for view in views}, session.note), faults


# --- the report -------------------------------------------------------------------------------------------------------

_DAY_MIN: Final = 1440
MOST_CHOICES: Final = 5
"""Specs of the frontier that are shown where nothing is proposed."""
CAUTIONS: Final = (
    "whether the future is like the past: loads, releases and dependencies change",
    "what the capacity of a pod really is: no latency is in the log",
    *UNKNOWN,
)


class Tuned(NamedTuple):
    """One HPA: what was found, or why nothing could be (`refused`)."""

    id: HpaId
    hpa: Json
    found: Tuning | None
    refused: str = ""

    @property
    def manifest(self) -> dict[str, Any] | None:
        """A manifest that `apply` takes; None: nothing is proposed."""
        if self.found is None or not self.found.changed:
            return None
        return manifest_of(self.hpa["metadata"] | self.id._asdict(), self.found.spec)


def _percent(value: float) -> str:
    return f"{value * 100:.2f} %"


_ROWS: Final[tuple[tuple[str, Callable[[Side], str]], ...]] = (
    ("replica-hours", lambda side: f"{side.replica_hours:,.2f}"),
    ("time in overload", lambda side: _percent(side.overload_share)),
    ("missing, mean over time", lambda side: _percent(side.overload)),
    ("worst overload (ratio)", lambda side: f"{side.worst:.2f}"),
    ("scale events", lambda side: str(side.scale_events)),
)
"""What is asked first."""
_MORE_ROWS: Final[tuple[tuple[str, Callable[[Side], str]], ...]] = (
    ("replica-hours / ideal", lambda side: "-" if (ratio := side.scores.ideal_ratio) is None else f"{ratio:.2f}"),
    ("slack", lambda side: _percent(side.scores.slack)),
    ("instability", lambda side: _percent(side.scores.instability)),
)
_HEAD: Final = ("", "unseen: deployed", "unseen: proposed", "chosen on: deployed", "chosen on: proposed")


def section(tuned: Tuned, *, wide: bool = False) -> Section:
    """What is reported of one HPA; `wide`: with the scores of the literature."""
    found = tuned.found
    if found is None:
        return Section(str(tuned.id), "no proposal", [Sentences([tuned.refused])])
    four: tuple[Side, ...] = (*found.unseen, *found.chosen_on)
    shown = (*_ROWS, *_MORE_ROWS) if wide else _ROWS
    cycle = f"repeats every {span(found.cycle_ms // 60_000 * 60_000)}" if found.cycle_ms else "no cycle seen"
    return Section(
        str(tuned.id),
        f"{rfc3339(found.since_ms)} … {rfc3339(found.until_ms)}   {found.evaluations:,} evaluations, chosen until "
        f"{rfc3339(found.split_ms)}, scored from there",
        [
            Sentences(
                [
                    f"objective: {found.objective}; overload is counted beyond {found.capacity}; {found.tried} specs "
                    f"tried, {found.withdrawn} withdrawn after a check in the closed loop",
                    f"load: {found.metric}, {cycle}; pods take load after {found.start_up.ms / 1000:.0f}s "
                    f"({found.start_up.how})",
                    *[f"bound: {text}" for text in found.bounds],
                ]
            ),
            Notes(
                headline(found),
                changes(found.deployed, found.spec) if found.changed else [*unproven(found), *relief_hint(found)],
            ),
            Grid([_HEAD, *((name, *map(text, four)) for name, text in shown)], numbers=True),
            _curve(found),
            *([_choices(found)] if not found.changed and frontier(found) else []),
            *([Preformatted("The manifest:", to_yaml(tuned.manifest))] if found.changed else []),
        ],
    )


def changes(deployed: Json, proposed: Json) -> list[str]:
    """List what a proposal changes. `behavior` rules that only repeat upstream's defaults are no change."""
    if "behavior" in proposed and "behavior" not in deployed:
        rules: Json = {}
        complete_behavior(rules)
        deployed = deployed | {"behavior": rules}
    return differences(deployed, proposed)


def headline(found: Tuning) -> str:
    """Whether there is a proposal, and of which kind: one that costs more says so, and for what."""
    if not found.changed:
        return f"no change proposed: {found.why}"
    if not found.costs_more:
        return "proposed:"
    return (
        f"proposed, at {found.more_cost:.1%} more replica-hours: in overload for "
        f"{_of_a_day(found.overload_share(0))} as deployed, {_of_a_day(found.overload_share(1))} with the proposal"
    )


def relief_hint(found: Tuning) -> list[str]:
    """Where nothing is proposed and pods were in overload: what can be asked instead."""
    share = found.overload_share(0)
    if found.objective == "safety" or share < WORTH_RELIEF:
        return []
    return [
        f"the deployed spec was in overload for {_of_a_day(share)}; --objective safety searches a spec that spares at "
        "least half of that, at more cost where that must be"
    ]


def _of_a_day(share: float) -> str:
    return f"{_percent(share)} of the time ({share * _DAY_MIN:.1f} minutes of a day)"


def _curve(found: Tuning) -> Scatter:
    """Cost against overload among the specs tried; where the deployed spec and the proposal are."""
    marks = {found.proposed_point: "proposed"} if found.changed else {}
    marks[found.deployed_point] = "deployed"
    points = sorted({*found.curve, *marks}, key=lambda point: (point.replica_hours, point.overload_share))
    return Scatter(
        "cost against overload of the specs tried, on the part they were chosen on (compact model)",
        "replica-hours",
        "time in overload",
        "{:,.2f}",
        "{:.2%}",
        [Spot(point.replica_hours, point.overload_share, _spec(point), marks.get(point, "")) for point in points],
    )


def _spec(point: CurvePoint) -> str:
    return f"target {point.target:g} %, min {point.min_replicas}, window {point.window_seconds}s"


def _ranking(found: Sequence[Tuned]) -> Section:
    """Where most is to gain among several HPAs, and where the risk is."""
    tunings = [each.found for each in found if each.found is not None and each.found.changed]
    tunings.sort(key=lambda each: -each.saved)
    kept = sum(each.found is not None and not each.found.changed for each in found)
    refused = sum(each.found is None for each in found)
    title = f"{len(found)} HPAs: {len(tunings)} proposals, {kept} without change, {refused} that cannot be tuned"
    return Section(title, parts=[Sentences([f"{number}. {_gain(each)}" for number, each in enumerate(tunings, 1)])])


def _gain(found: Tuning) -> str:
    was, own = found.unseen
    risk = "; ".join(text.partition(": ")[0] for text in found.bounds) or "none bound it"
    change = f"{abs(found.saved):,.2f} replica-hours {'more than' if found.saved < 0 else 'less of'}"
    return (
        f"{found.hpa}: {change} {was.replica_hours:,.2f}, overload {_percent(was.overload_share)} → "
        f"{_percent(own.overload_share)}, worst {own.worst:.2f}; risk: {risk}"
    )


def in_a_sentence(found: Sequence[Tuned], price: Decimal | None = None) -> str:
    """How many HPAs could do better, and what that would save of the part of the recording that was kept back."""
    tunings = [each.found for each in found if each.found is not None]
    better = [each for each in tunings if each.changed]
    if not tunings:
        return "No HPA could be tuned." if len(found) > 1 else f"It cannot be tuned: {found[0].refused}."
    if not better:
        follows = "no spec that was tried saves anything"
        if any(map(unproven, tunings)):
            follows = "what saves something has less reserve than the deployed spec"
        if any(map(frontier, tunings)):
            follows = "what each of the specs that save something costs follows"
        return f"No change is certain to be free{' for any of them' if len(found) > 1 else ''}; {follows}."
    saved, ran = sum(each.saved for each in better), sum(each.unseen[0].replica_hours for each in better)
    money = "" if price is None else f"; {price * Decimal(str(abs(round(saved, 3)))):,.2f} at {price}/h"
    direction = "fewer" if saved >= 0 else "more"
    text = f"{abs(saved):,.2f} replica-hours {direction} of {ran:,.2f} ({abs(saved) / max(ran, 1e-9):.0%}{money})"
    whose = f"{len(better)} of {len(found)} HPAs have a better spec" if len(found) > 1 else "There is a better spec"
    return f"{whose}: {text} on the part of the recording that was kept back."


def frontier(found: Tuning) -> list[CurvePoint]:
    """The specs, of those tried, that save most for what they cost: fewer replica-hours than deployed and more
    overload, each with less overload than the ones before; the most saving first, at most five.
    """
    kept: list[CurvePoint] = []
    for point in _saving(found):
        if point.overload_share > found.deployed_point.overload_share and (
            not kept or point.overload_share < kept[-1].overload_share
        ):
            kept.append(point)
    if len(kept) <= MOST_CHOICES:
        return kept
    steps = [round(number * (len(kept) - 1) / (MOST_CHOICES - 1)) for number in range(MOST_CHOICES)]
    return [kept[step] for step in steps]


def _saving(found: Tuning) -> list[CurvePoint]:
    """The specs that save enough to be worth a change, the most saving first."""
    most = found.deployed_point.replica_hours * (1 - LEAST_GAIN)
    saving = [point for point in found.curve if point.replica_hours < most]
    return sorted(saving, key=lambda each: (each.replica_hours, each.overload_share))


def unproven(found: Tuning) -> list[str]:
    """Where nothing is proposed: that some specs had no more overload on the part that they were chosen on."""
    points = [each for each in _saving(found) if each.overload_share <= found.deployed_point.overload_share]
    if found.changed or not points:
        return []
    most = 1 - points[0].replica_hours / found.deployed_point.replica_hours
    return [
        f"{counted(len(points), 'spec')} would have saved up to {most:.0%} with no more overload there: they are not "
        "proposed because, under more load than was recorded, in whole evaluations or on the rest of the recording, "
        "they have more than the deployed spec"
    ]


def _choices(found: Tuning) -> Grid:
    """Where nothing is proposed: what each spec of the frontier saves and costs, and the flags that choose it."""
    was = found.deployed_point
    rows = [
        (
            _spec(point),
            f"{was.replica_hours - point.replica_hours:,.2f} ({1 - point.replica_hours / was.replica_hours:.0%})",
            f"{_percent(was.overload_share)} → {_percent(point.overload_share)}",
            f"fleethpa backtest {found.hpa} {_flags(found, point)} --emit-yaml",
        )
        for point in frontier(found)
    ]
    return Grid(
        [("SPEC", "REPLICA-HOURS SAVED", "TIME IN OVERLOAD", "TRY IT"), *rows],
        "what saves something costs overload; the choice is",
    )


def _flags(found: Tuning, point: CurvePoint) -> str:
    """The changes of a spec of the frontier as `backtest` takes them."""
    metrics = found.deployed["metrics"]
    flags = []
    if len(metrics) == 1 and metrics[0]["type"] == "Resource":
        flags.append(f"--set {metrics[0]['resource']['name']}={point.target:g}%")
    if point.min_replicas != found.deployed_point.min_replicas:
        flags.append(f"--set minReplicas={point.min_replicas}")
    if point.window_seconds != found.deployed_point.window_seconds:
        flags.append(f"--set scaleDown.stabilizationWindowSeconds={point.window_seconds}")
    return " ".join(flags)


def report(found: Sequence[Tuned], price: Decimal | None = None, *, wide: bool = False) -> QuestionReport:
    """The report of some HPAs, with a ranking where there are several. `price`: of a replica-hour; `wide`: with the
    scores of the literature.
    """
    return QuestionReport(
        "Tune",
        "TuningList",
        {"items": [_document(each) for each in found]},
        [verdict(in_a_sentence(found, price)), *(section(each, wide=wide) for each in found)],
        [_ranking(found)] if len(found) > 1 else [],
        [Notes("A proposal cannot know:", CAUTIONS)] if any(each.found is not None for each in found) else [],
    )


def _document(tuned: Tuned) -> dict[str, Any]:
    found = tuned.found
    if found is None:
        return {**tuned.id._asdict(), "refused": tuned.refused}
    names = ("deployed", "proposed")
    made: dict[str, Any] = msgspec.to_builtins(
        {
            **tuned.id._asdict(),
            "objective": found.objective,
            "since": rfc3339(found.since_ms),
            "until": rfc3339(found.until_ms),
            "scoredFrom": rfc3339(found.split_ms),
            "evaluations": found.evaluations,
            "changed": found.changed,
            "costsMore": found.costs_more,
            "why": found.why,
            "changes": changes(found.deployed, found.spec),
            "manifest": tuned.manifest,
            "metric": found.metric,
            "capacity": found.capacity,
            "cycleSeconds": None if found.cycle_ms is None else found.cycle_ms / 1000,
            "startUp": found.start_up,
            "unseen": dict(zip(names, found.unseen, strict=True)),
            "chosenOn": dict(zip(names, found.chosen_on, strict=True)),
            "curve": {"points": found.curve, "deployed": found.deployed_point, "proposed": found.proposed_point},
            "bounds": found.bounds,
            "specsTried": found.tried,
            "withdrawn": found.withdrawn,
            "unknown": CAUTIONS,
        }
    )
    return made
