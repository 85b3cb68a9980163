"""`fleethpa limits test`: fleethpa's own limits, tried on the recorded past."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click
import msgspec

from fleethpa.changes.capacitygroups import read_capacity_group
from fleethpa.changes.settings import Changes, is_manifest, parse_changes, setting_fields, settings_in
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import matching_clusters, not_evaluated
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, usage
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.questions.backtestreport import minutes
from fleethpa.questions.ceilings import ceiling_report, tested_ceiling
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted
from schemas.constraints import words_of
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SETTING_NAMES, ClusterSettings, SettingsSet
from streams.analysis.limitruns import HeldBack, LimitEffects, TriedLimits, limit_effects
from streams.attachments import ANNOTATED, LIMITS

_MEASURES: Final = {"held": ConditionMeasure("held"), "time_held": ConditionMeasure("minutes", "minutes")}
_MOST_SHOWN: Final = 20
"""HPAs that the table names; machine formats have all."""
_UNKNOWN: Final = (
    "what would have become of the replicas: a change that a limit holds was made all the same in what is recorded",
    "what an HPA in shadow would have been held back: limits bound what fleethpa writes",
)


@click.group(cls=SuggestingGroup)
def limits() -> None:
    """Try budgets and other limits on the recorded past."""


_FIELDS: Final = {field for limit in LIMITS for field in limit.settings}
_ANNOTATED: Final = {limit.annotation: limit for limit in ANNOTATED}
_NAMES: Final = [*(name for name, field in setting_fields().items() if field in _FIELDS), *_ANNOTATED]


@limits.command(
    "test",
    help=f"""Try other limits on the recorded past: what each would have held back, of which HPAs, when, and how long.

    \b
    fleethpa limits test removal-budget=30%/10m,then=hold max-step=20 --since 30d
    fleethpa limits test -f limits.yaml -C east
    fleethpa limits test -f group.yaml
    fleethpa limits test 'fleethpa.io/scale-down-block=metric=queue_depth,above=0'

    Settings and annotations: {", ".join(_NAMES)}; NAME= is without the limit, as far as the fleet's default has none.
    Those that are not named are as they were. An annotation is tried on every HPA whose spec has the metric. Reads the
    log or an archive and writes nothing.
    """,
)
@click.option(
    "-f",
    "--filename",
    "file",
    metavar="FILE",
    help="NAME: VALUE pairs as of `fleethpa settings -f`, or the manifest of a CapacityGroup (also - for it).",
)
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Only in these clusters [default: all].")
@period_options("7d")
@click.option("--fail-if", metavar="TEST", help="Exit 1 if this is true: 'held>0' (HPAs), 'time_held>30m'.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def test_limits(
    session: Session,
    /,
    file: str | None,
    changes: tuple[str, ...],
    clusters: str | None,
    period: AskedPeriod,
    fail_if: str | None,
    html: str | None,
    output: str,
) -> int:
    """Try other limits on the recorded past; its help names the settings that are limits."""
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    window = period.window(session.now_ms())
    if file is not None and (file == "-" or is_manifest(Path(file))):
        if changes or clusters:
            raise usage("a CapacityGroup is tried alone", cause="Its manifest says which clusters it is of.")
        group = read_capacity_group(file)
        result = session.run(tested_ceiling(session, group, window))
        question_report = ceiling_report(group.name, group.spec.limit, result)
        held, time_held = len(result.held), result.minutes
    else:
        texts = (*(settings_in(Path(file)) if file is not None else ()), *changes)
        parts = session.run(_tested(session, *_limits_only(texts), clusters, window))
        _check_annotated(texts, parts)
        question_report = report(texts, parts, window)
        held = len({each.hpa for part in parts for each in part.held})
        time_held = sum(each.minutes for part in parts for each in part.held)
    session.publish(question_report, output, html=html)
    nothing = SimpleNamespace(held=0, minutes=0.0)
    is_no = gate is not None and gate.holds(nothing, SimpleNamespace(held=held, minutes=time_held))
    return ANSWER_IS_NO if is_no else OK


def _limits_only(texts: tuple[str, ...]) -> tuple[Changes, dict[str, str]]:
    """Read the settings, and the annotations by name. Raises CommandError: none is given, or one of them limits no
    write or cannot be read (exit 2).
    """
    if not texts:
        raise usage(
            "limits test: nothing to try",
            cause=f"Name settings or annotations that are limits ({', '.join(_NAMES)}), or a file with -f.",
            next_step="fleethpa limits test removal-budget=30%/10m",
        )
    annotations: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        limit = _ANNOTATED.get(name)
        if limit is None:
            continue
        if name in annotations:
            raise usage(f"{name} is given twice")
        if value and (why := limit.refuses(value, None)):
            raise usage(f"{name} cannot be used", cause=why)
        annotations[name] = value
    changes = parse_changes(tuple(text for text in texts if text.partition("=")[0] not in _ANNOTATED))
    for field in (*changes.values, *changes.unset, *(field for field, _ in changes.members)):
        if field not in _FIELDS:
            wire = next(name for name, known in SETTING_NAMES.items() if known == field)
            raise usage(
                f"{wire} does not limit writes",
                cause=f"Limits are {', '.join(_NAMES)}; another spec is tried by `fleethpa backtest`.",
            )
    return changes, annotations


def _check_annotated(texts: Sequence[str], parts: Sequence[LimitEffects]) -> None:
    """Raises CommandError: no HPA could have the annotations, so that nothing would have been tried (exit 2)."""
    named = [text for text in texts if text.partition("=")[0] in _ANNOTATED]
    if named and not any(part.annotated for part in parts):
        raise usage(
            f"{', '.join(named)} is of no HPA here",
            cause="No HPA that was evaluated in this window has such a metric in its spec.",
            next_step="fleethpa get hpa -A",
        )


async def _tested(
    session: Session, changes: Changes, annotations: dict[str, str], clusters: str | None, window: tuple[int, int]
) -> list[LimitEffects]:
    async with session.past() as past:
        state = await read_state(past)
        globs = () if clusters is None else tuple(each for each in clusters.split(",") if each)
        # Of the whole fleet, also the default that clusters without such a setting of their own have.
        names = [*matching_clusters(state, globs), *([] if globs else [EVERY_CLUSTER])]
        tried = [_change_of(name, changes, state.settings.get(name, ClusterSettings())) for name in names]
        numbers = sorted({view.partition for hpa, view in state.hpas.items() if not globs or hpa.cluster in names})
        if not numbers:
            raise not_evaluated("no HPA of these clusters was evaluated in this window")
        own, only = tuple(annotations.items()), frozenset(names) if globs else frozenset()
        tasks = [TriedLimits(past, number, window, tuple(tried), own, only) for number in numbers]
        return await by_partition(session, past, limit_effects, tasks)


def _change_of(cluster: str, changes: Changes, held: ClusterSettings) -> SettingsSet:
    return SettingsSet(cluster=cluster, settings=changes.settings(held), unset=changes.unset_names(held))


# --- the report -------------------------------------------------------------------------------------------------------


def report(texts: Sequence[str], parts: Sequence[LimitEffects], window: tuple[int, int]) -> QuestionReport:
    """Make the report of what was tried, over all partitions."""
    held = sorted((each for part in parts for each in part.held), key=_by_length)
    enforced = sorted(hpa for part in parts for hpa in part.enforced)
    others = sorted(hpa for part in parts for hpa in part.others)
    until_ms = max((part.until_ms for part in parts), default=window[1])
    about = f"{rfc3339(window[0])} … {rfc3339(until_ms)}   {counted(len(enforced), 'HPA')} in enforce"
    limits_: list[tuple[str, ...]] = [("LIMIT", "HPAS", "TIMES", "HELD BACK", "LONGEST", "FIRST", "MISSING AT MOST")]
    for name, some in groupby(sorted(held, key=attrgetter("limit")), attrgetter("limit")):
        limits_.append(_row(words_of(name), list(some), is_limit=True))
    hpas: list[tuple[str, ...]] = [("HPA", "LIMIT", "TIMES", "HELD BACK", "LONGEST", "FIRST", "MISSING AT MOST")]
    hpas += [_row(each.hpa, [each]) for each in held[:_MOST_SHOWN]]
    document = {
        "tried": list(texts),
        "since": rfc3339(window[0]),
        "until": rfc3339(until_ms),
        "hpas": len(enforced),
        "notEnforced": others,
        "held": [{**_built(each), "first": rfc3339(each.first_ms)} for each in held],
    }
    sections = [Section("Limits", about, [Sentences(_verdict(texts, held, enforced, others))])]
    if held:
        sections.append(Section(parts=[Grid(limits_)]))
        sections.append(Section(parts=[Grid(hpas)]))
        if len(held) > _MOST_SHOWN:
            sections.append(Section(parts=[Notes("", (f"{len(held) - _MOST_SHOWN} further rows: -o json has all",))]))
    return QuestionReport(
        "Limits test", "LimitsReport", document, sections, closing=[Notes("This cannot know:", _UNKNOWN)]
    )


def _by_length(each: HeldBack) -> tuple[float, str, str]:
    return -each.minutes, each.hpa, each.limit


def _built(each: HeldBack) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(each)
    built.pop("firstMs")
    return built


def _row(name: str, held: Sequence[HeldBack], *, is_limit: bool = False) -> tuple[str, ...]:
    return (
        name,
        str(len(held)) if is_limit else words_of(held[0].limit),
        str(sum(each.times for each in held)),
        _lasting(sum(each.minutes for each in held)),
        _lasting(max(each.longest_minutes for each in held)),
        rfc3339(min(each.first_ms for each in held)),
        str(max(each.most_replicas for each in held)),
    )


def _lasting(held: float) -> str:
    """How long something was held back; what began with the last evaluation has no length yet."""
    return minutes(held) if held else "just began"


def _verdict(
    texts: Sequence[str], held: Sequence[HeldBack], enforced: Sequence[str], others: Sequence[str]
) -> list[str]:
    tried = ", ".join(texts)
    names = {each.hpa for each in held}
    if not enforced:
        first = "No HPA was in enforce in this window: limits bound what fleethpa writes, and it wrote nothing."
    elif not held:
        first = f"With {tried}, no limit would have held anything back."
    else:
        times = counted(sum(each.times for each in held), "time")
        first = f"With {tried}, limits would have held back {len(names):,} of {counted(len(enforced), 'HPA')}, {times}."
    return [first, *([f"{counted(len(others), 'HPA')} in shadow or off: not bounded."] if others and enforced else [])]
