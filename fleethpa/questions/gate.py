"""The gate of a pull request: manifests against those before the change, each pair on the recorded load.

Only HPAs whose spec differs are tried. What cannot be tried is named with its reason; the text for a comment has a
bound, and says what was left out for it.
"""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from fleethpa.changes.manifests import SUFFIXES, FieldValidation, Input, read_input, valid_hpa
from fleethpa.fleet.decisionfinding import recorded_among
from fleethpa.fleet.finding import Selection, matching_clusters
from fleethpa.fleet.views import FleetState, priced
from fleethpa.frame.errors import unreadable_text, usage
from fleethpa.frame.options import FailIf
from fleethpa.questions.backtestreport import first_difference, measured, minutes
from fleethpa.show.report import Notes, QuestionReport, ReportPart, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, listed, relative_change, signed_percent
from runtime.log import clean
from schemas.constraints import words_of
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.shape import Json
from streams.analysis.candidate import CandidateError, candidate
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.measures import total
from streams.analysis.revisions import differences
from streams.analysis.specpairs import SpecPair, spec_pair
from streams.history.evaluations import Evaluated, events_by_hpa
from streams.history.parallel import Faults
from streams.history.past import Past

COMMENT: Final = 65_536
"""Characters that a comment of GitHub may have."""
_HEAD: Final = ("base", "change", "difference")
_LIST: Final = 10


class ManifestChange(NamedTuple):
    """An HPA by namespace and name, before and after; None: it is not there."""

    name: tuple[str, str]
    base: Json | None
    changed: Json | None

    def __str__(self) -> str:
        return "/".join(self.name)

    @property
    def differences(self) -> list[str]:
        """The differences in words; none for an HPA that came or went."""
        if self.base is None or self.changed is None:
            return []
        return differences(self.base["spec"], self.changed["spec"])


class GatedPair(NamedTuple):
    """A changed HPA that was tried. `failed`: the conditions that it meets."""

    pair: SpecPair
    changes: list[str]
    failed: list[str]


class GateFindings(NamedTuple):
    """The findings of the gate. `same`: HPAs without a change of their spec; `untried`: name → why."""

    base: str
    tried: list[GatedPair]
    untried: dict[str, str]
    added: list[str]
    removed: list[str]
    same: int
    price: Decimal | None

    @property
    def failed(self) -> list[str]:
        """The conditions that are met, each with its HPA."""
        return [f"{each.pair.hpa}: {text}" for each in self.tried for text in each.failed]


# --- which HPAs change ------------------------------------------------------------------------------------------------


@contextmanager
def base_paths(base: str, files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Where the manifests before the change are: a folder or file as it is, else `files` as a git revision has them.

    Raises CommandError: git has no such revision, or cannot be asked (exit 2).
    """
    if Path(base).exists():
        yield (base,)
        return
    with TemporaryDirectory(prefix="fleethpa-base-") as folder:
        paths = [_checked_out(base, Path(file), Path(folder, str(at))) for at, file in enumerate(files)]
        yield tuple(str(path) for path in paths if path is not None)


def _checked_out(revision: str, path: Path, into: Path) -> Path | None:
    """Write a file, or a folder's own manifests, as a revision has them; None: it has none of them."""
    if revision.startswith("-") or str(path) == "-":
        raise usage(f"--base {revision} with -f {path}", cause="A revision is compared with files of a git repository.")
    place = path if path.is_dir() else path.parent
    _git(place, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", what=f"--base {revision}")
    into.mkdir()
    names = _git(place, "ls-tree", "--name-only", "-z", revision, "./").decode(errors="replace").split("\0")
    wanted = [Path(name).name for name in names if name and (path.is_dir() or Path(name).name == path.name)]
    kept = [name for name in wanted if Path(name).suffix in SUFFIXES or not path.is_dir()]
    for name in kept:
        (into / name).write_bytes(_git(place, "show", f"{revision}:./{name}"))
    return into if kept else None


def _git(place: Path, *words: str, what: str = "git") -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(place), *words], capture_output=True, check=False)
    except OSError as error:
        raise usage(f"{what}: git cannot be run", cause=unreadable_text(error)) from error
    if done.returncode:
        cause = done.stderr.decode(errors="replace").strip() or "It is neither a folder nor a revision that git knows."
        step = "git fetch origin BRANCH (a shallow checkout has one revision only), or --base DIR"
        raise usage(f"{what} cannot be read from the repository at {place}", cause=cause, next_step=step)
    return done.stdout


def changes(
    files: Sequence[str], base: str, validate: FieldValidation, namespace: str
) -> tuple[list[ManifestChange], Input]:
    """Return every HPA of the manifests and of those before the change, by name, and what was read.

    Raises CommandError: manifests cannot be read or are not valid (exit 2).
    """
    read = read_input(tuple(files), validate)
    with base_paths(base, files) as paths:
        before = read_input(paths, "ignore") if paths else Input()
        bodies = {name: [body, None] for name, body in _by_name(before, namespace)}
    for name, body in _by_name(read, namespace):
        bodies.setdefault(name, [None, None])[1] = body
    return [ManifestChange(name, *bodies[name]) for name in sorted(bodies)], read


def _by_name(read: Input, namespace: str) -> Iterator[tuple[tuple[str, str], Json]]:
    for manifest in read.hpas:
        body = valid_hpa(manifest, namespace)
        yield (body["metadata"]["namespace"], body["metadata"]["name"]), body


# --- what the changes do ----------------------------------------------------------------------------------------------


async def gate(
    past: Past,
    state: FleetState,
    changes: Sequence[ManifestChange],
    selection: Selection,
    window: tuple[int, int],
    gates: Sequence[FailIf],
    faults: Faults,
) -> tuple[list[GatedPair], dict[str, str]]:
    """Try each changed HPA in every cluster that has it; and say why what is not tried is not.

    Raises CommandError: a glob of `-C` matches no cluster of the recording (exit 4), so that nothing would be tried.
    """
    matching_clusters(state, selection.clusters)
    where = f" in {', '.join(selection.clusters)}" if selection.clusters else ""
    by_hpa: dict[HpaId, ManifestChange] = {}
    untried: dict[str, str] = {}
    for change in changes:
        ids = [id_ for id_ in state.hpas if id_[1:] == change.name and selection.cluster_matches(id_.cluster)]
        by_hpa |= {id_: change for id_ in ids if id_.cluster != FLEET}
        if not ids:
            untried[str(change)] = f"the recording has no HPA of this name{where}"
    tried = []
    async with aclosing(events_by_hpa(past, set(by_hpa), window)) as parts:
        async for events in parts:
            for hpa in events:
                with faults.of(hpa):
                    inputs = [event.inputs for event in events[hpa] if isinstance(event, Evaluated)]
                    try:
                        tried.append(_pair(hpa, by_hpa[hpa], inputs, gates))
                    except CandidateError as error:
                        untried[str(hpa)] = str(error).removeprefix(f"{hpa}: ")
    recorded = await recorded_among(past, (each.pair.first.decision for each in tried if each.pair.first is not None))
    named = [
        each
        if (first := each.pair.first) is None
        else each._replace(pair=structs.replace(each.pair, first=first.among(recorded)))
        for each in tried
    ]
    return sorted(named, key=lambda each: each.pair.hpa), dict(sorted(untried.items()))


def _pair(hpa: HpaId, change: ManifestChange, inputs: Sequence[Any], gates: Sequence[FailIf]) -> GatedPair:
    assert change.base is not None
    assert change.changed is not None
    base, changed = candidate(hpa, change.base["spec"]), candidate(hpa, change.changed["spec"])
    pair = spec_pair(hpa, inputs, base, changed)
    return GatedPair(pair, change.differences, [each.text for each in gates if each.holds(pair.base, pair.changed)])


# --- words ------------------------------------------------------------------------------------------------------------


def _first_difference(pair: SpecPair) -> str:
    return first_difference(pair.first, "the base", "the change")


def limits_met(pair: SpecPair) -> list[str]:
    """For how long each constraint acted, before and after, where that differs."""
    names = sorted(pair.base_limits.keys() | pair.changed_limits.keys())
    spans = {
        name: (minutes(pair.base_limits.get(name, 0)), minutes(pair.changed_limits.get(name, 0))) for name in names
    }
    return [f"{words_of(name)} {was} → {now}" for name, (was, now) in spans.items() if was != now]


def _model(pair: SpecPair) -> str:
    return signed_percent(pair.model_error)


def summary(findings: GateFindings) -> str:
    """The verdict in a sentence."""
    tried = findings.tried
    changed = len(tried) + len(findings.untried)
    what = (
        f"{counted(changed, 'HPA')} of {changed + findings.same + len(findings.added):,} changed since {findings.base}"
    )
    if not tried:
        return f"{what}; none of them could be tried." if changed else f"No HPA changed since {findings.base}."
    was, now = total(each.pair.base for each in tried), total(each.pair.changed for each in tried)
    hours = now.replica_hours - was.replica_hours
    error = sum(abs(each.pair.model_error) * each.pair.recorded.replica_hours for each in tried)
    money = "" if findings.price is None else f", {priced(hours, findings.price):+,.2f} at {findings.price}/h"
    return (
        f"{what}: on the recorded load {hours:+,.2f} replica-hours (model error ±{error:,.2f}{money}); "
        f"time above target {minutes(was.above_target_minutes)} → {minutes(now.above_target_minutes)}."
    )


def report(findings: GateFindings) -> QuestionReport:
    """The report for terminal, page and machine formats."""
    sections = [verdict(summary(findings), "red" if findings.failed else "bold")]
    for each in findings.tried:
        pair = each.pair
        facts = [f"changed: {', '.join(each.changes)}", *_facts(pair)]
        parts: list[ReportPart] = [Sentences(facts), measured(pair.base, pair.changed, ("", *_HEAD))]
        about = f"{rfc3339(pair.since_ms)} … {rfc3339(pair.until_ms)}   {pair.evaluations:,} evaluations"
        failed = [Sentences([f"FAILED: {text}" for text in each.failed], "red")] if each.failed else []
        sections.append(Section(str(pair.hpa), about, [*failed, *parts]))
    others = _others(findings)
    return QuestionReport(
        "Gate",
        "GateReport",
        _document(findings),
        sections,
        [Section(parts=[Notes("Not tried:", others)])] if others else [],
        [Notes("This model cannot know:", UNKNOWN)] if findings.tried else [],
    )


def _facts(pair: SpecPair) -> list[str]:
    met = limits_met(pair)
    return [
        f"limits met: {'; '.join(met)}" if met else "limits met: the same",
        _first_difference(pair),
        f"the specs that ran, in this model: {_model(pair)} replica-hours against what ran",
    ]


def _others(findings: GateFindings) -> list[str]:
    return [
        *(f"{name}: {why}" for name, why in findings.untried.items()),
        *([f"new, without a past: {listed(findings.added, _LIST)}"] if findings.added else []),
        *([f"removed: {listed(findings.removed, _LIST)}"] if findings.removed else []),
    ]


def _document(findings: GateFindings) -> dict[str, Any]:
    def item(each: GatedPair) -> dict[str, Any]:
        pair = each.pair
        return {
            **pair.hpa._asdict(),
            "since": rfc3339(pair.since_ms),
            "until": rfc3339(pair.until_ms),
            "evaluations": pair.evaluations,
            "changes": each.changes,
            "base": pair.base,
            "changed": pair.changed,
            "recorded": pair.recorded,
            "modelError": pair.model_error,
            "baseLimits": pair.base_limits,
            "changedLimits": pair.changed_limits,
            "firstDifference": _first_difference(pair),
            "failed": each.failed,
        }

    document: dict[str, Any] = msgspec.to_builtins(
        {
            "base": findings.base,
            "items": [item(each) for each in findings.tried],
            "untried": findings.untried,
            "added": findings.added,
            "removed": findings.removed,
            "unchanged": findings.same,
            "failed": findings.failed,
        }
    )
    return document


# --- a comment --------------------------------------------------------------------------------------------------------


def markdown(findings: GateFindings, most: int = COMMENT) -> str:
    """The report as a comment of at most `most` characters; what does not fit is left out, and named by number."""
    verdict = "FAILED" if findings.failed else "nothing tried" if findings.untried and not findings.tried else "passed"
    head = [f"### fleethpa: {verdict}", "", _text(summary(findings)), ""]
    head += [*(f"- **FAILED** {_text(each)}" for each in findings.failed[:_LIST]), *_more(len(findings.failed) - _LIST)]
    others = [f"- not tried: {_text(each)}" for each in _others(findings)]
    tail = [*others[:_LIST], *_more(len(others) - _LIST)]
    tail += ["", "The load is the recorded one, divided over the pods of each spec. This model cannot know: "]
    tail += [f"- {text}" for text in UNKNOWN]
    # The largest changes of cost first: they are what must not be left out.
    tried = sorted(findings.tried, key=lambda each: (not each.failed, -abs(_hours(each)), each.pair.hpa))
    rows, details = [_row(each) for each in tried], [_details(each) for each in tried]
    count = len(rows)

    def lines(kept: int, shown: int) -> list[str]:
        left = [*_table(rows[:kept], count - kept), *(line for each in details[:shown] for line in each)]
        hidden = f"The details of {counted(count - shown, 'HPA')} are left out: `-o json` has all."
        return [*head, *left, *(["", hidden] if shown < count else []), *tail]

    def most_that_fit(made: Callable[[int], list[str]]) -> int:
        """The largest number with which the text is short enough; -1: it is too long with any."""
        return bisect_left(range(count + 1), True, key=lambda number: not _fits(made(number), most)) - 1

    if _fits(whole := lines(count, count), most):
        return "\n".join(whole) + "\n"
    shown = most_that_fit(lambda number: lines(count, number))
    kept = count if shown >= 0 else most_that_fit(lambda number: lines(number, 0))
    if kept < 0:
        return "\n".join([*head[:3], "", "Everything else is left out, as it is too long: `-o json` has all."])[:most]
    return "\n".join(lines(kept, max(0, shown))) + "\n"


def _fits(lines: Sequence[str], most: int) -> bool:
    return sum(len(line) + 1 for line in lines) <= most


def _more(count: int) -> list[str]:
    return [f"- and {count} more: `-o json` has all"] if count > 0 else []


def _hours(each: GatedPair) -> float:
    return each.pair.changed.replica_hours - each.pair.base.replica_hours


def _table(rows: Sequence[str], left: int) -> list[str]:
    if not rows and not left:
        return []
    head = ["| HPA | replica-hours | above target | worst overload | at maxReplicas | model error |"]
    head.append("|---|--:|--:|--:|--:|--:|")
    more = [f"| {counted(left, 'further HPA')} left out, with smaller changes of cost | | | | | |"] if left else []
    return ["", *head, *rows, *more, ""]


def _row(each: GatedPair) -> str:
    pair = each.pair
    was, now = pair.base, pair.changed
    change = relative_change(was.replica_hours, now.replica_hours)
    share = f" ({change})" if change else ""
    cells = (
        f"{'**' if each.failed else ''}{_text(str(pair.hpa))}{'**' if each.failed else ''}",
        f"{was.replica_hours:,.2f} → {now.replica_hours:,.2f}{share}",
        f"{minutes(was.above_target_minutes)} → {minutes(now.above_target_minutes)}",
        f"{was.worst_overload:.2f} → {now.worst_overload:.2f}",
        f"{minutes(was.at_max_minutes)} → {minutes(now.at_max_minutes)}",
        _model(pair),
    )
    return f"| {' | '.join(cells)} |"


def _details(each: GatedPair) -> list[str]:
    pair = each.pair
    return [
        f"- {_text(str(pair.hpa))}: {_text(', '.join(each.changes))}",
        *(f"  - {_text(text)}" for text in _facts(pair)),
    ]


_ESCAPED: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;", "@": "&#64;", "[": "&#91;", "*": "&#42;"}
    | {"_": "&#95;", "#": "&#35;", "~": "&#126;", "\\": "&#92;", "!": "&#33;"}
)


def _text(text: str) -> str:
    """A text as it is, whatever is in it: no mention, link, image, table cell or markup comes of it."""
    return clean(text).translate(_ESCAPED).replace("://", ":&#47;/")
