"""`fleethpa tune`: propose a better spec for HPAs from their own past, with the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.costreading import costs_of
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, selection_options
from fleethpa.fleet.shards import AskedShard, asked_of, shard_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView, price_for, priced
from fleethpa.frame.options import html_option, output_option, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import showing_progress
from fleethpa.show.formats import to_yaml, to_yaml_documents
from fleethpa.show.report import Grid, Notes, Preformatted, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, percent
from fleethpa.tuning.specsearch import WORTH_RELIEF, Objective, TriedSpec, Tuning
from fleethpa.tuning.tunings import Asked, Kept, Progress, TuneFinding, parse_within, run
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.shape import Json
from schemas.kubernetes.versions import complete_behavior
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.costs import Cost
from streams.analysis.measures import Scores, by_hours
from streams.analysis.revisions import differences
from streams.history.parallel import Faults, cores
from streams.history.past import Past

_SEARCHED: Final = 20


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
    help="What a proposal must keep to: 'target=40..80,minReplicas=2..,window=60..600'.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=_SEARCHED,
    help="HPAs that are searched where none is named, those with the largest waste.",
)
@click.option("--resume", metavar="FILE", help="Save results in this file, and continue from those that it holds.")
@price_option
@shard_options()
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
    top: int,
    resume: str | None,
    emit_yaml: bool,
    html: str | None,
    price: Decimal | None,
    asked_shard: AskedShard,
    output: str,
) -> int:
    """Show what HPAs cost compared with an ideal autoscaler, and propose better specs from their recorded past.

    One table has the ideal autoscaler, what ran, the deployed spec and the proposal, which changes the target, the
    scale-down window or minReplicas, and does at least as well as the deployed spec in each half of the recording.
    Nothing is written. balanced: fewer replica-hours, never more time with too few pods. cost: fewer replica-hours,
    too few pods for up to 0.5% more of the time. safety: too few pods for half of the time or less, at up to 50%
    more replica-hours. Several HPAs are tuned on all cores and ranked by what can be saved. Where more than --top are
    meant and none is named, those are tuned whose decisions show the largest waste (safety: the most that is missing).
    --shard 3/8 --parts DIR does one of eight parts; --parts DIR alone puts them together, and reads nothing else.
    """
    within, faults = parse_within(limits), Faults()
    if asked_shard.merges:
        stated, tunings = asked_shard.merged(Tuned)
        tunings.sort(key=lambda each: each.id)
        used = price if price is not None or stated["price"] is None else Decimal(stated["price"])
    else:
        begin, end = period.window(session.now_ms())
        question = Asked(since_ms=begin, until_ms=end, objective=objective, within=within)
        kept = Kept(Path(resume) if resume else None, question)
        tunings, used, faults = session.run(_tuned(session, selection, kept, top, price, asked_shard))
        if asked_shard.shard is not None:
            more = {
                "price": None if used is None else str(used),
                "objective": objective,
                "within": limits,
                "top": str(top),
            }
            asked_shard.write(session, faults, asked_of("tune", selection, (begin, end), **more), tunings, Tuned)
            return session.failed(faults)
    emitted = to_yaml_documents([each.manifest for each in tunings if each.manifest is not None]) if emit_yaml else None
    wide = output == "wide" or html is not None
    session.publish(report(tunings, used, wide=wide), output, html=html, instead=emitted)
    return session.failed(faults)


async def _tuned(
    session: Session, selection: Selection, kept: Kept, top: int, given: Decimal | None, shard: AskedShard
) -> tuple[list[Tuned], Decimal | None, Faults]:
    """Return what was found, the price of a replica-hour, and the faults."""
    async with session.past() as past:
        state = await read_state(past)
        views = shard.kept(alone(chosen_some(state, selection), "tune", session.note))
        searched, faults = views, Faults()
        if len(views) > top and not selection.refs:
            searched, faults = await _most_wasteful(session, past, views, kept.asked, top)
        progress = Progress(len(searched), sum(view.id in kept.known for view in searched))
        if progress.done:
            session.note(f"{progress.done} of {progress.total} HPAs were tuned before; the period is the one of then")
        async with showing_progress(session, progress.text):
            faults |= await run(past, [view.id for view in searched], kept, progress, cores())
    refused = {hpa: TuneFinding(hpa=hpa, refused=f"internal error: {fault.error}") for hpa, fault in faults.items()}
    known = kept.known | refused
    tuned = [
        Tuned(view.id, view.hpa, known[view.id].found, known[view.id].refused)
        if view.id in known
        else Tuned(view.id, {}, None, is_searched=False)
        for view in views
    ]
    return tuned, price_for(given, state.settings, {view.id.cluster for view in views}, session.note), faults


async def _most_wasteful(
    session: Session, past: Past, views: Sequence[HpaView], asked: Asked, top: int
) -> tuple[list[HpaView], Faults]:
    """Return the HPAs of which most is to be gained, in the order of `views`; no log is folded for it."""
    costs, faults = await costs_of(session, past, views, (asked.since_ms, asked.until_ms))

    def gain(cost: Cost) -> float:
        scores = cost.scores
        return scores.too_few_replica_hours if asked.objective == "safety" else scores.too_many_replica_hours

    first = {each.hpa for each in sorted(costs.values(), key=lambda each: (-gain(each), each.hpa))[:top]}
    return [view for view in views if view.id in first], faults


# --- the report -------------------------------------------------------------------------------------------------------

_DAY_MIN: Final = 1440
CAUTIONS: Final = (
    "whether the future is like the past: loads, releases and dependencies change; how high the next peak is",
    "what the capacity of a pod really is: no latency is in the log",
    *UNKNOWN,
)


class Tuned(NamedTuple):
    """One HPA: what was found, or why nothing could be (`refused`). `is_searched`: whether it is among those of which
    most is to be gained.
    """

    id: HpaId
    hpa: Json
    found: Tuning | None
    refused: str = ""
    is_searched: bool = True

    @property
    def manifest(self) -> dict[str, Any] | None:
        """A manifest that `apply` takes; None: nothing is proposed."""
        if self.found is None or self.found.proposed is None:
            return None
        return manifest_of(self.hpa["metadata"] | self.id._asdict(), self.found.proposed.spec)


def _share(value: float) -> str:
    return percent(value, 2)


def _hours(value: float) -> str:
    return f"{value:,.2f}"


_HEAD: Final = ("", "REPLICA-HOURS", "TOO MANY", "TOO FEW", "TIME WITH TOO FEW")
_MORE_HEAD: Final = ("/ IDEAL", "SLACK", "CHANGES PER HOUR")


def _row(name: str, scores: Scores, price: Decimal | None, *, wide: bool) -> tuple[str, ...]:
    cells: tuple[str, ...] = (
        name,
        _hours(scores.replica_hours),
        _hours(scores.too_many_replica_hours),
        _hours(scores.too_few_replica_hours),
        _share(scores.too_few_share),
    )
    if price is not None:
        cells += (f"{priced(scores.replica_hours, price):,.2f}",)
    if wide:
        ratio = "-" if scores.ideal_ratio is None else f"{scores.ideal_ratio:.2f}"
        cells += (ratio, _share(scores.slack), f"{scores.adaptations_per_hour:.2f}")
    return cells


def _head(price: Decimal | None, *, wide: bool) -> tuple[str, ...]:
    return _HEAD + (() if price is None else (f"COST AT {price}/H",)) + (_MORE_HEAD if wide else ())


def ideal_of(scores: Scores) -> Scores:
    """The scores of the ideal autoscaler over the same time."""
    return msgspec.structs.replace(
        scores,
        **dict.fromkeys(("too_many_replica_hours", "too_few_replica_hours", "too_few_share", "slack"), 0.0),
        replica_hours=scores.ideal_replica_hours,
    )


def section(tuned: Tuned, price: Decimal | None = None, *, wide: bool = False) -> Section:
    """Return the report of one HPA; `wide`: with more scores."""
    tuning = tuned.found
    if tuning is None:
        return Section(str(tuned.id), "no proposal", [Sentences([tuned.refused])])
    rows = [
        ("recorded", tuning.recorded),
        ("the deployed spec, in the model", tuning.deployed.total),
        *([("proposed", tuning.proposed.total)] if tuning.proposed is not None else []),
        *((f"not proposed: {', '.join(_flags(tuning, each))}", each.total) for each in tuning.others),
    ]
    ideal = _row("ideal autoscaler", ideal_of(tuning.recorded), price, wide=False)
    return Section(
        str(tuned.id),
        f"{rfc3339(tuning.since_ms)} … {rfc3339(tuning.until_ms)}   {tuning.evaluations:,} evaluations, "
        f"in halves until and from {rfc3339(tuning.split_ms)}",
        [
            Sentences(
                [
                    f"objective: {tuning.objective}; a pod carries {tuning.capacity}; "
                    f"{counted(tuning.tried, 'spec')} tried; "
                    f"pods take load after {tuning.start_up.ms / 1000:.0f}s ({tuning.start_up.how})",
                    *[f"bound: {text}" for text in tuning.bounds],
                ]
            ),
            Notes(headline(tuning), _reasons(tuning)),
            Grid(
                [
                    _head(price, wide=wide),
                    ideal + ("",) * (len(_MORE_HEAD) if wide else 0),
                    *(_row(name, scores, price, wide=wide) for name, scores in rows),
                ],
                numbers=True,
            ),
            *([Preformatted("The manifest:", to_yaml(tuned.manifest))] if tuning.proposed is not None else []),
        ],
    )


def changes(deployed: Json, proposed: Json) -> list[str]:
    """List what a proposal changes. `behavior` rules that only repeat upstream's defaults are no change."""
    if "behavior" in proposed and "behavior" not in deployed:
        rules: Json = {}
        complete_behavior(rules)
        deployed = deployed | {"behavior": rules}
    return differences(deployed, proposed)


def headline(tuning: Tuning) -> str:
    """Return whether there is a proposal; one that costs more says so, and for what."""
    if tuning.proposed is None:
        return f"no change proposed: {tuning.why}"
    if tuning.saved >= 0:
        return "proposed:"
    own, was = tuning.proposed.total, tuning.deployed.total
    return (
        f"proposed, at {percent(own.replica_hours / was.replica_hours - 1)} more replica-hours: too few pods for "
        f"{_of_a_day(was.too_few_share)} as deployed, {_of_a_day(own.too_few_share)} with the proposal"
    )


def _reasons(tuning: Tuning) -> list[str]:
    """Return the changes of a proposal and its scores in each half; without one, what the user can try."""
    if tuning.proposed is not None:
        return [
            *changes(tuning.deployed.spec, tuning.proposed.spec),
            *map(_half, ("first", "second"), tuning.deployed.halves, tuning.proposed.halves),
        ]
    tries = [f"fleethpa backtest {tuning.hpa} {_arguments(tuning, each)} --emit-yaml" for each in tuning.others]
    return [
        *(f"what saves has too few pods more often; the choice is yours: {each}" for each in tries[:1]),
        *relief_hint(tuning),
    ]


def _half(name: str, was: Scores, own: Scores) -> str:
    return (
        f"in the {name} half: {_hours(was.replica_hours)} → {_hours(own.replica_hours)} replica-hours, too few pods "
        f"for {_share(was.too_few_share)} → {_share(own.too_few_share)} of the time"
    )


def relief_hint(tuning: Tuning) -> list[str]:
    """Where nothing is proposed and there were too few pods: what can be asked instead."""
    share = tuning.deployed.total.too_few_share
    if tuning.objective == "safety" or share < WORTH_RELIEF:
        return []
    return [
        f"the deployed spec had too few pods for {_of_a_day(share)}; --objective safety searches a spec that spares at "
        "least half of that, at more cost where that must be"
    ]


def _of_a_day(share: float) -> str:
    return f"{_share(share)} of the time ({share * _DAY_MIN:.1f} minutes of a day)"


def _flags(tuning: Tuning, tried: TriedSpec) -> list[str]:
    """Return the changes of a spec as arguments of `backtest --set`."""
    was, own, metrics = tuning.deployed.values, tried.values, tuning.deployed.spec["metrics"]
    flags = []
    if own.target != was.target and len(metrics) == 1 and metrics[0]["type"] == "Resource":
        flags.append(f"{metrics[0]['resource']['name']}={own.target:g}%")
    elif own.target != was.target:
        flags.append(f"the target of {tuning.metric} times {own.target / was.target:.2f}")
    if own.min_replicas != was.min_replicas:
        flags.append(f"minReplicas={own.min_replicas}")
    if own.window_s != was.window_s:
        flags.append(f"scaleDown.stabilizationWindowSeconds={own.window_s}")
    return flags


def _arguments(tuning: Tuning, tried: TriedSpec) -> str:
    return " ".join(f"--set {each}" for each in _flags(tuning, tried) if " " not in each)


def _ranking(tuned: Sequence[Tuned], price: Decimal | None, more: Sentences | None) -> Section:
    """Return the cost of each HPA and the saving of its proposal, the largest saving first. `more`: what is
    left out.
    """
    tunings = [each.found for each in tuned if each.found is not None]
    tunings.sort(key=lambda each: (-each.saved, -each.recorded.too_many_replica_hours))
    proposals = sum(each.proposed is not None for each in tunings)
    title = (
        f"{len(tuned)} HPAs: {proposals} proposals, {len(tunings) - proposals} without change, "
        f"{len(tuned) - len(tunings)} that cannot be tuned"
    )
    rows = [(*_row(str(each.hpa), each.recorded, price, wide=False), *_gain(each)) for each in tunings]
    if tunings:
        total = by_hours([each.recorded for each in tunings])
        saved = sum(each.saved for each in tunings)
        rows.append((*_row("all of them", total, price, wide=False), _hours(saved), ""))
    table = Grid([(*_head(price, wide=False), "SAVED", "PROPOSAL"), *rows])
    return Section(title, parts=[table, *([more] if more else [])])


def _gain(tuning: Tuning) -> tuple[str, str]:
    if tuning.proposed is None:
        return "-", "-"
    return _hours(tuning.saved), ", ".join(changes(tuning.deployed.spec, tuning.proposed.spec))


def in_a_sentence(tuned: Sequence[Tuned], price: Decimal | None = None) -> str:
    """Return in one sentence the cost compared with the ideal autoscaler, and what the proposals would save."""
    tunings = [each.found for each in tuned if each.found is not None]
    if not tunings:
        return "No HPA could be tuned." if len(tuned) > 1 else f"It cannot be tuned: {tuned[0].refused}."
    total = by_hours([each.recorded for each in tunings])
    ran, ideal = _hours(total.replica_hours), _hours(total.ideal_replica_hours)
    cost = f"While the load was known, {ran} replica-hours ran where an ideal autoscaler runs {ideal}"
    better = [each for each in tunings if each.proposed is not None]
    what = (
        f"{counted(len(better), 'better spec')} for {counted(len(tuned), 'HPA')}" if len(tuned) > 1 else "a better spec"
    )
    if not better:
        return f"{cost}; no spec is better{' for any of them' if len(tuned) > 1 else ''}."
    saved = sum(each.saved for each in better)
    money = "" if price is None else f" ({price * Decimal(str(abs(round(saved, 3)))):,.2f} at {price}/h)"
    does = "saves" if len(better) == 1 else "save"
    gain = (
        f"{does} {_hours(saved)} of them"
        if saved >= 0
        else f"{'costs' if len(better) == 1 else 'cost'} {_hours(-saved)} more"
    )
    return f"{cost}; {what} {gain}{money}."


def report(tuned: Sequence[Tuned], price: Decimal | None = None, *, wide: bool = False) -> QuestionReport:
    """The report of some HPAs, with a ranking where there are several. `price`: of a replica-hour; `wide`: with more
    scores.
    """
    count, tuned = len(tuned), [each for each in tuned if each.is_searched]
    left = count - len(tuned)
    more = Sentences([_left(left, count)]) if left else None
    return QuestionReport(
        "Tune",
        "TuningList",
        {"items": [_document(each) for each in tuned], "notSearched": left},
        [verdict(in_a_sentence(tuned, price)), *(section(each, price, wide=wide) for each in tuned)],
        [_ranking(tuned, price, more)] if len(tuned) > 1 else [Section("", parts=[more])] if more else [],
        [Notes("A proposal cannot know:", CAUTIONS)] if any(each.found is not None for each in tuned) else [],
    )


def _left(left: int, count: int) -> str:
    return (
        f"{counted(left, 'further HPA')} of which less is to be gained, by their decisions: `fleethpa cost` has their "
        f"figures, --top {count} tunes all"
    )


def _document(tuned: Tuned) -> dict[str, Any]:
    tuning = tuned.found
    if tuning is None:
        return {**tuned.id._asdict(), "refused": tuned.refused}
    document: dict[str, Any] = msgspec.to_builtins(
        {
            **tuned.id._asdict(),
            "objective": tuning.objective,
            "since": rfc3339(tuning.since_ms),
            "until": rfc3339(tuning.until_ms),
            "secondHalfFrom": rfc3339(tuning.split_ms),
            "evaluations": tuning.evaluations,
            "changed": tuning.proposed is not None,
            "why": tuning.why,
            "changes": [] if tuning.proposed is None else changes(tuning.deployed.spec, tuning.proposed.spec),
            "manifest": tuned.manifest,
            "metric": tuning.metric,
            "capacity": tuning.capacity,
            "startUp": tuning.start_up,
            "recorded": tuning.recorded,
            "deployed": _halves(tuning.deployed),
            "proposed": None if tuning.proposed is None else _halves(tuning.proposed),
            "savedReplicaHours": tuning.saved,
            "notProposed": [{"changes": _flags(tuning, each)} | _halves(each) for each in tuning.others],
            "bounds": tuning.bounds,
            "specsTried": tuning.tried,
            "unknown": CAUTIONS,
        }
    )
    return document


def _halves(tried: TriedSpec) -> dict[str, Scores]:
    """A spec over the whole recording and each half of it."""
    return {"whole": tried.total, "firstHalf": tried.halves[0], "secondHalf": tried.halves[1]}
