"""Schedules of central HPAs: changes of the spec by time (`Mon-Fri 07:00-20:00 minReplicas=8`).

A schedule is an annotation of its HPA. `fleethpa run scheduler` publishes the HPA again at its times, as `apply` does:
decisions stay upstream's, follow from the log alone, and `fleethpa history` names the rule. Nothing here reads a
clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Struct, structs

from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.specs import changed_spec, checked, setting_of, split
from fleethpa.changes.writing import check_writes
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, usage
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.windows import DAY_MINUTES, Dates, Window, parse_window
from streams.analysis.revisions import differences
from streams.state.hpastate import SCHEDULE_ANNOTATION

EXAMPLE: Final = "'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%'"


class ScheduleRule(NamedTuple):
    """Settings (as `--set` takes them) that hold at some times. `text`: as it was written, spaces reduced."""

    text: str
    times: Window
    settings: tuple[str, ...]


def parse_rule(text: str, option: str) -> ScheduleRule:
    """Read a rule. Raises CommandError: it is not one (exit 2)."""
    words = text.split()
    if len(words) < 3 or "=" not in words[-1]:
        raise usage(f"{option} {text!r} is not a rule", cause=f"A rule has days, times and settings: {EXAMPLE}.")
    try:
        times = parse_window(" ".join(words[:-1]))
    except ValueError as error:
        raise usage(f"{option} {text!r} is not a rule", cause=str(error)) from error
    return ScheduleRule(" ".join(words), times, tuple(words[-1].split(",")))


def parse_zone(name: str, field: str = "--time-zone") -> ZoneInfo:
    """Read the name of a time zone. Raises CommandError: this machine does not know it (exit 2)."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        cause = "Zones have names as Europe/Berlin; UTC is always known."
        raise usage(f"{field} {name} is not a time zone that is known here", cause=cause) from error


def spec_under(hpa: dict[str, Any], rule: ScheduleRule, option: str) -> dict[str, Any]:
    """An HPA's spec under a rule, checked as the API server would.

    Raises CommandError: a field is unknown, or the result is not valid (exit 2).
    """
    return checked(hpa, changed_spec(hpa["spec"], rule.settings), f"{option} {rule.text!r} on {_named(hpa)}")


def _named(hpa: dict[str, Any]) -> str:
    metadata = hpa["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


class TimedPolicy(NamedTuple):
    """Rules that change a spec at times of the day: `backtest` tries them beside the spec itself."""

    rules: Sequence[ScheduleRule] = ()
    zone: ZoneInfo | None = None

    @property
    def changes(self) -> list[str]:
        """For the report."""
        zone = "" if self.zone is None or self.zone.key == "UTC" else f" ({self.zone.key})"
        return [f"{rule.text}{zone}" for rule in self.rules]


ANNOTATION: Final = SCHEDULE_ANNOTATION
AUTHOR: Final = "scheduler"
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = DAY_MINUTES * _MINUTE_MS
_AHEAD_DAYS: Final = 366
"""How far ahead the next change is looked for."""


class ReplicaSchedule(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an HPA carries. `rules`: as they were written; the last one that holds wins. `otherwise`: the values of all
    fields that rules set, for when no rule holds.
    """

    time_zone: str
    rules: list[str]
    otherwise: list[str]

    @property
    def zone(self) -> ZoneInfo:
        """The zone of its times. Raises CommandError: it is not known here."""
        return parse_zone(self.time_zone, "timeZone")

    def parsed(self) -> list[ScheduleRule]:
        """Its rules. Raises CommandError: one is not a rule."""
        return [parse_rule(text, "rule") for text in self.rules]


def schedule_of(hpa: Json) -> ReplicaSchedule | None:
    """The schedule that an HPA carries; None: it has none. Raises CommandError: what it carries is not a schedule."""
    text = ((hpa.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=ReplicaSchedule)
    except msgspec.MsgspecError as error:
        metadata = hpa["metadata"]
        raise usage(
            f"{metadata.get('namespace')}/{metadata['name']}: annotation {ANNOTATION} is not a schedule",
            cause=str(error),
            next_step="fleethpa schedule delete, then create it again",
        ) from error


def made(hpa: Json, rules: Sequence[str], time_zone: str) -> ReplicaSchedule:
    """A schedule for an HPA; what it has now holds when no rule does. Every rule is tried on its spec.

    Raises CommandError: a rule, field, value or zone is wrong (exit 2).
    """
    parsed = parsed_rules(rules, time_zone)
    fields = dict.fromkeys(split(setting, "--rule")[0] for rule in parsed for setting in rule.settings)
    otherwise = [setting_of(hpa["spec"], field, "--rule") for field in fields]
    schedule = ReplicaSchedule(time_zone=time_zone, rules=[rule.text for rule in parsed], otherwise=otherwise)
    for rule in parsed:
        checked(hpa, changed_spec(hpa["spec"], (*otherwise, *rule.settings)), f"--rule {rule.text!r}")
    return schedule


def parsed_rules(rules: Sequence[str], time_zone: str) -> list[ScheduleRule]:
    """The rules of `--rule`; whether they fit an HPA is not looked at.

    Raises CommandError: a rule or the zone cannot be read (exit 2).
    """
    parse_zone(time_zone)
    return [parse_rule(text, "--rule") for text in rules]


def rule_at(schedule: ReplicaSchedule, now_ms: int) -> ScheduleRule | None:
    """The rule that holds at a moment; None: none does."""
    return _last_holding(schedule.parsed(), schedule.zone, now_ms)


def _last_holding(rules: Sequence[ScheduleRule], zone: ZoneInfo, at_ms: int) -> ScheduleRule | None:
    local = datetime.fromtimestamp(at_ms // 1000, zone)
    return next((rule for rule in reversed(rules) if rule.times.holds(local)), None)


def next_change_ms(schedule: ReplicaSchedule, now_ms: int) -> int | None:
    """When another rule holds, to the minute; None: not within a year."""
    rules, zone, begin_ms = schedule.parsed(), schedule.zone, now_ms // _MINUTE_MS * _MINUTE_MS
    now = _last_holding(rules, zone, begin_ms)
    marks = {0, *(minute % DAY_MINUTES for rule in rules for minute in (rule.times.begin_min, rule.times.end_min))}
    moments = _moments_ms(begin_ms, zone, sorted(marks))
    return next((at_ms for at_ms in moments if _last_holding(rules, zone, at_ms) != now), None)


def _moments_ms(begin_ms: int, zone: ZoneInfo, marks: Sequence[int]) -> Iterator[int]:
    """The moments after one at which the clock of a place shows certain minutes of the day, in their order. Where its
    clock is put forward or back, all minutes of that day: the minute at which a rule begins may be left out.
    """
    for first_ms in range(begin_ms, begin_ms + _AHEAD_DAYS * _DAY_MS, _DAY_MS):
        local = datetime.fromtimestamp(first_ms // 1000, zone)
        if local.utcoffset() == datetime.fromtimestamp((first_ms + _DAY_MS) // 1000, zone).utcoffset():
            minute = local.hour * 60 + local.minute
            steps: Iterable[int] = sorted((mark - minute - 1) % DAY_MINUTES + 1 for mark in marks)
        else:
            steps = range(1, DAY_MINUTES + 1)
        yield from (first_ms + step * _MINUTE_MS for step in steps)


def is_over(rule: ScheduleRule, zone: ZoneInfo, now_ms: int) -> bool:
    """Whether a rule never holds again: all its dates are past."""
    last = rule.times.days.last_day if isinstance(rule.times.days, Dates) else None
    # A time over midnight ends on the day after the last one.
    return last is not None and last < datetime.fromtimestamp(now_ms // 1000, zone).date() - timedelta(days=1)


def spec_at(hpa: Json, schedule: ReplicaSchedule, now_ms: int) -> Json:
    """The spec that an HPA has at a moment: fields that no rule sets are as they are.

    Raises CommandError: the rule does not fit the spec any more (exit 2).
    """
    rule = rule_at(schedule, now_ms)
    settings = (*schedule.otherwise, *(rule.settings if rule is not None else ()))
    return checked(hpa, changed_spec(hpa["spec"], settings, is_kept=True), f"schedule of {hpa['metadata']['name']}")


def check_schedule(hpa: Json) -> None:
    """See that the schedule that an HPA carries, if any, can be followed at all its times.

    Raises CommandError: it cannot be read, or a rule gives an invalid HPA.
    """
    schedule = schedule_of(hpa)
    if schedule is None:
        return
    parse_zone(schedule.time_zone, "timeZone")
    otherwise = changed_spec(hpa["spec"], tuple(schedule.otherwise), is_kept=True)
    for settings in [(), *(rule.settings for rule in schedule.parsed())]:
        checked(hpa, changed_spec(otherwise, settings), "schedule")


def with_schedule(hpa: Json, schedule: ReplicaSchedule | None, spec: Json) -> Json:
    """The object to publish: the HPA with another spec, and with a schedule or without."""
    old = hpa["metadata"].get("annotations") or {}
    annotations = {name: value for name, value in old.items() if name != ANNOTATION}
    if schedule is not None:
        annotations[ANNOTATION] = annotation_of(schedule)
    return manifest_of(hpa["metadata"] | {"annotations": annotations}, spec)


def annotation_of(schedule: ReplicaSchedule) -> str:
    """Return what an HPA carries for a schedule."""
    return msgspec.json.encode(schedule).decode()


def renewed(held: Json, body: Json) -> ReplicaSchedule | None:
    """The schedule that an HPA keeps under a manifest, whose values are then what holds when no rule does. None: it has
    no schedule, or the manifest has one of its own.

    Raises CommandError: the schedule cannot be read, or sets a field that the manifest does not have (exit 2).
    """
    schedule = schedule_of(held)
    if schedule is None or schedule_of(body) is not None:
        return None
    otherwise = [setting_of(body["spec"], split(text, "schedule")[0], "schedule") for text in schedule.otherwise]
    return structs.replace(schedule, otherwise=otherwise)


def kept_by(held: Json, body: Json, now_ms: int) -> Json:
    """A manifest that is applied over an HPA with a schedule: the schedule stays, and the manifest's values are what
    holds when no rule does. A manifest that has a schedule of its own is as it is.

    Raises CommandError: as in `renewed`.
    """
    schedule = renewed(held, body)
    return body if schedule is None else with_schedule(body, schedule, spec_at(body, schedule, now_ms))


def due(
    state: FleetState, now_ms: int, left_alone: Collection[HpaId] = ()
) -> tuple[list[PlannedRecord], list[CommandError]]:
    """Return what has to be published at a moment, and which schedules cannot be followed.

    left_alone: HPAs that another change is under way for, which a changed spec would end.
    """
    writes: list[PlannedRecord] = []
    problems: list[CommandError] = []
    for view in scheduled(state.hpas.values()):
        if view.id in left_alone:
            continue
        try:
            write = _due(view, now_ms)
            check_writes([write] if write is not None else [])
        except CommandError as problem:
            problems.append(problem)
            continue
        writes += [write] if write is not None else []
    return writes, problems


def scheduled(views: Iterable[HpaView]) -> list[HpaView]:
    """The central HPAs that carry a schedule."""
    return [view for view in views if view.origin == "central" and ANNOTATION in view.annotations]


def _due(view: HpaView, now_ms: int) -> PlannedRecord | None:
    schedule = schedule_of(view.hpa)
    assert schedule is not None
    spec = spec_at(view.hpa, schedule, now_ms)
    if semantically_equal_spec(view.spec, spec):
        return None
    rule = rule_at(schedule, now_ms)
    why = f"schedule: {rule.text if rule is not None else 'no rule holds'}"
    words = f"scheduled ({'; '.join(differences(view.spec, spec))})"
    return central_record(view.id, words, with_schedule(view.hpa, schedule, spec), AUTHOR, why, over=view)
