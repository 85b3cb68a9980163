"""Backtests of FleetHPAs: the recorded HPAs that they would replace, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any, Final, NamedTuple

import click
import msgspec
from click.core import ParameterSource
from msgspec import structs

from fleethpa.changes.fleetmanifests import FleetManifest, fleet_manifest, present_manifest
from fleethpa.changes.manifests import FileManifest, Input
from fleethpa.fleet.decisionfinding import recorded_among
from fleethpa.fleet.finding import Selection, chosen, not_evaluated
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, price_of, priced
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import Session
from fleethpa.questions.backtestreport import decisions_between, failures, measured, minutes, moments
from fleethpa.show.report import Chart, Curve, Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, relative_change
from schemas.keys import FLEET, HpaId
from schemas.observed import FLEET_KIND
from streams.analysis.acrossclusters import FleetBacktest, FleetTried, MemberRecording, fleet_backtest
from streams.analysis.candidate import CandidateError, candidate
from streams.history.evaluations import readers_by_hpa
from streams.history.parallel import Faults
from streams.history.past import Past

_UNKNOWN: Final = (
    "what its own replicas would have changed: load and pods stay as they were recorded",
    "whether traffic follows replicas from one cluster to another: that is for whoever routes it",
    "pods that could not have been scheduled in a cluster",
)


class _Was(NamedTuple):
    """How the report calls what was recorded. `had`: with the place of the replica-hours."""

    head: str
    short: str
    who: str
    had: str


_SEPARATE: Final = _Was("separate HPAs", "HPA", "Separate HPAs", "the separate HPAs had {}")
_AS_RECORDED: Final = _Was("recorded", "recorded", "HPAs in clusters", "{} were recorded")


def fleet_manifests(read: Input) -> list[FileManifest]:
    """Return the manifests of FleetHPAs in an input."""
    return [each for each in read.others if each.body["kind"] == FLEET_KIND]


def check_alone(read: Input | None, selection: Selection, settings: tuple[str, ...], *, given: bool) -> None:
    """See that nothing else is to be tried beside FleetHPAs. `given`: other candidates are named.

    Raises CommandError: something else is to be tried in the same run (exit 2).
    """
    model = click.get_current_context().get_parameter_source("model")
    if model is ParameterSource.COMMANDLINE and click.get_current_context().params["model"] == "closed":
        raise usage("a FleetHPA is tried in the open loop only", next_step="leave out --model closed")
    others = any(ref.cluster != FLEET for ref in selection.refs)
    if given or others or (read is not None and (read.hpas or settings or selection.refs)):
        raise usage(
            "a FleetHPA is tried by itself",
            cause="Its clusters and settings are in its manifest: names, --set, --schedule, --emit-yaml "
            "and HorizontalPodAutoscalers do not go with it. Without a manifest, one that is there may have --set.",
            next_step=f"fleethpa backtest {FLEET}/NAMESPACE/NAME --set cpu=50%",
        )


async def tried_fleets(
    session: Session,
    manifests: Sequence[FileManifest],
    selection: Selection,
    settings: tuple[str, ...],
    window: tuple[int, int],
    price: Decimal | None,
    faults: Faults,
) -> tuple[list[FleetBacktest], dict[str, Decimal | None]]:
    """Try FleetHPAs, of manifests or those that are named; and give the price of a replica-hour in each of their
    clusters (`price`: in all). `faults`: takes those of fleethpa.
    """
    fleets = [fleet_manifest(each, selection.namespace or "default") for each in manifests]
    async with session.past() as past:
        state = await read_state(past)
        named = [] if manifests else chosen(state, selection)
        fleets += [present_manifest(view, view.fleet, settings) for view in named if view.fleet is not None]
        clusters = {member.name for each in fleets for member in each.fleet.clusters}
        prices = {name: price_of(state.settings, name) if price is None else price for name in clusters}
        return await run_fleets(past, [tried(each, state) for each in fleets], window, faults), prices


def tried(manifest: FleetManifest, state: FleetState) -> FleetTried:
    """Find the recorded HPA of each cluster: the one with the target of the FleetHPA.

    Raises CommandError: a cluster has none (exit 4) or several (exit 2), or a quantity cannot be read (exit 2).
    """
    spec, namespace = manifest.body["spec"], manifest.body["metadata"]["namespace"]
    target = spec["scaleTargetRef"]
    shown = f"{target['kind']}/{target['name']}"
    candidates = {}
    for member in manifest.fleet.clusters:
        ids = [
            view.id
            for view in state.hpas.values()
            if view.id[:2] == (member.name, namespace) and _is_target(view.spec.get("scaleTargetRef") or {}, target)
        ]
        if not ids:
            raise not_found(
                f"{manifest.source}: no HPA of cluster {member.name} scales {namespace}/{shown} in the log",
                cause="A FleetHPA is tried on the recordings of the HPAs that scale its target in each cluster.",
                next_step=f"fleethpa get hpa -n {namespace}",
            )
        if len(ids) > 1:
            names = " and ".join(sorted(str(each) for each in ids))
            raise usage(f"{manifest.source}: several HPAs scale {shown}", cause=f"They are {names}.")
        try:
            candidates[member.name] = candidate(ids[0], spec)
        except CandidateError as error:
            raise usage(str(error)) from error
    return FleetTried(manifest.name, manifest.fleet, candidates)


def _is_target(given: dict[str, Any], target: dict[str, Any]) -> bool:
    return (given.get("kind"), given.get("name")) == (target["kind"], target["name"])


async def run_fleets(
    past: Past, fleets: Sequence[FleetTried], window: tuple[int, int], faults: Faults
) -> list[FleetBacktest]:
    """Try each FleetHPA on the recordings of its members. `faults`: takes those of fleethpa. Decisions that are not
    recorded yet are not named.

    Raises CommandError: it cannot be tried on them (exit 2), or nothing was recorded (exit 4).
    """
    backtests = []
    for each in fleets:
        unread = Faults()
        recordings = await _recordings(past, each, window, unread)
        if unread:
            faults[each.hpa] = next(iter(unread.values()))
        else:
            with faults.of(each.hpa, CommandError):
                backtests.append(_run(each, recordings))
    ids = [id_ for each in backtests for member in each.members for id_ in structs.astuple(member.decisions)]
    recorded = await recorded_among(past, ids)
    return [structs.replace(each, members=[member.among(recorded) for member in each.members]) for each in backtests]


async def _recordings(
    past: Past, fleet: FleetTried, window: tuple[int, int], faults: Faults
) -> dict[str, MemberRecording]:
    by_hpa = {each.hpa: (name, each) for name, each in fleet.candidates.items()}

    def reader(hpa: HpaId) -> MemberRecording:
        return MemberRecording(by_hpa[hpa][1])

    recordings: dict[str, MemberRecording] = {}
    async with aclosing(readers_by_hpa(past, set(by_hpa), window, reader, faults=faults)) as parts:
        async for part in parts:
            recordings |= {by_hpa[hpa][0]: read for hpa, read in part.items()}
    return recordings


def _run(fleet: FleetTried, recordings: Mapping[str, MemberRecording]) -> FleetBacktest:
    for name, each in recordings.items():
        if not each.seen:
            hpa = fleet.candidates[name].hpa
            raise not_evaluated(f"{hpa} has no evaluation with a known scale in this window", hpa)
    try:
        for each in recordings.values():
            each.check()
    except CandidateError as error:
        raise usage(str(error)) from error
    return fleet_backtest(fleet, {member.name: recordings[member.name] for member in fleet.fleet.clusters})


def fleet_report(
    results: Sequence[FleetBacktest],
    failed: Sequence[str],
    prices: Mapping[str, Decimal | None],
    changes: Sequence[str] = (),
    *,
    is_there: bool = False,
) -> QuestionReport:
    """The report of some FleetHPAs.

    Args:
        failed: the conditions of `--fail-if` that are met.
        prices: of a replica-hour, by cluster; None: it has none.
        changes: of the deployed specs.
        is_there: they are deployed, so what was recorded in their clusters may be their own doing.
    """
    was = _AS_RECORDED if is_there else _SEPARATE
    verdicts = [verdict(_verdict(each, prices, changes, was, named=len(results) > 1)) for each in results]
    return QuestionReport(
        "Backtest of FleetHPAs",
        "FleetBacktestList",
        {"items": [_document(each) for each in results], "failed": list(failed)},
        [*verdicts, *[_section(each, was) for each in results]],
        failures(failed),
        [Notes("This model cannot know:", _UNKNOWN)],
    )


def _section(result: FleetBacktest, was: _Was) -> Section:
    return Section(
        f"FleetHPA {result.name}",
        f"{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {counted(result.periods, 'sync period')}",
        [
            Sentences([*_details(result, was), "model: open loop: samples, pods and scales stay as recorded"]),
            measured(result.recorded, result.candidate, ("the whole", was.head, "FleetHPA", "change")),
            _members(result, was),
            _chart(result, was),
        ],
    )


def _verdict(
    result: FleetBacktest, prices: Mapping[str, Decimal | None], changes: Sequence[str], was: _Was, *, named: bool
) -> str:
    had, has = result.recorded.replica_hours, result.candidate.replica_hours
    change = relative_change(had, has)
    count = counted(len(result.members), "cluster")
    noted = "; ".join(filter(None, (change, _money(result, prices))))
    who = f"{result.name}: one autoscaler" if named else "One autoscaler"
    tried_ = f" with {', '.join(changes)}" if changes else ""
    return (
        f"{who} over {count}{tried_} would have wanted {has:,.2f} replica-hours; "
        f"{was.had.format(f'{had:,.2f}')}{f' ({noted})' if noted else ''}."
    )


def _details(result: FleetBacktest, was: _Was) -> list[str]:
    bounds = {each.hpa.cluster: decisions_between(each.decisions) for each in result.members}
    named = "; ".join(f"{cluster} {text}" for cluster, text in bounds.items() if text)
    texts = [f"recorded decisions: {named}"] if named else []
    if blocked := [each for each in result.members if each.recorded_at_max_minutes]:
        named = ", ".join(f"{each.hpa.cluster} for {minutes(each.recorded_at_max_minutes)}" for each in blocked)
        texts.append(f"{was.who} were at their own maxReplicas: {named}.")
    if result.undecided:
        texts.append(f"In {counted(result.undecided, 'sync period')} no metric could be read, and nothing was decided.")
    return texts


def _money(result: FleetBacktest, prices: Mapping[str, Decimal | None]) -> str:
    """Return what the difference would have cost or saved, each cluster at its price; empty: one has none."""
    before, after = sum(each.recorded_mean for each in result.members), sum(each.share_mean for each in result.members)
    cost = Decimal(0)
    for each in result.members:
        price = prices.get(each.hpa.cluster)
        if price is None:
            return ""
        had = result.recorded.replica_hours * each.recorded_mean / before if before else 0.0
        has = result.candidate.replica_hours * each.share_mean / after if after else 0.0
        cost += priced(has - had, price)
    return f"{abs(cost):,.2f} {'more' if cost > 0 else 'less'}"


def _members(result: FleetBacktest, was: _Was) -> Grid:
    head = ("cluster", f"{was.short}: mean", "most", "at its maximum", "share: mean", "most", "changes", "away")
    rows = [
        (
            each.hpa.cluster,
            f"{each.recorded_mean:.1f}",
            str(each.recorded_max),
            minutes(each.recorded_at_max_minutes),
            f"{each.share_mean:.1f}",
            str(each.share_max),
            str(each.moves),
            minutes(each.away_minutes),
        )
        for each in result.members
    ]
    return Grid([head, *rows], "by cluster", numbers=True)


def _chart(result: FleetBacktest, was: _Was) -> Chart:
    recorded = [(each.time_ms, each.replicas) for each in result.recorded_moments]
    whole = [(each.time_ms, each.replicas) for each in result.candidate_moments]
    top = max([1.0, *[float(count) for _, count in (*recorded, *whole)]])
    curves = (Curve(was.head, "recorded", recorded), Curve("FleetHPA", "candidate", whole))
    label = f"replicas of all clusters over time of {result.name}"
    return Chart("Replicas", label, curves, result.since_ms, result.until_ms, top)


def _document(result: FleetBacktest) -> dict[str, Any]:
    namespace, _, name = result.name.partition("/")
    document: dict[str, Any] = msgspec.to_builtins(
        {
            "namespace": namespace,
            "name": name,
            "since": rfc3339(result.since_ms),
            "until": rfc3339(result.until_ms),
            "syncPeriods": result.periods,
            "undecided": result.undecided,
            "recorded": result.recorded,
            "candidate": result.candidate,
            "members": [msgspec.to_builtins(each) | {"hpa": str(each.hpa)} for each in result.members],
            "unknown": _UNKNOWN,
        }
    )
    return document | moments(result.recorded_moments, result.candidate_moments)
