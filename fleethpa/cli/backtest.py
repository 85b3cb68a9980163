"""`fleethpa backtest`: another spec over the recorded past, for any number of HPAs."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import click

from fleethpa.changes.manifests import FieldValidation, Input, read_input, validate_option, warn_about_fields
from fleethpa.changes.schedules import TimedPolicy, parse_rule, parse_zone
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, selection_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import price_for
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, usage
from fleethpa.frame.options import FailIf, html_option, output_option, parse_fail_if, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.backtestreport import Reported, report
from fleethpa.questions.backtests import BacktestRequest, requests, run_all
from fleethpa.questions.fleetbacktests import check_alone, fleet_manifests, fleet_report, tried_fleets
from fleethpa.questions.gate import GatedPair, GateFindings, changes, gate, markdown
from fleethpa.questions.gate import report as gate_report
from fleethpa.show.formats import to_yaml_documents
from streams.analysis.backtest import Backtest, Model
from streams.analysis.measures import Measures
from streams.history.parallel import Faults


@click.command()
@selection_options()
@click.option("-f", "--filename", "files", multiple=True, help="Manifests of the candidates: file, folder or -.")
@validate_option
@click.option(
    "--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Change a field: maxReplicas=16, cpu=80%."
)
@click.option(
    "--schedule",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Other settings at given times, as `schedule create --rule`: 'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%'.",
)
@click.option("--time-zone", default="UTC", metavar="ZONE", help="The zone of --schedule.")
@period_options("1d")
@click.option(
    "--model", type=click.Choice(["closed", "open"]), default="closed", help="How the candidate is tried; see above."
)
@click.option("--base", metavar="REV|DIR", help="Try the HPAs of -f that differ from these manifests, pair by pair.")
@click.option("--plot", is_flag=True, help="Draw the replicas over time.")
@html_option
@price_option
@click.option("--emit-yaml", is_flag=True, help="Print the candidates' manifests to stdout, the report to stderr.")
@click.option(
    "--fail-if", "conditions", multiple=True, metavar="TEST", help="Exit 1 if this is true: 'time_above_target>+10%'."
)
@output_option(formats=("table", "wide", "json", "yaml", "markdown"))
@command_options(reads=True)
def backtest(
    session: Session,
    selection: Selection,
    files: tuple[str, ...],
    validate: FieldValidation,
    settings: tuple[str, ...],
    rules: tuple[str, ...],
    time_zone: str,
    period: AskedPeriod,
    model: Model,
    base: str | None,
    plot: bool,
    html: str | None,
    emit_yaml: bool,
    conditions: tuple[str, ...],
    price: Decimal | None,
    output: str,
) -> int:
    """Try other specs on the recorded past and compare: manifests (-f), or changes (--set) of the HPAs named.

    Two models. closed: the candidate scales, and the recorded total load is divided over its pods. open: samples and
    scale stay as recorded; the candidate's recommendations have no effect. --schedule changes settings over time;
    `fleethpa schedule` applies it. -o wide and --html add the scores of the literature. -f with a
    FleetHPA, or @fleet/NAMESPACE/NAME, which may have --set: one autoscaler over its clusters against what was recorded
    in each, in the open loop. Exit 1 if a --fail-if condition is met, for use in CI. --base compares the manifests of
    -f with those of a git revision or folder, and tries the HPAs that differ; -o markdown is then text for a comment.
    """
    policy = _policy(rules, time_zone, model)
    gates = [parse_fail_if(text) for text in conditions]
    window = period.window(session.now_ms())
    if base is not None or output == "markdown":
        _check_gate(base, files, given=bool(settings or policy.changes or emit_yaml or selection.refs or plot))
        return _gate(session, str(base), files, validate, selection, window, gates, price, html, output)
    read = _manifests(session, files, validate)
    fleets = fleet_manifests(read) if read is not None else []
    emitted: str | None = None
    faults = Faults()
    if fleets or selection.names_fleet_hpas:
        check_alone(read, selection, settings, given=bool(policy.changes or emit_yaml))
        whole, prices = session.run(tried_fleets(session, fleets, selection, settings, window, price, faults))
        failed = [text for result in whole for text in _failed(result.name, result.recorded, result.candidate, gates)]
        question_report = fleet_report(whole, failed, prices, settings, is_there=not fleets) if whole else None
    elif files or settings or policy.changes:
        tried = _Tried(read, settings, selection, policy)
        backtests, used = session.run(_run(session, tried, window, model, price, faults))
        failed = [text for _, each in backtests for text in _failed(each.hpa, each.recorded, each.candidate, gates)]
        reported = [Reported(result, request.changes) for request, result in backtests]
        question_report = (
            report(reported, failed, used, wide=output == "wide" or html is not None) if reported else None
        )
        if emit_yaml:
            emitted = to_yaml_documents([request.manifest for request, _ in backtests])
    else:
        raise usage("backtest what?", cause="Name a candidate.", next_step="-f hpa.yaml, or --set maxReplicas=16 NAME")
    if question_report is not None:
        session.publish(question_report, output, html=html, plot=plot, instead=emitted)
    return session.failed(faults) or (ANSWER_IS_NO if failed else OK)


def _check_gate(base: str | None, files: tuple[str, ...], *, given: bool) -> None:
    """See that manifests are compared with others. Raises CommandError: they are not, or something else is (exit 2)."""
    if base is None:
        raise usage("-o markdown is for a comparison of manifests", next_step="--base main -f DIR, or -o json")
    if not files or given:
        cause = "It compares manifests: names, --set, --schedule, --emit-yaml and --plot do not go with it."
        raise usage("--base needs -f and no other candidate", cause=cause, next_step="-f DIR --base main -o markdown")
    model = click.get_current_context().params["model"]
    if model != "closed":
        raise usage("--base needs --model closed", cause="In the open model no spec has an effect on replicas.")


def _gate(
    session: Session,
    base: str,
    files: tuple[str, ...],
    validate: FieldValidation,
    selection: Selection,
    window: tuple[int, int],
    gates: list[FailIf],
    price: Decimal | None,
    html: str | None,
    output: str,
) -> int:
    """Compare manifests with those before a change, and try what differs."""
    known, read = changes(files, base, validate, selection.namespace or "default")
    warn_about_fields(session, read)
    changed, faults = [each for each in known if each.differences], Faults()

    async def work() -> tuple[list[GatedPair], dict[str, str], Decimal | None]:
        async with session.past() as past:
            state = await read_state(past)
            tried, untried = await gate(past, state, changed, selection, window, gates, faults)
            used = price_for(price, state.settings, {each.pair.hpa.cluster for each in tried}, session.note)
            return tried, untried, used

    tried, untried, used = session.run(work()) if changed else ([], {}, price)
    findings = GateFindings(
        base,
        tried,
        untried,
        [str(each) for each in known if each.base is None],
        [str(each) for each in known if each.changed is None],
        sum(not each.differences for each in known if each.base is not None and each.changed is not None),
        used,
    )
    if output == "markdown":
        session.out(markdown(findings))
    else:
        session.publish(gate_report(findings), output, html=html)
    return session.failed(faults) or (ANSWER_IS_NO if findings.failed else OK)


class _Tried(NamedTuple):
    """The candidates of HPAs: manifests, changes of the recorded specs, and what changes with time."""

    read: Input | None
    settings: tuple[str, ...]
    selection: Selection
    policy: TimedPolicy


async def _run(
    session: Session, tried: _Tried, window: tuple[int, int], model: Model, price: Decimal | None, faults: Faults
) -> tuple[list[tuple[BacktestRequest, Backtest]], Decimal | None]:
    """The requests with their results, and the price of a replica-hour."""
    async with session.past() as past:
        state = await read_state(past)
        candidates = requests(tried.read, tried.settings, tried.selection, state, tried.policy, session.note)
        used = price_for(price, state.settings, {each.hpa.cluster for each in candidates}, session.note)
        note = None if tried.read is not None or tried.selection.refs else session.note
        try:
            return await run_all(past, candidates, window, model, faults, note), used
        except CommandError as refused:
            refused.code = max(refused.code, session.failed(faults))
            raise


def _policy(rules: tuple[str, ...], time_zone: str, model: str) -> TimedPolicy:
    """Return what is tried beside the spec itself. Raises CommandError: not a rule or a zone (exit 2)."""
    if rules and model == "open":
        cause = "In the open model the number of replicas stays as recorded, so a time has nothing to change."
        raise usage("--schedule needs --model closed", cause=cause)
    zone = parse_zone(time_zone)
    return TimedPolicy([parse_rule(text, "--schedule") for text in rules], zone) if rules else TimedPolicy()


def _manifests(session: Session, files: tuple[str, ...], validate: FieldValidation) -> Input | None:
    """The candidates' manifests; None: the candidates are changes of the specs that are recorded."""
    if not files:
        return None
    read = read_input(files, validate)
    if not read.hpas and not fleet_manifests(read):
        raise usage(f"-f {', '.join(files)}: no HorizontalPodAutoscaler or FleetHPA found")
    warn_about_fields(session, read)
    return read


def _failed(name: object, recorded: Measures, candidate: Measures, gates: list[FailIf]) -> list[str]:
    return [f"{name}: {gate.text}" for gate in gates if gate.holds(recorded, candidate)]
