"""Another spec on the recorded world: a fixed one, one that changes by the time of the week, or by a seasonal forecast.

Its metrics are matched with the recorded answers by what they ask. What wins can be put to work as a schedule of plain
HPA settings (`fleethpa schedule`): decisions stay upstream's.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import orjson
from msgspec import Struct, structs

from schemas.codec import Weekly
from schemas.keys import HpaId
from schemas.kubernetes.hpa import metric_source
from streams.analysis.load import need
from streams.hpa.autoscaler import Autoscaler, compile_autoscaler
from streams.hpa.observation import MetricFailure, MetricReading
from streams.state.inputs import EvaluationInputs

MOST_RULES = 48
_SLOTS_MIN = (30, 60, 120, 240)
_DAY_MIN = 1440

DayFloors = tuple[int, ...]
"""minReplicas of each slot of a day."""


def season_rules(
    floor: Callable[[int], int], least: int, begin_ms: int, days: Literal[1, 7], zone: ZoneInfo
) -> list[tuple[Weekly, int]]:
    """Rules for minReplicas that are never below a forecast for the coming season.

    Slots of half an hour take the highest floor within them; equal neighbours, and days that are equal, become one
    rule. Where there are more than `MOST_RULES`, slots are longer.

    Args:
        floor: the forecast of minReplicas at a moment; it is asked once a minute.
        least: minReplicas where no rule holds; slots that need no more have none.
        begin_ms: the season begins here.
        days: 1: every day has the same rules; 7: each day of the week has its own.
        zone: of the times.
    """
    found: list[tuple[Weekly, int]] = []
    for slot_min in _SLOTS_MIN:
        found = _rules(_slots(floor, begin_ms, days, zone, slot_min), least, slot_min)
        if len(found) <= MOST_RULES:
            break
    return found


def _slots(
    floor: Callable[[int], int], begin_ms: int, days: Literal[1, 7], zone: ZoneInfo, slot_min: int
) -> dict[int, DayFloors]:
    """The highest floors of each day of the week."""
    highest: dict[int, list[int]] = {day: [0] * (_DAY_MIN // slot_min) for day in range(7)}
    begin = datetime.fromtimestamp(begin_ms // 60_000 * 60, zone)
    for minute in range(days * _DAY_MIN):
        moment = begin + timedelta(minutes=minute)  # on the clock of the zone
        at = (moment.hour * 60 + moment.minute) // slot_min
        value = floor(round(moment.timestamp() * 1000))
        for day in range(7) if days == 1 else (moment.weekday(),):
            highest[day][at] = max(highest[day][at], value)
    return {day: tuple(slots) for day, slots in highest.items()}


def _rules(by_day: dict[int, DayFloors], least: int, slot_min: int) -> list[tuple[Weekly, int]]:
    alike: dict[DayFloors, list[int]] = {}
    for day, slots in by_day.items():
        alike.setdefault(slots, []).append(day)
    found = []
    for slots, days in alike.items():
        begin = 0
        for at in range(1, len(slots) + 1):
            if at < len(slots) and slots[at] == slots[begin]:
                continue
            if slots[begin] > least:
                found.append((Weekly(frozenset(days), begin * slot_min, at * slot_min), slots[begin]))
            begin = at
    return found


_NOT_ASKED = MetricFailure("the recording holds no answer for this metric at that time")


class CandidateError(Exception):
    """The candidate cannot be tried on the recording; says why."""


class Candidate(Struct, frozen=True):
    """A spec to try for one HPA."""

    hpa: HpaId
    spec: dict[str, Any]
    autoscaler: Autoscaler
    asked: tuple[bytes, ...]
    """What each of its metrics asks for (`metric_key`)."""

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        return frozenset((metric.name, metric.target) for metric in self.autoscaler.metrics)

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with this spec in place of the recorded one."""
        return structs.replace(
            inputs,
            spec=self.spec,
            autoscaler=structs.replace(self.autoscaler, generation=inputs.generation),
            observation=structs.replace(inputs.observation, answers=self.answers(inputs)),
        )

    def answers(self, inputs: EvaluationInputs) -> tuple[MetricReading | None, ...]:
        """The recorded answers in the order of this spec's metrics."""
        observed = inputs.observation.answers
        if not observed:
            return ()
        known = {metric_key(m): a for m, a in zip(inputs.spec.get("metrics") or (), observed, strict=True)}
        return tuple(known.get(key, _NOT_ASKED) for key in self.asked)


def candidate(hpa: HpaId, spec: dict[str, Any]) -> Candidate:
    """Compile a defaulted spec. Raises CandidateError: a quantity in it cannot be read."""
    body = {"metadata": {"name": hpa.name, "namespace": hpa.namespace}, "spec": spec}
    try:
        autoscaler = compile_autoscaler(body)
    except ValueError as error:
        raise CandidateError(f"{hpa}: {error}") from error
    return Candidate(hpa, spec, autoscaler, tuple(metric_key(metric) for metric in spec.get("metrics") or ()))


def metric_key(metric: dict[str, Any]) -> bytes:
    """What a metric of a spec asks for, without its target."""
    asked = {name: value for name, value in metric_source(metric).items() if name != "target"}
    return orjson.dumps([metric["type"], asked], option=orjson.OPT_SORT_KEYS)


def check_metrics(tried: "Tried", recorded: Iterable[EvaluationInputs]) -> None:
    """See that the recording holds what the candidate asks for.

    Raises CandidateError: a metric was never asked for, or the target is another.
    """
    known: set[bytes] = set()
    targets = set()
    for inputs in recorded:
        known.update(metric_key(metric) for metric in inputs.spec.get("metrics") or ())
        targets.add((inputs.autoscaler.target_kind, inputs.autoscaler.target_name))
    own = (tried.autoscaler.target_kind, tried.autoscaler.target_name)
    if targets and own not in targets:
        was = "/".join(sorted(targets)[0])
        raise CandidateError(f"{tried.hpa} drives {was} in the recording; the candidate names {'/'.join(own)}")
    for key, metric in zip(tried.asked, tried.autoscaler.metrics, strict=True):
        if key not in known:
            raise CandidateError(
                f"{tried.hpa}: the recording holds no answers for {metric.name or metric.type}; "
                "only metrics that were recorded can be tried"
            )


class _Timed:
    """A spec that changes with the time: what no rule changes is the base's.

    `targets`: names and targets of its metrics, at any time.
    """

    def __init__(self, base: Candidate) -> None:
        self.base, self.hpa, self.autoscaler, self.asked = base, base.hpa, base.autoscaler, base.asked
        self.targets = base.targets


class TimedRule(Struct, frozen=True):
    """A spec for some times of the week."""

    times: Weekly
    tried: Candidate


class Scheduled(_Timed):
    """A spec with rules: at each moment the last rule that holds, else the base."""

    def __init__(self, base: Candidate, rules: Sequence[TimedRule], zone: ZoneInfo) -> None:
        super().__init__(base)
        self.rules, self.zone = tuple(rules), zone
        self.targets = base.targets.union(*(rule.tried.targets for rule in self.rules))
        self._known: tuple[int, Candidate] | None = None

    def at(self, now_ms: int) -> Candidate:
        minute = now_ms // 60_000
        if self._known is None or self._known[0] != minute:
            local = datetime.fromtimestamp(minute * 60, UTC).astimezone(self.zone)
            found = self.base
            for rule in self.rules:
                if rule.times.holds(local.weekday(), local.hour * 60 + local.minute):
                    found = rule.tried
            self._known = minute, found
        return self._known[1]

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with the spec of its moment."""
        return self.at(inputs.now_ms).on(inputs)


class Forecast(_Timed):
    """A spec whose minReplicas is what the load of one season ago needed from now until a new pod is ready.

    The seasonal-naive forecast: the load repeats itself. It reads only what was recorded before each moment; where
    nothing was, the spec's own minReplicas holds.
    """

    def __init__(self, base: Candidate, recorded: Sequence[EvaluationInputs], season_ms: int, lead_ms: int) -> None:
        super().__init__(base)
        self.season_ms, self.lead_ms = season_ms, min(lead_ms, season_ms)
        self._times: list[int] = []
        self._needs: list[float] = []
        for each in recorded:
            known = need(base.autoscaler, base.answers(each), each.observation.pods)
            if known is not None:
                self._times.append(each.now_ms)
                self._needs.append(known)
        self._specs: dict[int, Candidate] = {base.autoscaler.min_replicas: base}

    def floor(self, now_ms: int) -> int:
        """minReplicas of a moment."""
        least, most = self.base.autoscaler.min_replicas, self.base.autoscaler.max_replicas
        begin = bisect_left(self._times, now_ms - self.season_ms)
        end = bisect_left(self._times, min(now_ms, now_ms - self.season_ms + self.lead_ms + 1))
        return min(max([least, *map(ceil, self._needs[begin:end])]), most)

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with the floor of its moment."""
        floor = self.floor(inputs.now_ms)
        if floor not in self._specs:
            self._specs[floor] = candidate(self.hpa, self.base.spec | {"minReplicas": floor})
        return self._specs[floor].on(inputs)


Tried: TypeAlias = Candidate | Scheduled | Forecast
"""What a backtest tries: a spec, or specs that change with the time."""
