"""`fleethpa savings`: what changes of specs saved on the load that really came, with the error of each figure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.changes.specs import revision_of, revisions_in
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, selection_options
from fleethpa.fleet.shards import by_partitions
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView, price_for, priced
from fleethpa.frame.auditkeys import SigningKey, private_path, signing_key
from fleethpa.frame.errors import OK, PARTIAL, CommandError, usage
from fleethpa.frame.options import html_option, output_option, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.show.formats import one
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, percent, signed_percent
from fleethpa.tuning.specsearch import RefusedError, TunedPast
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from streams.analysis.backtest import Condensed
from streams.analysis.candidate import CandidateError, candidate
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.revisions import differences
from streams.analysis.savings import LEAST_BASE, LEAST_MS, UNSEEN, Saving, saving
from streams.archive.signing import write_report
from streams.history.evaluations import Evaluated, evaluation_of, readers_by_hpa
from streams.history.parallel import Faults, reported
from streams.history.past import LogGoneError, Past
from streams.state.inputs import EvaluationInputs

FIRST_ENFORCED: Final = "first-enforced"
_DAY_MS: Final = 86_400_000


@click.command()
@selection_options()
@period_options("30d")
@click.option(
    "--against",
    metavar="REVISION|first-enforced",
    help="The former spec: a revision of `history`, or the one that fleethpa enforced first "
    "[default: the one at the beginning of the time].",
)
@price_option
@html_option
@click.option("--signed", metavar="FILE", help="Also write the report with a signature; `audit report FILE` checks it.")
@click.option("--key", metavar="FILE", help="The private key that signs it [default: ~/.config/fleethpa/audit.key].")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def savings(
    session: Session,
    selection: Selection,
    period: AskedPeriod,
    against: str | None,
    price: Decimal | None,
    html: str | None,
    signed: str | None,
    key: str | None,
    output: str,
) -> int:
    """Show what changes of specs saved: the former spec on the load that really came since, against what ran.

    The former spec runs in the closed loop of `backtest`. Each figure has the interval in which the truth is expected,
    and the total the sum of all ends. HPAs for which the model does not hold are refused by name: pods that were at
    their limit, usage that does not fall with the number of pods, and less than two days since the change. The exit
    code is 5 where nothing can be said of any of them.
    """
    number = _revision(against)
    if key and not signed:
        raise usage("--key signs a report", next_step="name the file that is written: --signed FILE")
    signing = _signing_key(key) if signed else None
    window = period.window(session.now_ms())
    findings, used, faults = session.run(_savings(session, selection, window, against, number, price))
    is_unknown = bool(findings) and all(each.saving is None for each in findings)
    if findings:
        question_report = report(findings, used)
        session.publish(question_report, output, html=html)
        if is_unknown:
            name = str(findings[0].hpa) if len(findings) == 1 else "NAME"
            if against is None:
                session.note("To compare with another spec, add --against and the number of its revision.")
            session.note(f"Next: fleethpa history {name}")
        if signed and signing is not None:
            since, until = map(rfc3339, window)
            origin = {"source": session.source, "since": since, "until": until, "against": against or ""}
            _sign(session, Path(signed), signing, question_report, origin, in_a_sentence(findings, used))
    return session.failed(faults) or (PARTIAL if is_unknown else OK)


def _signing_key(file: str | None) -> SigningKey:
    """Return the key that signs the report. Raises CommandError: it is missing, or cannot be used (exit 2)."""
    key = signing_key(file)
    if key is None:
        raise usage(f"--signed: there is no private key {private_path()}", next_step="fleethpa audit keygen")
    return key


def _sign(session: Session, file: Path, key: SigningKey, made: QuestionReport, origin: Json, summary: str) -> None:
    """Write the report with its signature, what it was made of, and what it says in a sentence.

    Raises CommandError: the file cannot be written (exit 2).
    """
    whole = {"madeFrom": {**origin, "engine": ENGINE}, "summary": summary} | made.document
    try:
        write_report(file, key.key, one(made.kind, whole, "jsonl").strip().encode())
    except OSError as error:
        raise usage(f"--signed {file}: cannot be written: {error.strerror or error}") from error
    session.note(f"signed: {file}. Next: fleethpa audit report {file} --public-key FILE")


def _revision(against: str | None) -> int | None:
    """The number of a revision; None: the former spec is found otherwise. Raises CommandError: neither (exit 2)."""
    if against in (None, FIRST_ENFORCED):
        return None
    if not (against or "").isascii() or not (against or "").isdecimal() or len(against or "") > 18:
        step = f"--against 3, --against {FIRST_ENFORCED}, or fleethpa history NAME for the revisions"
        raise usage(f"--against {against!r} is no revision", next_step=step)
    return int(against or "")


class SavingFinding(NamedTuple):
    """The finding about one HPA: a saving with the change of the spec, or why there is none (`refused`)."""

    hpa: HpaId
    saving: Saving | None = None
    changes: Sequence[str] = ()
    refused: str = ""


class SavingsReader:
    """Takes in the evaluations of one HPA from the first one on that is not by the former spec.

    `former`: None: the spec of its first evaluation.
    """

    def __init__(self, hpa: HpaId, former: Json | None) -> None:
        self.hpa, self.former = hpa, former
        self.recorded = Condensed(hpa)
        self._count = 0

    def add(self, inputs: EvaluationInputs) -> None:
        self._count += 1
        if self._count % 1_000 == 0:
            reported(0, 1_000)
        if self.former is None:
            self.former = inputs.spec
        if len(self.recorded) or inputs.spec != self.former:
            self.recorded.add(inputs)

    def finding(self) -> SavingFinding:
        """Compare what was taken in with the former spec."""
        former, recorded = self.former, self.recorded
        if former is None:
            return SavingFinding(self.hpa, refused="it has no evaluation in this time")
        if not recorded.inputs:
            return SavingFinding(
                self.hpa, refused="its spec has not changed in this time, so there is nothing to compare"
            )
        changes = differences(former, recorded.inputs[-1].spec)
        if not changes:
            return SavingFinding(
                self.hpa, refused="its spec was changed and is the former one again, so there is nothing to compare"
            )
        length_ms = recorded.inputs[-1].now_ms - recorded.inputs[0].now_ms
        if length_ms < LEAST_MS:
            return SavingFinding(
                self.hpa,
                refused=f"only {length_ms / _DAY_MS:.1f} days were recorded since the change, and two are needed",
            )
        try:
            past = TunedPast(self.hpa, recorded)
            if not past.may_raise_target:
                return SavingFinding(self.hpa, refused=f"its pods were saturated: {past.bounds[0]}")
            comparison = saving(self.hpa, past.inputs, candidate(self.hpa, former), past.start_up.ms)
        except (RefusedError, CandidateError) as error:
            return SavingFinding(self.hpa, refused=str(error).removeprefix(f"{self.hpa}: "))
        return SavingFinding(self.hpa, comparison, changes)


class _SavingsTask(NamedTuple):
    """HPAs of one log partition, each with its former spec (None: that of its first evaluation)."""

    past: Past
    former: Mapping[HpaId, Json | None]
    window: tuple[int, int]


async def saving_findings(task: _SavingsTask) -> tuple[list[SavingFinding], Faults]:
    """Compare some HPAs of a log partition with their former specs."""
    findings, faults = list[SavingFinding](), Faults()

    def begin(hpa: HpaId) -> SavingsReader:
        return SavingsReader(hpa, task.former[hpa])

    async with aclosing(readers_by_hpa(task.past, set(task.former), task.window, begin, faults=faults)) as parts:
        async for part in parts:
            for hpa in list(part):
                reader = part[hpa]
                if hpa not in faults:
                    with faults.of(hpa):
                        findings.append(await asyncio.to_thread(reader.finding))
                part[hpa] = SavingsReader(hpa, None)  # the key shows that it was read; its recording may go
    return findings, faults


async def _savings(
    session: Session,
    selection: Selection,
    window: tuple[int, int],
    against: str | None,
    number: int | None,
    price: Decimal | None,
) -> tuple[list[SavingFinding], Decimal | None, Faults]:
    async with session.past() as past:
        state = await read_state(past)
        views = alone(chosen_some(state, selection), "savings", session.note)
        former, untried = await _former_specs(past, views, against, number)
        kept = [view for view in views if view.id in former]
        tasks = [_SavingsTask(past, {hpa: former[hpa] for hpa in hpas}, window) for hpas in by_partitions(kept)]
        parts = await by_partition(session, past, saving_findings, tasks) if tasks else []
    by_hpa = {each.hpa: each for part, _ in parts for each in part} | untried
    faults = Faults.of_parts(parts)
    used = price_for(price, state.settings, {view.id.cluster for view in views}, session.note)
    return [by_hpa[view.id] for view in views if view.id in by_hpa], used, faults


async def _former_specs(
    past: Past, views: Sequence[HpaView], against: str | None, number: int | None
) -> tuple[dict[HpaId, Json | None], dict[HpaId, SavingFinding]]:
    """The former spec of each HPA, and those for which there is none, with the reason."""
    former: dict[HpaId, Json | None] = {}
    untried: dict[HpaId, SavingFinding] = {}
    for view in views:
        try:
            if number is not None:
                former[view.id] = revision_of((await revisions_in(past, view.id))[0], number, view.id)[1]
            elif against == FIRST_ENFORCED:
                former[view.id] = (await _first_enforced(past, view)).inputs.spec
            else:
                former[view.id] = None
        except (CommandError, LogGoneError) as error:
            untried[view.id] = SavingFinding(view.id, refused=str(error).removeprefix(f"{view.id} has "))
    return former, untried


async def _first_enforced(past: Past, view: HpaView) -> Evaluated:
    """The first evaluation of an HPA that fleethpa enforced. Raises LogGoneError: there is none that is recorded."""
    async with aclosing(past.decisions(view.partition, None, None, lambda hpa: hpa == view.id)) as decisions:
        async for each in decisions:
            if each.decision.mode == "enforce" and each.decision.kind == "evaluation":
                return await evaluation_of(past, each)
    raise LogGoneError("no decision about it was enforced")


# --- the report -------------------------------------------------------------------------------------------------------

ERRORS: Final = (
    "the interval: the former spec where pods use nothing without load, and where each uses the most that the "
    f"recording allows (removals of pods, and what a pod used when it used least; never less than "
    f"{percent(LEAST_BASE, 0)} of the target unless that was less); beyond both the model's error on what ran",
    f"and {percent(UNSEEN)} of the replica-hours, for what no recording shows: the noise of other pods' samples, and "
    "at which of two counts within the tolerance the former spec would have rested",
    "the total: the ends of all intervals added up, as if all erred in the same direction",
)
"""The assumptions of the intervals."""
_HEAD: Final = ("HPA", "DAYS", "RAN", "FORMER SPEC", "SAVED", "FROM", "TO", "MODEL ERROR")


def _hours(value: float) -> str:
    return f"{value:,.2f}"


def _cells(saving: Saving | _Total, price: Decimal | None) -> tuple[str, ...]:
    money = (
        ()
        if price is None
        else tuple(f"{priced(each, price):,.2f}" for each in (saving.saved, saving.low, saving.high))
    )
    return (*map(_hours, (saving.ran, saving.former, saving.saved, saving.low, saving.high)), *money)


class _Total(NamedTuple):
    ran: float
    former: float
    low: float
    high: float

    @property
    def saved(self) -> float:
        return self.former - self.ran


def _total(savings: Sequence[Saving]) -> _Total:
    return _Total(*(sum(getattr(each, name) for each in savings) for name in _Total._fields))


def in_a_sentence(findings: Sequence[SavingFinding], price: Decimal | None = None) -> str:
    """The saving with both ends of its interval, and how many HPAs are not in it."""
    known = [each.saving for each in findings if each.saving is not None]
    refused = len(findings) - len(known)
    others = f"; {counted(refused, 'HPA')} {'is' if refused == 1 else 'are'} not in it" if refused else ""
    if not known:
        return (
            f"Nothing can be said of {counted(len(findings), 'HPA')}."
            if len(findings) > 1
            else f"It is not known: {findings[0].refused}."
        )
    total = _total(known)
    money = ""
    if price is not None:
        saved, low, high = (f"{priced(each, price):,.2f}" for each in (total.saved, total.low, total.high))
        money = f", {saved} ({low} to {high}) at {price}/h"
    return (
        f"{counted(len(known), 'changed HPA')} saved {_hours(total.saved)} replica-hours ({_hours(total.low)} to "
        f"{_hours(total.high)}{money}) of the {_hours(total.former)} that the former specs would have run{others}."
    )


def report(findings: Sequence[SavingFinding], price: Decimal | None = None) -> QuestionReport:
    """The report of some HPAs, the largest saving first."""
    pairs = [(each, each.saving) for each in findings if each.saving is not None]
    pairs.sort(key=lambda each: (-each[1].saved, each[0].hpa))
    head = _HEAD[:-1] + (() if price is None else (f"MONEY AT {price}/H", "FROM", "TO")) + _HEAD[-1:] + ("CHANGE",)
    rows = []
    for each, saved in pairs:
        days = f"{(saved.until_ms - saved.since_ms) / _DAY_MS:.1f}"
        rows.append(
            (str(each.hpa), days, *_cells(saved, price), signed_percent(saved.model_error, 2), ", ".join(each.changes))
        )
    if len(pairs) > 1:
        rows.append(("all of them", "", *_cells(_total([saved for _, saved in pairs]), price), "", ""))
    refused = [f"{each.hpa}: {each.refused}" for each in findings if each.saving is None]
    return QuestionReport(
        "Savings",
        "SavingsList",
        {
            "items": [_document(each) for each in findings],
            "total": _total_document([saved for _, saved in pairs]),
            "errors": list(ERRORS),
        }
        | ({} if price is None else {"price": str(price)}),
        [
            verdict(in_a_sentence(findings, price)),
            *([Section("What was saved, in replica-hours", parts=[Grid([head, *rows])])] if rows else []),
            *([Section("Not in it", parts=[Sentences(refused)])] if refused else []),
        ],
        closing=[Notes("The intervals rest on this:", ERRORS), Notes("This model cannot know:", UNKNOWN)]
        if rows
        else [],
    )


def _total_document(savings: Sequence[Saving]) -> dict[str, float]:
    total = _total(savings)
    return {**total._asdict(), "saved": total.saved}


def _document(finding: SavingFinding) -> dict[str, Any]:
    if finding.saving is None:
        return finding.hpa._asdict() | {"refused": finding.refused}
    document: dict[str, Any] = msgspec.to_builtins(finding.saving)
    for name in ("hpa", "sinceMs", "untilMs"):
        document.pop(name)
    times = {"since": rfc3339(finding.saving.since_ms), "until": rfc3339(finding.saving.until_ms)}
    return (
        finding.hpa._asdict() | times | document | {"saved": finding.saving.saved, "differences": list(finding.changes)}
    )
